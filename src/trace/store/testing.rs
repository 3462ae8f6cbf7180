//! What the stores' tests share.

use std::cell::RefCell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::error::StoreError;
use super::target::steps::watched;

/// A folder for one test, and a path in it.
pub fn place(name: &str) -> (tempfile::TempDir, PathBuf) {
    // In memory where there is such a place: what is tested syncs at every step.
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a folder");
    let path = folder.path().join(name);
    (folder, path)
}

/// A vector whose numbers say where it belongs.
pub fn vector(width: u32, seed: u32) -> Vec<f32> {
    (0..width)
        .map(|i| seed as f32 + i as f32 / 1024.0)
        .collect()
}

/// Names in a folder, to see what a writer left.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = entries
        .map(|e| {
            e.expect("an entry")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// The file's bytes before each step of `work` that changes it, and after the last.
pub fn states(path: &Path, work: impl FnOnce()) -> Vec<Vec<u8>> {
    let seen = Rc::new(RefCell::new(Vec::new()));
    let before = seen.clone();
    watched(
        move |now| {
            before.borrow_mut().push(fs::read(now)?);
            Ok(())
        },
        work,
    );
    let mut states = seen.take();
    states.push(fs::read(path).expect("the file"));
    states
}

/// Runs `work` again and again, its first, second, ... step failing as a full disk does, until no step is left. `before`
/// makes what `work` begins with, `after` looks at what a failure left.
pub fn full_disk(
    mut before: impl FnMut(),
    mut work: impl FnMut() -> Result<(), StoreError>,
    mut after: impl FnMut(usize),
) {
    for fails in 0.. {
        before();
        let mut step = 0;
        let watch = move |_: &Path| {
            step += 1;
            match step > fails {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => Ok(()),
            }
        };
        match watched(watch, &mut work) {
            Ok(()) => {
                assert!(fails > 1, "no step failed");
                return;
            }
            Err(e) => {
                let text = e.to_string();
                assert!(
                    text.contains("no storage space") && text.contains("make room"),
                    "{text}"
                );
                after(fails);
            }
        }
    }
}

/// Opens every prefix of `bytes`, and `bytes` with every bit of each place in `flipped` turned: none may panic.
/// `open` reads everything that opens, and gives whether it did.
pub fn mangle(
    bytes: &[u8],
    flipped: impl Iterator<Item = usize>,
    mut open: impl FnMut(&Path) -> bool,
) -> (usize, usize) {
    let (_folder, path) = place("mangled");
    let (mut cut, mut turned) = (0, 0);
    for len in 0..bytes.len() {
        fs::write(&path, &bytes[..len]).expect("written");
        cut += usize::from(open(&path));
    }
    for at in flipped {
        for mask in [1, 0x80, 0xff] {
            let mut copy = bytes.to_vec();
            copy[at] ^= mask;
            fs::write(&path, &copy).expect("written");
            turned += usize::from(open(&path));
        }
    }
    (cut, turned)
}
