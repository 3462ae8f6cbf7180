//! Split models: `NAME-00001-of-00003.gguf` and its siblings, loaded as one.
//!
//! The keys are gguf-split's: `split.no` (from 0), `split.count` and `split.tensors.count`. Metadata other than these is
//! taken from the first shard alone, as llama.cpp does.

use std::path::{Path, PathBuf};

use super::error::{GgufError, SplitProblem, quote};
use super::parse::{Parsed, parse};
use super::source::Source;
use super::{Gguf, Shard};

/// Refuses absurd counts before thousands of paths are looked up; the largest model published has under 200 shards.
const MAX_SHARDS: u64 = 10_000;

/// What a shard's file name says.
#[derive(Debug, PartialEq, Eq)]
struct ShardName<'a> {
    prefix: &'a str,
    /// From 1.
    no: u64,
    count: u64,
}

impl<'a> ShardName<'a> {
    fn parse(file_name: &'a str) -> Option<Self> {
        let stem = file_name.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, no) = rest.rsplit_once('-')?;
        let number = |s: &str| match s.len() {
            5.. if s.bytes().all(|b| b.is_ascii_digit()) => s.parse::<u64>().ok(),
            _ => None,
        };
        Some(Self {
            prefix,
            no: number(no)?,
            count: number(count)?,
        })
    }

    fn of(&self, no: u64) -> String {
        format!("{}-{no:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// Number of shards that this file says it is one of; 1 for a file that is not split.
pub(super) fn count(file: &str, parsed: &Parsed) -> Result<u64, GgufError> {
    // gguf-split writes a count of 0 into the file that it merges shards into.
    let count = integer(file, parsed, "split.count")?.unwrap_or(1).max(1);
    if count > MAX_SHARDS {
        return Err(split_error(
            file,
            SplitProblem::TooMany {
                count,
                max: MAX_SHARDS,
            },
        ));
    }
    Ok(count)
}

/// Opens all shards of the model that `path`, already read as `given`, is one of.
pub(super) fn open(path: &Path, given: (Source, Parsed), count: u64) -> Result<Gguf, GgufError> {
    let file = path.display().to_string();
    let no = number(&file, &given.1)?;
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .and_then(ShardName::parse);
    let Some(name) = name else {
        return Err(split_error(&file, SplitProblem::Name { no, count }));
    };
    check_shard(&file, &given.1, name.no, name.count)?;

    let paths: Vec<PathBuf> = (1..=count)
        .map(|no| path.with_file_name(name.of(no)))
        .collect();
    // A link that leads nowhere or to itself is there: opening it says what is wrong with it.
    if let Some((no, missing)) = (1..)
        .zip(&paths)
        .find(|(_, p)| p.symlink_metadata().is_err())
    {
        return Err(split_error(
            &missing.display().to_string(),
            SplitProblem::Missing { no, count },
        ));
    }
    let mut given = Some(given);
    let mut model: Option<Gguf> = None;
    for (no, shard_path) in (1..).zip(&paths) {
        let shard_file = shard_path.display().to_string();
        let (source, parsed) = match given.take_if(|_| no == name.no) {
            Some(given) => given,
            None => {
                let source = Source::map(shard_path)?;
                let parsed = parse(source.bytes(), &shard_file)?;
                check_shard(&shard_file, &parsed, no, count)?;
                (source, parsed)
            }
        };
        match &mut model {
            None => model = Some(Gguf::single(path.to_owned(), shard_file, source, parsed)),
            Some(model) => append(model, shard_file, source, parsed)?,
        }
    }
    // There is at least one shard, so there is a model; the error keeps the function free of panics.
    let model = model.ok_or_else(|| split_error(&file, SplitProblem::Missing { no: 1, count }))?;
    check_total(&model)?;
    Ok(model)
}

fn append(model: &mut Gguf, file: String, source: Source, parsed: Parsed) -> Result<(), GgufError> {
    let shard = model.shards.len() as u32;
    for mut tensor in parsed.tensors {
        if let Some(other) = model.tensor(&tensor.name) {
            let other = model
                .shards
                .get(other.shard())
                .map(|s| s.file.clone())
                .unwrap_or_default();
            let name = quote(&tensor.name);
            return Err(split_error(
                &file,
                SplitProblem::DuplicateTensor { name, other },
            ));
        }
        tensor.shard = shard;
        model
            .tensor_index
            .insert(tensor.name.clone(), model.tensors.len());
        model.tensors.push(tensor);
    }
    model.shards.push(Shard { file, source });
    Ok(())
}

fn check_shard(file: &str, parsed: &Parsed, named: u64, expected: u64) -> Result<(), GgufError> {
    let stored = integer(file, parsed, "split.count")?
        .ok_or_else(|| split_error(file, SplitProblem::NoKey { key: "split.count" }))?;
    if stored != expected {
        return Err(split_error(
            file,
            SplitProblem::CountDiffers { stored, expected },
        ));
    }
    let stored = number(file, parsed)?;
    if stored != named {
        return Err(split_error(file, SplitProblem::Number { named, stored }));
    }
    Ok(())
}

/// The shard's number from its metadata, counted from 1 as in file names.
fn number(file: &str, parsed: &Parsed) -> Result<u64, GgufError> {
    match integer(file, parsed, "split.no")? {
        Some(no) => Ok(no.saturating_add(1)),
        None => Err(split_error(file, SplitProblem::NoKey { key: "split.no" })),
    }
}

fn check_total(model: &Gguf) -> Result<(), GgufError> {
    let found = model.tensors.len() as u64;
    match model.u64("split.tensors.count")? {
        Some(stored) if stored != found => Err(split_error(
            model.file(),
            SplitProblem::Tensors { stored, found },
        )),
        _ => Ok(()),
    }
}

fn integer(file: &str, parsed: &Parsed, key: &'static str) -> Result<Option<u64>, GgufError> {
    super::getters::integer(file, key, parsed.get(key))
}

fn split_error(file: &str, problem: SplitProblem) -> GgufError {
    GgufError::Split {
        file: file.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_follow_gguf_split() {
        let name = ShardName::parse("a-b-00002-of-00010.gguf");
        assert_eq!(
            name,
            Some(ShardName {
                prefix: "a-b",
                no: 2,
                count: 10
            })
        );
        assert_eq!(
            name.map(|n| n.of(7)).as_deref(),
            Some("a-b-00007-of-00010.gguf")
        );
        for not_a_shard in [
            "model.gguf",
            "m-00001-of-00002.bin",
            "m-1-of-2.gguf",
            "m-0000x-of-00002.gguf",
            "00001-of-00002.gguf",
            "m-99999999999999999999999-of-00002.gguf",
            "m--0001-of-00002.gguf",
        ] {
            assert_eq!(ShardName::parse(not_a_shard), None, "{not_a_shard}");
        }
    }
}
