use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::super::error::Problem;
use super::super::testing::{full_disk, mangle, names, place, states, vector};
use super::super::{StoreError, TraceWriter};
use super::*;

const WIDTH: u32 = 3;
const LAYERS: u32 = 2;

fn seed(token: u32, layer: u32, kind: Kind) -> u32 {
    token * 100 + layer * 10 + kind as u32
}

/// Layer by layer, as an engine does; deltas of layer 0 left out.
fn chunk(writer: &mut TraceWriter, from: u32, n: u32) -> Result<(), StoreError> {
    writer.begin_chunk(n)?;
    let width = writer.hidden_size();
    for layer in 0..=writer.n_layers() {
        for kind in Kind::ALL {
            if layer == 0 && kind != Kind::Residual {
                continue;
            }
            for token in 0..n {
                let vector = vector(width, seed(from + token, layer, kind));
                writer.put(token, layer, kind, &vector)?;
            }
        }
    }
    writer.end_chunk()
}

fn written(path: &Path, chunks: &[u32], meta: Option<&[u8]>) -> Result<(), StoreError> {
    let mut writer = TraceWriter::create(path, WIDTH, LAYERS)?;
    let mut from = 0;
    for &n in chunks {
        chunk(&mut writer, from, n)?;
        from += n;
    }
    writer.finish(meta)
}

/// Every vector is the one written.
fn check(store: &TraceStore) {
    for token in 0..store.n_tokens() {
        for layer in 0..=store.n_layers() {
            for kind in Kind::ALL {
                let got = store.vector(token, layer, kind).expect("a vector");
                if layer == 0 && kind != Kind::Residual {
                    assert!(got.iter().all(|&x| x == 0.0));
                } else {
                    assert_eq!(got, vector(store.hidden_size(), seed(token, layer, kind)));
                }
            }
        }
    }
    assert_eq!(store.residual(store.n_tokens(), 0), None);
    assert_eq!(store.residual(0, store.n_layers() + 1), None);
}

/// A file as other programs write them.
fn version_1(tokens: u32) -> Vec<u8> {
    let mut bytes = b"TRAC".to_vec();
    for word in [1, WIDTH, LAYERS, tokens] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize(64, 0);
    for token in 0..tokens {
        for layer in 0..=LAYERS {
            for kind in Kind::ALL {
                let zero = layer == 0 && kind != Kind::Residual;
                for x in vector(WIDTH, seed(token, layer, kind)) {
                    bytes.extend(if zero { 0.0 } else { x }.to_le_bytes());
                }
            }
        }
    }
    bytes
}

fn problem<T>(result: Result<T, StoreError>) -> Problem {
    result.err().expect("an error").problem
}

#[test]
fn version_1_is_read_exactly_and_written_for_others() {
    let (_folder, path) = place("v1.trace");
    let bytes = version_1(2);
    fs::write(&path, &bytes).expect("written");
    let store = TraceStore::open(&path).expect("open");
    check(&store);
    assert_eq!(
        (store.version(), store.n_tokens(), store.meta()),
        (1, 2, None)
    );
    let refused = TraceWriter::append(&path);
    assert!(matches!(problem(refused), Problem::AppendToVersion1));
    assert_eq!(fs::read(&path).expect("read"), bytes);

    let other = path.with_extension("other");
    let mut writer = TraceWriter::create(&other, WIDTH, LAYERS).expect("writer");
    chunk(&mut writer, 0, 2).expect("chunk");
    writer.finish_version_1().expect("finished");
    assert_eq!(fs::read(&other).expect("read"), bytes);

    for len in [bytes.len() - 1, bytes.len() + 1, 64] {
        let mut bytes = bytes.clone();
        bytes.resize(len, 0);
        fs::write(&path, &bytes).expect("written");
        let problem = problem(TraceStore::open(&path));
        assert!(matches!(problem, Problem::Length { .. }), "{problem}");
    }
}

#[test]
fn chunks_and_metadata_come_back() {
    let (folder, path) = place("a.trace");
    written(&path, &[1, 4], Some(b"{\"a\":1}")).expect("written");
    let store = TraceStore::open(&path).expect("open");
    check(&store);
    assert_eq!((store.version(), store.n_tokens()), (2, 5));
    assert_eq!(store.meta(), Some(&b"{\"a\":1}"[..]));
    assert_eq!(store.dropped_bytes(), 0);

    let mut writer = TraceWriter::append(&path).expect("writer");
    assert_eq!(writer.previous_meta(), Some(&b"{\"a\":1}"[..]));
    chunk(&mut writer, 5, 2).expect("chunk");
    writer.finish(Some(b"")).expect("finished");
    let longer = TraceStore::open(&path).expect("open");
    check(&longer);
    assert_eq!((longer.n_tokens(), longer.meta()), (7, Some(&b""[..])));
    // A reader sees the file as it was.
    check(&store);
    assert_eq!(
        (store.n_tokens(), store.meta()),
        (5, Some(&b"{\"a\":1}"[..]))
    );
    assert_eq!(names(folder.path()), ["a.trace"]);
}

