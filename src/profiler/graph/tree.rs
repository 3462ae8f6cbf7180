//! The graph as a tree: what contains, calls or launches what.

use super::adjacency::{Adjacency, structural};
use super::build::ExecutionGraph;
use super::node::{Node, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Deeper levels are left out.
const MAX_DEPTH: usize = 64;

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TreeNode {
    /// Name, control characters escaped.
    pub label: String,
    /// What else is known, in one line, control characters escaped.
    pub detail: String,
    /// Its time, microseconds: its own, else the sum of those of its children.
    pub us: Option<f64>,
    /// Its parts, in the order they were added.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// Nodes of this tree.
    pub fn count(&self) -> usize {
        1 + self.children.iter().map(Self::count).sum::<usize>()
    }
}

impl ExecutionGraph {
    /// The tree. Several roots get one above them, named `Execution Graph`; no node gives `Empty Graph`. A node that hangs
    /// from several others shows its parts under the first only, so the tree is never larger than the graph.
    pub fn to_tree_node(&self) -> TreeNode {
        let mut roots = self.forest();
        match roots.len() {
            0 => leaf("Empty Graph"),
            1 => roots.swap_remove(0),
            _ => TreeNode {
                us: sum(&roots),
                children: roots,
                ..leaf("Execution Graph")
            },
        }
    }

    /// The tree drawn with lines, one node a line; `(empty graph)` where there is none.
    pub fn to_ascii_tree(&self) -> String {
        if self.nodes().is_empty() {
            return "(empty graph)".to_owned();
        }
        let tree = self.to_tree_node();
        let mut text = line(&tree);
        text.push('\n');
        draw(&tree.children, &mut String::new(), &mut text);
        text
    }

    fn forest(&self) -> Vec<TreeNode> {
        let rows = Adjacency::forward(self.nodes().len(), self.edges(), structural);
        let mut is_child = vec![false; self.nodes().len()];
        for edge in self.edges().iter().filter(|e| structural(e)) {
            is_child[edge.to.index()] = true;
        }
        let mut grow = Grow {
            graph: self,
            rows: &rows,
            seen: vec![false; self.nodes().len()],
        };
        let mut roots = Vec::new();
        // Nodes that contain each other in a circle have no root: the one added first stands in.
        for pass in [false, true] {
            for node in rows.nodes() {
                if !grow.seen[node.index()] && (pass || !is_child[node.index()]) {
                    roots.push(grow.node(node, 0));
                }
            }
        }
        roots
    }
}

struct Grow<'a> {
    graph: &'a ExecutionGraph,
    rows: &'a Adjacency,
    seen: Vec<bool>,
}

impl Grow<'_> {
    fn node(&mut self, id: NodeId, depth: usize) -> TreeNode {
        let node = &self.graph.nodes()[id.index()];
        let again = std::mem::replace(&mut self.seen[id.index()], true);
        let parts = self.rows.of(id);
        let mut detail = node.detail();
        let mut children = Vec::new();
        if !parts.is_empty() && (again || depth >= MAX_DEPTH) {
            detail.push_str(if again {
                " (see above)"
            } else {
                " (deeper levels left out)"
            });
            if !again {
                self.skip(id);
            }
        } else {
            children = parts
                .iter()
                .map(|&part| self.node(part, depth + 1))
                .collect();
        }
        TreeNode {
            label: clean(&node.name()),
            detail: clean(detail.trim_start()),
            us: own_us(node).or_else(|| sum(&children)),
            children,
        }
    }

    /// Marks what hangs from a node that is not shown further, or it would come up as roots.
    fn skip(&mut self, id: NodeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            for &part in self.rows.of(id) {
                if !std::mem::replace(&mut self.seen[part.index()], true) {
                    open.push(part);
                }
            }
        }
    }
}

fn own_us(node: &Node) -> Option<f64> {
    match node {
        Node::Barrier { .. } => None,
        _ => node.time_ns().map(|ns| ns as f64 * 1e-3),
    }
}

fn sum(nodes: &[TreeNode]) -> Option<f64> {
    let known = nodes.iter().filter_map(|n| n.us);
    known.fold(None, |sum, us| Some(sum.unwrap_or(0.0) + us))
}

fn leaf(label: &str) -> TreeNode {
    TreeNode {
        label: label.to_owned(),
        ..TreeNode::default()
    }
}

/// Text that cannot move a terminal's cursor.
pub(super) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn line(node: &TreeNode) -> String {
    let mut text = node.label.clone();
    if let Some(us) = node.us {
        text.push_str(&format!("  {us:.1}µs"));
    }
    if !node.detail.is_empty() {
        text.push_str(if node.us.is_some() { " " } else { "  " });
        text.push_str(&node.detail);
    }
    text
}

fn draw(children: &[TreeNode], prefix: &mut String, text: &mut String) {
    for (i, child) in children.iter().enumerate() {
        let last = i + 1 == children.len();
        text.push_str(prefix);
        text.push_str(if last { "└── " } else { "├── " });
        text.push_str(&line(child));
        text.push('\n');
        let len = prefix.len();
        prefix.push_str(if last { "    " } else { "│   " });
        draw(&child.children, prefix, text);
        prefix.truncate(len);
    }
}
