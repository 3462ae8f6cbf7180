//! PageRank (Page, Brin et al. 1999): which nodes most roads lead to.

use super::adjacency::Adjacency;
use super::build::ExecutionGraph;
use super::node::NodeId;

/// Chance to follow an edge rather than to jump anywhere.
const DAMPING: f64 = 0.85;
/// Sum of changes at which the ranks are good. With each round the change falls to 0.85 of it or less, from at most 2:
/// it takes under 100 rounds on any graph.
const TOLERANCE: f64 = 1e-6;
/// Never more rounds than this.
const ROUNDS: usize = 100;

/// Ranks of all nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct PageRank {
    /// By node; they sum to 1.
    pub ranks: Vec<f64>,
    /// Rounds it took.
    pub rounds: usize,
    /// Whether the last round changed less than a millionth in all.
    pub converged: bool,
}

impl PageRank {
    /// Nodes by descending rank; equal ones by id.
    pub fn order(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = (0u32..).map(NodeId).take(self.ranks.len()).collect();
        nodes.sort_by(|a, b| self.ranks[b.index()].total_cmp(&self.ranks[a.index()]));
        nodes
    }
}

impl ExecutionGraph {
    /// Ranks of the nodes over edges of all kinds. O(nodes + edges) a round.
    pub fn page_rank(&self) -> PageRank {
        let nodes = self.nodes().len();
        let out = Adjacency::forward(nodes, self.edges(), |_| true);
        let mut ranks = vec![1.0 / nodes.max(1) as f64; nodes];
        let mut rounds = 0;
        let mut converged = nodes == 0;
        while !converged && rounds < ROUNDS {
            let next = round(&out, &ranks);
            let change: f64 = next.iter().zip(&ranks).map(|(a, b)| (a - b).abs()).sum();
            ranks = next;
            rounds += 1;
            converged = change < TOLERANCE;
        }
        PageRank {
            ranks,
            rounds,
            converged,
        }
    }
}

fn round(out: &Adjacency, ranks: &[f64]) -> Vec<f64> {
    let nodes = ranks.len() as f64;
    let mut next = vec![0.0; ranks.len()];
    // Who leads nowhere leads everywhere.
    let mut everywhere = 0.0;
    for node in out.nodes() {
        let rank = ranks[node.index()];
        let targets = out.of(node);
        if targets.is_empty() {
            everywhere += rank;
        }
        for target in targets {
            next[target.index()] += DAMPING * rank / targets.len() as f64;
        }
    }
    let share = (1.0 - DAMPING + DAMPING * everywhere) / nodes;
    for rank in &mut next {
        *rank += share;
    }
    next
}
