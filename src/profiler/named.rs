//! Times of what is not a brick of the engine, by name: the fall-back for work that the enumeration does not know.

use super::stats::Spread;
use crate::profiler::figures::NamedRow;
use std::collections::BTreeMap;
use std::time::Instant;

/// Most names kept; further ones count as [`OTHERS`].
const MOST: usize = 64;
/// Where names beyond the limit are counted.
pub const OTHERS: &str = "others";

/// Statistics by name. A name that is known allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct Named {
    stats: BTreeMap<String, Spread>,
}

impl Named {
    /// Adds one duration, nanoseconds.
    pub fn add(&mut self, name: &str, ns: f64) {
        if let Some(spread) = self.stats.get_mut(name) {
            spread.add(ns);
            return;
        }
        // Only a program's mistake makes names without end, and it must not eat the memory.
        let name = if self.stats.len() < MOST {
            name
        } else {
            OTHERS
        };
        self.stats.entry(name.to_owned()).or_default().add(ns);
    }

    /// Runs `f` and adds its time.
    pub fn time<T>(&mut self, name: &str, f: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = f();
        self.add(name, began.elapsed().as_nanos() as f64);
        result
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.stats.clear();
    }

    /// One row a name, in alphabetical order.
    pub fn rows(&self) -> Vec<NamedRow> {
        let us = |ns: Option<f64>| ns.map(|ns| ns * 1e-3);
        let row = |(name, spread): (&String, &Spread)| NamedRow {
            name: name.clone(),
            calls: spread.count(),
            total_us: spread.total_ns() * 1e-3,
            mean_us: us(spread.mean_ns()),
            stddev_us: us(spread.stddev_ns()),
            p50_us: us(spread.quantile_ns(0.5)),
            p99_us: us(spread.quantile_ns(0.99)),
            max_us: us(spread.max_ns()),
        };
        self.stats.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F105: a name that no enumeration holds is counted like any brick.
    #[test]
    fn f105_any_name_is_counted() {
        let mut named = Named::default();
        assert!(named.rows().is_empty());
        for ns in [1000.0, 3000.0] {
            named.add("détokenise \u{1b}[31m", ns);
        }
        assert_eq!(named.time("answer", || 42), 42);
        let rows = named.rows();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].name, "answer");
        assert_eq!((rows[1].calls, rows[1].mean_us), (2, Some(2.0)));
        assert_eq!((rows[1].total_us, rows[1].max_us), (4.0, Some(3.0)));
        named.clear();
        assert!(named.rows().is_empty());
    }

    #[test]
    fn f105_names_without_end_share_a_row() {
        let mut named = Named::default();
        for i in 0..1000 {
            named.add(&i.to_string(), 1.0);
        }
        let rows = named.rows();
        assert_eq!(rows.len(), MOST + 1);
        assert_eq!(rows.iter().map(|r| r.calls).sum::<u64>(), 1000);
        assert!(rows.iter().any(|r| r.name == OTHERS));
    }
}
