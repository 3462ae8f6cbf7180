//! Decision trees as arrays: quick to walk, and saved as they are.

use serde::{Deserialize, Serialize};

/// Marks a leaf in [`Trees::feature`].
const LEAF: u16 = u16::MAX;

/// Trees of one model. A row with `x[feature] < threshold` goes to the left child, which stands somewhere behind its
/// parent, the right child next to it. Every leaf has `outputs` values.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Trees {
    roots: Vec<u32>,
    feature: Vec<u16>,
    threshold: Vec<f32>,
    /// Left child of a node, the right one is next; of a leaf the place of its values.
    next: Vec<u32>,
    values: Vec<f32>,
    outputs: u32,
}

/// A node under construction.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Rows with `x[feature] < threshold` go left.
    Split {
        /// Column.
        feature: u16,
        /// Value.
        threshold: f32,
        /// Where it holds.
        left: Box<Node>,
        /// Where it does not, and where the value is not a number.
        right: Box<Node>,
    },
    /// Its values.
    Leaf(Vec<f32>),
}

/// Arrays that are no trees.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the model's trees are damaged: {0}")]
pub struct TreesError(&'static str);

/// The arrays of [`Trees`], as they are saved.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TreeArrays {
    /// First node of every tree.
    pub roots: Vec<u32>,
    /// Column of a node.
    pub feature: Vec<u16>,
    /// Threshold of a node.
    pub threshold: Vec<f32>,
    /// Left child, or the place of a leaf's values.
    pub next: Vec<u32>,
    /// Values of leaves.
    pub values: Vec<f32>,
    /// Values of a leaf.
    pub outputs: u32,
}

impl TreeArrays {
    /// Gives columns other places: `places[old]` is the new one. Columns beyond stay.
    pub fn move_columns(&mut self, places: &[u16]) {
        let split = |f: &&mut u16| **f != LEAF;
        for feature in self.feature.iter_mut().filter(split) {
            *feature = places
                .get(usize::from(*feature))
                .copied()
                .unwrap_or(*feature);
        }
    }
}

impl Trees {
    /// No trees yet, whose leaves will have `outputs` values.
    pub fn new(outputs: usize) -> Self {
        Self {
            outputs: outputs as u32,
            ..Self::default()
        }
    }

    /// Adds a tree. Leaves with another number of values are cut or filled with zeros.
    pub fn push(&mut self, root: &Node) {
        let at = self.reserve();
        self.roots.push(at);
        self.put(at, root);
    }

    fn reserve(&mut self) -> u32 {
        let at = self.feature.len() as u32;
        self.feature.push(LEAF);
        self.threshold.push(0.0);
        self.next.push(0);
        at
    }

    fn put(&mut self, at: u32, node: &Node) {
        let place = at as usize;
        match node {
            Node::Split {
                feature,
                threshold,
                left,
                right,
            } => {
                let (l, r) = (self.reserve(), self.reserve());
                self.feature[place] = *feature;
                self.threshold[place] = *threshold;
                self.next[place] = l;
                self.put(l, left);
                self.put(r, right);
            }
            Node::Leaf(values) => {
                self.next[place] = self.values.len() as u32;
                let values = values.iter().copied().chain(std::iter::repeat(0.0));
                self.values.extend(values.take(self.outputs as usize));
            }
        }
    }

    /// Number of trees.
    pub fn len(&self) -> usize {
        self.roots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Values of the leaf that `x` comes to in each tree. `x` must have the columns that the trees were checked for.
    pub fn leaves<'a>(&'a self, x: &'a [f32]) -> impl Iterator<Item = &'a [f32]> + 'a {
        self.roots.iter().map(move |&root| self.leaf(root, x))
    }

    fn leaf(&self, root: u32, x: &[f32]) -> &[f32] {
        let mut at = root as usize;
        loop {
            let (feature, next) = (self.feature[at], self.next[at] as usize);
            if feature == LEAF {
                return &self.values[next..next + self.outputs as usize];
            }
            let left = x[feature as usize] < self.threshold[at];
            at = next + usize::from(!left);
        }
    }

