//! Hostile GGUF files: each defect gets one clear error, and no bytes whatever make the reader panic.

mod gguf_file;

use std::fmt::Write as _;
use std::path::Path;

use cbtop::gguf::{GgmlType, Gguf, Value};
use gguf_file::{File, Tensor, array_head, encode};
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

fn f32s(name: &str, n: u64) -> Tensor {
    Tensor::new(name, GgmlType::F32, &[n])
}

/// Header, and a row whose name is one byte and which has one dimension.
const TABLE_END: usize = 24 + 33;

fn one_tensor(change: impl FnOnce(&mut Tensor)) -> Vec<u8> {
    let mut tensor = f32s("t", 64);
    change(&mut tensor);
    File::default().tensor(tensor).build()
}

fn header(version: u32) -> Vec<u8> {
    File {
        version,
        ..File::default()
    }
    .build()
}

fn value_bytes(ty: u32, rest: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], rest].concat()
}

fn key(value: Vec<u8>) -> Vec<u8> {
    File::default().raw(b"k", value).build()
}

fn alignment(value: Value) -> Vec<u8> {
    File::default().with("general.alignment", value).build()
}

fn nested(depth: u32) -> Vec<u8> {
    let mut value = 9u32.to_le_bytes().to_vec();
    (1..depth).for_each(|_| value.extend(array_head(9, 1)));
    value.extend(array_head(0, 1));
    value.push(7);
    value
}

fn foreign() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("empty file", vec![]),
        ("two bytes of magic", b"GG".to_vec()),
        ("magic alone", b"GGUF".to_vec()),
        ("text", b"hello, world".to_vec()),
        ("escape codes", b"\x1b[2J\x00\xff".to_vec()),
        ("old GGML file", b"tjgg\x03\0\0\0".to_vec()),
        ("PyTorch checkpoint", b"PK\x03\x04\0\0\0\0".to_vec()),
        (
            "Git LFS pointer",
            b"version https://git-lfs.github.com/spec/v1".to_vec(),
        ),
        ("web page", b"<!DOCTYPE html>".to_vec()),
        ("safetensors", b"\x40\0\0\0\0\0\0\0{\"a\":1}".to_vec()),
        ("version 0", header(0)),
        ("version 1", header(1)),
        ("version 4", header(4)),
        ("big-endian version 3", header(3u32.swap_bytes())),
        ("big-endian version 2", header(2u32.swap_bytes())),
        ("big-endian magic", b"FUGG\0\0\0\x03".to_vec()),
    ]
}

fn counts() -> Vec<(&'static str, Vec<u8>)> {
    let many = |n_entries, n_tensors| {
        File {
            n_entries,
            n_tensors,
            ..File::default()
        }
        .build()
    };
    vec![
        ("header cut after the version", header(3)[..8].to_vec()),
        ("header cut in the counts", header(3)[..20].to_vec()),
        ("one key claimed, none there", many(Some(1), None)),
        ("2^64-1 keys", many(Some(u64::MAX), None)),
        ("2^64-1 tensors", many(None, Some(u64::MAX))),
        ("2^60 tensors", many(None, Some(1 << 60))),
        (
            "2^61 array elements",
            key([9u32.to_le_bytes().to_vec(), array_head(10, 1 << 61)].concat()),
        ),
        (
            "2^64-1 strings",
            key([9u32.to_le_bytes().to_vec(), array_head(8, u64::MAX)].concat()),
        ),
        (
            "2^64-1 nested arrays",
            key([9u32.to_le_bytes().to_vec(), array_head(9, u64::MAX)].concat()),
        ),
        (
            "string of 2^64-1 bytes",
            key(value_bytes(8, &u64::MAX.to_le_bytes())),
        ),
        (
            "string longer than the file",
            key(value_bytes(8, &[9, 0, 0, 0, 0, 0, 0, 0, b'a', b'b'])),
        ),
        (
            "file ends in a key's value",
            key(value_bytes(10, &[1, 2, 3])),
        ),
    ]
}

