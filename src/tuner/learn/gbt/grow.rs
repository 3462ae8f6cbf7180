//! One tree, grown leaf by leaf.

use super::GbtOptions;
use super::bins::Binned;
use crate::tuner::features::Direction;
use crate::tuner::learn::tree::Node;

/// A split, its gain and the values of its two sides.
struct Split {
    column: usize,
    /// Bins up to this one go left.
    bin: u8,
    gain: f64,
    left: f64,
    right: f64,
}

/// A leaf that may still be split.
struct Open {
    rows: Vec<u32>,
    depth: u32,
    /// Its values must lie between these, for constraints of splits above.
    low: f64,
    high: f64,
    value: f64,
    split: Option<Split>,
    /// Where it is in the arena.
    at: usize,
}

enum Grown {
    Leaf(f64),
    Split {
        column: usize,
        threshold: f32,
        left: usize,
        right: usize,
    },
}

/// Sums of gradients and weights of some rows.
#[derive(Clone, Copy, Default)]
struct Sums {
    gradient: f64,
    weight: f64,
}

/// What a tree grows from.
struct Ground<'a> {
    binned: &'a Binned,
    gradients: &'a [f64],
    weights: &'a [f64],
    columns: &'a [u32],
    options: &'a GbtOptions,
}

/// Grows a tree on `rows` and `columns`; `None` if no split is worth it. Its leaves are scaled by the rate; beside it the gain
/// of every column.
pub fn tree(
    binned: &Binned,
    gradients: &[f64],
    weights: &[f64],
    rows: Vec<u32>,
    columns: &[u32],
    options: &GbtOptions,
) -> Option<(Node, Vec<f64>)> {
    let ground = Ground {
        binned,
        gradients,
        weights,
        columns,
        options,
    };
    let mut arena: Vec<Grown> = Vec::new();
    let mut gains = Vec::new();
    let root = ground.open(rows, 0, (f64::NEG_INFINITY, f64::INFINITY), &mut arena);
    let mut open = vec![root];
    let mut leaves = 1;
    while leaves < options.leaves {
        // The first of the largest: an order that does not depend on anything but the rows.
        let gain = |o: &Open| o.split.as_ref().map_or(0.0, |s| s.gain);
        let best = (0..open.len()).fold(0, |b, i| {
            if gain(&open[i]) > gain(&open[b]) {
                i
            } else {
                b
            }
        });
        if gain(&open[best]) <= 0.0 {
            break;
        }
        let leaf = open.swap_remove(best);
        let Some(split) = &leaf.split else { break };
        if gains.len() <= split.column {
            gains.resize(split.column + 1, 0.0);
        }
        gains[split.column] += split.gain;
        let at = leaf.at;
        let (column, bin) = (split.column, split.bin);
        let [left, right] = ground.divide(leaf, &mut arena);
        arena[at] = Grown::Split {
            column,
            threshold: binned.edges(column)[usize::from(bin)],
            left: left.at,
            right: right.at,
        };
        open.extend([left, right]);
        leaves += 1;
    }
    for leaf in &open {
        arena[leaf.at] = Grown::Leaf(leaf.value * options.rate);
    }
    (leaves > 1).then(|| (node(&arena, 0), gains))
}

/// Depth is bounded by that of the options, so that this may call itself.
fn node(arena: &[Grown], at: usize) -> Node {
    match &arena[at] {
        Grown::Leaf(value) => Node::Leaf(vec![*value as f32]),
        Grown::Split {
            column,
            threshold,
            left,
            right,
        } => Node::Split {
            feature: *column as u16,
            threshold: *threshold,
            left: Box::new(node(arena, *left)),
            right: Box::new(node(arena, *right)),
        },
    }
}

