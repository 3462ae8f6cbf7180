//! `strftime_now` for chat templates: the date in UTC, in C's format letters.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// Formats `seconds` after 1970-01-01T00:00:00Z. Unknown letters stay as they are written.
pub(super) fn strftime(seconds: u64, format: &str) -> String {
    let (days, clock) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
    let (year, month, day) = civil(days);
    let weekday = ((days + 4) % 7) as usize;
    let name = |names: &[&'static str], at: usize| names.get(at).copied().unwrap_or_default();
    let short = |full: &'static str| full.get(..3).unwrap_or(full);
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(c) = letters.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let month_name = name(&MONTHS, month as usize - 1);
        let day_name = name(&DAYS, weekday);
        let hour12 = (hour + 11) % 12 + 1;
        match letters.next() {
            Some('Y') => out += &year.to_string(),
            Some('y') => out += &format!("{:02}", year % 100),
            Some('m') => out += &format!("{month:02}"),
            Some('d') => out += &format!("{day:02}"),
            Some('e') => out += &format!("{day:2}"),
            Some('B') => out += month_name,
            Some('b' | 'h') => out += short(month_name),
            Some('A') => out += day_name,
            Some('a') => out += short(day_name),
            Some('H') => out += &format!("{hour:02}"),
            Some('I') => out += &format!("{hour12:02}"),
            Some('M') => out += &format!("{minute:02}"),
            Some('S') => out += &format!("{second:02}"),
            Some('p') => out += if hour < 12 { "AM" } else { "PM" },
            Some('j') => out += &format!("{:03}", day_of_year(year, month, day)),
            Some('F') => out += &format!("{year}-{month:02}-{day:02}"),
            Some('T') => out += &format!("{hour:02}:{minute:02}:{second:02}"),
            Some('Z') => out += "UTC",
            Some('z') => out += "+0000",
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month 1..=12 and day 1..=31 of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // The calendar repeats every 400 years, which keeps the walk below short for any input.
    const CYCLE: u64 = 146_097;
    let mut year = 1970 + days / CYCLE * 400;
    let mut left = days % CYCLE;
    let length = |year| if is_leap(year) { 366 } else { 365 };
    while left >= length(year) {
        left -= length(year);
        year += 1;
    }
    let mut month = 1;
    while left >= days_in(year, month) {
        left -= days_in(year, month);
        month += 1;
    }
    (year, month, left + 1)
}

fn day_of_year(year: u64, month: u64, day: u64) -> u64 {
    (1..month).map(|m| days_in(year, m)).sum::<u64>() + day
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn known_dates() {
        assert_eq!(
            strftime(0, "%A %d %B %Y %T"),
            "Thursday 01 January 1970 00:00:00"
        );
        assert_eq!(
            strftime(1_709_210_096, "%F %a %b %j %I %p"),
            "2024-02-29 Thu Feb 060 12 PM"
        );
        assert_eq!(
            strftime(4_102_444_799, "%Y-%m-%d %H:%M:%S"),
            "2099-12-31 23:59:59"
        );
    }

    #[test]
    fn odd_formats_do_not_fail() {
        assert_eq!(strftime(0, "100%"), "100%");
        assert_eq!(strftime(0, "%q %% é"), "%q % é");
        assert!(!strftime(u64::MAX, "%F").is_empty());
    }
}