fn strings_and_values() -> Vec<(&'static str, Vec<u8>)> {
    let u8_value = || encode(&Value::U8(1));
    let flags = |bytes: &[u8]| {
        [
            &9u32.to_le_bytes()[..],
            &array_head(7, bytes.len() as u64),
            bytes,
        ]
        .concat()
    };
    vec![
        (
            "empty key",
            File::default().raw(b"", encode(&Value::U64(1))).build(),
        ),
        (
            "key of 65,536 bytes",
            File::default().raw(&[b'k'; 65_536], u8_value()).build(),
        ),
        (
            "key not UTF-8",
            File::default().raw(b"ab\xff", u8_value()).build(),
        ),
        (
            "key twice",
            File::default()
                .with("k", Value::U8(1))
                .with("k", Value::U8(1))
                .build(),
        ),
        ("key with control characters twice", {
            File::default()
                .with("\x1b[2J", Value::U8(1))
                .with("\x1b[2J", Value::U8(1))
                .build()
        }),
        ("value type 13", key(value_bytes(13, &[0; 8]))),
        (
            "array element type 99",
            key([9u32.to_le_bytes().to_vec(), array_head(99, 0)].concat()),
        ),
        ("boolean 2", key(value_bytes(7, &[2]))),
        ("boolean 255 in an array", key(flags(&[0, 1, 255]))),
        ("arrays nested five deep", key(nested(5))),
        ("alignment of 0", alignment(Value::U32(0))),
        ("alignment of 24", alignment(Value::U32(24))),
        ("alignment of 2 MiB", alignment(Value::U32(1 << 21))),
        ("alignment as u64", alignment(Value::U64(32))),
        (
            "split.count as text",
            File::default()
                .with("split.count", Value::String("3".into()))
                .build(),
        ),
        (
            "split.count of 65,535",
            File::default()
                .with("split.count", Value::U16(65_535))
                .build(),
        ),
        (
            "split.count of -1",
            File::default().with("split.count", Value::I32(-1)).build(),
        ),
        (
            "a shard in memory",
            File::default().with("split.count", Value::U16(2)).build(),
        ),
    ]
}

fn tensors() -> Vec<(&'static str, Vec<u8>)> {
    let quantised = |dims: &[u64]| {
        one_tensor(|t| {
            t.ty = GgmlType::Q4_K as u32;
            t.dims = dims.to_vec();
        })
    };
    let two = |first: u64, second: u64| {
        let at = |name, offset| Tensor {
            offset: Some(offset),
            ..f32s(name, 16)
        };
        File::default()
            .tensor(at("a", first))
            .tensor(at("b", second))
            .build()
    };
    let mut cut = File::sample().build();
    cut.pop();
    vec![
        ("no dimensions", one_tensor(|t| t.dims = vec![])),
        ("five dimensions", one_tensor(|t| t.dims = vec![1; 5])),
        ("a dimension of 0", one_tensor(|t| t.dims = vec![4, 0])),
        (
            "dimensions past 64 bits",
            one_tensor(|t| t.dims = vec![1 << 33, 1 << 33]),
        ),
        ("bytes past 64 bits", one_tensor(|t| t.dims = vec![1 << 62])),
        ("part of a block", quantised(&[100])),
        ("rows of part blocks that add up", quantised(&[128, 2])),
        ("tensor type 1000", one_tensor(|t| t.ty = 1000)),
        ("removed tensor type Q4_0_4_4", one_tensor(|t| t.ty = 31)),
        ("tensor name empty", one_tensor(|t| t.name.clear())),
        (
            "tensor name not UTF-8",
            one_tensor(|t| t.name = vec![0xc0, 0x80]),
        ),
        (
            "tensor twice",
            File::default()
                .tensor(f32s("t", 8))
                .tensor(f32s("t", 8))
                .build(),
        ),
        ("offset not aligned", one_tensor(|t| t.offset = Some(4))),
        (
            "offset 2^64-32",
            one_tensor(|t| t.offset = Some(u64::MAX - 31)),
        ),
        (
            "offset past the end",
            one_tensor(|t| t.offset = Some(1 << 40)),
        ),
        ("two tensors at one offset", two(0, 0)),
        ("tensors that overlap by half", two(32, 0)),
        ("data cut by one byte", cut),
        (
            "table without data",
            one_tensor(|_| ())[..TABLE_END].to_vec(),
        ),
        ("table cut in a tensor's offset", {
            let long = one_tensor(|t| t.name = b"long.name".to_vec());
            long[..TABLE_END + 4].to_vec()
        }),
    ]
}

#[test]
fn every_defect_has_one_clear_error() {
    let mut report = String::new();
    for (name, bytes) in [foreign(), counts(), strings_and_values(), tensors()].concat() {
        let error = match Gguf::from_vec(bytes, "m.gguf") {
            Ok(gguf) => panic!("{name}: opened as {gguf:?}"),
            Err(error) => error.to_string(),
        };
        assert!(error.starts_with("m.gguf: "), "{name}: {error}");
        assert!(!error.contains(|c: char| c.is_control()), "{name}: {error}");
        writeln!(report, "{name}\n    {error}").expect("a string");
    }
    insta::assert_snapshot!(report);
}