#[test]
fn any_content_is_data() {
    let (_folder, path) = place("nan.trace");
    let mut writer = TraceWriter::create(&path, 2, 1).expect("writer");
    writer.begin_chunk(1).expect("begun");
    for layer in 0..=1 {
        for kind in Kind::ALL {
            let vector = [f32::NAN, f32::NEG_INFINITY];
            writer.put(0, layer, kind, &vector).expect("put");
        }
    }
    writer.end_chunk().expect("ended");
    writer.finish(None).expect("finished");
    let store = TraceStore::open(&path).expect("open");
    let got = store.attn_delta(0, 0).expect("a vector");
    assert!(got[0].is_nan() && got[1] == f32::NEG_INFINITY);
}

#[test]
fn misuse_is_refused_and_hurts_nothing() {
    let (folder, path) = place("a.trace");
    fs::write(&path, b"precious").expect("written");
    assert!(matches!(
        problem(TraceWriter::create(&path, 0, 1)),
        Problem::Shape { .. }
    ));
    assert!(matches!(
        problem(TraceWriter::create(&path, u32::MAX, u32::MAX)),
        Problem::Overflow
    ));
    let mut writer = TraceWriter::create(&path, WIDTH, LAYERS).expect("writer");
    let v = vector(WIDTH, 0);
    let r = Kind::Residual;
    let refused = |result, text: &str| {
        let error: StoreError = Result::<(), _>::err(result).expect("refused");
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(writer.put(0, 0, r, &v), "no chunk is open; begin one first");
    refused(writer.end_chunk(), "no chunk is open");
    refused(writer.begin_chunk(0), "cannot be 0");
    writer.begin_chunk(2).expect("begun");
    refused(writer.begin_chunk(1), "a chunk is open already");
    refused(
        writer.put(2, 0, r, &v),
        "token 2 does not exist, there are 2",
    );
    refused(
        writer.put(0, 3, r, &v),
        "layer 3 does not exist, there are 3",
    );
    refused(
        writer.put(0, 0, r, &v[1..]),
        "a vector of 2 numbers, and the store's have 3",
    );
    writer.put(0, 0, r, &v).expect("put");
    writer.put(0, 0, Kind::AttnDelta, &v).expect("put");
    refused(
        writer.put(0, 0, r, &v),
        "token 0, layer 0: this vector was stored already",
    );
    refused(
        writer.end_chunk(),
        "13 vectors are missing, the first at token 0, layer 1",
    );
    writer.cancel_chunk().expect("cancelled");
    chunk(&mut writer, 0, 1).expect("chunk");
    writer.begin_chunk(1).expect("begun");
    refused(writer.finish(None), "a chunk is still open");
    assert_eq!(fs::read(&path).expect("read"), b"precious");
    assert_eq!(names(folder.path()), ["a.trace"]);
    assert!(matches!(
        problem(TraceWriter::create(folder.path(), 1, 1)),
        Problem::NotRegular
    ));
    let nowhere = folder.path().join("none/a.trace");
    let text = problem(TraceWriter::create(&nowhere, 1, 1)).to_string();
    assert!(text.starts_with("creating the new file"), "{text}");
}

#[test]
fn one_writer_at_a_time_and_readers_do_not_wait() {
    let (folder, path) = place("a.trace");
    let first = TraceWriter::create(&path, WIDTH, LAYERS).expect("writer");
    let locked = |result| matches!(problem::<TraceWriter>(result), Problem::Locked);
    assert!(locked(TraceWriter::create(&path, WIDTH, LAYERS)));
    first.finish(None).expect("finished");
    let second = TraceWriter::append(&path).expect("writer");
    assert!(locked(TraceWriter::append(&path)));
    assert!(locked(TraceWriter::create(&path, WIDTH, LAYERS)));
    check(&TraceStore::open(&path).expect("open"));
    drop(second);
    let link = folder.path().join("link.trace");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let third = TraceWriter::create(&link, WIDTH, LAYERS).expect("writer");
    assert!(locked(TraceWriter::append(&path)));
    third.finish(None).expect("finished");
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
    drop(TraceWriter::append(&path).expect("free again"));
}

#[test]
fn a_killed_writers_leftover_is_used_again() {
    let (folder, path) = place("a.trace");
    fs::write(folder.path().join(".a.trace.part"), [7; 5000]).expect("written");
    written(&path, &[1], None).expect("written");
    check(&TraceStore::open(&path).expect("open"));
    assert_eq!(names(folder.path()), ["a.trace"]);
}

#[test]
fn killed_at_any_step_all_complete_chains_are_there() {
    let (_folder, path) = place("a.trace");
    written(&path, &[2], Some(b"first")).expect("written");
    let states = states(&path, || {
        let mut writer = TraceWriter::append(&path).expect("writer");
        chunk(&mut writer, 2, 1).expect("chunk");
        chunk(&mut writer, 3, 2).expect("chunk");
        writer.finish(Some(b"second")).expect("finished");
    });
    assert!(states.len() > 10);
    let (_folder, copy) = place("copy.trace");
    let mut tokens = 2;
    for state in states {
        // The last step's write may have come through in part.
        fs::write(&copy, &state).expect("written");
        let store = TraceStore::open(&copy).expect("opens");
        check(&store);
        assert!(store.n_tokens() >= tokens && store.missing_tokens() == 0);
        tokens = store.n_tokens();
        drop(store);
        let mut writer = TraceWriter::append(&copy).expect("goes on");
        chunk(&mut writer, tokens, 1).expect("chunk");
        writer.finish(None).expect("finished");
        let store = TraceStore::open(&copy).expect("opens");
        check(&store);
        assert_eq!((store.n_tokens(), store.dropped_bytes()), (tokens + 1, 0));
    }
    assert_eq!(tokens, 5);
}

#[test]
fn an_append_cut_at_any_byte_keeps_what_was_complete() {
    let (_folder, path) = place("a.trace");
    written(&path, &[1], None).expect("written");
    let old = fs::read(&path).expect("read");
    let mut writer = TraceWriter::append(&path).expect("writer");
    chunk(&mut writer, 1, 2).expect("chunk");
    writer.finish(Some(b"meta")).expect("finished");
    let new = fs::read(&path).expect("read");
    let chain = (old.len() - 64) as u64;
    for len in old.len()..=new.len() {
        // Killed before the header counts the chunk: the old header, a longer file.
        let torn = [&old[..64], &new[64..len]].concat();
        fs::write(&path, &torn).expect("written");
        let store = TraceStore::open(&path).expect("opens");
        check(&store);
        assert_eq!(store.n_tokens(), 1);
        assert_eq!(store.dropped_bytes(), (len - old.len()) as u64);
        // Cut later: the new header, a shorter file.
        fs::write(&path, &new[..len]).expect("written");
        let store = TraceStore::open(&path).expect("opens");
        check(&store);
        let whole = (len as u64 - 64) / chain;
        assert_eq!(u64::from(store.n_tokens()), whole.min(3));
        assert_eq!(store.n_tokens() + store.missing_tokens(), 3);
        assert_eq!(store.meta().is_some(), len == new.len());
        assert_eq!(store.meta_damaged(), len < new.len());
        drop(store);
        let mut writer = TraceWriter::append(&path).expect("goes on");
        let tokens = writer.n_tokens();
        chunk(&mut writer, tokens, 1).expect("chunk");
        writer.finish(None).expect("finished");
        let store = TraceStore::open(&path).expect("opens");
        check(&store);
        assert_eq!((store.n_tokens(), store.dropped_bytes()), (tokens + 1, 0));
    }
}

#[test]
fn a_full_disk_takes_nothing_away() {
    let (folder, path) = place("a.trace");
    let old = || {
        let _ = fs::remove_file(&path);
        written(&path, &[1], Some(b"old")).expect("written");
    };
    full_disk(
        old,
        || written(&path, &[2], Some(b"new")),
        |_| {
            let store = TraceStore::open(&path).expect("opens");
            assert_eq!((store.n_tokens(), store.meta()), (1, Some(&b"old"[..])));
            assert_eq!(names(folder.path()), ["a.trace"]);
        },
    );
    full_disk(
        old,
        || {
            let mut writer = TraceWriter::append(&path)?;
            chunk(&mut writer, 1, 2)?;
            writer.finish(Some(b"new"))
        },
        |_| {
            let store = TraceStore::open(&path).expect("opens");
            check(&store);
            assert!([1, 3].contains(&store.n_tokens()));
        },
    );
}

#[test]
fn after_a_failed_write_a_chunk_can_be_written_again() {
    use super::super::target::steps::watched;
    let (_folder, path) = place("a.trace");
    written(&path, &[1], None).expect("written");
    for fails in 0..4 {
        let mut writer = TraceWriter::append(&path).expect("writer");
        let from = writer.n_tokens();
        let mut step = 0;
        let watch = move |_: &Path| {
            step += 1;
            match step > fails {
                true => Err(std::io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        };
        watched(watch, || chunk(&mut writer, from, 1).expect_err("full"));
        let text = writer.end_chunk().expect_err("refused").to_string();
        assert!(text.contains("cancel it"), "{text}");
        writer.cancel_chunk().expect("cancelled");
        assert_eq!(writer.n_tokens(), from);
        chunk(&mut writer, from, 2).expect("chunk");
        writer.finish(None).expect("finished");
        let store = TraceStore::open(&path).expect("opens");
        check(&store);
        assert_eq!(store.n_tokens(), from + 2);
    }
}

#[test]
fn damage_is_an_error_or_well_formed() {
    let (_folder, path) = place("a.trace");
    written(&path, &[2], Some(b"meta")).expect("written");
    let bytes = fs::read(&path).expect("read");
    let open = |path: &Path| TraceStore::open(path).map(|s| check(&s)).is_ok();
    let (cut, turned) = mangle(&bytes, 0..64, open);
    assert_eq!((cut, turned), (bytes.len() - 64, 0));

    let flip = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).expect("written");
        TraceStore::open(&path)
    };
    let store = flip(bytes.len() - 1).expect("opens");
    assert!(store.meta_damaged() && store.meta().is_none());
    assert_eq!(store.dropped_bytes(), 0);
    assert!(matches!(problem(flip(0)), Problem::Magic { .. }));
    assert!(matches!(problem(flip(4)), Problem::Version(3)));
    assert!(matches!(problem(flip(16)), Problem::HeaderChecksum));

    let bytes = version_1(2);
    let open = |path: &Path| {
        let Ok(store) = TraceStore::open(path) else {
            return false;
        };
        let last = store.residual(store.n_tokens() - 1, store.n_layers());
        last.is_some_and(|v| v.len() == store.hidden_size() as usize)
    };
    let (cut, turned) = mangle(&bytes, 0..64, open);
    // What turns unused bytes changes nothing.
    assert_eq!((cut, turned), (0, 44 * 3));
}

#[test]
fn hostile_headers_are_refused_before_anything_is_reserved() {
    let (_folder, path) = place("a.trace");
    let huge = [u32::MAX, 1, 0x8000_0000];
    for version in [1, 2] {
        for hidden_size in huge {
            for n_layers in huge {
                for n_tokens in huge {
                    let fields = Fields {
                        version,
                        shape: Shape {
                            hidden_size,
                            n_layers,
                        },
                        n_tokens,
                        meta: Some((u64::MAX - 3, u32::MAX, 0)),
                    };
                    fs::write(&path, fields.write().0).expect("written");
                    if let Ok(store) = TraceStore::open(&path) {
                        assert_eq!((version, store.n_tokens()), (2, 0));
                        assert_eq!(store.residual(0, 0), None);
                    }
                }
            }
        }
    }
    let meta = Fields {
        version: 2,
        shape: Shape {
            hidden_size: 1,
            n_layers: 1,
        },
        n_tokens: 1,
        meta: Some((64, 4, 0)),
    };
    fs::write(&path, meta.write().0).expect("written");
    assert!(matches!(
        problem(TraceStore::open(&path)),
        Problem::Field { .. }
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_put_comes_back_in_any_order(
        width in 1u32..40,
        layers in 1u32..5,
        chunks in prop::collection::vec(1u32..6, 1..4),
        order in any::<u64>(),
        meta in prop::option::of(prop::collection::vec(any::<u8>(), 0..50)),
        split in any::<bool>(),
    ) {
        let (_folder, path) = place("a.trace");
        let mut writer = TraceWriter::create(&path, width, layers).expect("writer");
        let mut from = 0;
        for n in chunks {
            if split && from > 0 {
                writer.finish(Some(b"between")).expect("finished");
                writer = TraceWriter::append(&path).expect("writer");
            }
            writer.begin_chunk(n).expect("begun");
            let mut all: Vec<_> = (0..n)
                .flat_map(|t| (0..=layers).flat_map(move |l| Kind::ALL.map(|k| (t, l, k))))
                .filter(|&(_, l, k)| l > 0 || k == Kind::Residual)
                .collect();
            all.sort_by_key(|&(t, l, k)| {
                (u64::from(seed(t, l, k)) + 1).wrapping_mul(order | 1).rotate_left(17)
            });
            for (t, l, k) in all {
                writer.put(t, l, k, &vector(width, seed(from + t, l, k))).expect("put");
            }
            writer.end_chunk().expect("ended");
            from += n;
        }
        writer.finish(meta.as_deref()).expect("finished");
        let store = TraceStore::open(&path).expect("opens");
        check(&store);
        prop_assert_eq!(store.n_tokens(), from);
        prop_assert_eq!(store.meta(), meta.as_deref());
        prop_assert_eq!(store.dropped_bytes(), 0);
    }
}
