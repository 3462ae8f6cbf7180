//! What is written comes back, whatever happens to the file in between.

use super::encode::Encoder;
use super::format::{self, FRAME_HEAD, Kind};
use super::replay::Player;
use super::round::to_nanoseconds;
use super::{Recorder, Recording, RecordingError, check};
use crate::session::snapshot::{RunState, Scrub, Snapshot};
use crate::tui::fixture::{decode, hostile, starting};
use proptest::prelude::*;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// As it comes back.
fn rounded(mut snapshot: Snapshot) -> Snapshot {
    to_nanoseconds(&mut snapshot);
    snapshot
}

/// A run that starts, goes on for `n` snapshots and ends; one every 100 ms.
fn run(n: usize) -> Vec<Snapshot> {
    let mut all = vec![starting()];
    all.extend((0..n).map(|i| decode(20 + 3 * i)));
    let mut last = decode(20 + 3 * n);
    last.state = RunState::Finished {
        reason: "token limit".into(),
    };
    all.push(last);
    all
}

fn bytes(snapshots: &[Snapshot]) -> Vec<u8> {
    let mut out = format::header("cbtop test");
    let mut encoder = Encoder::default();
    for (i, snapshot) in snapshots.iter().enumerate() {
        let (kind, payload) = encoder.encode(snapshot).expect("encodes").expect("small");
        out.extend(format::frame(kind, i as u64 * 100, &payload).expect("small"));
    }
    out
}

fn open(bytes: Vec<u8>) -> Result<Recording<Cursor<Vec<u8>>>, RecordingError> {
    Recording::read(Cursor::new(bytes), Path::new("test"))
}

/// Bounds of the frames in `file`.
fn bounds(file: &[u8]) -> Vec<(usize, usize)> {
    let mut at = format::header("cbtop test").len();
    let mut all = Vec::new();
    while at < file.len() {
        let head = format::Head::parse(file[at..at + FRAME_HEAD].try_into().expect("a head"));
        let end = at + FRAME_HEAD + head.length as usize;
        all.push((at, end));
        at = end;
    }
    all
}

#[test]
fn every_frame_comes_back_in_any_order() {
    let snapshots = run(230);
    let mut recording = open(bytes(&snapshots)).expect("a recording");
    assert_eq!(recording.frames(), snapshots.len());
    assert_eq!(recording.generator(), "cbtop test");
    assert!(recording.notes().is_empty());
    for i in [231, 0, 5, 6, 7, 5, 150, 99, 100, 101, 230, 1] {
        let frame = recording.frame(i).expect("reads");
        assert!(*frame == rounded(snapshots[i].clone()), "frame {i}");
        assert_eq!(recording.time(i), Duration::from_millis(i as u64 * 100));
    }
    assert!(matches!(
        recording.frame(232),
        Err(RecordingError::Frame { frame: 232, .. })
    ));
    for (ms, frame) in [(0, 0), (99, 0), (100, 1), (151, 1), (99_999, 231)] {
        assert_eq!(recording.frame_at(Duration::from_millis(ms)), frame);
    }
}

#[test]
fn a_change_is_smaller_than_a_key() {
    let file = bytes(&run(20));
    let bounds = bounds(&file);
    let size = |i: usize| bounds[i].1 - bounds[i].0;
    let key = bytes(&[decode(80)]).len();
    // The second frame is a key again: the first knew nothing yet of what is in all others.
    assert!(size(1) * 3 > key * 2, "{} of {key}", size(1));
    assert!(size(20) * 2 < key, "{} of {key}", size(20));
}

#[test]
fn a_cut_off_tail_loses_one_frame() {
    let snapshots = run(6);
    let file = bytes(&snapshots);
    let bounds = bounds(&file);
    let (start, end) = bounds[7];
    for cut in (start..end).step_by(7).chain([start + 1, end - 1]) {
        let recording = open(file[..cut].to_vec()).expect("a recording");
        assert_eq!(recording.frames(), 7, "cut at {cut}");
        assert_eq!(recording.notes().len(), usize::from(cut > start));
    }
    // As after a crash of the system: the length grew, the bytes did not come.
    let mut zeros = file.clone();
    zeros[start + FRAME_HEAD..].fill(0);
    let recording = open(zeros).expect("a recording");
    assert_eq!((recording.frames(), recording.notes().len()), (7, 1));
    let only_header = file[..bounds[0].0].to_vec();
    assert!(matches!(open(only_header), Err(RecordingError::Empty(_))));
}

