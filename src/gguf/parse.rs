//! One file's bytes -> header, metadata and tensor table, everything checked against the file's length.

use std::collections::{HashMap, HashSet};

use super::error::{Fault, GgufError, Located, Problem, quote};
use super::magic;
use super::reader::Reader;
use super::tensor::{TensorInfo, read_tensor};
use super::value::Value;
use super::values::read_value;

const ALIGNMENT_KEY: &str = "general.alignment";
/// Used when a file has no `general.alignment`.
const DEFAULT_ALIGNMENT: u32 = 32;
const MAX_ALIGNMENT: u32 = 1 << 20;
/// Key with at least one byte, type number, one byte of value.
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
/// Name with at least one byte, dimension count, one dimension, type number, offset.
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;
/// What a key costs in memory besides its text: the pair in the list and its place in the index.
const ENTRY_MEMORY: u64 = 192;
/// What a tensor costs in memory besides its name: the row, its dimensions and its place in the index.
const TENSOR_MEMORY: u64 = 256;

/// One parsed file; tensor offsets are absolute in that file.
pub(super) struct Parsed {
    pub version: u32,
    pub entries: Vec<(String, Value)>,
    pub index: HashMap<String, usize>,
    pub tensors: Vec<TensorInfo>,
}

impl Parsed {
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries
            .get(*self.index.get(key)?)
            .map(|(_, value)| value)
    }
}

pub(super) fn parse(bytes: &[u8], file: &str) -> Result<Parsed, GgufError> {
    let version = magic::version(bytes, file)?;
    parse_body(bytes, version).map_err(|located| located.in_file(file, bytes.len() as u64))
}

fn parse_body(bytes: &[u8], version: u32) -> Result<Parsed, Located> {
    let mut r = Reader::new(bytes);
    let header = |fault: Fault| fault.at("the header");
    r.take(magic::LEN, "the magic number and version")
        .map_err(header)?;
    let n_tensors = r
        .count("tensors", MIN_TENSOR_BYTES, TENSOR_MEMORY)
        .map_err(header)?;
    let n_entries = r
        .count("metadata keys", MIN_ENTRY_BYTES, ENTRY_MEMORY)
        .map_err(header)?;

    let (entries, index) = read_entries(&mut r, n_entries)?;
    let alignment = match index.get(ALIGNMENT_KEY).and_then(|&i| entries.get(i)) {
        Some((_, Value::U32(alignment))) => *alignment,
        _ => DEFAULT_ALIGNMENT,
    };
    let tensors = read_tensors(&mut r, n_tensors, bytes.len() as u64, u64::from(alignment))?;
    check_overlap(&tensors)?;
    Ok(Parsed {
        version,
        entries,
        index,
        tensors,
    })
}

type Entries = (Vec<(String, Value)>, HashMap<String, usize>);

fn read_entries(r: &mut Reader<'_>, count: usize) -> Result<Entries, Located> {
    let mut entries = Vec::with_capacity(count);
    let mut index = HashMap::with_capacity(count);
    for i in 0..count {
        let offset = r.offset();
        let key = r
            .name("the key")
            .map_err(|fault| fault.at(format!("metadata key {} of {count}", i + 1)))?;
        let place = || format!("metadata key {}", quote(key));
        if index.insert(key.to_owned(), i).is_some() {
            return Err(Fault {
                offset,
                problem: Problem::DuplicateKey,
            }
            .at(place()));
        }
        let offset = r.offset();
        let value = read_value(r).map_err(|fault| fault.at(place()))?;
        if key == ALIGNMENT_KEY {
            check_alignment(&value).map_err(|problem| Fault { offset, problem }.at(place()))?;
        }
        entries.push((key.to_owned(), value));
    }
    Ok((entries, index))
}

fn check_alignment(value: &Value) -> Result<(), Problem> {
    match *value {
        Value::U32(n) if n.is_power_of_two() && n <= MAX_ALIGNMENT => Ok(()),
        Value::U32(value) => Err(Problem::Alignment {
            value,
            max: MAX_ALIGNMENT,
        }),
        ref other => Err(Problem::AlignmentType {
            found: other.type_name(),
        }),
    }
}

fn read_tensors(
    r: &mut Reader<'_>,
    count: usize,
    len: u64,
    alignment: u64,
) -> Result<Vec<TensorInfo>, Located> {
    // Offsets in the table count from the data section, which starts where the table ends: read first, place after.
    let mut entries = Vec::with_capacity(count);
    let mut seen = HashSet::with_capacity(count);
    for i in 0..count {
        let offset = r.offset();
        let place = || format!("tensor {} of {count}", i + 1);
        let name = r
            .name("the tensor's name")
            .map_err(|fault| fault.at(place()))?;
        let place = || format!("tensor {}", quote(name));
        if !seen.insert(name) {
            return Err(Fault {
                offset,
                problem: Problem::DuplicateTensor,
            }
            .at(place()));
        }
        entries.push((
            offset,
            read_tensor(r, name).map_err(|fault| fault.at(place()))?,
        ));
    }
    let data_start = r.offset().next_multiple_of(alignment);
    let section = len.saturating_sub(data_start);
    entries
        .into_iter()
        .map(|(entry, mut tensor)| {
            tensor
                .place(data_start, section, alignment)
                .map_err(|problem| {
                    Fault {
                        offset: entry,
                        problem,
                    }
                    .at(format!("tensor {}", quote(&tensor.name)))
                })?;
            Ok(tensor)
        })
        .collect()
}

fn check_overlap(tensors: &[TensorInfo]) -> Result<(), Located> {
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().collect();
    by_offset.sort_by_key(|t| t.offset());
    for pair in by_offset.windows(2) {
        if let [a, b] = pair
            && a.offset() + a.bytes > b.offset()
        {
            let problem = Problem::Overlap {
                other: quote(&a.name),
            };
            return Err(Fault {
                offset: b.offset(),
                problem,
            }
            .at(format!("tensor {}", quote(&b.name))));
        }
    }
    Ok(())
}
