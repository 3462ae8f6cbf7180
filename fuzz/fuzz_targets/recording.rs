//! Any bytes open as a recording or are refused; every frame of what opens decodes or is one clear error, and can be drawn.
//!
//! The first byte of an input chooses: 0 takes the rest as a file, any other frames it first, so that mutations get past the
//! checksums: each frame is a length byte times 16, a kind, and so many bytes of payload.
#![no_main]

use std::io::Cursor;
use std::path::Path;

use cbtop::headless::text::render;
use cbtop::recording::Recording;
use cbtop::recording::format::{self, Kind};
use cbtop::tui::Options;
use libfuzzer_sys::fuzz_target;

fn framed(mut bytes: &[u8]) -> Vec<u8> {
    let mut file = format::header("fuzz");
    let mut millis = 0;
    while let [length, kind, rest @ ..] = bytes {
        let (payload, next) = rest.split_at(rest.len().min(usize::from(*length) * 16));
        let kind = if kind % 2 == 0 { Kind::Key } else { Kind::Change };
        file.extend(format::frame(kind, millis, payload).unwrap_or_default());
        millis += 100;
        bytes = next;
    }
    file
}

fuzz_target!(|bytes: &[u8]| {
    let file = match bytes {
        [0, rest @ ..] => rest.to_vec(),
        [_, rest @ ..] => framed(rest),
        [] => return,
    };
    let Ok(mut recording) = Recording::read(Cursor::new(file), Path::new("fuzz")) else {
        return;
    };
    for i in 0..recording.frames() {
        match recording.frame(i) {
            Ok(snapshot) => {
                render(&snapshot, 80, 24, &Options::default());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
