use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::super::error::Problem;
use super::super::testing::{full_disk, mangle, names, place, states, vector};
use super::super::{ContextVectors, ContextWriter, StoreError, TemplateBuilder, Tier};
use super::*;

const WIDTH: u32 = 3;
const WINDOW: u32 = 10;

fn shape(tier: Tier, layers: &[u32]) -> ContextShape {
    ContextShape {
        hidden_size: WIDTH,
        n_layers: 34,
        window_size: WINDOW,
        tier,
        residual_layer: layers.first().map_or(34, |l| l.saturating_sub(1)),
        critical_layers: layers.to_vec(),
    }
}

/// The slots of window `i`.
fn slots(shape: &ContextShape, i: u32) -> Vec<Vec<f32>> {
    let slot = |s| vector(shape.hidden_size, i * 100 + s as u32);
    (0..shape.vectors()).map(slot).collect()
}

fn append(writer: &mut ContextWriter, windows: u32) -> Result<(), StoreError> {
    for i in writer.len()..writer.len() + windows {
        let slots = slots(writer.shape(), i);
        let all: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
        let n = match writer.shape().tier {
            Tier::One => 0,
            _ => writer.shape().critical_layers.len(),
        };
        let vectors = ContextVectors {
            residual: all[0],
            ffn_deltas: &all[1..1 + n],
            attn_deltas: &all[1 + n..],
        };
        writer.append(i * WINDOW, WINDOW, &vectors)?;
    }
    Ok(())
}

/// A template that fits the windows written.
fn template(shape: &ContextShape) -> Template {
    let mut builder = TemplateBuilder::new(shape.vectors(), shape.hidden_size).expect("builder");
    for i in 0..3 {
        let slots = slots(shape, i);
        let all: Vec<&[f32]> = slots.iter().map(Vec::as_slice).collect();
        builder.add(&all).expect("added");
    }
    builder.build().expect("a template")
}

fn written(path: &Path, shape: &ContextShape, int8: bool, n: u32) -> Result<(), StoreError> {
    let template = int8.then(|| template(shape));
    let mut writer = ContextWriter::create(path, shape, 4, template.as_ref())?;
    append(&mut writer, n)?;
    writer.finish()
}

/// Every vector is the one written, or near it.
fn check(store: &ContextStore) {
    let shape = store.shape();
    for i in 0..store.len() {
        let slots = slots(shape, i);
        for (s, truth) in slots.iter().enumerate() {
            let got = store.slot(i, s).expect("there");
            match &got {
                Cow::Borrowed(got) => assert_eq!(got, truth),
                Cow::Owned(got) => {
                    for (got, truth) in got.iter().zip(truth) {
                        assert!((got - truth).abs() <= 2.0, "{got} {truth}");
                    }
                }
            }
        }
        assert_eq!(store.residual(i), store.slot(i, 0));
        for (l, &layer) in shape.critical_layers.iter().enumerate() {
            let n = shape.critical_layers.len();
            assert_eq!(store.ffn_delta(i, layer), store.slot(i, 1 + l));
            assert_eq!(store.attn_delta(i, layer), store.slot(i, 1 + n + l));
        }
        let from = u64::from(i * WINDOW);
        assert_eq!(store.token_range(i), Some(from..from + 10));
        assert_eq!(store.boundary_for_token(i * WINDOW + 9), Some(i));
    }
    let n = store.len();
    assert_eq!(store.slot(n, 0), None);
    assert_eq!(store.slot(0, shape.vectors()), None);
    assert_eq!(store.boundary_for_token(n * WINDOW), None);
    assert_eq!(store.total_tokens(), u64::from(n * WINDOW));
}

