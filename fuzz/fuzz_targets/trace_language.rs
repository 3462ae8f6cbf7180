//! Any text is read as statements or refused with one clear error; what is read prints as text that reads back equal.
#![no_main]

use cbtop::trace::lang::{Statement, completions, parse};
use libfuzzer_sys::fuzz_target;

fn statements(source: &str) -> Vec<Statement> {
    let parsed = parse(source).unwrap_or_else(|error| panic!("{}", error.render(source)));
    parsed.into_iter().map(|statement| statement.value).collect()
}

fuzz_target!(|source: &str| {
    completions(source);
    match parse(source) {
        Ok(parsed) => {
            for statement in &parsed {
                assert_eq!(statements(&source[statement.span.clone()]), [statement.value.clone()]);
            }
            let printed: Vec<String> = parsed.iter().map(|statement| statement.value.to_string()).collect();
            let read: Vec<Statement> = parsed.into_iter().map(|statement| statement.value).collect();
            assert_eq!(statements(&printed.join(";\n")), read);
        }
        Err(error) => {
            assert!(source.get(error.span.clone()).is_some(), "{error:?}");
            let shown = error.render(source);
            assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
        }
    }
});
