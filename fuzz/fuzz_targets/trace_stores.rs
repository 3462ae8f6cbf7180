//! Any bytes open as a store or are refused; of what opens everything can be read, and a writer goes on or refuses.
//!
//! The first byte of an input chooses: from 128 on the header is sealed first, so that mutations get past its checksum.
#![no_main]

use std::fs;
use std::hint::black_box;

use cbtop::trace::store::{
    BoundaryStore, BoundaryWriter, ContextStore, ContextWriter, Kind, TraceStore, TraceWriter,
};
use libfuzzer_sys::fuzz_target;

/// Puts the right checksum into a header of version 2.
fn seal(bytes: &mut [u8]) {
    let n = if bytes.starts_with(b"CTXT") { 128 } else { 64 };
    let Some((head, rest)) = bytes.split_at_mut_checked(n) else {
        return;
    };
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..n - 4]);
    if n == 128 {
        let layers = u32::from_le_bytes([head[48], head[49], head[50], head[51]]) as usize;
        hasher.update(&rest[..(layers * 4).next_multiple_of(8).min(rest.len())]);
    }
    head[n - 4..].copy_from_slice(&hasher.finalize().to_le_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let mut file = rest.to_vec();
    if *choice >= 128 {
        seal(&mut file);
    }
    let folder = std::env::var_os("FUZZ_FOLDER").unwrap_or_else(|| "/dev/shm".into());
    let name = format!("cbtop-fuzz-{}", std::process::id());
    let path = std::path::Path::new(&folder).join(name);
    fs::write(&path, &file).expect("written");
    let sum = |v: &[f32]| black_box(v.iter().sum::<f32>());
    if let Ok(store) = TraceStore::open(&path) {
        let _ = black_box(store.meta());
        for token in 0..store.n_tokens() {
            for layer in 0..=store.n_layers() {
                for kind in Kind::ALL {
                    sum(store.vector(token, layer, kind).expect("there"));
                }
            }
        }
        drop(store);
        let _ = TraceWriter::append(&path).map(|w| w.finish(Some(b"meta")));
        TraceStore::open(&path).expect("still opens");
    }
    if let Ok(store) = BoundaryStore::open(&path) {
        for i in 0..store.len() {
            sum(store.residual(i).expect("there"));
            let range = store.token_range(i).expect("there");
            if let Ok(token) = u32::try_from(range.start) {
                store.boundary_for_token(token);
            }
        }
        let (width, version) = (store.hidden_size() as usize, store.version());
        drop(store);
        if let Ok(mut writer) = BoundaryWriter::append_to(&path) {
            let _ = writer.append(u32::MAX - 1, 1, &vec![0.0; width.min(1 << 16)]);
            let _ = writer.finish();
        }
        let store = BoundaryStore::open(&path).expect("still opens");
        assert!(version == 1 || store.missing_boundaries() == 0);
    }
    if let Ok(store) = ContextStore::open(&path) {
        for i in 0..store.len() {
            for slot in 0..store.shape().vectors() {
                sum(&store.slot(i, slot).expect("there"));
            }
            let _ = store.reconstruct(i);
            store.boundary_for_token(i);
        }
        drop(store);
        let _ = ContextWriter::append_to(&path).map(ContextWriter::finish);
        ContextStore::open(&path).expect("still opens");
    }
    let _ = fs::remove_file(&path);
});
