//! Columns cut into bins.

/// Rows by bin, column by column.
pub struct Binned {
    /// Per column the edges; a value is in the bin of as many edges as it reaches.
    edges: Vec<Vec<f32>>,
    /// Per column the bin of every row.
    bins: Vec<Vec<u8>>,
}

impl Binned {
    /// Cuts `x` at quantiles into at most `most` bins (2 to 255). Every row has `columns` values.
    pub fn new(x: &[&[f32]], columns: usize, most: usize) -> Self {
        let most = most.clamp(2, 255);
        let (mut edges, mut bins) = (Vec::new(), Vec::new());
        for c in 0..columns {
            let values: Vec<f32> = x
                .iter()
                .map(|row| row.get(c).copied().unwrap_or(f32::NAN))
                .collect();
            let cut = cut(&values, most);
            bins.push(values.iter().map(|v| bin(&cut, *v)).collect());
            edges.push(cut);
        }
        Self { edges, bins }
    }

    /// Edges of a column.
    pub fn edges(&self, column: usize) -> &[f32] {
        self.edges.get(column).map_or(&[], Vec::as_slice)
    }

    /// Bins of the rows in a column.
    pub fn column(&self, column: usize) -> &[u8] {
        self.bins.get(column).map_or(&[], Vec::as_slice)
    }
}

/// Trees send a value that is not a number right: it is in the last bin.
fn bin(edges: &[f32], value: f32) -> u8 {
    if value.is_nan() {
        return edges.len() as u8;
    }
    edges.partition_point(|e| *e <= value) as u8
}

fn cut(values: &[f32], most: usize) -> Vec<f32> {
    let mut sorted: Vec<f32> = values.iter().copied().filter(|v| v.is_finite()).collect();
    sorted.sort_unstable_by(f32::total_cmp);
    let mut distinct = sorted.clone();
    distinct.dedup();
    let between = |pair: &[f32]| match pair {
        // Halfway, unless rounding brings that down to the lower one.
        [low, high] => {
            let half = low + (high - low) / 2.0;
            if half > *low { half } else { *high }
        }
        _ => 0.0,
    };
    if distinct.len() <= most {
        return distinct.windows(2).map(between).collect();
    }
    let quantile = |i: usize| sorted[i * sorted.len() / most];
    let mut edges: Vec<f32> = (1..most).map(quantile).collect();
    edges.dedup();
    // An edge at the least value would leave the first bin empty.
    if edges.first() == sorted.first() {
        edges.remove(0);
    }
    edges
}