/// A file as other programs write them.
fn version_1(tier: u8, layers: &[u8], n_layers: u32, windows: u32, max: usize) -> Vec<u8> {
    let vectors = match tier {
        1 => 1,
        2 => 1 + layers.len(),
        _ => 1 + 2 * layers.len(),
    };
    let mut bytes = b"CTXT".to_vec();
    for word in [1, WIDTH, n_layers, WINDOW] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend([tier, layers.len() as u8, 0, 0]);
    bytes.extend(layers.iter().take(8));
    bytes.resize(32, 0);
    bytes.extend(windows.to_le_bytes());
    bytes.extend((windows * WINDOW).to_le_bytes());
    bytes.resize(128, 0);
    for i in 0..windows {
        bytes.extend((i * WINDOW).to_le_bytes());
        bytes.extend(WINDOW.to_le_bytes());
        let data = 128 + max * 24 + i as usize * vectors * WIDTH as usize * 4;
        bytes.extend((data as u64).to_le_bytes());
        bytes.extend([0; 8]);
    }
    bytes.resize(128 + max * 24, 0);
    for i in 0..windows {
        for s in 0..vectors {
            let vector = vector(WIDTH, i * 100 + s as u32);
            bytes.extend(vector.iter().flat_map(|x| x.to_le_bytes()));
        }
    }
    bytes
}

fn problem<T>(result: Result<T, StoreError>) -> Problem {
    result.err().expect("an error").problem
}

#[test]
fn version_1_is_read_in_its_three_tiers() {
    let (_folder, path) = place("v1.ctxt");
    for (tier, layers) in [
        (1, &[][..]),
        (1, &[3]),
        (2, &[3, 4]),
        (3, &[0, 30, 33]),
        (3, &[1, 2, 3, 4, 5, 6, 7, 8]),
    ] {
        fs::write(&path, version_1(tier, layers, 34, 2, 5)).expect("written");
        let store = ContextStore::open(&path).expect("opens");
        assert_eq!((store.len(), store.version()), (2, 1));
        if tier > 1 {
            check(&store);
        }
        let refused = ContextWriter::append_to(&path);
        assert!(matches!(problem(refused), Problem::AppendToVersion1));
    }
    for (tier, layers, n_layers, field) in [
        (0, &[][..], 34, "tier"),
        (4, &[33], 34, "tier"),
        (3, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 34, "n_critical"),
        (3, &[34, 35], 34, "list of critical layers"),
    ] {
        fs::write(&path, version_1(tier, layers, n_layers, 1, 1)).expect("written");
        let problem = problem(ContextStore::open(&path));
        let is = matches!(&problem, Problem::Field { field: f, .. } if *f == field);
        assert!(is, "{problem}");
    }
}

#[test]
fn every_tier_and_encoding_comes_back() {
    let (folder, path) = place("a.ctxt");
    let exact = ContextShape::exact(WIDTH, 34, WINDOW, 3);
    assert_eq!(exact.critical_layers.len(), 31);
    for shape in [
        shape(Tier::One, &[]),
        shape(Tier::Two, &[5, 20]),
        shape(Tier::Three, &[7, 9, 33]),
        exact,
    ] {
        for int8 in [false, true] {
            written(&path, &shape, int8, 2).expect("written");
            let store = ContextStore::open(&path).expect("opens");
            check(&store);
            assert_eq!((store.len(), store.shape()), (2, &shape));
            assert_eq!(store.template().is_some(), int8);
            let mut writer = ContextWriter::append_to(&path).expect("writer");
            append(&mut writer, 2).expect("appended");
            let full = append(&mut writer, 1).expect_err("full").to_string();
            assert!(full.contains("4 windows are the most"), "{full}");
            writer.finish().expect("finished");
            let store = ContextStore::open(&path).expect("opens");
            check(&store);
            assert_eq!((store.len(), store.dropped_bytes()), (4, 0));
            assert_eq!(store.template(), int8.then(|| template(&shape)));
        }
    }
    assert_eq!(names(folder.path()), ["a.ctxt"]);
}

#[test]
fn layers_beyond_a_byte_fit() {
    let (_folder, path) = place("a.ctxt");
    let shape = ContextShape::exact(1, 700, WINDOW, 290);
    written(&path, &shape, false, 1).expect("written");
    let store = ContextStore::open(&path).expect("opens");
    assert_eq!(store.shape().critical_layers.len(), 410);
    assert_eq!(store.ffn_delta(0, 700), store.slot(0, 410));
}

