//! Where llama.cpp is, how a test is asked of it, and what its answer must say.

use super::child::{Children, Done};
use crate::commands::bench::plan::Case;
use anyhow::{Context, bail};
use serde::Deserialize;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names the Python when `--peer-python` does not.
const PYTHON_VARIABLE: &str = "CBTOP_PEER_PYTHON";
/// Measures one repetition through llama-cpp-python.
const SCRIPT: &str = include_str!("peer.py");
/// Longest part of a peer's complaint that is repeated.
const MOST_WORDS: usize = 300;

/// llama.cpp on this machine.
pub struct Peer {
    program: Program,
    children: Children,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Program {
    LlamaBench(PathBuf),
    Python(PathBuf),
}

impl Peer {
    /// Looks for a peer: the Python that the user names, else llama-bench, else a `python3` that has llama_cpp.
    ///
    /// # Errors
    /// There is none, or the one named has no llama_cpp.
    pub fn find(python: Option<&Path>) -> anyhow::Result<Self> {
        let children = Children::new()?;
        let named = python.map(Path::to_owned).or_else(|| {
            env::var_os(PYTHON_VARIABLE)
                .filter(|v| !v.is_empty())
                .map(Into::into)
        });
        let program = if let Some(python) = named {
            has_llama_cpp(&children, &python)?;
            Program::Python(python)
        } else if let Some(path) = on_path("llama-bench") {
            Program::LlamaBench(path)
        } else {
            let python = on_path("python3").unwrap_or_else(|| "python3".into());
            has_llama_cpp(&children, &python).context(
                "no llama.cpp to compare with: llama-bench is not on PATH; install llama.cpp, or `pip install \
                 llama-cpp-python` and name its Python with --peer-python",
            )?;
            Program::Python(python)
        };
        Ok(Self { program, children })
    }

    /// One warmed-up repetition: name and version of the peer, wall time in nanoseconds.
    ///
    /// # Errors
    /// The peer does not start, fails, or prints anything but the result of this test.
    pub fn measure(
        &mut self,
        file: &Path,
        case: &Case,
        warmup: bool,
    ) -> anyhow::Result<(String, u64)> {
        let (path, command) = match &self.program {
            Program::LlamaBench(path) => (path, llama_bench(path, file, case, warmup)),
            Program::Python(path) => (path, python(path, file, case, warmup)),
        };
        let name = path.display().to_string();
        let done = self.children.run(command)?;
        if !done.status.success() {
            bail!("{name} failed ({}): {}", done.status, complaint(&done));
        }
        let answer = Answer::read(&done.out).with_context(|| {
            format!(
                "{name} printed no result that can be read (an old version, or not llama.cpp's?): {}",
                complaint(&done)
            )
        })?;
        let ns = answer.of(case).with_context(|| name.clone())?;
        Ok((answer.name(), ns))
    }
}

fn has_llama_cpp(children: &Children, python: &Path) -> anyhow::Result<()> {
    let mut command = Command::new(python);
    command.args(["-c", "import llama_cpp"]);
    let done = children.run(command)?;
    if !done.status.success() {
        bail!(
            "{} cannot import llama_cpp: {}",
            python.display(),
            complaint(&done)
        );
    }
    Ok(())
}

/// Keeps the peer on the CPU, where cbtop runs.
fn on_cpu(command: &mut Command) {
    command
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("HIP_VISIBLE_DEVICES", "")
        .env("GGML_VK_VISIBLE_DEVICES", "");
}

fn llama_bench(path: &Path, file: &Path, case: &Case, warmup: bool) -> Command {
    let mut command = Command::new(path);
    let t = &case.test;
    command.arg("-m").arg(file);
    let mut flag = |name: &str, value: String| {
        command.args([name, &value]);
    };
    match (t.n_prompt, t.n_gen) {
        (p, g) if p > 0 && g > 0 => {
            flag("-p", "0".into());
            flag("-n", "0".into());
            flag("-pg", format!("{p},{g}"));
        }
        (p, g) => {
            flag("-p", p.to_string());
            flag("-n", g.to_string());
        }
    }
    // Versions that do not know a depth can still be compared without one.
    if t.n_depth > 0 {
        flag("-d", t.n_depth.to_string());
    }
    flag("-t", case.threads.to_string());
    flag("-b", case.chunk.to_string());
    flag("-ub", case.chunk.to_string());
    flag("-ctk", case.kv_type.name().into());
    flag("-ctv", case.kv_type.name().into());
    flag("-ngl", "0".into());
    flag("-r", "1".into());
    flag("-o", "json".into());
    if !warmup {
        command.arg("--no-warmup");
    }
    on_cpu(&mut command);
    command
}

fn python(path: &Path, file: &Path, case: &Case, warmup: bool) -> Command {
    let mut command = Command::new(path);
    let t = &case.test;
    command.args(["-c", SCRIPT, "--kv-type", case.kv_type.name()]);
    for (name, value) in [
        ("--prompt", t.n_prompt),
        ("--gen", t.n_gen),
        ("--depth", t.n_depth),
        ("--threads", case.threads),
        ("--chunk", case.chunk),
    ] {
        command.args([name, &value.to_string()]);
    }
    if !warmup {
        command.arg("--no-warmup");
    }
    // What begins with a dash is a file all the same.
    command.arg("--").arg(file);
    on_cpu(&mut command);
    command
}

/// One row of llama-bench's JSON, as far as it is needed.
#[derive(Debug, Deserialize)]
struct Answer {
    build: Option<String>,
    build_commit: Option<String>,
    build_number: Option<u64>,
    n_prompt: usize,
    n_gen: usize,
    n_threads: usize,
    samples_ns: Vec<u64>,
}

impl Answer {
    /// One object, or an array of one.
    fn read(text: &str) -> serde_json::Result<Self> {
        let text = text.trim();
        if text.starts_with('[') {
            return serde_json::from_str::<[Self; 1]>(text).map(|[answer]| answer);
        }
        serde_json::from_str(text)
    }