impl Ground<'_> {
    /// A new leaf of some rows, with the best split of them.
    fn open(
        &self,
        rows: Vec<u32>,
        depth: u32,
        (low, high): (f64, f64),
        arena: &mut Vec<Grown>,
    ) -> Open {
        let total = rows.iter().fold(Sums::default(), |s, &r| Sums {
            gradient: s.gradient + self.gradients[r as usize],
            weight: s.weight + self.weights[r as usize],
        });
        let value = self.value(total, low, high);
        let mut leaf = Open {
            rows,
            depth,
            low,
            high,
            value,
            split: None,
            at: arena.len(),
        };
        arena.push(Grown::Leaf(0.0));
        if depth < self.options.depth.min(64) {
            leaf.split = self.best(&leaf, total);
        }
        leaf
    }

    fn value(&self, s: Sums, low: f64, high: f64) -> f64 {
        let down = s.weight + self.options.l2.max(0.0);
        let best = if down > 0.0 { -s.gradient / down } else { 0.0 };
        best.clamp(low, high)
    }

    /// How far the loss falls with this value for these rows.
    fn fall(&self, s: Sums, value: f64) -> f64 {
        let down = s.weight + self.options.l2.max(0.0);
        -(s.gradient * value + 0.5 * down * value * value)
    }

    fn best(&self, leaf: &Open, total: Sums) -> Option<Split> {
        let before = self.fall(total, leaf.value);
        let mut best: Option<Split> = None;
        let mut sums = [Sums::default(); 256];
        for &column in self.columns {
            let column = column as usize;
            let edges = self.binned.edges(column).len();
            if edges == 0 {
                continue;
            }
            sums[..=edges].fill(Sums::default());
            let bins = self.binned.column(column);
            for &r in &leaf.rows {
                let s = &mut sums[usize::from(bins[r as usize])];
                s.gradient += self.gradients[r as usize];
                s.weight += self.weights[r as usize];
            }
            let mut left = Sums::default();
            for (bin, s) in sums[..edges].iter().enumerate() {
                left.gradient += s.gradient;
                left.weight += s.weight;
                let right = Sums {
                    gradient: total.gradient - left.gradient,
                    weight: total.weight - left.weight,
                };
                let Some(split) = self.split(leaf, column, bin, [left, right], before) else {
                    continue;
                };
                if best.as_ref().is_none_or(|b| split.gain > b.gain) {
                    best = Some(split);
                }
            }
        }
        best
    }

    /// The split of a column after a bin, if it may be made and brings something.
    fn split(
        &self,
        leaf: &Open,
        column: usize,
        bin: usize,
        [l, r]: [Sums; 2],
        before: f64,
    ) -> Option<Split> {
        let least = self.options.min_weight.max(1e-9);
        if l.weight < least || r.weight < least {
            return None;
        }
        let left = self.value(l, leaf.low, leaf.high);
        let right = self.value(r, leaf.low, leaf.high);
        let wrong = match self.direction(column) {
            Direction::Free => false,
            Direction::Up => left > right,
            Direction::Down => left < right,
        };
        let gain = self.fall(l, left) + self.fall(r, right) - before;
        // Less is what rounding of sums makes.
        (!wrong && gain > 1e-9).then_some(Split {
            column,
            bin: bin as u8,
            gain,
            left,
            right,
        })
    }

    fn direction(&self, column: usize) -> Direction {
        let directions = &self.options.directions;
        directions.get(column).copied().unwrap_or(Direction::Free)
    }

    /// The two leaves that a leaf becomes. Where the split's column is constrained, no value below either may cross the
    /// middle between the two.
    fn divide(&self, leaf: Open, arena: &mut Vec<Grown>) -> [Open; 2] {
        let (low, high, depth) = (leaf.low, leaf.high, leaf.depth + 1);
        let Some(split) = leaf.split else {
            return [Vec::new(), leaf.rows].map(|rows| self.open(rows, depth, (low, high), arena));
        };
        let bins = self.binned.column(split.column);
        let goes_left = |r: &u32| bins[*r as usize] <= split.bin;
        let (left, right): (Vec<u32>, Vec<u32>) = leaf.rows.into_iter().partition(goes_left);
        let middle = split.left + (split.right - split.left) / 2.0;
        let (for_left, for_right) = match self.direction(split.column) {
            Direction::Free => ((low, high), (low, high)),
            Direction::Up => ((low, middle), (middle, high)),
            Direction::Down => ((middle, high), (low, middle)),
        };
        [(left, for_left), (right, for_right)]
            .map(|(rows, bounds)| self.open(rows, depth, bounds, arena))
    }
}
