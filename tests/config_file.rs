//! The configuration file as a user meets it: where it is found, what wins, and what is said about a wrong one.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs cbtop with a home of its own and nothing else in the environment.
fn cbtop(home: &Path, vars: &[(&str, &str)], args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cbtop"))
        .args(args)
        .env_clear()
        .env("HOME", home)
        .envs(vars.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(home: &Path, name: &str, what: &[u8]) -> String {
    let path = home.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(&path, what).expect("written");
    path.to_str().expect("UTF-8").into()
}

#[test]
fn what_is_printed_can_be_used() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let plain = cbtop(home, &[], &["config"]);
    assert!(plain.status.success(), "{}", text(&plain.stderr));
    write(home, ".config/cbtop/config.toml", &plain.stdout);
    let again = cbtop(home, &[], &["config"]);
    assert_eq!(text(&again.stdout), text(&plain.stdout));
}

#[test]
fn places_and_precedence() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let theme = |vars: &[(&str, &str)], args: &[&str]| {
        let mut all = vec!["config"];
        all.extend(args);
        let done = cbtop(home, vars, &all);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let out = text(&done.stdout);
        let line = out.lines().find(|l| l.contains("theme = \""));
        line.expect("a line").to_string()
    };
    assert_eq!(theme(&[], &[]), "# theme = \"dark\"");
    write(home, ".config/cbtop/config.toml", b"theme = \"light\"");
    assert_eq!(theme(&[], &[]), "theme = \"light\"");
    write(home, "xdg/cbtop/config.toml", b"theme = \"colour-blind\"");
    let xdg = home.join("xdg");
    let xdg = ("XDG_CONFIG_HOME", xdg.to_str().expect("UTF-8"));
    assert_eq!(theme(&[xdg], &[]), "theme = \"colour-blind\"");
    let none = write(home, "none.toml", b"theme = \"none\"");
    let named = ("CBTOP_CONFIG", none.as_str());
    assert_eq!(theme(&[xdg, named], &[]), "theme = \"none\"");
    let dark = write(home, "dark.toml", b"theme = \"dark\"");
    let flag = ["--config", dark.as_str()];
    assert_eq!(theme(&[xdg, named], &flag), "# theme = \"dark\"");
    // NO_COLOR wins over the file, the flag over both.
    assert_eq!(theme(&[("NO_COLOR", "1")], &[]), "# theme = \"none\"");
    let flag = ["--theme", "light"];
    assert_eq!(theme(&[("NO_COLOR", "1")], &flag), "theme = \"light\"");
}

#[test]
fn a_wrong_file_is_one_clear_line() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let long = vec![b'#'; 1 << 20];
    for (what, says) in [
        (&b"theme = \"pink\""[..], "line 1: `theme` is one of dark"),
        (b"\n[keys]\nfly = \"x\"", "line 3: there is no action `fly`"),
        (b"[keys]\npause = \"n\"", "key `n` is bound to `pause`"),
        (b"ascii = \xff", "line 1: not UTF-8"),
        (b"ascii", "line 1: not TOML"),
        (&long, "longer than 64 KiB"),
    ] {
        let file = write(home, "wrong.toml", what);
        for args in [
            &["config", "--config", &file][..],
            &["--headless", "--config", &file],
        ] {
            let done = cbtop(home, &[], args);
            let error = text(&done.stderr);
            assert_eq!(done.status.code(), Some(2), "{args:?}: {error}");
            assert!(error.contains(says), "{says}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
            assert_eq!(text(&done.stdout), "");
        }
    }
    let missing = cbtop(home, &[], &["config", "--config", "no-such-file"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).starts_with("cbtop: configuration no-such-file: "));
}

#[test]
fn the_file_draws_and_modelled_frames_do_not_depend_on_it() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let frame = |args: &[&str]| {
        let mut all = vec![
            "--headless",
            "--deterministic",
            "-n",
            "4",
            "--size",
            "80x24",
        ];
        all.extend(args);
        let done = cbtop(home, &[], &all);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let plain = frame(&[]);
    let own = b"ascii = true\nfocus = \"roofline\"\n[keys]\npause = \"y\"";
    let file = write(home, ".config/cbtop/config.toml", own);
    assert_eq!(frame(&[]), plain);
    let drawn = frame(&["--config", &file]);
    assert!(drawn.is_ascii() && drawn.contains("roofline"), "{drawn}");
    assert!(drawn.contains(" y pause "), "{drawn}");
}