/// Writes shards `m-0000I-of-0000N.gguf` with these (split.no, split.count), each with a tensor of its own.
fn write_shards(directory: &Path, of: usize, shards: &[(u16, u16)]) {
    for (i, &(no, count)) in shards.iter().enumerate() {
        let file = File::default()
            .with("split.no", Value::U16(no))
            .with("split.count", Value::U16(count))
            .with("split.tensors.count", Value::I32(shards.len() as i32))
            .tensor(f32s(&format!("t{i}"), 8));
        write(directory, &shard_name(i + 1, of), &file);
    }
}

fn shard_name(no: usize, of: usize) -> String {
    format!("m-{no:05}-of-{of:05}.gguf")
}

fn write(directory: &Path, name: &str, file: &File) {
    std::fs::write(directory.join(name), file.build()).expect("writable");
}

/// The error of opening `name` in a fresh directory, with the directory's path cut out.
fn open_error(name: &str, prepare: impl FnOnce(&Path)) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    prepare(directory.path());
    let error = Gguf::open(&directory.path().join(name))
        .expect_err(name)
        .to_string();
    error.replace(&format!("{}/", directory.path().display()), "")
}

#[test]
fn every_broken_split_and_path_has_one_clear_error() {
    let first = shard_name(1, 3);
    let three = [(0, 3), (1, 3), (2, 3)];
    let mut report = String::new();
    let mut case = |what: &str, name: &str, prepare: &dyn Fn(&Path)| {
        writeln!(report, "{what}\n    {}", open_error(name, prepare)).expect("a string");
    };
    case("missing file", "absent.gguf", &|_| ());
    case("directory", "dir", &|d| {
        std::fs::create_dir(d.join("dir")).expect("creatable")
    });
    case("empty file", "empty.gguf", &|d| {
        std::fs::write(d.join("empty.gguf"), "").expect("writable")
    });
    case("shard 2 missing", &first, &|d| {
        write_shards(d, 3, &three);
        std::fs::remove_file(d.join(shard_name(2, 3))).expect("there");
    });
    case("shard 2 is a copy of shard 1", &first, &|d| {
        write_shards(d, 3, &[(0, 3), (0, 3), (2, 3)])
    });
    case("shards swapped", &first, &|d| {
        write_shards(d, 3, &[(1, 3), (0, 3), (2, 3)])
    });
    case("count unlike the name", &first, &|d| {
        write_shards(d, 3, &[(0, 2), (1, 2), (2, 2)])
    });
    case("one shard of another model", &first, &|d| {
        write_shards(d, 3, &[(0, 3), (1, 4), (2, 3)])
    });
    case("split.no past the count", &first, &|d| {
        write_shards(d, 3, &[(0, 3), (1, 3), (9, 3)])
    });
    case("renamed shard", "model.gguf", &|d| {
        write_shards(d, 3, &three);
        std::fs::rename(d.join(shard_name(1, 3)), d.join("model.gguf")).expect("renamable");
    });
    case("shard without split.no", &first, &|d| {
        write(
            d,
            &shard_name(1, 3),
            &File::default().with("split.count", Value::U16(3)),
        );
    });
    case("later shard is not a shard", &first, &|d| {
        write_shards(d, 3, &three);
        write(d, &shard_name(2, 3), &File::default());
    });
    case("later shard damaged", &first, &|d| {
        write_shards(d, 3, &three);
        write(
            d,
            &shard_name(3, 3),
            &File {
                n_tensors: Some(1 << 50),
                ..File::default()
            },
        );
    });
    case("tensor in two shards", &first, &|d| {
        write_shards(d, 3, &three);
        let copy = File::default()
            .with("split.no", Value::U16(2))
            .with("split.count", Value::U16(3))
            .tensor(f32s("t0", 8));
        write(d, &shard_name(3, 3), &copy);
    });
    case("tensor count unlike the shards", &first, &|d| {
        write_shards(d, 3, &three);
        let short = File::default()
            .with("split.no", Value::U16(2))
            .with("split.count", Value::U16(3));
        write(d, &shard_name(3, 3), &short);
    });
    #[cfg(unix)]
    {
        use std::os::unix::fs::symlink;
        case("link to itself", "loop.gguf", &|d| {
            symlink("loop.gguf", d.join("loop.gguf")).expect("linkable")
        });
        case("shards that link to each other", &first, &|d| {
            write_shards(d, 3, &three[..1]);
            symlink(shard_name(3, 3), d.join(shard_name(2, 3))).expect("linkable");
            symlink(shard_name(2, 3), d.join(shard_name(3, 3))).expect("linkable");
        });
        case("shards that are all links to the first", &first, &|d| {
            write_shards(d, 3, &three[..1]);
            symlink(shard_name(1, 3), d.join(shard_name(2, 3))).expect("linkable");
            symlink(shard_name(1, 3), d.join(shard_name(3, 3))).expect("linkable");
        });
        case("device", "null", &|d| {
            symlink("/dev/null", d.join("null")).expect("linkable")
        });
        case("named pipe", "pipe", &|d| {
            let made = std::process::Command::new("mkfifo")
                .arg(d.join("pipe"))
                .status();
            assert!(made.expect("mkfifo").success());
        });
    }
    insta::assert_snapshot!(report);
}