#[test]
fn the_last_residual_is_rebuilt_bit_by_bit() {
    let (_folder, path) = place("a.ctxt");
    let shape = ContextShape::exact(4, 5, WINDOW, 2);
    // Numbers whose sum depends on the order.
    let number = |seed: u32| (seed as f32 * 1.37).sin() * 10f32.powi((seed % 9) as i32 - 4);
    let make = |from: u32| -> Vec<f32> { (0..4).map(|i| number(from + i * 31)).collect() };
    let (residual, ffn, attn): (_, Vec<_>, Vec<_>) = (
        make(1),
        (0..3).map(|l| make(100 + l)).collect(),
        (0..3).map(|l| make(200 + l)).collect(),
    );
    let mut truth = residual.clone();
    for (attn, ffn) in attn.iter().zip(&ffn) {
        for ((x, a), f) in truth.iter_mut().zip(attn).zip(ffn) {
            *x += a;
            *x += f;
        }
    }
    let ffn: Vec<&[f32]> = ffn.iter().map(Vec::as_slice).collect();
    let attn: Vec<&[f32]> = attn.iter().map(Vec::as_slice).collect();
    let vectors = ContextVectors {
        residual: &residual,
        ffn_deltas: &ffn,
        attn_deltas: &attn,
    };
    let mut writer = ContextWriter::create(&path, &shape, 1, None).expect("writer");
    writer.append(0, 1, &vectors).expect("appended");
    writer.finish().expect("finished");
    let store = ContextStore::open(&path).expect("opens");
    assert_eq!(store.shape().rebuilds(), Some(5));
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&store.reconstruct(0).expect("rebuilt")), bits(&truth));
    assert!(matches!(
        problem(store.reconstruct(1)),
        Problem::OutOfRange { .. }
    ));
    for shape in [
        shape_of(Tier::Two, 2, &[3, 4]),
        shape_of(Tier::Three, 2, &[3, 5]),
        shape_of(Tier::Three, 1, &[3]),
    ] {
        written(&path, &shape, false, 1).expect("written");
        let store = ContextStore::open(&path).expect("opens");
        assert!(matches!(
            problem(store.reconstruct(0)),
            Problem::NotRebuilt { .. }
        ));
    }
    fs::write(&path, version_1(3, &[32, 33], 34, 1, 1)).expect("written");
    let store = ContextStore::open(&path).expect("opens");
    assert_eq!(store.shape().rebuilds(), Some(33));
    assert_eq!(store.reconstruct(0).expect("rebuilt").len(), 3);
}

fn shape_of(tier: Tier, residual_layer: u32, layers: &[u32]) -> ContextShape {
    ContextShape {
        residual_layer,
        ..shape(tier, layers)
    }
}

