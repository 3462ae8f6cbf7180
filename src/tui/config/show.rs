//! The configuration as text, for the user to start from.

use super::{OPTIONS, SORT};
use crate::tui::Options;
use crate::tui::keymap::{Binding, Group, Keymap};
use crate::tui::names::key_names;
use crate::tui::state::Panel;
use std::fmt::Write;

/// `options` as a configuration file: what differs from `defaults` as a line that holds, the rest as comments. Reading it
/// gives `options` again.
pub fn show(options: &Options, defaults: &Options) -> String {
    let mut out = String::from(
        "# Configuration of cbtop. Lines that begin with # name what holds without them.\n",
    );
    for (name, meaning) in OPTIONS {
        let (now, usual) = (value(options, name), value(defaults, name));
        let choices = match name {
            "focus" => format!(" Panels: {}.", Panel::ALL.map(Panel::name).join(", ")),
            "sort" => format!(" Columns: {}.", SORT.map(|(n, _)| n).join(", ")),
            _ => String::new(),
        };
        let mark = if now == usual { "# " } else { "" };
        let _ = write!(out, "\n# {meaning}{choices}\n{mark}{name} = {now}\n");
    }
    let _ = write!(
        out,
        "\n# Keys of each action: one, or a list; [] for none. A key is {}.\n# Keys while a prompt is typed are fixed.\n[keys]\n",
        key_names()
    );
    for group in Group::ALL {
        let _ = write!(out, "\n# {}\n", group.title());
        let bindings = options.keymap.bindings.iter().filter(|b| b.group == group);
        for binding in bindings {
            line(&mut out, binding, &defaults.keymap);
        }
    }
    out
}

/// What stands behind the name of an option.
pub(super) fn value(o: &Options, name: &str) -> String {
    match name {
        "theme" => quoted(o.theme.name()),
        "ascii" => o.ascii.to_string(),
        "recommend" => o.recommend.to_string(),
        "focus" => quoted(o.focus.name()),
        "sort" => {
            let column = SORT.iter().find(|(_, c)| *c == o.sort.column);
            quoted(column.map_or("time", |(n, _)| n))
        }
        "sort-reverse" => o.sort.reversed.to_string(),
        _ => o.frame_rate.to_string(),
    }
}

fn line(out: &mut String, binding: &Binding, defaults: &Keymap) {
    let usual = defaults
        .bindings
        .iter()
        .any(|b| b.action == binding.action && b.keys == binding.keys);
    let keys: Vec<String> = binding.keys.iter().map(|k| quoted(&k.label())).collect();
    let mark = if usual { "# " } else { "" };
    let setting = format!("{mark}{} = [{}]", binding.action.name(), keys.join(", "));
    let _ = writeln!(out, "{setting:<42} # {}", binding.help);
}

/// A TOML string.
fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::config::Config;

    fn round(text: &str) -> String {
        let defaults = Options::default();
        let config = Config::parse(text.as_bytes()).expect("good");
        show(&config.apply(&defaults, false), &defaults)
    }

    /// Lines that hold when they are taken out of comments.
    fn uncommented(text: &str) -> String {
        let holds = |l: &str| {
            l.split(" = ")
                .next()
                .is_some_and(|n| !n.contains([' ', ':']))
        };
        let line = |l: &str| match l.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") && holds(rest) => format!("{rest}\n"),
            _ => format!("{l}\n"),
        };
        text.lines().map(line).collect()
    }

    #[test]
    fn what_is_shown_says_the_same() {
        let defaults = Options::default();
        let plain = show(&defaults, &defaults);
        assert_eq!(round(&plain), plain);
        let all = uncommented(&plain);
        assert!(
            all.contains("\ntheme = \"dark\"\n") && all.contains("\nquit = [\"q\", \"Ctrl-C\"]")
        );
        assert_eq!(round(&all), plain);
        let own = "theme = \"none\"\nsort = \"p99\"\n[keys]\npause = ['\\', '\"']\nundo = []";
        let shown = round(own);
        for line in [
            "\ntheme = \"none\"\n",
            "\nsort = \"p99\"\n",
            "\npause = [\"\\\\\", \"\\\"\"] ",
            "\nundo = [] ",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert_eq!(round(&shown), shown);
    }
}