#[test]
fn a_damaged_frame_is_left_out_and_the_rest_reads() {
    let snapshots = run(8);
    let mut file = bytes(&snapshots);
    let bounds = bounds(&file);
    file[bounds[3].0 + FRAME_HEAD + 5] ^= 1;
    let mut recording = open(file.clone()).expect("a recording");
    assert_eq!(recording.frames(), 9);
    assert!(recording.notes()[0].contains("1 frame is damaged"));
    assert_eq!(
        *recording.frame(3).expect("reads"),
        rounded(snapshots[4].clone())
    );
    // Without a key the changes that follow it say nothing; the first two frames are keys.
    file[bounds[0].0 + FRAME_HEAD + 5] ^= 1;
    file[bounds[1].0 + FRAME_HEAD + 5] ^= 1;
    assert!(matches!(open(file), Err(RecordingError::Empty(_))));
}

#[test]
fn what_is_no_recording_is_said() {
    let refused = |bytes: &[u8]| open(bytes.to_vec()).err().map(|e| e.to_string());
    for bytes in [&b""[..], b"cbtop", b"GGUF\x03\0\0\0 and more", &[0; 4096]] {
        assert!(refused(bytes).is_some_and(|e| e.contains("not a recording")));
    }
    let mut newer = bytes(&run(1));
    newer[8] = 9;
    assert!(refused(&newer).is_some_and(|e| e.contains("version 9")));
    let mut damaged = bytes(&run(1));
    damaged[18] ^= 4;
    assert!(refused(&damaged).is_some_and(|e| e.contains("header")));
    assert!(refused(&damaged[..14]).is_some_and(|e| e.contains("header")));
    let mut long = damaged.clone();
    long[12..16].fill(0xff);
    assert!(refused(&long).is_some_and(|e| e.contains("header")));
}

#[test]
fn a_change_is_never_applied_to_another_key() {
    let mut file = bytes(&run(120));
    let (key, _) = bounds(&file)[101];
    // As if the second key were a change.
    file[key + 16] = 2;
    let mut recording = open(file).expect("a recording");
    assert_eq!(recording.frames(), 121);
    assert!(recording.frame(100).is_ok());
    let why = recording.frame(101).expect_err("refused").to_string();
    assert!(why.contains("key frame"), "{why}");
}

/// A recording whose second frame is `payload`.
fn with_payload(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = bytes(&[decode(9)]);
    out.extend(format::frame(kind, 5, payload).expect("small"));
    out
}

fn deflated(json: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(json).expect("memory");
    out.finish().expect("memory")
}

#[test]
fn hostile_payloads_are_one_error_each() {
    let bomb = deflated(&vec![b' '; format::MAX_JSON + 2]);
    let deep = deflated(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes());
    let many: String = (0..1000).map(|i| format!("\"f{i}\":0,")).collect();
    let many = deflated(format!("{{{}\"g\":0}}", many).as_bytes());
    let nan = String::from_utf8(serde_json::to_vec(&decode(9)).expect("JSON")).expect("UTF-8");
    let nan = deflated(
        nan.replacen("\"us_per_step\":", "\"us_per_step\":NaN,\"x\":", 1)
            .as_bytes(),
    );
    let (_, key) = Encoder::default()
        .encode(&decode(9))
        .expect("encodes")
        .expect("small");
    let base = crc32fast::hash(&key);
    let moved = |lost: &str, kept: &str, new: &str, name: &str| {
        deflated(
            format!("{{\"base\":{base},\"set\":{{}},\"moved\":{{\"{name}\":{{\"lost\":{lost},\"kept\":{kept},\"new\":{new}}}}}}}")
                .as_bytes(),
        )
    };
    let most = usize::MAX.to_string();
    for (kind, payload, word) in [
        (Kind::Key, b"not deflate".to_vec(), "decompress"),
        (Kind::Key, Vec::new(), "decompress"),
        (Kind::Key, deflated(b""), "EOF"),
        (Kind::Key, deflated(b"not json"), "expected"),
        (Kind::Key, deflated(b"{}"), "missing field"),
        (
            Kind::Key,
            deflated(b"{\"seq\":1e999}"),
            "number out of range",
        ),
        (Kind::Key, nan, "expected"),
        (Kind::Key, bomb, "more than"),
        (Kind::Key, deep, "EOF"),
        (Kind::Key, many, "at most 256"),
        (Kind::Change, deflated(b"[]"), "invalid"),
        (
            Kind::Change,
            moved("0", "99999", "[]", "tokens"),
            "more of a list",
        ),
        (
            Kind::Change,
            moved(&most, &most, "[]", "tokens"),
            "more of a list",
        ),
        (Kind::Change, moved("0", "1", "[]", "seq"), "is none"),
        (Kind::Change, moved("0", "1", "7", "tokens"), "is none"),
        (
            Kind::Change,
            moved("0", "1", "[7]", "tokens"),
            "invalid type",
        ),
        (
            Kind::Change,
            moved("0", "1", "[]", "other"),
            "there was none",
        ),
    ] {
        let mut recording = open(with_payload(kind, &payload)).expect("whole frames");
        let why = recording.frame(1).expect_err("refused").to_string();
        assert!(why.contains(word), "{why}, not {word}");
        assert!(recording.frame(0).is_ok());
    }
}

