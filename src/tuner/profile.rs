//! A profile: the settings in force in a file, to start with them again.

#[cfg(test)]
mod tests;

use super::store::write_whole;
use crate::engine::knobs::{KNOBS, Setting, Setup, knob};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Version of the format.
pub const VERSION: i64 = 1;
/// A larger file is no profile, bytes.
const MOST: u64 = 64 << 10;
/// How every profile begins.
const HEAD: &str = "# cbtop profile";

/// A profile that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file or its folder.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What is in the file.
    #[error("{path} is no profile: {what}; cbtop --recommend --headless --save writes one")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A newer cbtop wrote it.
    #[error(
        "{path} has version {found} of the format, this cbtop knows {VERSION}: use a newer cbtop"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// A knob that does not exist, a value that it does not have, or values that do not go together.
    #[error("{path}: {what}")]
    Setting {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Something else is there.
    #[error("{path} is there and is no profile; give another name, or --force to replace it")]
    NotReplaced {
        /// The file.
        path: PathBuf,
    },
}

/// Settings and how they came about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// Knobs and their values.
    pub settings: Vec<Setting>,
    /// What was measured, in lines, for people: read back it is not.
    pub comment: Vec<String>,
}

impl Profile {
    /// The settings of a setup.
    pub fn of(setup: &Setup, comment: Vec<String>) -> Self {
        Self {
            settings: setup.settings(),
            comment,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`ProfileError`]; each is one line.
    pub fn read(path: &Path) -> Result<Self, ProfileError> {
        let text = read_text(path)?;
        let content = |what: String| ProfileError::Content {
            path: path.into(),
            what,
        };
        let table = DeTable::parse(&text).map_err(|e| content(one_line(e.message())))?;
        let table = table.get_ref();
        let whole = |v: &DeValue<'_>| match v {
            DeValue::Integer(i) if i.radix() == 10 => i.as_str().parse::<i64>().ok(),
            _ => None,
        };
        match table.get("version").and_then(|v| whole(v.get_ref())) {
            Some(VERSION) => {}
            Some(found) => {
                return Err(ProfileError::Version {
                    path: path.into(),
                    found,
                });
            }
            None => return Err(content("it has no version".into())),
        }
        let known = ["version", "settings"];
        let mut keys = table.keys().map(|k| k.get_ref().as_ref());
        if let Some(key) = keys.find(|k| !known.contains(k)) {
            return Err(content(format!("it has a key '{}'", one_line(key))));
        }
        let Some(settings) = table.get("settings").and_then(|s| s.get_ref().as_table()) else {
            return Err(content("it has no settings".into()));
        };
        let mut found = BTreeMap::new();
        for (name, value) in settings {
            let name = name.get_ref().as_ref();
            let setting = |what: String| ProfileError::Setting {
                path: path.into(),
                what,
            };
            if knob(name).is_none() {
                let names: Vec<_> = KNOBS.iter().map(|k| k.name).collect();
                return Err(setting(format!(
                    "there is no knob '{}'; these are: {}",
                    one_line(name),
                    names.join(", ")
                )));
            }
            let value = match value.get_ref() {
                DeValue::String(s) => s.to_string(),
                v => match whole(v) {
                    Some(n) => n.to_string(),
                    None => {
                        return Err(setting(format!(
                            "the value of {name} is no text and no number"
                        )));
                    }
                },
            };
            found.insert(name.to_owned(), value);
        }
        // In the order of the table, whatever the file's.
        let in_order = KNOBS.iter().filter_map(|k| {
            let value = found.get(k.name)?;
            Some(Setting::new(k.name, value.clone()))
        });
        Ok(Self {
            settings: in_order.collect(),
            comment: Vec::new(),
        })
    }

    /// A setup with these settings; `path` is where they are from.
    ///
    /// # Errors
    /// [`ProfileError::Setting`].
    pub fn apply(&self, setup: &Setup, path: &Path) -> Result<Setup, ProfileError> {
        setup
            .with(&self.settings)
            .map_err(|what| ProfileError::Setting {
                path: path.into(),
                what,
            })
    }

    /// Writes it, whole or not at all. What is there is replaced where it is a profile, or with `force`.
    ///
    /// # Errors
    /// [`ProfileError::NotReplaced`], [`ProfileError::Io`].
    pub fn write(&self, path: &Path, force: bool) -> Result<(), ProfileError> {
        check_target(path, force)?;
        write_whole(path, |out| out.write_all(self.to_string().as_bytes())).map_err(|source| {
            ProfileError::Io {
                path: path.into(),
                source,
            }
        })
    }
}

/// Whether a profile may go to a path: nothing is there or a profile is, or `force`; and its folder is there.
///
/// # Errors
/// [`ProfileError::NotReplaced`], [`ProfileError::Io`].
pub fn check_target(path: &Path, force: bool) -> Result<(), ProfileError> {
    let io = |source| ProfileError::Io {
        path: path.into(),
        source,
    };
    let replaced = match std::fs::metadata(path) {
        Ok(meta) => {
            let ours = || read_text(path).is_ok_and(|t| t.is_empty() || t.starts_with(HEAD));
            meta.is_file() && (force || ours())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
        Err(e) => return Err(io(e)),
    };
    if !replaced {
        return Err(ProfileError::NotReplaced { path: path.into() });
    }
    match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(folder) => std::fs::metadata(folder).map(|_| ()).map_err(io),
        None => Ok(()),
    }
}

/// The beginning of what a file put into a message, in one line.
fn one_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars()
        .take(80)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

fn read_text(path: &Path) -> Result<String, ProfileError> {
    let io = |source| ProfileError::Io {
        path: path.into(),
        source,
    };
    let content = |what: &str| ProfileError::Content {
        path: path.into(),
        what: what.into(),
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if !meta.is_file() {
        return Err(content("it is no file"));
    }
    if meta.len() > MOST {
        return Err(content("it is too large"));
    }
    let bytes = std::fs::read(path).map_err(io)?;
    String::from_utf8(bytes).map_err(|_| content("it is no text"))
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{HEAD}")?;
        for line in &self.comment {
            writeln!(f, "# {}", line.replace(char::is_control, " "))?;
        }
        writeln!(f, "version = {VERSION}\n\n[settings]")?;
        for Setting { knob, value } in &self.settings {
            writeln!(f, "{knob} = {}", quoted(value))?;
        }
        Ok(())
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The flags of llama.cpp that do what settings do, and the settings for which it has none.
pub fn llama_cpp(settings: &[Setting]) -> (Vec<String>, Vec<String>) {
    let (mut flags, mut without) = (Vec::new(), Vec::new());
    for s in settings {
        let Some(knob) = knob(&s.knob) else { continue };
        match (knob.llama_cpp)(&s.value) {
            Some(flag) => flags.push(flag),
            None => without.push(format!("{} {}", s.knob, s.value)),
        }
    }
    (flags, without)
}