    fn name(&self) -> String {
        let plain = |s: &str| s.chars().filter(|c| !c.is_control()).take(60).collect();
        match (&self.build, self.build_number, &self.build_commit) {
            (Some(build), ..) => plain(build),
            (None, Some(number), Some(commit)) => {
                plain(&format!("llama-bench b{number} ({commit})"))
            }
            (None, None, Some(commit)) => plain(&format!("llama-bench {commit}")),
            _ => "llama-bench".into(),
        }
    }

    /// Nanoseconds, if this answers what was asked.
    fn of(&self, case: &Case) -> anyhow::Result<u64> {
        let t = &case.test;
        let asked = (t.n_prompt, t.n_gen, case.threads);
        let got = (self.n_prompt, self.n_gen, self.n_threads);
        if asked != got {
            bail!(
                "it measured another test: asked for prompt {}, generation {}, threads {}; got {}, {}, {}",
                asked.0,
                asked.1,
                asked.2,
                got.0,
                got.1,
                got.2
            );
        }
        match self.samples_ns[..] {
            [ns] if ns > 0 => Ok(ns),
            _ => bail!(
                "it gave {} times instead of one above 0",
                self.samples_ns.len()
            ),
        }
    }
}

/// The end of what the peer said, one line.
fn complaint(done: &Done) -> String {
    let last = |text: &str| {
        let line = text.lines().map(str::trim).rfind(|l| !l.is_empty())?;
        let words: String = line.chars().take(MOST_WORDS).collect();
        Some(words)
    };
    last(&done.err)
        .or_else(|| last(&done.out))
        .unwrap_or_else(|| "it printed nothing".into())
}

/// The program of this name in the folders of PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let runs = |p: &PathBuf| {
        p.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::Answer;

    const LLAMA_BENCH: &str = r#"[ { "build_commit": "abc123", "build_number": 5000, "model_filename": "m.gguf",
        "n_threads": 2, "n_prompt": 0, "n_gen": 4, "avg_ns": 7, "samples_ns": [ 7 ], "samples_ts": [ 1.5 ] } ]"#;

    #[test]
    fn llama_benchs_answer_is_read() {
        let answer = Answer::read(LLAMA_BENCH).expect("an answer");
        assert_eq!(answer.name(), "llama-bench b5000 (abc123)");
        assert_eq!(answer.samples_ns, [7]);
    }

    #[test]
    fn two_answers_or_none_are_refused() {
        let two = LLAMA_BENCH.replace(" } ]", " }, {} ]");
        for wrong in [two.as_str(), "[]", "", "| table |", "{}", "[1]"] {
            assert!(Answer::read(wrong).is_err(), "{wrong}");
        }
    }
}