#[test]
fn frames_of_later_kinds_and_times_are_left_out() {
    let mut file = bytes(&run(2));
    let head = |kind: u32, millis: u64| {
        let mut covered = millis.to_le_bytes().to_vec();
        covered.extend(kind.to_le_bytes());
        let mut out = 0u32.to_le_bytes().to_vec();
        out.extend(crc32fast::hash(&covered).to_le_bytes());
        out.extend(covered);
        out
    };
    file.extend(head(77, 1));
    file.extend(head(2, u64::MAX));
    // Back in time: it counts as taken with the one before.
    let mut encoder = Encoder::default();
    let (kind, payload) = encoder.encode(&decode(5)).expect("encodes").expect("small");
    file.extend(format::frame(kind, 3, &payload).expect("small"));
    let recording = open(file).expect("a recording");
    assert_eq!(recording.frames(), 5);
    assert_eq!(recording.duration(), Duration::from_millis(300));
    assert!(recording.notes()[0].contains("2 frames are damaged"));
}

#[test]
fn huge_lengths_allocate_nothing() {
    let mut file = bytes(&run(1));
    file.extend(u32::MAX.to_le_bytes());
    file.extend([0; 40]);
    let recording = open(file).expect("a recording");
    assert_eq!((recording.frames(), recording.notes().len()), (3, 1));
}

#[test]
fn older_snapshots_read() {
    let mut old = serde_json::to_value(decode(9)).expect("JSON");
    let fields = old.as_object_mut().expect("an object");
    for newer in [
        "heat",
        "kernels",
        "roofline",
        "latency",
        "token_times",
        "counters",
    ] {
        assert!(fields.remove(newer).is_some());
    }
    let payload = deflated(old.to_string().as_bytes());
    let mut recording = open(with_payload(Kind::Key, &payload)).expect("a recording");
    let frame = recording.frame(1).expect("reads");
    assert!(frame.heat.is_empty() && frame.latency.mean_us.is_none());
    assert_eq!(frame.prompt, decode(9).prompt);
}

#[test]
fn a_frame_with_nan_is_passed_over() {
    let mut recording = open(bytes(&[decode(9), hostile(), decode(12)])).expect("a recording");
    assert!(recording.frame(1).is_err());
    let mut player = Player::new(
        open(bytes(&[hostile(), decode(9)])).expect("a recording"),
        Duration::ZERO,
    )
    .expect("one frame reads");
    let shown = player.snapshot();
    assert_eq!(shown.tokens.len(), 9);
    assert!(
        shown
            .message
            .is_some_and(|m| m.is_error && m.text.contains("frame 0"))
    );
}

fn player(n: usize) -> Player<Cursor<Vec<u8>>> {
    Player::new(open(bytes(&run(n))).expect("a recording"), Duration::ZERO).expect("reads")
}

#[test]
fn scrubbing_goes_where_it_should() {
    let mut p = player(98);
    let mut at = |scrub| {
        p.scrub(scrub);
        let playback = p.snapshot().playback.expect("a recording");
        (playback.frame, playback.playing)
    };
    assert_eq!(at(Scrub::Frames(1)), (1, false));
    assert_eq!(at(Scrub::Frames(-5)), (0, false));
    assert_eq!(at(Scrub::Frames(i32::MAX)), (99, false));
    assert_eq!(at(Scrub::Frames(i32::MIN)), (0, false));
    assert_eq!(at(Scrub::Seconds(2)), (20, false));
    assert_eq!(at(Scrub::Seconds(-1)), (10, false));
    assert_eq!(at(Scrub::Seconds(i32::MAX)), (99, false));
    assert_eq!(at(Scrub::Toggle), (0, true), "from the start again");
    assert_eq!(at(Scrub::Last), (99, false));
    assert_eq!(at(Scrub::First), (0, false));
    assert_eq!(at(Scrub::Millis(4_321)), (43, false));
    assert_eq!(at(Scrub::Millis(u64::MAX)), (99, false));
}

