//! Reading valid GGUF files: round trips, typed access, split models, every model at hand.

mod gguf_file;

use std::path::{Path, PathBuf};

use cbtop::gguf::{Array, GgmlType, Gguf, LoadMethod, LoadOptions, Value};
use gguf_file::{File, Tensor, strings};
use proptest::prelude::*;

fn open(file: &File) -> Gguf {
    Gguf::from_vec(file.build(), "test.gguf").expect("a valid file")
}

#[test]
fn sample_reads_back() {
    for version in [2, 3] {
        let file = File {
            version,
            ..File::sample()
        };
        let gguf = open(&file);
        assert_eq!(gguf.version(), version);
        assert_eq!(gguf.n_shards(), 1);
        assert_eq!(gguf.file_bytes(), file.build().len() as u64);
        let keys: Vec<&str> = gguf.metadata().map(|(k, _)| k).collect();
        assert_eq!(
            keys[..3],
            ["general.architecture", "general.alignment", "a.u8"]
        );
        assert_eq!(gguf.get("a.i64"), Some(&Value::I64(-4)));
        let nested = Array::Nested(vec![Array::U8(vec![7]), Array::F32(vec![1.5])]);
        assert_eq!(gguf.get("a.nested"), Some(&Value::Array(nested)));
        let cube = gguf.tensor("cube").expect("present");
        assert_eq!(
            (cube.ty, cube.rows(), cube.row_len(), cube.row_bytes()),
            (GgmlType::F16, 12, 2, 4)
        );
        assert_eq!(gguf.data(cube), file.tensors[2].data);
        assert!(gguf.tensor("absent").is_none());
    }
}

#[test]
fn typed_access_converts_what_fits_and_names_what_does_not() {
    let gguf = open(&File::sample());
    assert_eq!(gguf.u32("absent").unwrap(), None);
    assert_eq!(gguf.u32("a.u8").unwrap(), Some(1));
    assert_eq!(gguf.u64("a.u64").unwrap(), Some(1 << 40));
    assert_eq!(gguf.f32("a.f64").unwrap(), Some(0.25));
    assert_eq!(gguf.bool("a.bool").unwrap(), Some(true));
    assert_eq!(gguf.str("general.architecture").unwrap(), Some("llama"));
    assert_eq!(
        gguf.strings("tokenizer.ggml.tokens")
            .unwrap()
            .unwrap()
            .get(1),
        Some("▁a")
    );
    assert_eq!(gguf.u32s("a.list").unwrap(), Some(vec![1, 2, 3]));
    assert_eq!(gguf.u32s("a.u16").unwrap(), Some(vec![2]));
    assert_eq!(gguf.i32s("a.i32").unwrap(), Some(vec![-3]));
    assert_eq!(gguf.f32s("a.f32").unwrap(), Some(vec![0.5]));
    assert_eq!(gguf.bools("a.flags").unwrap(), Some(vec![true, false]));

    let text = |e: cbtop::gguf::GgufError| e.to_string();
    assert_eq!(
        text(gguf.u32("a.f32").unwrap_err()),
        "test.gguf: metadata key \"a.f32\" should be an unsigned integer, but the file has f32"
    );
    assert_eq!(
        text(gguf.f32("a.list").unwrap_err()),
        "test.gguf: metadata key \"a.list\" should be a float, but the file has an array of 3 i32"
    );
    assert_eq!(
        text(gguf.u32("a.u64").unwrap_err()),
        "test.gguf: metadata key \"a.u64\" is 1099511627776, outside the range of u32"
    );
    assert!(text(gguf.u32s("a.i32").unwrap_err()).contains("is -3, outside the range of u32"));
    assert!(text(gguf.f32("a.i32").unwrap_err()).contains("should be a float"));
    assert!(text(gguf.strings("a.list").unwrap_err()).contains("an array of UTF-8 strings"));
}

#[test]
fn text_that_is_not_utf8_is_kept_byte_for_byte() {
    let file = File::default()
        .with("general.name", Value::Bytes(vec![0xff, b'a']))
        .with(
            "tokens",
            Value::Array(Array::Bytes(vec![b"ok".to_vec(), vec![0xc3]])),
        );
    let gguf = open(&file);
    assert_eq!(
        gguf.get("general.name"),
        Some(&Value::Bytes(vec![0xff, b'a']))
    );
    assert_eq!(
        gguf.get("tokens"),
        Some(&Value::Array(Array::Bytes(vec![
            b"ok".to_vec(),
            vec![0xc3]
        ])))
    );
    assert!(
        gguf.str("general.name")
            .unwrap_err()
            .to_string()
            .contains("not UTF-8")
    );
    assert!(
        gguf.strings("tokens")
            .unwrap_err()
            .to_string()
            .contains("2 string (not UTF-8)")
    );
}

#[test]
fn trailing_bytes_and_vocabulary_only_files_are_fine() {
    let mut bytes = File::sample().build();
    bytes.extend([1, 2, 3]);
    assert_eq!(
        Gguf::from_vec(bytes, "t").expect("valid").tensors().len(),
        3
    );
    let vocabulary = open(&File::default().with("tokenizer.ggml.tokens", strings(&["a"])));
    assert!(vocabulary.tensors().is_empty());
}

#[test]
fn another_files_tensor_gives_no_bytes() {
    let small = open(&File::default().tensor(Tensor::new("t", GgmlType::F32, &[1])));
    let large = open(&File::default().tensor(Tensor::new("t", GgmlType::F32, &[4096])));
    assert!(small.data(&large.tensors()[0]).is_empty());
}