/// A header that claims a large but possible count: what a sparse file of that size would hold at no cost on disk.
#[test]
fn a_sparse_file_of_empty_strings_stops_at_the_memory_limit() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("sparse.gguf");
    let bytes = key([9u32.to_le_bytes().to_vec(), array_head(8, 1 << 32)].concat());
    std::fs::write(&path, bytes).expect("writable");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("there");
    if file.set_len(1 << 36).is_err() {
        println!("skipped: no sparse files in {}", directory.path().display());
        return;
    }
    let error = Gguf::open(&path).expect_err("too much").to_string();
    assert!(
        error.contains("reading 4294967296 strings would take the metadata past 1073741824 bytes"),
        "{error}"
    );
}

/// What every caller does with a file that opened.
fn touch(bytes: Vec<u8>) -> bool {
    let Ok(gguf) = Gguf::from_vec(bytes, "mutant") else {
        return false;
    };
    for t in gguf.tensors() {
        assert_eq!(gguf.data(t).len() as u64, t.bytes);
        assert_eq!(t.elements(), t.rows() * t.row_len());
    }
    for (key, _) in gguf.metadata() {
        let _ = (
            gguf.u32s(key),
            gguf.i32s(key),
            gguf.f32s(key),
            gguf.strings(key),
            gguf.str(key),
            gguf.bool(key),
        );
    }
    true
}

#[test]
fn every_truncation_is_refused() {
    let bytes = File::sample().build();
    for len in 0..bytes.len() {
        assert!(
            !touch(bytes[..len].to_vec()),
            "opened when cut to {len} of {} bytes",
            bytes.len()
        );
    }
    assert!(touch(bytes));
}

#[test]
fn mutations_never_panic() {
    const MUTANTS: u32 = 20_000;
    let sample = File::sample().build();
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let opened = (0..MUTANTS)
        .filter(|_| touch(mutate(&sample, &mut rng)))
        .count();
    println!("{opened} of {MUTANTS} mutants opened");
    assert!(
        opened > 0,
        "mutations so heavy that nothing past the header is reached"
    );
}

/// One to four edits: a flipped bit, an interesting byte or word, a removed or repeated stretch.
fn mutate(sample: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
    const WORDS: [u64; 8] = [
        0,
        1,
        31,
        1 << 31,
        u32::MAX as u64,
        1 << 61,
        i64::MAX as u64,
        u64::MAX,
    ];
    let mut bytes = sample.to_vec();
    for _ in 0..rng.random_range(1..=4) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..5) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.next_u32() as u8,
            2 => {
                let word = WORDS[rng.random_range(0..WORDS.len())].to_le_bytes();
                bytes
                    .iter_mut()
                    .skip(at)
                    .zip(word)
                    .for_each(|(b, w)| *b = w);
            }
            3 => {
                let end = (at + rng.random_range(1..64)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + rng.random_range(1..64)).min(bytes.len());
                let stretch = bytes[at..end].to_vec();
                bytes.splice(at..at, stretch);
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}

/// The corpus that fuzzing starts from: written with `CBTOP_WRITE_SEEDS=1`, replayed always. Inputs that once crashed
/// the reader belong here too.
#[test]
fn fuzz_seeds_replay() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/gguf");
    if std::env::var_os("CBTOP_WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(&directory).expect("creatable");
        let valid = [
            ("sample v3", File::sample().build()),
            (
                "sample v2",
                File {
                    version: 2,
                    ..File::sample()
                }
                .build(),
            ),
        ];
        for (name, bytes) in [valid.to_vec(), counts(), strings_and_values(), tensors()].concat() {
            if bytes.len() < 4096 {
                let name: String = name
                    .chars()
                    .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
                    .collect();
                std::fs::write(directory.join(name), bytes).expect("writable");
            }
        }
    }
    let seeds: Vec<_> = std::fs::read_dir(&directory)
        .expect("fuzz/seeds/gguf")
        .collect();
    assert!(seeds.len() > 40, "{} seeds", seeds.len());
    let opened = seeds
        .into_iter()
        .filter(|seed| {
            touch(std::fs::read(seed.as_ref().expect("readable").path()).expect("readable"))
        })
        .count();
    assert_eq!(opened, 2, "the two samples are valid, the rest are not");
}