#[test]
fn time_goes_on_at_the_speed_asked_for() {
    let mut p = player(98);
    let frame = |p: &mut Player<_>| p.snapshot().playback.map(|b| b.frame);
    p.advance(Duration::from_secs(1));
    assert_eq!(frame(&mut p), Some(0), "paused");
    p.play();
    p.advance(Duration::from_secs(1));
    assert_eq!(frame(&mut p), Some(10));
    p.scrub(Scrub::Faster);
    p.scrub(Scrub::Faster);
    p.advance(Duration::from_secs(1));
    assert_eq!(frame(&mut p), Some(50));
    (0..4).for_each(|_| p.scrub(Scrub::Slower));
    p.advance(Duration::from_secs(2));
    assert_eq!(frame(&mut p), Some(55));
    p.advance(Duration::MAX);
    assert_eq!(frame(&mut p), Some(99));
    assert!(!p.playing());
    p.refuse();
    assert!(
        p.snapshot()
            .message
            .is_some_and(|m| m.text.contains("recording"))
    );
}

#[test]
fn a_recorder_writes_what_it_is_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.cbtop");
    let recorder = Recorder::create(&path, false).expect("creates");
    let tap = recorder.tap();
    tap.offer(&Arc::new(decode(1)));
    tap.offer(&Arc::new(decode(2)));
    let last = Arc::new(decode(3));
    tap.offer(&last);
    let summary = recorder.finish().expect("written");
    assert_eq!(summary.frames + summary.thinned + summary.lost, 3);
    tap.offer(&last);
    assert_eq!(
        std::fs::metadata(&path).expect("a file").len(),
        summary.bytes
    );
    let mut recording = Recording::open(&path).expect("a recording");
    assert_eq!(recording.frames() as u64, summary.frames);
    let frame = recording.frame(recording.frames() - 1).expect("reads");
    assert_eq!(*frame, rounded(decode(3)));
}

#[test]
fn only_recordings_are_replaced_and_only_when_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let refused = |name: &str, replace| check(&at(name), replace).err().map(|e| e.to_string());
    assert_eq!(refused("new", false), None);
    std::fs::write(at("recording"), bytes(&run(1))).expect("written");
    std::fs::write(at("empty"), b"").expect("written");
    std::fs::write(at("other"), b"GGUF and a model").expect("written");
    for ours in ["recording", "empty"] {
        assert!(refused(ours, false).is_some_and(|e| e.contains("--force")));
        assert_eq!(refused(ours, true), None);
    }
    for other in ["other", "."] {
        for replace in [false, true] {
            assert!(refused(other, replace).is_some_and(|e| e.contains("another name")));
        }
    }
    assert!(Recorder::create(&at("none/there"), false).is_err());
    assert!(matches!(
        Recording::open(folder.path()),
        Err(RecordingError::NotARecording(_))
    ));
}

/// Everything a reader can be asked.
fn read_all(bytes: Vec<u8>) {
    let Ok(mut recording) = open(bytes) else {
        return;
    };
    for i in 0..=recording.frames() {
        let _ = recording.frame(i);
    }
    if let Ok(mut player) = Player::new(recording, Duration::MAX) {
        player.scrub(Scrub::Frames(-1));
        player.snapshot();
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(tail: Vec<u8>, frames: Vec<(u64, Vec<u8>, bool)>) {
        read_all(tail.clone());
        let mut file = format::header("cbtop test");
        for (millis, payload, key) in frames {
            let kind = if key { Kind::Key } else { Kind::Change };
            file.extend(format::frame(kind, millis, &payload).expect("small"));
        }
        file.extend(tail);
        read_all(file);
    }

    #[test]
    fn a_damaged_recording_never_panics(at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
        let mut file = bytes(&[starting(), decode(2)]);
        let i = at.index(file.len());
        file[i] = with;
        file.truncate(cut.index(file.len()) + 1);
        read_all(file);
    }
}

#[test]
fn zeros_at_the_end_are_one_tail() {
    let mut file = bytes(&run(2));
    let whole = open(file.clone()).expect("a recording").frames();
    file.extend([0; 100_000]);
    let recording = open(file).expect("a recording");
    assert_eq!((recording.frames(), recording.notes().len()), (whole, 1));
}
