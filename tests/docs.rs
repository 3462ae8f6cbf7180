//! What README and book say holds: commands run as written and print what stands there, links lead somewhere, and what
//! can run is named.

use cbtop::engine::cpu::KernelSet;
use cbtop::engine::{Config, KvType};
use cbtop::model::arch::ARCHITECTURES;
use cbtop::quant;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README, the other texts at the root, and the book's pages.
fn pages() -> Vec<PathBuf> {
    let markdown = |folder: PathBuf| {
        fs::read_dir(folder)
            .expect("a folder")
            .map(|e| e.expect("an entry").path())
            .filter(|p| p.extension().is_some_and(|e| e == "md"))
    };
    let mut pages: Vec<_> = markdown(root().into())
        .chain(markdown(root().join("docs/src")))
        .collect();
    pages.sort();
    assert!(pages.len() > 5);
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A command and the lines that it prints; a line `...` stands for any number of lines, at a line's end for its rest.
struct Example {
    command: String,
    output: Vec<String>,
}

/// The examples in blocks marked `console`.
fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside {
            match (line.strip_prefix("$ "), examples.last_mut()) {
                (Some(command), _) => examples.push(Example {
                    command: command.into(),
                    output: Vec::new(),
                }),
                (None, Some(example)) => example.output.push(line.into()),
                (None, None) => panic!("output without a command: {line}"),
            }
        }
    }
    examples
}

/// Words, those in double quotes kept together.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (i, part) in command.split('"').enumerate() {
        let mut pieces = part.split(if i % 2 == 0 { ' ' } else { '\0' });
        if let (Some(word), Some(piece)) = (words.last_mut(), pieces.next()) {
            word.push_str(piece);
        }
        words.extend(pieces.map(str::to_owned));
    }
    words.retain(|w| !w.is_empty());
    words
}

fn is_like(want: &[String], got: &[&str]) -> bool {
    match want.split_first() {
        None => got.is_empty(),
        Some((w, rest)) if w == "..." => (0..=got.len()).any(|n| is_like(rest, &got[n..])),
        Some((w, rest)) => got.split_first().is_some_and(|(g, others)| {
            let same = match w.strip_suffix("...") {
                Some(start) => g.starts_with(start),
                None => g.trim_end() == w.trim_end(),
            };
            same && is_like(rest, others)
        }),
    }
}

#[test]
fn examples_print_what_stands_there() {
    let mut run = 0;
    for page in pages() {
        for example in examples(&read(&page)) {
            let words = words(&example.command);
            let (program, args) = words.split_first().expect("a command");
            assert_eq!(program, "cbtop", "{}", page.display());
            let done = Command::new(env!("CARGO_BIN_EXE_cbtop"))
                .args(args)
                .current_dir(root())
                .env("LC_ALL", "C.UTF-8")
                .stdin(Stdio::null())
                .output()
                .expect("runs");
            let out = String::from_utf8_lossy(if done.status.success() {
                &done.stdout
            } else {
                &done.stderr
            });
            let got: Vec<&str> = out.lines().collect();
            assert!(
                is_like(&example.output, &got),
                "{}: `{}` prints\n{out}",
                page.display(),
                example.command
            );
            run += 1;
        }
    }
    assert!(run >= 5, "{run} examples");
}

#[test]
fn links_lead_somewhere() {
    for page in pages() {
        for link in read(&page).split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().expect("a folder").join(target);
            assert!(path.exists(), "{}: {target}", page.display());
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = read(&root().join("docs/src/SUMMARY.md"));
    for page in pages() {
        let name = page.file_name().expect("a name").to_string_lossy();
        if page.starts_with(root().join("docs/src")) && name != "SUMMARY.md" {
            assert!(summary.contains(&format!("]({name})")), "{name}");
        }
    }
}

#[test]
fn readme_names_what_can_run() {
    let readme = read(&root().join("README.md"));
    for arch in ARCHITECTURES {
        assert!(
            readme.contains(&format!("`{}`", arch.name)),
            "{}",
            arch.name
        );
    }
    for ty in quant::supported() {
        let name = ty.name();
        let named = readme.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        assert!(named.into_iter().any(|w| w == name), "{name}");
    }
    for set in [KernelSet::Scalar, KernelSet::Avx2, KernelSet::Avx512] {
        let commands = read(&root().join("docs/src/commands.md"));
        assert!(commands.contains(&format!("`{}`", set.name())), "{set}");
    }
}

#[test]
fn defaults_are_as_the_book_says() {
    let commands = read(&root().join("docs/src/commands.md"));
    let config = Config::for_context(1 << 20);
    assert!(commands.contains(&format!("at most {}", config.n_ctx)));
    assert!(commands.contains(&format!("`--chunk` {}", config.chunk)));
    assert_eq!(config.kv_type, KvType::F16);
    assert!(commands.contains("`--kv-type` f16"));
}