    /// The arrays, to be saved.
    pub fn arrays(&self) -> TreeArrays {
        TreeArrays {
            roots: self.roots.clone(),
            feature: self.feature.clone(),
            threshold: self.threshold.clone(),
            next: self.next.clone(),
            values: self.values.clone(),
            outputs: self.outputs,
        }
    }

    /// Trees from arrays that a file held; `columns` is the length of the rows they will see.
    ///
    /// # Errors
    /// Arrays of unequal length, a child before its parent or beyond the end, a column that does not exist, values that
    /// are missing or not finite: whatever could loop, panic or poison a prediction.
    pub fn from_arrays(a: TreeArrays, columns: usize) -> Result<Self, TreesError> {
        let nodes = a.feature.len();
        let outputs = a.outputs as usize;
        if a.threshold.len() != nodes || a.next.len() != nodes {
            return Err(TreesError("nodes are incomplete"));
        }
        if outputs == 0 || a.roots.iter().any(|&r| r as usize >= nodes) {
            return Err(TreesError("a root or the leaves are missing"));
        }
        if !a.threshold.iter().chain(&a.values).all(|v| v.is_finite()) {
            return Err(TreesError("a value is not finite"));
        }
        for at in 0..nodes {
            let next = a.next[at] as usize;
            if a.feature[at] == LEAF {
                if next
                    .checked_add(outputs)
                    .is_none_or(|end| end > a.values.len())
                {
                    return Err(TreesError("values of a leaf are missing"));
                }
            } else if usize::from(a.feature[at]) >= columns {
                return Err(TreesError("a column does not exist"));
            } else if next <= at || next + 1 >= nodes {
                return Err(TreesError("a child is not behind its parent"));
            }
        }
        Ok(Self {
            roots: a.roots,
            feature: a.feature,
            threshold: a.threshold,
            next: a.next,
            values: a.values,
            outputs: a.outputs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(depth: u32) -> impl Strategy<Value = Node> {
        let leaf = prop::collection::vec(-10.0f32..10.0, 2).prop_map(Node::Leaf);
        leaf.prop_recursive(depth, 64, 2, |inner| {
            (0u16..3, 0.0f32..1.0, inner.clone(), inner).prop_map(|(feature, threshold, l, r)| {
                Node::Split {
                    feature,
                    threshold,
                    left: Box::new(l),
                    right: Box::new(r),
                }
            })
        })
    }

    fn walk<'a>(node: &'a Node, x: &[f32]) -> &'a [f32] {
        match node {
            Node::Leaf(v) => v,
            Node::Split {
                feature,
                threshold,
                left,
                right,
            } => walk(
                if x[*feature as usize] < *threshold {
                    left
                } else {
                    right
                },
                x,
            ),
        }
    }

    proptest! {
        #[test]
        fn arrays_answer_as_the_nodes_do_and_survive_a_file(
            nodes in prop::collection::vec(node(5), 1..5),
            x in prop::collection::vec(prop::num::f32::ANY, 3),
        ) {
            let mut trees = Trees::new(2);
            nodes.iter().for_each(|n| trees.push(n));
            let expected: Vec<&[f32]> = nodes.iter().map(|n| walk(n, &x)).collect();
            prop_assert_eq!(trees.leaves(&x).collect::<Vec<_>>(), expected);
            let again = Trees::from_arrays(trees.arrays(), 3).expect("whole");
            prop_assert_eq!(again, trees);
        }

        #[test]
        fn damaged_arrays_are_refused_or_harmless(
            n in node(4),
            at in any::<prop::sample::Index>(),
            next: u32,
            feature: u16,
            threshold in prop::num::f32::ANY,
            x in prop::collection::vec(prop::num::f32::ANY, 3),
        ) {
            let mut trees = Trees::new(2);
            trees.push(&n);
            let mut a = trees.arrays();
            let at = at.index(a.feature.len());
            (a.next[at], a.feature[at], a.threshold[at]) = (next % 70, feature % 5, threshold);
            if let Ok(trees) = Trees::from_arrays(a, 3) {
                prop_assert!(trees.leaves(&x).all(|v| v.iter().all(|v| v.is_finite())));
            }
        }
    }
}
