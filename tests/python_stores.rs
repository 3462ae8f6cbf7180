//! The Python of the book reads what the stores' writers write: its code is run as it stands, and every number compared.

use cbtop::trace::store::{
    BoundaryStore, BoundaryWriter, ContextShape, ContextStore, ContextVectors, ContextWriter, Kind,
    TemplateBuilder, TraceStore, TraceWriter,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const WIDTH: u32 = 6;
const LAYERS: u32 = 4;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A Python with numpy; `None`, with a message, where there is none. With `CI=true` that is a failure.
fn python() -> Option<PathBuf> {
    let made = Command::new(root().join("tests/python-env.sh"))
        .output()
        .expect("tests/python-env.sh runs");
    if made.status.success() {
        let path = String::from_utf8(made.stdout).expect("a path");
        return Some(path.trim_end().into());
    }
    let message = format!(
        "tests/python-env.sh: {}",
        String::from_utf8_lossy(&made.stderr).trim_end()
    );
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{message}");
    println!("skipped: {message}");
    None
}

/// The code of the page, in order.
fn page() -> String {
    let text = fs::read_to_string(root().join("docs/src/python.md")).expect("the page");
    let blocks = text.split("```python\n").skip(1);
    let code: Vec<&str> = blocks
        .map(|b| b.split("```").next().expect("code"))
        .collect();
    assert!(code.len() >= 8, "{} blocks", code.len());
    code.join("\n")
}

/// Numbers that no two vectors share.
fn vector(seed: u32) -> Vec<f32> {
    (0..WIDTH)
        .map(|i| ((seed * 37 + i) as f32 * 0.71).sin() * 5.0)
        .collect()
}

fn trace(path: &Path) {
    let mut writer = TraceWriter::create(path, WIDTH, LAYERS).expect("writer");
    writer.begin_chunk(3).expect("begun");
    for token in 0..3 {
        let mut residual = vector(token);
        writer
            .put(token, 0, Kind::Residual, &residual)
            .expect("put");
        for layer in 1..=LAYERS {
            let attn = vector(100 + token * 10 + layer);
            let ffn = vector(200 + token * 10 + layer);
            for ((x, a), f) in residual.iter_mut().zip(&attn).zip(&ffn) {
                *x += a;
                *x += f;
            }
            writer
                .put(token, layer, Kind::Residual, &residual)
                .expect("put");
            writer
                .put(token, layer, Kind::AttnDelta, &attn)
                .expect("put");
            writer.put(token, layer, Kind::FfnDelta, &ffn).expect("put");
        }
    }
    writer.end_chunk().expect("ended");
    writer
        .finish(Some(b"{\"prompt\":\"x\"}"))
        .expect("finished");
}

fn boundaries(path: &Path) {
    let mut writer = BoundaryWriter::create(path, WIDTH, 10, 8).expect("writer");
    for i in 0..4 {
        writer.append(i * 10, 10, &vector(i)).expect("appended");
    }
    writer.append(50, 5, &vector(4)).expect("appended");
    writer.finish().expect("finished");
}

fn contexts(path: &Path, int8: bool) {
    let shape = ContextShape::exact(WIDTH, LAYERS, 10, 1);
    let common: Vec<Vec<f32>> = (0..7).map(|s| vector(1000 + s)).collect();
    let windows: Vec<Vec<Vec<f32>>> = (0..3)
        .map(|i| {
            let near = |(s, c): (usize, &Vec<f32>)| {
                let own = vector(i * 50 + s as u32);
                c.iter().zip(own).map(|(c, o)| c + o * 0.02).collect()
            };
            common.iter().enumerate().map(near).collect()
        })
        .collect();
    let mut builder = TemplateBuilder::new(7, WIDTH).expect("builder");
    for window in &windows {
        let slots: Vec<&[f32]> = window.iter().map(Vec::as_slice).collect();
        builder.add(&slots).expect("added");
    }
    let template = int8.then(|| builder.build().expect("a template"));
    let mut writer = ContextWriter::create(path, &shape, 5, template.as_ref()).expect("writer");
    for (i, window) in windows.iter().enumerate() {
        let slots: Vec<&[f32]> = window.iter().map(Vec::as_slice).collect();
        let vectors = ContextVectors {
            residual: slots[0],
            ffn_deltas: &slots[1..4],
            attn_deltas: &slots[4..],
        };
        writer
            .append(i as u32 * 10, 10, &vectors)
            .expect("appended");
    }
    writer.finish().expect("finished");
}

/// The three kinds as version 1 has them, the index with room to spare.
fn version_1(folder: &Path) {
    let write = |name: &str, magic: &[u8; 4], words: &[u32], head: usize, rest: Vec<u8>| {
        let mut bytes = magic.to_vec();
        bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.resize(head, 0);
        bytes.extend(rest);
        fs::write(folder.join(name), bytes).expect("written");
    };
    let floats = |seeds: std::ops::Range<u32>| -> Vec<u8> {
        seeds.flat_map(vector).flat_map(f32::to_le_bytes).collect()
    };
    let head = [1, WIDTH, LAYERS, 2];
    write("v1.trace", b"TRAC", &head, 64, floats(0..2 * 5 * 3));
    let entry = |words: &[u32]| {
        words
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let bndx = [
        entry(&[0, 10, 64 + 48, 0]),
        entry(&[10, 10, 64 + 48 + 24, 0]),
        vec![0; 16],
        floats(0..2),
    ];
    write(
        "v1.bndx",
        b"BNDX",
        &[1, WIDTH, 10, 2, 20],
        64,
        bndx.concat(),
    );
    let layers = u32::from_le_bytes([3, 4, 0, 0]);
    let tier_3_of_2 = 3 | 2 << 8;
    let head = [1, WIDTH, LAYERS, 10, tier_3_of_2, layers, 0, 1, 10];
    let ctxt = [
        entry(&[0, 10, 128 + 48, 0, 0, 0]),
        vec![0; 24],
        floats(0..5),
    ];
    write("v1.ctxt", b"CTXT", &head, 128, ctxt.concat());
}

/// Writes every number that the Python classes give, as f32 files.
const DUMP: &str = r#"
def dump(name, *vectors):
    np.concatenate([np.asarray(v, "<f4").ravel() for v in vectors]).tofile(name + ".f32")

for name in ("france.trace", "v1.trace"):
    s = TraceStore(name)
    rows = [(t, l) for t in range(s.n_tokens) for l in range(s.n_layers + 1)]
    dump(name, *[v for r in rows for v in (s.residual(*r), s.attn_delta(*r), s.ffn_delta(*r))])
assert TraceStore("france.trace").meta == b'{"prompt":"x"}' and TraceStore("v1.trace").meta is None

for name in ("context.bndx", "v1.bndx", "python.bndx"):
    s = BoundaryStore(name)
    found = [-1 if s.boundary_for_token(t) is None else s.boundary_for_token(t) for t in range(60)]
    dump(name, *[s.residual(i) for i in range(len(s))], found, [s.total_tokens])

for name in ("context.ctxt", "context-int8.ctxt", "v1.ctxt"):
    s = ContextStore(name)
    dump(name, *[v for i in range(len(s)) for v in (s.window(i), s.reconstruct(i))])
print("done")
"#;

fn dumped(folder: &Path, name: &str) -> Vec<u32> {
    let bytes = fs::read(folder.join(format!("{name}.f32"))).expect("dumped");
    let words = bytes.chunks_exact(4).filter_map(|b| b.first_chunk());
    words.map(|b| u32::from_le_bytes(*b)).collect()
}

fn bits(numbers: Vec<f32>) -> Vec<u32> {
    numbers.into_iter().map(f32::to_bits).collect()
}

#[test]
fn numpy_reads_every_store_as_the_book_says() {
    let Some(python) = python() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    trace(&at("france.trace"));
    boundaries(&at("context.bndx"));
    contexts(&at("context.ctxt"), false);
    contexts(&at("context-int8.ctxt"), true);
    version_1(folder.path());
    fs::write(at("page.py"), page() + DUMP).expect("written");
    let done = Command::new(python)
        .arg("page.py")
        .current_dir(folder.path())
        .output()
        .expect("python runs");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && errors.is_empty(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "done\n");

    for name in ["france.trace", "v1.trace"] {
        let store = TraceStore::open(&at(name)).expect("opens");
        let mut all = Vec::new();
        for token in 0..store.n_tokens() {
            for layer in 0..=LAYERS {
                for kind in Kind::ALL {
                    all.extend(store.vector(token, layer, kind).expect("there"));
                }
            }
        }
        assert!(all.len() > 100);
        assert_eq!(dumped(folder.path(), name), bits(all), "{name}");
    }
    for name in ["context.bndx", "v1.bndx", "python.bndx"] {
        let store = BoundaryStore::open(&at(name)).expect("opens");
        let mut all: Vec<f32> = (0..store.len())
            .flat_map(|i| store.residual(i).expect("there").to_vec())
            .collect();
        all.extend((0..60).map(|t| store.boundary_for_token(t).map_or(-1.0, |i| i as f32)));
        all.push(store.total_tokens() as f32);
        assert!(store.len() > 1);
        assert_eq!(dumped(folder.path(), name), bits(all), "{name}");
    }
    for name in ["context.ctxt", "context-int8.ctxt", "v1.ctxt"] {
        let store = ContextStore::open(&at(name)).expect("opens");
        let mut all = Vec::new();
        for i in 0..store.len() {
            for slot in 0..store.shape().vectors() {
                all.extend(store.slot(i, slot).expect("there").iter());
            }
            all.extend(store.reconstruct(i).expect("rebuilt"));
        }
        assert!(!store.is_empty());
        assert_eq!(dumped(folder.path(), name), bits(all), "{name}");
    }
}
