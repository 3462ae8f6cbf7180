//! `cbtop config`, and the configuration for everything that draws the dashboard.

use crate::cli::LookArgs;
use anyhow::{Context, anyhow};
use cbtop::tui::config::{Config, MAX_BYTES, show};
use cbtop::tui::{self, Options};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints the configuration in effect.
pub fn run(args: &LookArgs, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let options = options(args)?;
    out.write_all(show(&options, &Options::from_env()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// How to draw: the environment, then the configuration file, then the command line.
pub fn options(args: &LookArgs) -> anyhow::Result<Options> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty());
    let environment = Options::from_env();
    let no_colour = tui::no_colour(|name| std::env::var(name).ok());
    let options = match find(args.config.as_deref(), var) {
        Some(place) => place.read()?.apply(&environment, no_colour),
        None => environment,
    };
    Ok(with_flags(args, options))
}

/// How to draw where the environment has no say: only what the command line names.
pub fn fixed(args: &LookArgs) -> anyhow::Result<Options> {
    let options = match find(args.config.as_deref(), |_| None) {
        Some(place) => place.read()?.apply(&Options::default(), false),
        None => Options::default(),
    };
    Ok(with_flags(args, options))
}

fn with_flags(args: &LookArgs, options: Options) -> Options {
    Options {
        theme: args.theme.unwrap_or(options.theme),
        ..options
    }
}

/// A configuration file.
#[derive(Debug, PartialEq)]
struct Place {
    path: PathBuf,
    /// Whether the user named it: then it has to be there.
    named: bool,
}

/// The file that the command line names, or the environment, or the one in the usual place
/// (<https://specifications.freedesktop.org/basedir-spec/latest/>).
fn find(flag: Option<&Path>, var: impl Fn(&str) -> Option<OsString>) -> Option<Place> {
    if let Some(path) = flag
        .map(Path::to_path_buf)
        .or_else(|| var("CBTOP_CONFIG").map(PathBuf::from))
    {
        return Some(Place { path, named: true });
    }
    let base = var("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|p| p.is_absolute())
        .or_else(|| var("HOME").map(|home| Path::new(&home).join(".config")))?;
    Some(Place {
        path: base.join("cbtop").join("config.toml"),
        named: false,
    })
}

impl Place {
    /// Reads it; a file that nobody named and that is not there says nothing.
    fn read(&self) -> anyhow::Result<Config> {
        let name = self.path.display();
        let file = match File::open(&self.path) {
            Err(e) if !self.named && missing(&e) => return Ok(Config::default()),
            opened => opened.map_err(|e| anyhow!("configuration {name}: {e}"))?,
        };
        let mut bytes = Vec::new();
        // One byte more than is allowed, so that what is longer is seen to be.
        file.take(MAX_BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| anyhow!("configuration {name}: {e}"))?;
        Config::parse(&bytes).with_context(|| format!("configuration {name}"))
    }
}

fn missing(e: &std::io::Error) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_file_is_looked_for() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |k: &str| {
                let found = pairs.iter().find(|(n, _)| *n == k)?;
                Some(OsString::from(found.1))
            }
        };
        let path = |flag: Option<&str>, pairs| {
            find(flag.map(Path::new), env(pairs)).map(|p| (p.path.display().to_string(), p.named))
        };
        let all: &[(&str, &str)] = &[
            ("CBTOP_CONFIG", "/c"),
            ("XDG_CONFIG_HOME", "/x"),
            ("HOME", "/h"),
        ];
        assert_eq!(path(Some("f"), all), Some(("f".into(), true)));
        assert_eq!(path(None, all), Some(("/c".into(), true)));
        let usual = |p: &str| Some((p.to_string(), false));
        assert_eq!(
            path(None, &[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]),
            usual("/x/cbtop/config.toml")
        );
        // A relative XDG_CONFIG_HOME is to be ignored.
        assert_eq!(
            path(None, &[("XDG_CONFIG_HOME", "x"), ("HOME", "/h")]),
            usual("/h/.config/cbtop/config.toml")
        );
        assert_eq!(path(None, &[]), None);
    }
}
