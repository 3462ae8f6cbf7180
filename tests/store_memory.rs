//! Writers of windows hold no memory that grows with the windows: proven with a counting allocator.

mod counting;

use cbtop::trace::store::{
    BoundaryStore, BoundaryWriter, ContextShape, ContextVectors, ContextWriter,
};
use counting::ALLOCATIONS;
use std::sync::atomic::Ordering;

const WINDOWS: u32 = 100_000;

#[test]
fn a_hundred_thousand_windows_take_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bndx");
    let mut writer = BoundaryWriter::create(&path, 8, 200, WINDOWS).expect("writer");
    let append = |writer: &mut BoundaryWriter, i: u32| {
        writer
            .append(i * 200, 200, &[i as f32; 8])
            .expect("appended");
    };
    append(&mut writer, 0);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for i in 1..WINDOWS {
        append(&mut writer, i);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
    writer.finish().expect("finished");
    let store = BoundaryStore::open(&path).expect("opens");
    assert_eq!((store.len(), store.total_tokens()), (WINDOWS, 20_000_000));
    assert_eq!(store.boundary_for_token(19_999_999), Some(WINDOWS - 1));
    assert_eq!(store.residual(77_777), Some(&[77_777.0; 8][..]));

    let path = folder.path().join("a.ctxt");
    let shape = ContextShape::exact(8, 2, 200, 1);
    let mut writer = ContextWriter::create(&path, &shape, WINDOWS, None).expect("writer");
    let append = |writer: &mut ContextWriter, i: u32| {
        let v = [i as f32; 8];
        let vectors = ContextVectors {
            residual: &v,
            ffn_deltas: &[&v],
            attn_deltas: &[&v],
        };
        writer.append(i * 200, 200, &vectors).expect("appended");
    };
    append(&mut writer, 0);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for i in 1..1000 {
        append(&mut writer, i);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), before);
}