#[test]
fn shapes_that_make_no_sense_are_refused() {
    let (folder, path) = place("a.ctxt");
    let text = |shape: &ContextShape| {
        let refused = ContextWriter::create(&path, shape, 4, None);
        refused.expect_err("refused").problem.to_string()
    };
    for (shape, says) in [
        (shape(Tier::One, &[3]), "tier 1 with 1 of them"),
        (shape(Tier::Two, &[]), "tier 2 without any"),
        (shape(Tier::Three, &[4, 4]), "4 after 4"),
        (shape(Tier::Three, &[5, 4]), "4 after 5"),
        (shape(Tier::Three, &[35]), "35 of 34 layers"),
        (shape_of(Tier::Two, 0, &[0]), "0 is the embedding"),
        (
            shape(Tier::Four, &[30, 31]),
            "tier 4 without every layer from 30 on",
        ),
        (shape_of(Tier::Two, 35, &[3]), "residual_layer cannot be 35"),
        (
            ContextShape {
                hidden_size: 0,
                ..shape(Tier::One, &[])
            },
            "hidden_size cannot be 0",
        ),
    ] {
        assert!(text(&shape).contains(says), "{}", text(&shape));
    }
    let huge = ContextShape {
        hidden_size: u32::MAX,
        ..shape(Tier::One, &[])
    };
    let refused = ContextWriter::create(&path, &huge, u32::MAX, None);
    assert!(matches!(problem(refused), Problem::Overflow));
    let ok = shape(Tier::Two, &[3]);
    let other = template(&shape(Tier::Three, &[3]));
    let refused = ContextWriter::create(&path, &ok, 4, Some(&other));
    assert!(matches!(problem(refused), Problem::Vectors { .. }));
    let mut writer = ContextWriter::create(&path, &ok, 4, Some(&template(&ok))).expect("writer");
    let v = vector(WIDTH, 0);
    let nan = [0.0, f32::NAN, 0.0];
    for (ffn, attn) in [
        (&[][..], &[][..]),
        (&[&v[..]], &[&v[..]]),
        (&[&v[1..]], &[]),
        (&[&nan[..]], &[]),
    ] {
        let vectors = ContextVectors {
            residual: &v,
            ffn_deltas: ffn,
            attn_deltas: attn,
        };
        assert!(writer.append(0, 1, &vectors).is_err());
    }
    drop(writer);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn killed_or_cut_anywhere_whole_windows_are_there() {
    let (_folder, path) = place("a.ctxt");
    for int8 in [false, true] {
        let shape = shape(Tier::Three, &[7]);
        written(&path, &shape, int8, 1).expect("written");
        let states = states(&path, || {
            let mut writer = ContextWriter::append_to(&path).expect("writer");
            append(&mut writer, 2).expect("appended");
            writer.finish().expect("finished");
        });
        let whole = states.last().expect("the last").clone();
        let start = ContextStore::open(&path).expect("opens").fields.layout.data as usize;
        let cuts = (start..whole.len()).map(|len| whole[..len].to_vec());
        for state in states.into_iter().chain(cuts) {
            fs::write(&path, &state).expect("written");
            let store = ContextStore::open(&path).expect("opens");
            check(&store);
            let n = store.len();
            drop(store);
            let mut writer = ContextWriter::append_to(&path).expect("goes on");
            append(&mut writer, 1).expect("appended");
            writer.finish().expect("finished");
            let store = ContextStore::open(&path).expect("opens");
            check(&store);
            assert_eq!((store.len(), store.dropped_bytes()), (n + 1, 0));
            assert_eq!(store.missing_boundaries(), 0);
        }
    }
}

#[test]
fn one_writer_at_a_time_and_a_full_disk_takes_nothing_away() {
    let (folder, path) = place("a.ctxt");
    let shape = shape(Tier::Two, &[7]);
    written(&path, &shape, false, 1).expect("written");
    let writer = ContextWriter::append_to(&path).expect("writer");
    assert!(matches!(
        problem(ContextWriter::append_to(&path)),
        Problem::Locked
    ));
    assert!(matches!(
        problem(ContextWriter::create(&path, &shape, 1, None)),
        Problem::Locked
    ));
    drop(writer);
    let old = || {
        let _ = fs::remove_file(&path);
        written(&path, &shape, false, 1).expect("written");
    };
    let at_least_one = |_| {
        let store = ContextStore::open(&path).expect("opens");
        check(&store);
        assert!(!store.is_empty());
        assert_eq!(names(folder.path()), ["a.ctxt"]);
    };
    full_disk(old, || written(&path, &shape, true, 2), at_least_one);
    let more = || {
        let mut writer = ContextWriter::append_to(&path)?;
        append(&mut writer, 2)?;
        writer.finish()
    };
    full_disk(old, more, at_least_one);
}

fn reads(path: &Path) -> bool {
    let Ok(store) = ContextStore::open(path) else {
        return false;
    };
    let width = store.shape().hidden_size as usize;
    for i in 0..store.len() {
        for s in 0..store.shape().vectors() {
            assert_eq!(store.slot(i, s).expect("there").len(), width);
        }
        if let Ok(rebuilt) = store.reconstruct(i) {
            assert_eq!(rebuilt.len(), width);
        }
        store.token_range(i).expect("there");
    }
    store.boundary_for_token(5);
    true
}

#[test]
fn damage_is_an_error_or_well_formed() {
    let (_folder, path) = place("a.ctxt");
    for int8 in [false, true] {
        let shape = shape(Tier::Three, &[7, 8]);
        written(&path, &shape, int8, 2).expect("written");
        let bytes = fs::read(&path).expect("read");
        let layout = ContextStore::open(&path).expect("opens").fields.layout;
        let (cut, turned) = mangle(&bytes, 0..layout.data as usize, reads);
        assert_eq!(cut as u64, bytes.len() as u64 - layout.data);
        // What can change unseen: windows that still fit, bytes of the index that nobody reads.
        assert!(turned < 3 * 4 * 24, "{turned}");
        let mut bytes = bytes;
        bytes[layout.template as usize] ^= 1;
        fs::write(&path, &bytes).expect("written");
        let opened = ContextStore::open(&path);
        assert_eq!(
            matches!(
                opened.map_err(|e| e.problem),
                Err(Problem::TemplateChecksum)
            ),
            int8
        );
    }
    let (cut, _) = mangle(&version_1(3, &[7, 8], 34, 2, 3), 0..128 + 3 * 24, reads);
    assert_eq!(cut, 0);
}

#[test]
fn hostile_headers_are_refused() {
    let (_folder, path) = place("a.ctxt");
    let huge = [u32::MAX, 1, 0x8000_0000];
    for version in [1, 2] {
        for all in 0..27 {
            let [hidden, layers, n] = [all / 9, all / 3 % 3, all % 3].map(|i| huge[i]);
            let mut head = Head::<128>::new(MAGIC, version);
            head.put_u32(8, hidden);
            head.put_u32(12, layers);
            head.put_u32(16, 1);
            head.put(20, &[3, 1]);
            head.put_u32(32, n);
            head.put_u32(40, n);
            head.put_u32(48, n);
            let list = [1, 0, 0, 0, 0, 0, 0, 0];
            let mut bytes = head.seal(&list).0.to_vec();
            bytes.extend(list);
            bytes.resize(400, 0xff);
            fs::write(&path, bytes).expect("written");
            assert!(ContextStore::open(&path).is_err());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn what_is_appended_comes_back(
        hidden_size in 1u32..9,
        n_layers in 1u32..40,
        tier in prop::sample::select(Tier::ALL.to_vec()),
        picks in prop::collection::btree_set(1u32..40, 1..12),
        int8 in any::<bool>(),
        windows in 0u32..4,
        reopen in any::<bool>(),
    ) {
        let mut picks: Vec<u32> = picks.into_iter().filter(|&l| l <= n_layers).collect();
        if picks.is_empty() {
            picks.push(n_layers);
        }
        let shape = match tier {
            Tier::Four => ContextShape::exact(hidden_size, n_layers, WINDOW, picks[0] - 1),
            _ => ContextShape {
                hidden_size,
                n_layers,
                window_size: WINDOW,
                tier,
                residual_layer: picks[0] - 1,
                critical_layers: if tier == Tier::One { Vec::new() } else { picks },
            },
        };
        let (_folder, path) = place("a.ctxt");
        written(&path, &shape, int8, windows).expect("written");
        if reopen {
            let mut writer = ContextWriter::append_to(&path).expect("writer");
            append(&mut writer, 1).expect("appended");
            writer.finish().expect("finished");
        }
        let store = ContextStore::open(&path).expect("opens");
        check(&store);
        prop_assert_eq!(store.len(), windows + u32::from(reopen));
        prop_assert_eq!(store.shape(), &shape);
        prop_assert_eq!(store.dropped_bytes(), 0);
        prop_assert_eq!(store.reconstruct(0).is_ok(), shape.rebuilds().is_some() && !store.is_empty());
    }
}
