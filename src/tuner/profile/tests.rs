use super::*;
use crate::engine::{Config, SyncMode};
use crate::gguf::LoadOptions;
use proptest::prelude::*;

fn setup() -> Setup {
    Setup {
        config: Config {
            threads: 3,
            ..Config::for_context(4096)
        },
        load: LoadOptions::default(),
        sync_mode: SyncMode::PerLayer,
    }
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.toml");
    std::fs::write(&path, text).expect("written");
    (folder, path)
}

#[test]
fn settings_come_back_and_comments_do_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.toml");
    let profile = Profile::of(&setup(), vec!["threads: +10%\nversion = 2".into()]);
    profile.write(&path, false).expect("written");
    let read = Profile::read(&path).expect("a profile");
    assert_eq!(read.settings, profile.settings);
    let base = Setup {
        config: Config::for_context(4096),
        ..setup()
    };
    assert_eq!(read.apply(&base, &path).expect("it can run"), setup());
    // A profile is replaced, with or without force.
    profile.write(&path, false).expect("written again");
}

#[test]
fn what_is_no_profile_is_not_replaced_unless_asked_to() {
    let (_folder, path) = written("my notes");
    let profile = Profile::of(&setup(), Vec::new());
    let refused = profile.write(&path, false).expect_err("something else");
    assert!(refused.to_string().contains("--force"), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "my notes");
    profile.write(&path, true).expect("replaced");
    assert!(Profile::read(&path).is_ok());
    let folder = path.parent().expect("a folder");
    assert!(profile.write(folder, true).is_err());
}

#[test]
fn every_other_file_is_refused_in_one_line() {
    for (text, what) in [
        ("", "no version"),
        ("version = 1", "no settings"),
        ("version = 7\n[settings]", "use a newer cbtop"),
        ("version = 1\nname = \"x\"\n[settings]", "a key 'name'"),
        (
            "version = 1\n[settings]\nspeed = 9",
            "there is no knob 'speed'; these are: threads",
        ),
        (
            "version = 1\n[settings]\nthreads = [1]",
            "no text and no number",
        ),
        ("version = [", "is no profile"),
        ("\u{1b}[31m = 1", "is no profile"),
    ] {
        let (_folder, path) = written(text);
        let error = Profile::read(&path).expect_err(text).to_string();
        assert!(error.contains(what), "{text}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for text in [
        "version = 1\n[settings]\nthreads = 0",
        "version = 1\n[settings]\npin = \"maybe\"",
    ] {
        let (_folder, path) = written(text);
        let profile = Profile::read(&path).expect("a profile");
        let error = profile.apply(&setup(), &path).expect_err("not a value");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    let (_folder, path) = written(&"#".repeat(70_000));
    assert!(
        Profile::read(&path)
            .expect_err("large")
            .to_string()
            .contains("too large")
    );
}

#[test]
fn a_path_that_cannot_be_written_is_known_before() {
    let (folder, foreign) = written("x = 1");
    assert!(matches!(
        check_target(&foreign, false),
        Err(ProfileError::NotReplaced { .. })
    ));
    check_target(&foreign, true).expect("forced");
    check_target(&folder.path().join("new.toml"), false).expect("a new file");
    check_target(Path::new("new.toml"), false).expect("a new file here");
    let nowhere = folder.path().join("no/such/folder.toml");
    assert!(matches!(
        check_target(&nowhere, true),
        Err(ProfileError::Io { .. })
    ));
    assert!(check_target(folder.path(), true).is_err(), "a folder");
}

#[test]
fn llama_cpp_has_flags_for_some() {
    let (flags, without) = llama_cpp(&[
        Setting::new("threads", "4"),
        Setting::new("prefetch", "4096"),
        Setting::new("kv-type", "q8_0"),
    ]);
    assert_eq!(
        flags,
        ["--threads 4", "--cache-type-k q8_0 --cache-type-v q8_0"]
    );
    assert_eq!(without, ["prefetch 4096"]);
}

proptest! {
    #[test]
    fn no_file_breaks_it(text in "\\PC{0,200}", value in "\\PC{0,20}") {
        let (_folder, path) = written(&text);
        let _ = Profile::read(&path);
        let profile = Profile {
            settings: vec![Setting::new("waiting", value.clone())],
            comment: vec![text],
        };
        let (_folder, path) = written(&profile.to_string());
        prop_assert_eq!(Profile::read(&path).expect("it is one").settings, profile.settings);
    }
}
