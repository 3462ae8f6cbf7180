//! Numbers as text of fixed width: units are chosen for a whole column, so that rows compare by eye and nothing jumps.

/// A unit for a column of numbers: `value / div` is printed with `decimals` and the unit stands in the title.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// What a value is divided by.
    pub div: f64,
    /// Prefix or unit for the column title.
    pub unit: &'static str,
    /// Digits after the point.
    pub decimals: usize,
}

impl Scale {
    /// Unit for times in microseconds whose largest is `max_us`; `micro` is the text for microseconds (`µs` or `us`).
    pub fn time(max_us: f64, micro: &'static str) -> Self {
        if max_us < 1e5 {
            Self {
                div: 1.0,
                unit: micro,
                decimals: 1,
            }
        } else if max_us < 1e6 {
            Self {
                div: 1e3,
                unit: "ms",
                decimals: 3,
            }
        } else if max_us < 1e8 {
            Self {
                div: 1e3,
                unit: "ms",
                decimals: 2,
            }
        } else {
            Self {
                div: 1e6,
                unit: "s",
                decimals: 2,
            }
        }
    }

    /// Decimal prefix for counts whose largest is `max`.
    pub fn count(max: f64) -> Self {
        match max {
            m if m < 1e5 => Self {
                div: 1.0,
                unit: "",
                decimals: 0,
            },
            m if m < 1e8 => Self {
                div: 1e3,
                unit: "k",
                decimals: 1,
            },
            m if m < 1e11 => Self {
                div: 1e6,
                unit: "M",
                decimals: 1,
            },
            _ => Self {
                div: 1e9,
                unit: "G",
                decimals: 1,
            },
        }
    }

    /// Decimal prefix for rates whose largest is `max`; always one decimal.
    pub fn rate(max: f64) -> Self {
        Self {
            decimals: 1,
            ..Self::count(max * 10.0)
        }
    }

    /// The number alone, or `-` when it is unknown or not finite.
    pub fn show(self, value: Option<f64>) -> String {
        match value {
            Some(v) if v.is_finite() => number(v / self.div, self.decimals),
            _ => "-".into(),
        }
    }
}

/// `value` with `decimals`; never the sign of a rounded zero; very large values in exponent form.
pub fn number(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value.abs() >= 1e12 {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(rest) if rest.chars().all(|c| c == '0' || c == '.') => rest.into(),
        _ => text,
    }
}

/// A rate of tokens with one decimal below 1000 and none above; `-` when unknown.
pub fn tok_s(value: Option<f64>) -> String {
    match value {
        Some(v) if v.is_finite() => number(v, usize::from(v.abs() < 1000.0)),
        _ => "-".into(),
    }
}

/// Bytes with a binary prefix: `86.4 MiB`.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if value < 1024 {
        return format!("{value} B");
    }
    let mut v = value as f64 / 1024.0;
    let mut unit = 0;
    while v >= 1023.95 && unit + 1 < UNITS.len() {
        v /= 1024.0;
        unit += 1;
    }
    format!(
        "{} {}",
        number(v, 1),
        UNITS.get(unit).copied().unwrap_or("B")
    )
}

/// A count with a decimal prefix: `134.5M`.
pub fn count(value: u64) -> String {
    let v = value as f64;
    let (div, unit) = match value {
        0..10_000 => return value.to_string(),
        10_000..1_000_000 => (1e3, "k"),
        1_000_000..1_000_000_000 => (1e6, "M"),
        1_000_000_000..1_000_000_000_000 => (1e9, "B"),
        _ => (1e12, "T"),
    };
    format!("{}{unit}", number(v / div, 1))
}

/// A time given in seconds, in the unit that suits it: `212 ms`, `1.42 s`.
pub fn seconds(value: f64, micro: &str) -> String {
    match value {
        v if !v.is_finite() => "-".into(),
        v if v < 1e-3 => format!("{} {micro}", number(v * 1e6, 0)),
        v if v < 1.0 => format!("{} ms", number(v * 1e3, if v < 0.01 { 1 } else { 0 })),
        v => format!("{} s", number(v, 2)),
    }
}

/// A time given in microseconds, in the unit that suits it.
pub fn micros(us: f64, micro: &str) -> String {
    if us.is_finite() && us.abs() < 1e3 {
        format!("{} {micro}", number(us, 1))
    } else {
        seconds(us / 1e6, micro)
    }
}

/// A share of 0 to 1 in percent with one decimal, at most five characters for sane values.
pub fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{}%", number(share * 100.0, 1))
    } else {
        "-".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fit_their_value() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(count(134_515_008), "134.5M");
        assert_eq!(seconds(0.2124, "us"), "212 ms");
        assert_eq!(seconds(1.42, "us"), "1.42 s");
        assert_eq!(micros(12.34, "us"), "12.3 us");
        assert_eq!(tok_s(None), "-");
        assert_eq!(tok_s(Some(f64::NAN)), "-");
        assert_eq!(number(-0.01, 1), "0.0");
        assert_eq!(Scale::time(7000.0, "us").show(Some(12.0)), "12.0");
        assert_eq!(Scale::time(7e6, "us").show(Some(1500.0)), "1.50");
        assert_eq!(Scale::rate(25_000.0).unit, "k");
    }
}
