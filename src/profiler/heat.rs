//! Times by layer and brick, over decode steps.

use crate::model::brick::BrickId;
use crate::profiler::figures::HeatRow;

/// Sums of times by layer and brick. Adding allocates nothing.
#[derive(Debug, Clone)]
pub(super) struct Heat {
    layers: usize,
    /// `[layer][brick]`: calls and nanoseconds.
    cells: Vec<(u64, f64)>,
}

impl Heat {
    pub(super) fn new(layers: usize) -> Self {
        Self {
            layers,
            cells: vec![(0, 0.0); layers * BrickId::COUNT],
        }
    }

    #[inline]
    pub(super) fn add(&mut self, layer: usize, id: BrickId, ns: f64) {
        if let Some(cell) = self.cells.get_mut(layer * BrickId::COUNT + id as usize) {
            cell.0 += 1;
            cell.1 += ns;
        }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill((0, 0.0));
    }

    /// A row for every brick that ran in a layer, in the order they run; means over `steps` steps.
    pub(super) fn rows(&self, steps: u64) -> Vec<HeatRow> {
        if steps == 0 {
            return Vec::new();
        }
        let row = |&id: &BrickId| HeatRow {
            id,
            us: (0..self.layers)
                .map(|layer| {
                    let (calls, ns) = self.cells[layer * BrickId::COUNT + id as usize];
                    (calls > 0).then(|| ns * 1e-3 / steps as f64)
                })
                .collect(),
        };
        let ran = |row: &HeatRow| row.us.iter().any(Option::is_some);
        BrickId::ALL.iter().map(row).filter(ran).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_means_a_step_and_unknown_where_nothing_ran() {
        let mut heat = Heat::new(2);
        assert!(heat.rows(0).is_empty() && heat.rows(1).is_empty());
        heat.add(1, BrickId::QProj, 3000.0);
        heat.add(1, BrickId::QProj, 5000.0);
        heat.add(7, BrickId::QProj, 1.0);
        let rows = heat.rows(2);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].id, BrickId::QProj);
        assert_eq!(rows[0].us, [None, Some(4.0)]);
        heat.clear();
        assert!(heat.rows(2).is_empty());
    }
}
