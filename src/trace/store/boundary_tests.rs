use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::super::error::Problem;
use super::super::testing::{full_disk, mangle, names, place, states, vector};
use super::super::{BoundaryWriter, StoreError};
use super::*;

const WIDTH: u32 = 3;
const WINDOW: u32 = 10;

fn written(path: &Path, n: u32, max: u32) -> Result<(), StoreError> {
    let mut writer = BoundaryWriter::create(path, WIDTH, WINDOW, max)?;
    append(&mut writer, n)?;
    writer.finish()
}

fn append(writer: &mut BoundaryWriter, n: u32) -> Result<(), StoreError> {
    for i in writer.len()..writer.len() + n {
        writer.append(i * WINDOW, WINDOW, &vector(WIDTH, i))?;
    }
    Ok(())
}

/// Every residual and window is the one written.
fn check(store: &BoundaryStore) {
    for i in 0..store.len() {
        assert_eq!(store.residual(i).expect("there"), vector(WIDTH, i));
        let from = u64::from(i * WINDOW);
        assert_eq!(store.token_range(i), Some(from..from + 10));
        assert_eq!(store.boundary_for_token(i * WINDOW), Some(i));
        assert_eq!(store.boundary_for_token(i * WINDOW + 9), Some(i));
    }
    let n = store.len();
    assert_eq!(store.residual(n), None);
    assert_eq!(store.token_range(n), None);
    assert_eq!(store.boundary_for_token(n * WINDOW), None);
    assert_eq!(store.total_tokens(), u64::from(n * WINDOW));
}