fn shards(directory: &Path) -> Vec<PathBuf> {
    let all = File::sample();
    (0..3u16)
        .map(|no| {
            let mut shard = if no == 0 {
                all.clone()
            } else {
                File::default()
            };
            shard.tensors = vec![all.tensors[usize::from(no)].clone()];
            let shard = shard
                .with("split.no", Value::U16(no))
                .with("split.count", Value::U16(3))
                .with("split.tensors.count", Value::I32(3));
            let path = directory.join(format!("m-{:05}-of-00003.gguf", no + 1));
            std::fs::write(&path, shard.build()).expect("writable");
            path
        })
        .collect()
}

#[test]
fn a_split_model_opens_from_any_shard() {
    let directory = tempfile::tempdir().expect("a directory");
    let whole = open(&File::sample());
    for given in shards(directory.path()) {
        let mut gguf = Gguf::open(&given).expect("valid");
        assert_eq!((gguf.n_shards(), gguf.path()), (3, given.as_path()));
        assert_eq!(gguf.str("general.architecture").unwrap(), Some("llama"));
        for t in whole.tensors() {
            let same = gguf.tensor(&t.name).expect("in some shard");
            assert_eq!(gguf.data(same), whole.data(t));
        }
        for method in LoadMethod::ALL {
            let options = LoadOptions {
                method,
                ..LoadOptions::default()
            };
            gguf.load(options).expect("loaded");
            for t in whole.tensors() {
                let same = gguf.tensor(&t.name).expect("in some shard");
                assert_eq!(gguf.data(same), whole.data(t));
            }
        }
    }
}

#[test]
fn a_merged_file_with_a_split_count_of_zero_is_one_file() {
    let gguf = open(&File::sample().with("split.count", Value::U16(0)));
    assert_eq!(gguf.n_shards(), 1);
}

#[test]
fn every_shared_file_opens() {
    let shared = std::env::var_os("CBTOP_SHARED").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let listed = |name: &str| std::fs::read_dir(shared.join(name));
    let (Ok(models), Ok(vocabularies)) = (listed("models"), listed("vocab")) else {
        println!("skipped: {} has no models and vocab", shared.display());
        return;
    };
    let mut opened = 0;
    for path in models
        .chain(vocabularies)
        .map(|entry| entry.expect("readable").path())
    {
        if path.extension().is_none_or(|e| e != "gguf") {
            continue;
        }
        let gguf = Gguf::open(&path).unwrap_or_else(|e| panic!("{e}"));
        assert!(
            gguf.strings("tokenizer.ggml.tokens")
                .unwrap()
                .is_some_and(|t| t.len() >= 256),
            "{}",
            path.display()
        );
        for t in gguf.tensors() {
            assert_eq!(gguf.data(t).len() as u64, t.bytes);
            assert_eq!(t.row_bytes() * t.rows(), t.bytes);
        }
        opened += 1;
    }
    assert!(opened > 20, "only {opened} files");
}

fn array() -> impl Strategy<Value = Array> {
    use proptest::collection::vec;
    let leaf = prop_oneof![
        vec(any::<u8>(), 0..5).prop_map(Array::U8),
        vec(any::<i8>(), 0..5).prop_map(Array::I8),
        vec(any::<u16>(), 0..5).prop_map(Array::U16),
        vec(any::<i16>(), 0..5).prop_map(Array::I16),
        vec(any::<u32>(), 0..5).prop_map(Array::U32),
        vec(any::<i32>(), 0..5).prop_map(Array::I32),
        vec(any::<u64>(), 0..5).prop_map(Array::U64),
        vec(any::<i64>(), 0..5).prop_map(Array::I64),
        vec(any::<f32>(), 0..5).prop_map(Array::F32),
        vec(any::<f64>(), 0..5).prop_map(Array::F64),
        vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        vec(".*", 0..5).prop_map(|v| Array::String(v.into())),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| vec(inner, 0..3).prop_map(Array::Nested))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        any::<f32>().prop_map(Value::F32),
        any::<f64>().prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        ".*".prop_map(Value::String),
        array().prop_map(Value::Array),
    ]
}

fn shape() -> impl Strategy<Value = (GgmlType, Vec<u64>)> {
    let ty = proptest::sample::select(GgmlType::ALL);
    (ty, proptest::collection::vec(1u64..4, 1..=4)).prop_map(|(ty, mut dims)| {
        dims[0] *= ty.block_len() as u64;
        (ty, dims)
    })
}

proptest! {
    // A failing case goes into a test of its own; there is no file of them.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_valid_file_reads_back_equal(
        version in 2u32..=3,
        log_alignment in 0u32..8,
        entries in proptest::collection::btree_map("[a-z]{1,9}", value(), 0..8),
        tensors in proptest::collection::btree_map("[a-z.]{1,9}", shape(), 0..6),
    ) {
        let alignment = 1u32 << log_alignment;
        let mut file = File { version, alignment: u64::from(alignment), ..File::default() }
            .with("general.alignment", Value::U32(alignment));
        for (key, value) in &entries {
            file = file.with(key, value.clone());
        }
        for (name, (ty, dims)) in &tensors {
            file = file.tensor(Tensor::new(name, *ty, dims));
        }
        let gguf = open(&file);
        prop_assert_eq!(gguf.metadata().count(), entries.len() + 1);
        for (key, value) in &entries {
            // Compared as encoded: a NaN equals itself there.
            let read = gguf.get(key).map(gguf_file::encode);
            prop_assert_eq!(read, Some(gguf_file::encode(value)));
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for t in &file.tensors {
            let read = gguf.tensor(std::str::from_utf8(&t.name).unwrap()).unwrap();
            prop_assert_eq!(&read.dims, &t.dims);
            prop_assert_eq!(read.ty as u32, t.ty);
            prop_assert_eq!(gguf.data(read), &t.data[..]);
        }
    }
}
