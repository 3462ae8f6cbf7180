//! Any bytes open as a model or are refused; what opens can be read to its last byte.
#![no_main]

use std::hint::black_box;

use cbtop::gguf::Gguf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let gguf = match Gguf::from_vec(bytes.to_vec(), "fuzz") {
        Ok(gguf) => gguf,
        Err(error) => {
            let text = error.to_string();
            assert!(text.starts_with("fuzz: ") && !text.contains(char::is_control), "{text:?}");
            return;
        }
    };
    for t in gguf.tensors() {
        let data = gguf.data(t);
        assert_eq!(data.len() as u64, t.bytes);
        black_box(data.iter().fold(0u8, |sum, &b| sum.wrapping_add(b)));
    }
    for (key, _) in gguf.metadata() {
        let _ = black_box((gguf.u32(key), gguf.u64(key), gguf.f32(key), gguf.bool(key), gguf.str(key)));
        let _ = black_box((gguf.strings(key), gguf.f32s(key), gguf.bools(key), gguf.i32s(key), gguf.u32s(key)));
    }
});
