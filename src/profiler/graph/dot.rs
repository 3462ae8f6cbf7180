//! The graph in the DOT language of graphviz.

use super::build::ExecutionGraph;
use super::node::{EdgeKind, Node};
use std::fmt::Write;

/// Nodes that graphviz lays out in bearable time.
pub const DOT_NODES: usize = 2_000;
/// Longest label, characters.
const MAX_LABEL: usize = 160;

impl ExecutionGraph {
    /// The first `max_nodes` nodes and the edges between them. What is left out is said in a node of its own. The text is at
    /// most about 1 kB a node and 120 bytes an edge.
    pub fn to_dot(&self, max_nodes: usize) -> String {
        let mut text = String::from(
            "digraph execution {\n  rankdir=LR;\n  node [fontname=\"monospace\", fontsize=10];\n",
        );
        // Writing to a String cannot fail.
        for (id, node) in self.iter().take(max_nodes) {
            let (shape, label) = (shape(node), label(node));
            let _ = writeln!(text, "  n{} [shape={shape}, label=\"{label}\"];", id.0);
        }
        for edge in self.edges() {
            if edge.from.index().max(edge.to.index()) < max_nodes {
                let (from, to, style) = (edge.from.0, edge.to.0, style(edge.kind));
                let _ = writeln!(text, "  n{from} -> n{to} [{style}];");
            }
        }
        if self.nodes().len() > max_nodes {
            let out = self.nodes().len() - max_nodes;
            let _ = writeln!(
                text,
                "  rest [shape=plaintext, label=\"{out} nodes left out\"];"
            );
        }
        text.push_str("}\n");
        text
    }
}

fn shape(node: &Node) -> &'static str {
    match node {
        Node::Function { .. } => "ellipse",
        Node::Layer { .. } => "folder",
        Node::Brick { .. } => "box",
        Node::Kernel(_) => "component",
        Node::CpuTask(_) => "cds",
        Node::Barrier { .. } => "diamond",
        Node::Transfer { .. } => "parallelogram",
        Node::AsyncTask { .. } => "octagon",
    }
}

fn style(kind: EdgeKind) -> String {
    let line = match kind {
        EdgeKind::Calls | EdgeKind::Contains | EdgeKind::Launches => "solid",
        EdgeKind::Sequence | EdgeKind::DependsOn => "dashed",
        EdgeKind::Fork | EdgeKind::Join => "dotted",
        EdgeKind::Transfer { .. } => "bold",
    };
    let label = match kind {
        EdgeKind::Transfer { bytes, direction } => format!("{} {bytes} B", direction.name()),
        _ => kind.name().to_owned(),
    };
    format!("style={line}, label=\"{label}\"")
}

fn label(node: &Node) -> String {
    let mut text = node.name();
    if let Some(ns) = node.time_ns().filter(|&ns| ns > 0) {
        text.push_str(&format!(" {:.1} us", ns as f64 * 1e-3));
    }
    let detail = node.detail();
    if !detail.is_empty() {
        text.push('\n');
        text.push_str(&detail);
    }
    escape(&text)
}

/// What stands between the quotes of a DOT string. A backslash starts an escape there, so it is doubled; other control
/// characters than the line's end have none and are shown as Rust writes them.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars().take(MAX_LABEL) {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                out.push('\\');
                out.extend(c.escape_default());
            }
            c => out.push(c),
        }
    }
    out
}
