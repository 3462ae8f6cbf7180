//! docs/src/falsification.md stays true: every number once, every test there, every state one of three.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const STATES: [&str; 3] = ["holds", "falls short", "not measurable here"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Names of all functions in a folder of Rust files.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let names = text.match_indices("fn ").map(|(at, _)| {
                let name = &text[at + 3..];
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                name[..end.unwrap_or(name.len())].to_owned()
            });
            found.extend(names);
        }
    }
}

/// Cells of the rows about criteria.
fn rows(page: &str) -> Vec<Vec<String>> {
    page.lines()
        .filter(|l| l.starts_with("| F"))
        .map(|l| {
            let cells = l.trim_matches('|').split('|');
            cells.map(|c| c.trim().to_owned()).collect()
        })
        .collect()
}

/// `F101`, or `F201 to F210`.
fn numbers(cell: &str) -> impl Iterator<Item = u32> {
    let number = |s: &str| -> u32 {
        let digits = s.trim().strip_prefix('F').expect("an F-number");
        digits.parse().expect("an F-number")
    };
    let (first, last) = cell.split_once(" to ").unwrap_or((cell, cell));
    number(first)..=number(last)
}

#[test]
fn every_criterion_is_listed_once_with_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/src/falsification.md")).expect("the page");
    let mut there = BTreeSet::new();
    for folder in ["src", "tests"] {
        functions(&root().join(folder), &mut there);
    }
    let mut listed = BTreeSet::new();
    for row in rows(&page) {
        let [criterion, _, tests, measured, state] = row.as_slice() else {
            panic!("five cells, not {row:?}");
        };
        for n in numbers(criterion) {
            assert!(listed.insert(n), "F{n} is listed twice");
        }
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "{criterion} has no test");
        for test in named {
            assert!(there.contains(test), "{criterion}: there is no test {test}");
        }
        assert!(STATES.contains(&state.as_str()), "{criterion}: {state}");
        assert!(
            !measured.is_empty() && !measured.contains('@'),
            "{criterion}: {measured}"
        );
    }
    let expected = (1..=135)
        .chain(141..=162)
        .chain(172..=175)
        .chain(201..=246)
        .chain(250..=275)
        .chain(280..=295);
    assert_eq!(listed, expected.collect());
}

#[test]
fn every_test_named_after_a_criterion_is_on_the_page() {
    let page = fs::read_to_string(root().join("docs/src/falsification.md")).expect("the page");
    let mut there = BTreeSet::new();
    for folder in ["src", "tests"] {
        functions(&root().join(folder), &mut there);
    }
    let criterion = |name: &String| {
        let digits = name.strip_prefix('f').and_then(|n| n.get(..4));
        digits.is_some_and(|d| d.ends_with('_') && d[..3].bytes().all(|b| b.is_ascii_digit()))
    };
    let listed: BTreeSet<u32> = rows(&page).iter().flat_map(|r| numbers(&r[0])).collect();
    for name in there.iter().filter(|n| criterion(n)) {
        let number: u32 = name[1..4].parse().expect("digits");
        assert!(
            listed.contains(&number),
            "{name} is of no criterion on the page"
        );
    }
}