/// A file as other programs write them: room for `max` entries that the header does not tell.
fn version_1(windows: &[(u32, u32)], max: usize) -> Vec<u8> {
    let mut bytes = b"BNDX".to_vec();
    let total = windows.iter().map(|w| w.1).sum();
    for word in [1, WIDTH, WINDOW, windows.len() as u32, total] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.resize(64, 0);
    for (i, &(offset, tokens)) in windows.iter().enumerate() {
        let data = 64 + max * 16 + i * WIDTH as usize * 4;
        for word in [offset, tokens, data as u32, 0] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes.resize(64 + max * 16, 0);
    for i in 0..windows.len() {
        let vector = vector(WIDTH, i as u32);
        bytes.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
    }
    bytes
}

fn problem<T>(result: Result<T, StoreError>) -> Problem {
    result.err().expect("an error").problem
}

#[test]
fn version_1_is_read_where_its_offsets_lead() {
    let (_folder, path) = place("v1.bndx");
    for max in [2, 7] {
        let bytes = version_1(&[(0, 10), (10, 10)], max);
        fs::write(&path, &bytes).expect("written");
        let store = BoundaryStore::open(&path).expect("opens");
        check(&store);
        assert_eq!((store.len(), store.version()), (2, 1));
        assert_eq!(store.max_boundaries(), None);
        drop(store);
        let refused = BoundaryWriter::append_to(&path);
        assert!(matches!(problem(refused), Problem::AppendToVersion1));
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("written");
        let text = problem(BoundaryStore::open(&path)).to_string();
        assert!(
            text.starts_with("index entry 1: its data lie beyond the end"),
            "{text}"
        );
    }
    // Its writers took any window; a search must not rely on their order.
    fs::write(&path, version_1(&[(20, 5), (0, 10), (4_294_967_295, 9)], 3)).expect("written");
    let store = BoundaryStore::open(&path).expect("opens");
    assert_eq!(store.boundary_for_token(9), Some(1));
    assert_eq!(store.boundary_for_token(24), Some(0));
    assert_eq!(store.boundary_for_token(u32::MAX), Some(2));
    assert_eq!(store.boundary_for_token(15), None);
}

#[test]
fn boundaries_come_back_and_more_are_appended() {
    let (folder, path) = place("a.bndx");
    written(&path, 3, 5).expect("written");
    let store = BoundaryStore::open(&path).expect("opens");
    check(&store);
    assert_eq!((store.len(), store.max_boundaries()), (3, Some(5)));
    let mut writer = BoundaryWriter::append_to(&path).expect("writer");
    append(&mut writer, 2).expect("appended");
    let full = append(&mut writer, 1).expect_err("full").to_string();
    assert!(full.contains("5 windows are the most it can hold; finish it and go on in a new file"));
    writer.finish().expect("finished");
    assert_eq!(store.len(), 3);
    let store = BoundaryStore::open(&path).expect("opens");
    check(&store);
    assert_eq!((store.len(), store.dropped_bytes()), (5, 0));
    assert_eq!(names(folder.path()), ["a.bndx"]);
}

#[test]
fn windows_may_leave_gaps_but_not_overlap() {
    let (_folder, path) = place("a.bndx");
    let mut writer = BoundaryWriter::create(&path, WIDTH, WINDOW, 9).expect("writer");
    let v = vector(WIDTH, 0);
    writer.append(5, 3, &v).expect("appended");
    let text = |r: Result<(), StoreError>| r.expect_err("refused").to_string();
    assert!(
        text(writer.append(7, 3, &v))
            .contains("a window from token 7, and the last one ended at 8")
    );
    assert!(text(writer.append(8, 0, &v)).contains("cannot be 0"));
    assert!(text(writer.append(8, 11, &v)).contains("cannot be 11; give 1 to window_size"));
    assert!(text(writer.append(8, 1, &v[1..])).contains("a vector of 2 numbers"));
    assert!(text(writer.append(u32::MAX, 1, &v)).contains("tokens are the most"));
    writer.append(u32::MAX - 1, 1, &v).expect("appended");
    writer.finish().expect("finished");
    let store = BoundaryStore::open(&path).expect("opens");
    for (token, window) in [
        (4, None),
        (5, Some(0)),
        (8, None),
        (u32::MAX - 1, Some(1)),
        (u32::MAX, None),
    ] {
        assert_eq!(store.boundary_for_token(token), window, "{token}");
    }
    assert_eq!(store.total_tokens(), 4);
    for (hidden, window, max) in [(0, 1, 1), (1, 0, 1), (1, 1, 0), (u32::MAX, 1, u32::MAX)] {
        assert!(BoundaryWriter::create(&path, hidden, window, max).is_err());
    }
}

#[test]
fn one_writer_at_a_time() {
    let (_folder, path) = place("a.bndx");
    written(&path, 1, 9).expect("written");
    let _writer = BoundaryWriter::append_to(&path).expect("writer");
    assert!(matches!(
        problem(BoundaryWriter::append_to(&path)),
        Problem::Locked
    ));
    assert!(matches!(
        problem(BoundaryWriter::create(&path, 1, 1, 1)),
        Problem::Locked
    ));
    check(&BoundaryStore::open(&path).expect("opens"));
}

#[test]
fn killed_at_any_step_every_boundary_is_there() {
    let (_folder, path) = place("a.bndx");
    written(&path, 1, 9).expect("written");
    let states = states(&path, || {
        let mut writer = BoundaryWriter::append_to(&path).expect("writer");
        append(&mut writer, 3).expect("appended");
        writer.finish().expect("finished");
    });
    let mut n = 1;
    for state in &states {
        fs::write(&path, state).expect("written");
        let store = BoundaryStore::open(&path).expect("opens");
        check(&store);
        assert!(store.len() >= n && store.missing_boundaries() == 0);
        n = store.len();
        drop(store);
        let mut writer = BoundaryWriter::append_to(&path).expect("goes on");
        append(&mut writer, 1).expect("appended");
        writer.finish().expect("finished");
        let store = BoundaryStore::open(&path).expect("opens");
        check(&store);
        assert_eq!((store.len(), store.dropped_bytes()), (n + 1, 0));
    }
    assert_eq!(n, 4);
}

#[test]
fn cut_at_any_byte_whole_boundaries_are_there() {
    let (_folder, path) = place("a.bndx");
    written(&path, 3, 4).expect("written");
    let bytes = fs::read(&path).expect("read");
    let start = 64 + 4 * 16;
    for len in start..=bytes.len() {
        fs::write(&path, &bytes[..len]).expect("written");
        let store = BoundaryStore::open(&path).expect("opens");
        check(&store);
        let whole = (len - start) / 12;
        assert_eq!(store.len() as usize, whole);
        assert_eq!(store.missing_boundaries() as usize, 3 - whole);
        assert_eq!(store.dropped_bytes() as usize, (len - start) % 12);
        drop(store);
        let mut writer = BoundaryWriter::append_to(&path).expect("goes on");
        append(&mut writer, 1).expect("appended");
        writer.finish().expect("finished");
        let store = BoundaryStore::open(&path).expect("opens");
        check(&store);
        assert_eq!(
            (store.len() as usize, store.dropped_bytes()),
            (whole + 1, 0)
        );
    }
}

#[test]
fn a_full_disk_takes_nothing_away() {
    let (folder, path) = place("a.bndx");
    let old = || {
        let _ = fs::remove_file(&path);
        written(&path, 1, 9).expect("written");
    };
    full_disk(
        old,
        || written(&path, 2, 9),
        |_| {
            assert_eq!(BoundaryStore::open(&path).expect("opens").len(), 1);
            assert_eq!(names(folder.path()), ["a.bndx"]);
        },
    );
    full_disk(
        old,
        || {
            let mut writer = BoundaryWriter::append_to(&path)?;
            append(&mut writer, 2)?;
            writer.finish()
        },
        |_| {
            let store = BoundaryStore::open(&path).expect("opens");
            check(&store);
            assert!(!store.is_empty());
        },
    );
}

#[test]
fn damage_is_an_error_or_well_formed() {
    let (_folder, path) = place("a.bndx");
    written(&path, 3, 4).expect("written");
    let open = |path: &Path| {
        let Ok(store) = BoundaryStore::open(path) else {
            return false;
        };
        for i in 0..store.len() {
            let residual = store.residual(i).expect("there");
            assert_eq!(residual.len(), store.hidden_size() as usize);
            let range = store.token_range(i).expect("there");
            if let (false, Ok(token)) = (range.is_empty(), u32::try_from(range.start)) {
                assert!(store.boundary_for_token(token).is_some());
            }
        }
        true
    };
    let bytes = fs::read(&path).expect("read");
    let (cut, turned) = mangle(&bytes, 0..64 + 4 * 16, open);
    // Of an index entry only windows can change unseen, if they still fit; the unused fourth entry is read by nobody.
    assert_eq!(cut, 3 * 12);
    assert!((16 * 3..16 * 3 + 3 * 8 * 3).contains(&turned), "{turned}");

    let bytes = version_1(&[(0, 10), (10, 10)], 4);
    let (cut, turned) = mangle(&bytes, 0..64 + 4 * 16, open);
    assert_eq!(cut, 0);
    assert!(turned > 0);
}

#[test]
fn hostile_headers_are_refused() {
    let (_folder, path) = place("a.bndx");
    let huge = [u32::MAX, 1, 0x8000_0000];
    for version in [1, 2] {
        for hidden_size in huge {
            for n_boundaries in huge {
                for max_boundaries in huge {
                    let fields = Fields {
                        version,
                        hidden_size,
                        window_size: 1,
                        n_boundaries,
                        total_tokens: 0,
                        max_boundaries,
                    };
                    let mut bytes = fields.write().0.to_vec();
                    bytes.resize(96, 0xff);
                    fs::write(&path, bytes).expect("written");
                    assert!(BoundaryStore::open(&path).is_err());
                }
            }
        }
    }
}

#[test]
fn data_beyond_4_gib_are_found() {
    let (_folder, path) = place("a.bndx");
    // The index alone takes more; on the disk it takes nothing.
    let mut writer = BoundaryWriter::create(&path, WIDTH, WINDOW, 270_000_000).expect("writer");
    if let Err(e) = append(&mut writer, 2).and_then(|()| writer.finish()) {
        println!("skipped: no sparse files here ({e})");
        return;
    }
    let store = BoundaryStore::open(&path).expect("opens");
    check(&store);
    assert_eq!(
        data_offset(store.map.bytes(), 2, 0),
        Some(64 + 16 * 270_000_000)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_appended_comes_back(
        width in 1u32..30,
        windows in prop::collection::vec((0u32..20, 1u32..10, any::<u32>()), 0..20),
        token in 0u32..300,
        reopen in 0usize..20,
    ) {
        let (_folder, path) = place("a.bndx");
        let mut writer = BoundaryWriter::create(&path, width, WINDOW, 20).expect("writer");
        let (mut end, mut ranges) = (0, Vec::new());
        for (i, (gap, tokens, bits)) in windows.iter().enumerate() {
            if i == reopen {
                writer.finish().expect("finished");
                writer = BoundaryWriter::append_to(&path).expect("writer");
            }
            let from = end + gap;
            let residual = vec![f32::from_bits(*bits); width as usize];
            writer.append(from, *tokens, &residual).expect("appended");
            end = from + tokens;
            ranges.push(u64::from(from)..u64::from(end));
        }
        writer.finish().expect("finished");
        let store = BoundaryStore::open(&path).expect("opens");
        prop_assert_eq!(store.len() as usize, ranges.len());
        for (i, range) in ranges.iter().enumerate() {
            let residual = store.residual(i as u32).expect("there");
            prop_assert!(residual.iter().all(|x| x.to_bits() == windows[i].2));
            prop_assert_eq!(store.token_range(i as u32), Some(range.clone()));
        }
        let holds = ranges.iter().position(|r| r.contains(&u64::from(token)));
        prop_assert_eq!(store.boundary_for_token(token).map(|i| i as usize), holds);
        let sum: u64 = windows.iter().map(|w| u64::from(w.1)).sum();
        prop_assert_eq!(store.total_tokens(), sum);
    }
}
