//! llama-bench's lists of numbers: `1,2,8`, `1-4`, `0-400+100`, `64-512*2`.

use std::str::FromStr;

/// Most numbers that one flag may name; more is a typing error that would run for years.
const MOST: usize = 1000;
/// The largest number: no context is longer.
const LARGEST: usize = 1 << 24;

/// The numbers of one flag, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Numbers(pub Vec<usize>);

impl FromStr for Numbers {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        for part in s.split(',') {
            push_range(part, &mut all)?;
        }
        Ok(Self(all))
    }
}

impl Numbers {
    /// All numbers of a repeated flag, or `default` where it was not given.
    pub fn all(flags: &[Self], default: usize) -> Vec<usize> {
        if flags.is_empty() {
            return vec![default];
        }
        flags.iter().flat_map(|n| n.0.iter().copied()).collect()
    }
}

fn number(s: &str) -> Result<usize, String> {
    let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    s.parse()
        .ok()
        .filter(|&n| digits && n <= LARGEST)
        .ok_or_else(|| format!("'{s}' is not a number from 0 to {LARGEST}; give 512, or a list 1,2, or a range 1-4 or 64-512*2"))
}

/// `n`, `first-last`, `first-last+step` or `first-last*factor`.
fn push_range(s: &str, all: &mut Vec<usize>) -> Result<(), String> {
    let Some((first, rest)) = s.split_once('-') else {
        all.push(number(s)?);
        return enough(all);
    };
    let (last, next): (_, Box<dyn Fn(usize) -> usize>) = match rest.split_once(['+', '*']) {
        None => (rest, Box::new(|n| n + 1)),
        Some((last, by)) => {
            let by = number(by)?;
            if rest.contains('*') {
                (last, Box::new(move |n| n * by))
            } else {
                (last, Box::new(move |n| n + by))
            }
        }
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last {
        return Err(format!(
            "the range '{s}' runs backwards; write {last}-{first}"
        ));
    }
    let mut n = first;
    while n <= last {
        all.push(n);
        enough(all)?;
        let after = next(n);
        if after <= n && n < last {
            return Err(format!(
                "the range '{s}' does not advance from {n}; give a larger step or another start"
            ));
        }
        if after <= n {
            break;
        }
        n = after;
    }
    Ok(())
}

fn enough(all: &[usize]) -> Result<(), String> {
    if all.len() > MOST {
        return Err(format!(
            "more than {MOST} numbers; give a shorter list or a larger step"
        ));
    }
    Ok(())
}

/// A prompt length and a generation length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Tokens of the prompt.
    pub n_prompt: usize,
    /// Tokens generated.
    pub n_gen: usize,
}

impl FromStr for Pair {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (n_prompt, n_gen) = s.split_once(',').ok_or_else(|| {
            format!(
                "'{s}' is not a pair; give a prompt and a generation length, for example 512,128"
            )
        })?;
        Ok(Self {
            n_prompt: number(n_prompt)?,
            n_gen: number(n_gen)?,
        })
    }
}
