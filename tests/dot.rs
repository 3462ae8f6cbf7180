//! F116: graphviz, or else another parser of the DOT language, takes what the execution graph writes.

use cbtop::engine::StepKind;
use cbtop::model::brick::BrickId;
use cbtop::profiler::figures::{StepEvent, StepTrace};
use cbtop::profiler::graph::{
    DOT_NODES, Direction, EdgeKind, ExecutionGraph, Kernel, Node, from_step,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Parses the standard input and counts nodes and edges.
const COUNT: &str = "
import re, sys, pydot
graphs = pydot.graph_from_dot_data(sys.stdin.read())
assert graphs is not None and len(graphs) == 1
names = [n.get_name() for n in graphs[0].get_nodes()]
print(len([n for n in names if re.fullmatch('n[0-9]+', n)]), len(graphs[0].get_edges()))
";
const PACKAGES: [&str; 2] = ["pydot==4.0.1", "pyparsing==3.3.2"];

enum Parser {
    Graphviz,
    Pydot(PathBuf),
}

impl Parser {
    /// Graphviz where it is on the path, else a Python environment in the cache folder, made once.
    fn find() -> Result<Self, String> {
        let dot = Command::new("dot").arg("-V").stderr(Stdio::null()).status();
        if dot.is_ok_and(|s| s.success()) {
            return Ok(Self::Graphviz);
        }
        let home = || std::env::var_os("HOME").map(|h| Path::new(&h).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(home);
        let folder = cache.ok_or("no cache folder: neither XDG_CACHE_HOME nor HOME is set")?;
        let folder = folder
            .join("cbtop")
            .join(PACKAGES.join("-").replace("==", "-"));
        let python = folder.join("bin/python");
        let mut import = Command::new(&python);
        let there = import
            .args(["-c", "import pydot"])
            .stderr(Stdio::null())
            .status();
        if !there.is_ok_and(|s| s.success()) {
            run(Command::new("python3")
                .args(["-m", "venv", "--clear"])
                .arg(&folder))?;
            run(Command::new(&python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(PACKAGES))?;
        }
        Ok(Self::Pydot(python))
    }

    /// Nodes and edges of the text where the parser counts them, an error where it refuses it.
    fn parse(&self, text: &str) -> Result<Option<(usize, usize)>, String> {
        let mut command = match self {
            Self::Graphviz => Command::new("dot"),
            Self::Pydot(python) => Command::new(python),
        };
        match self {
            Self::Graphviz => command.arg("-Tcanon"),
            Self::Pydot(_) => command.args(["-c", COUNT]),
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let mut input = child.stdin.take().expect("a pipe");
        let text = text.to_owned();
        // Written beside reading, or both sides could wait for each other; a parser that gives up early closes the pipe.
        let writer = std::thread::spawn(move || drop(input.write_all(text.as_bytes())));
        let output = child.wait_with_output().map_err(|e| e.to_string())?;
        writer.join().expect("the writer ends");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(str::parse);
        match (self, numbers.next(), numbers.next()) {
            (Self::Pydot(_), Some(Ok(nodes)), Some(Ok(edges))) => Ok(Some((nodes, edges))),
            _ => Ok(None),
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    let error = || format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.success().then_some(()).ok_or_else(error)
}

/// Names that would break a careless writer.
fn hostile() -> ExecutionGraph {
    let mut graph = ExecutionGraph::new();
    let names = [
        "",
        "\"",
        "\\",
        "\\\"",
        "a\nb\r\n\tc",
        "\u{0}\u{1b}[31m",
        "{a|<b>c}",
        "<b>html</b>",
        "];\n}",
        "//x",
        "/*",
        "\\N \\G",
        "ünïcode 漢字 🦀",
        "ends with \\",
    ];
    for name in names {
        graph
            .push_scope(Node::Function {
                name: name.into(),
                file: Some(name.into()),
                line: None,
            })
            .expect("room");
        let up = graph
            .record_transfer(name, 5, Direction::H2d, None)
            .expect("room");
        let kernel = Kernel {
            name: name.into(),
            variant: name.into(),
            ..Kernel::default()
        };
        let kernel = graph.record_kernel(kernel).expect("room");
        let kind = EdgeKind::Transfer {
            bytes: 5,
            direction: Direction::H2d,
        };
        graph.connect(up, kernel, kind).expect("nodes");
    }
    graph
}

/// A step of 40 layers of four bricks.
fn step() -> ExecutionGraph {
    let bricks = [
        BrickId::AttnNorm,
        BrickId::QProj,
        BrickId::Attention,
        BrickId::DownProj,
    ];
    let events: Vec<StepEvent> = (0..160u32)
        .map(|i| StepEvent {
            id: bricks[i as usize % 4],
            layer: Some(i / 4),
            start_us: f64::from(i) * 10.0,
            work_us: 8.5,
            sync_us: 1.0,
            brick: None,
            barrier: i % 2 == 1,
        })
        .collect();
    let trace = StepTrace {
        kind: StepKind::Prefill,
        position: 63,
        tokens: 64,
        wall_us: 1_600.0,
        events,
        threads: Vec::new(),
    };
    from_step(&trace, &[]).expect("a sound trace")
}

#[test]
fn f116_dot_is_parsed_by_others() {
    let parser = match Parser::find() {
        Ok(parser) => parser,
        Err(why) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "no parser of DOT, and CI is set: {why}"
            );
            eprintln!("skipped: no parser of DOT: {why}");
            return;
        }
    };
    parser
        .parse("digraph { a -> ")
        .expect_err("the parser refuses what is not DOT");
    for graph in [ExecutionGraph::new(), hostile(), step()] {
        let text = graph.to_dot(DOT_NODES);
        let counted = parser
            .parse(&text)
            .unwrap_or_else(|e| panic!("{e}\n{text}"));
        if let Some(counted) = counted {
            assert_eq!(counted, (graph.nodes().len(), graph.edges().len()));
        }
    }
    parser
        .parse(&step().to_dot(50))
        .expect("a part of a graph is a graph");
}
