//! The graph and how it is recorded.

use super::node::{
    CpuTask, Direction, Edge, EdgeKind, GraphError, Kernel, MAX_ITEMS, Node, NodeId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What ran, what belongs to what, and what waited for what.
///
/// While it is recorded, scopes are opened and closed in balance; what is recorded hangs from the innermost open one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Parts")]
pub struct ExecutionGraph {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    #[serde(skip_serializing)]
    #[schemars(skip)]
    scopes: Vec<NodeId>,
}

/// A graph as in JSON.
#[derive(Deserialize, JsonSchema)]
struct Parts {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

impl TryFrom<Parts> for ExecutionGraph {
    type Error = GraphError;

    fn try_from(parts: Parts) -> Result<Self, GraphError> {
        Self::from_parts(parts.nodes, parts.edges)
    }
}

impl ExecutionGraph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// A graph of these nodes and edges, without open scopes.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`] with more than [`MAX_ITEMS`] of either, [`GraphError::NoNode`] where an edge leads nowhere.
    pub fn from_parts(nodes: Vec<Node>, edges: Vec<Edge>) -> Result<Self, GraphError> {
        if nodes.len() > MAX_ITEMS || edges.len() > MAX_ITEMS {
            return Err(GraphError::Full);
        }
        let graph = Self {
            nodes,
            edges,
            scopes: Vec::new(),
        };
        for edge in &graph.edges {
            graph.check(edge.from)?;
            graph.check(edge.to)?;
        }
        Ok(graph)
    }

    /// Nodes in the order they were added; a [`NodeId`] is an index of it.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Edges in the order they were added.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The node, if it is there.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Nodes with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0u32..).map(NodeId).zip(&self.nodes)
    }

    /// Adds a node that hangs from nothing.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn add(&mut self, node: Node) -> Result<NodeId, GraphError> {
        if self.nodes.len() >= MAX_ITEMS {
            return Err(GraphError::Full);
        }
        let id = u32::try_from(self.nodes.len()).map_err(|_| GraphError::Full)?;
        self.nodes.push(node);
        Ok(NodeId(id))
    }

    /// Adds an edge.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoNode`] and [`GraphError::Full`].
    pub fn connect(&mut self, from: NodeId, to: NodeId, kind: EdgeKind) -> Result<(), GraphError> {
        self.check(from)?;
        self.check(to)?;
        if self.edges.len() >= MAX_ITEMS {
            return Err(GraphError::Full);
        }
        self.edges.push(Edge { from, to, kind });
        Ok(())
    }

    /// Adds a node that hangs from the innermost open scope: a kernel is launched by it, a function is called by a
    /// function, all else is contained.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn record(&mut self, node: Node) -> Result<NodeId, GraphError> {
        let scope = self.scopes.last().copied();
        let parent = scope.and_then(|s| self.node(s));
        let kind = match (parent, &node) {
            (_, Node::Kernel(_)) => EdgeKind::Launches,
            (Some(Node::Function { .. }), Node::Function { .. }) => EdgeKind::Calls,
            _ => EdgeKind::Contains,
        };
        let id = self.add(node)?;
        if let Some(scope) = scope {
            self.connect(scope, id, kind)?;
        }
        Ok(id)
    }

    /// Records a node as [`Self::record`] does and opens it as a scope.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn push_scope(&mut self, node: Node) -> Result<NodeId, GraphError> {
        let id = self.record(node)?;
        self.scopes.push(id);
        Ok(id)
    }

    /// Closes the innermost open scope.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoScope`].
    pub fn pop_scope(&mut self) -> Result<NodeId, GraphError> {
        self.scopes.pop().ok_or(GraphError::NoScope)
    }

    /// Scopes that are open.
    pub fn open_scopes(&self) -> usize {
        self.scopes.len()
    }

    /// Whether every scope that was opened has been closed.
    ///
    /// # Errors
    ///
    /// [`GraphError::OpenScopes`].
    pub fn check_balanced(&self) -> Result<(), GraphError> {
        match self.scopes.len() {
            0 => Ok(()),
            open => Err(GraphError::OpenScopes(open)),
        }
    }

    /// Records a kernel, launched by the innermost open scope.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn record_kernel(&mut self, kernel: Kernel) -> Result<NodeId, GraphError> {
        self.record(Node::Kernel(kernel))
    }

    /// Records a copy of `bytes` of what is called `name`; it took `time_ns` nanoseconds, where known.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn record_transfer(
        &mut self,
        name: &str,
        bytes: u64,
        direction: Direction,
        time_ns: Option<u64>,
    ) -> Result<NodeId, GraphError> {
        self.record(Node::Transfer {
            name: name.to_owned(),
            bytes,
            direction,
            time_ns,
        })
    }

    /// Records a task of a thread.
    ///
    /// # Errors
    ///
    /// [`GraphError::Full`].
    pub fn record_task(&mut self, task: CpuTask) -> Result<NodeId, GraphError> {
        self.record(Node::CpuTask(task))
    }

    /// Removes all nodes, edges and open scopes; keeps their memory for the next recording.
    pub fn clear(&mut self) {
        self.nodes.clear();
        self.edges.clear();
        self.scopes.clear();
    }

    pub(super) fn check(&self, id: NodeId) -> Result<(), GraphError> {
        if id.index() < self.nodes.len() {
            return Ok(());
        }
        Err(GraphError::NoNode {
            id: id.0,
            nodes: self.nodes.len(),
        })
    }
}
