//! Machines by name, from a table that is part of the program.

use super::run::Hardware;
use super::store::public::{Device, hardware};
use std::sync::LazyLock;

const TABLE: &str = include_str!("../../assets/hardware.csv");
/// Names offered for one that is not in the table.
const SUGGESTIONS: usize = 3;

/// A name that is not in the table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no hardware '{name}' is known{}; 'here' is this machine",
    did_you_mean(.similar)
)]
pub struct UnknownHardware {
    /// The name.
    pub name: String,
    /// Names like it, the likest first.
    pub similar: Vec<String>,
}

fn did_you_mean(similar: &[String]) -> String {
    match similar {
        [] => String::new(),
        some => format!("; did you mean {}?", some.join(", ")),
    }
}

/// All machines of the table; of several cards (`RTX 4090 x4`) the figures of all together.
pub fn table() -> &'static [Hardware] {
    static ENTRIES: LazyLock<Vec<Hardware>> = LazyLock::new(|| {
        let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
        let rows = reader.deserialize::<Device>().flatten();
        rows.filter_map(|device| hardware(&device)).collect()
    });
    &ENTRIES
}

/// Letters and digits in lower case, without the words that vendors put before.
fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let kept = words.filter(|w| !matches!(*w, "nvidia" | "geforce" | "amd" | "intel"));
    kept.collect()
}

/// The machine of a name; case, spaces and the vendor's name do not matter.
///
/// # Errors
/// A name that is not in the table, with those like it.
pub fn find(name: &str) -> Result<&'static Hardware, UnknownHardware> {
    let wanted = plain(name);
    let found = table().iter().find(|e| plain(&e.name) == wanted);
    found
        .filter(|_| !wanted.is_empty())
        .ok_or_else(|| UnknownHardware {
            name: name.chars().take(80).collect(),
            similar: similar(&wanted),
        })
}

fn similar(wanted: &str) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let wanted: String = wanted.chars().take(80).collect();
    let likeness = |e: &'static Hardware| {
        let name = plain(&e.name);
        let whole = f64::from(u8::from(name.contains(&wanted)));
        let score = strsim::jaro_winkler(&wanted, &name) + whole;
        // Of equally like ones the shorter is more likely meant.
        (score - name.len() as f64 * 1e-3, e)
    };
    let mut all: Vec<_> = table().iter().map(likeness).collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let near = all.into_iter().filter(|(score, _)| *score > 0.7);
    near.take(SUGGESTIONS)
        .map(|(_, e)| e.name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_found_by_name() {
        assert_eq!(table().len(), 104);
        let e = find("rtx4090").expect("there");
        assert_eq!(e.name, "RTX 4090");
        assert_eq!(e.mem_gbps, Some(1008.0));
        assert_eq!(e.gflops, Some(82_600.0));
        assert_eq!(e.memory_gb, Some(24.0));
        assert_eq!(find("NVIDIA GeForce RTX 4090"), Ok(e));
        assert_eq!(find("RTX 4090 x4").expect("there").memory_gb, Some(96.0));
        assert_eq!(find("Ryzen 7950X").expect("there").mem_gbps, None);
    }

    #[test]
    fn f077_hardware_never_seen_is_refused_with_what_was_meant() {
        let e = find("RTX 4091").expect_err("no such card");
        assert_eq!(e.similar.first().map(String::as_str), Some("RTX 4090"));
        assert!(e.to_string().contains("did you mean RTX 4090"));
        assert!(
            find("m2 ultra")
                .expect_err("longer")
                .similar
                .contains(&"Apple M2 Ultra".into())
        );
        assert!(find("").expect_err("nothing").similar.is_empty());
        assert!(find("\u{1b}[31m").is_err());
        assert!(find(&"x".repeat(100_000)).is_err());
    }
}
