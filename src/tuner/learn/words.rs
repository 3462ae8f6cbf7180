//! Columns in words, for those who read why.

use crate::tuner::features;

/// Beginnings of the names of columns of which one is 1, and what is chosen.
const CHOICES: [(&str, &str); 3] = [
    ("program_", "program"),
    ("quant_", "quantisation"),
    ("kernel_", "kernel set"),
];

/// A column that stands high or low, for example `high intensity`, `quantisation q4_k`, `kernel set not avx2`.
pub fn of(column: usize, high: bool) -> String {
    let name = features::names().get(column).copied().unwrap_or("column");
    for (prefix, what) in CHOICES {
        if let Some(choice) = name.strip_prefix(prefix) {
            let not = if high { "" } else { "not " };
            return format!("{what} {not}{choice}");
        }
    }
    let level = if high { "high" } else { "low" };
    format!("{level} {}", name.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_told_in_words() {
        let at = |name| features::column(name).expect("a column");
        assert_eq!(of(at("weights_per_cache"), true), "high weights per cache");
        assert_eq!(of(at("quant_q4_k"), true), "quantisation q4_k");
        assert_eq!(of(at("kernel_avx2"), false), "kernel set not avx2");
        assert_eq!(of(usize::MAX, true), "high column");
    }
}
