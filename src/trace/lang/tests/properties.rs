use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::*;
use super::{message, one};

/// Texts with everything that quoting and reading could trip over.
fn text() -> impl Strategy<Value = String> {
    let awkward = select(
        "\"'\\\n\r\t\0\u{1b};,-/*{}u\u{202e}\u{feff}é日\u{1f600}\u{301}ab "
            .chars()
            .collect::<Vec<_>>(),
    );
    vec(prop_oneof![any::<char>(), awkward], 1..12).prop_map(String::from_iter)
}

fn range() -> impl Strategy<Value = (u32, u32)> {
    (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn any_layers() -> impl Strategy<Value = Layers> {
    prop_oneof![
        Just(Layers::All),
        range().prop_map(|(a, b)| Layers::Range(a, b)),
        (1..=u32::MAX).prop_map(Layers::Every),
        vec(any::<u32>(), 1..5).prop_map(Layers::List),
    ]
}

fn any_positions() -> impl Strategy<Value = Positions> {
    prop_oneof![
        Just(Positions::All),
        Just(Positions::Last),
        any::<u32>().prop_map(Positions::One),
        range().prop_map(|(a, b)| Positions::Range(a, b)),
    ]
}

fn block() -> impl Strategy<Value = Site> {
    select(vec![Site::Attention, Site::Ffn, Site::Residual])
}

fn any_format() -> impl Strategy<Value = Format> {
    select(vec![Format::Table, Format::Json, Format::Csv])
}

fn any_edit() -> impl Strategy<Value = Edit> {
    let finite = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
    let usual = (-1000i16..1000).prop_map(|n| f32::from(n) / 8.0);
    let how = prop_oneof![
        Just(How::Zero),
        prop_oneof![finite | prop::num::f32::NEGATIVE, usual].prop_map(How::Scale),
        text().prop_map(How::FromPrompt),
        text().prop_map(How::FromFile),
    ];
    let site = prop_oneof![
        block(),
        any::<u32>().prop_map(Site::Head),
        any::<u32>().prop_map(Site::Neuron)
    ];
    let positions = proptest::option::of(any_positions());
    (how, site, 1..=u32::MAX, positions).prop_map(|(how, site, layer, positions)| Edit {
        how,
        site,
        layer,
        positions,
    })
}

fn any_trace() -> impl Strategy<Value = Statement> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let places = proptest::option::of(any_layers());
    let positions = proptest::option::of(any_positions());
    let top = proptest::option::of(1u32..=1000);
    let output = (
        proptest::option::of(text()),
        proptest::option::of(any_format()),
    );
    (
        text(),
        vec(text(), 0..3),
        flags,
        places,
        positions,
        top,
        vec(any_edit(), 0..4),
        output,
    )
        .prop_map(
            |(
                prompt,
                answers,
                (decompose, heads, after_attention),
                layers,
                positions,
                top,
                edits,
                (save, format),
            )| {
                Statement::Trace(Trace {
                    prompt,
                    answers,
                    decompose,
                    heads,
                    layers,
                    positions,
                    top,
                    after_attention,
                    edits,
                    save,
                    format,
                })
            },
        )
}

fn any_statement() -> impl Strategy<Value = Statement> {
    let options = (
        proptest::option::of(block()),
        proptest::option::of(any_layers()),
        proptest::option::of(any_format()),
    );
    let patch = (text(), text(), text(), options).prop_map(
        |(prompt, source, answer, (site, layers, format))| {
            Statement::Patch(Patch {
                prompt,
                source,
                answer,
                site,
                layers,
                format,
            })
        },
    );
    let fact = || {
        (text(), text(), proptest::option::of(1..=u32::MAX)).prop_map(|(prompt, answer, layer)| {
            Fact {
                prompt,
                answer,
                layer,
            }
        })
    };
    prop_oneof![
        4 => any_trace(),
        2 => patch,
        1 => fact().prop_map(Statement::Insert),
        1 => fact().prop_map(Statement::Delete),
        1 => Just(Statement::Facts),
    ]
}

/// Pieces of the language in any order, which get further than letters do.
fn soup() -> impl Strategy<Value = String> {
    let words = "TRACE PATCH INSERT DELETE FACTS FOR DECOMPOSE HEADS LAYERS POSITIONS TOP AFTER ATTENTION WITH SAVE FORMAT \
        ZERO SCALE REPLACE FFN RESIDUAL HEAD NEURON AT LAYER POSITION FROM FILE ALL LAST EVERY JSON SITE 'x' \"y\" '' 0 1 5-9 \
        1,2 .5 1e9 - -> , : ; every:2 -- /* */ \\ “ \u{1b}";
    vec(select(words.split_whitespace().collect::<Vec<_>>()), 0..14)
        .prop_map(|words| words.join(" "))
}

/// What holds for any text whatever.
fn check(source: &str) {
    completions(source);
    match parse(source) {
        Ok(statements) => {
            for Spanned { value, span } in statements {
                assert_eq!(one(&source[span]), value);
                assert_eq!(one(&value.to_string()), value);
            }
        }
        Err(error) => {
            assert!(source.get(error.span.clone()).is_some(), "{error:?}");
            assert!(error.span.start <= error.span.end);
            assert!(!error.message.contains(char::is_control), "{error:?}");
            let shown = error.render(source);
            assert!(
                !shown.contains(|c: char| c.is_control() && c != '\n'),
                "{shown:?}"
            );
            assert!(!error.render("").is_empty() && !error.render("é").is_empty());
        }
    }
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(statements in vec(any_statement(), 1..4)) {
        let source = statements.iter().map(Statement::to_string).collect::<Vec<_>>().join(";\n");
        prop_assert!(!source.contains(|c: char| c.is_control() && c != '\n'));
        let parsed = parse(&source).map_err(|error| TestCaseError::fail(error.render(&source)))?;
        let parsed: Vec<Statement> = parsed.into_iter().map(|statement| statement.value).collect();
        prop_assert_eq!(parsed, statements);
    }

    #[test]
    fn clauses_come_in_any_order(order in Just((0..10).collect::<Vec<usize>>()).prop_shuffle(), lower in any::<bool>()) {
        let clauses = [
            "FOR 'a', 'b'", "DECOMPOSE", "HEADS", "LAYERS 1, 2", "POSITIONS 3-4", "TOP 5", "AFTER ATTENTION",
            "WITH ZERO FFN AT LAYER 1, ZERO FFN AT LAYER 2", "SAVE 'c'", "FORMAT JSON",
        ];
        let source = |order: &[usize]| {
            let clauses: Vec<&str> = order.iter().map(|&i| clauses[i]).collect();
            let source = format!("TRACE 'x' {}", clauses.join(" "));
            if lower { source.to_lowercase() } else { source }
        };
        prop_assert_eq!(one(&source(&order)), one(&source(&(0..10).collect::<Vec<_>>())));
        let mut twice = order.clone();
        twice.push(order[0]);
        prop_assert!(message(&source(&twice)).contains("given twice"));
    }

    #[test]
    fn any_text_is_read_or_refused(source in vec(any::<char>(), 0..80).prop_map(String::from_iter)) {
        check(&source);
    }

    #[test]
    fn any_words_are_read_or_refused(source in soup(), quoted in text()) {
        check(&source);
        check(&format!("TRACE {quoted} {source}"));
        check(&format!("TRACE 'x' {source}"));
        check(&format!("TRACE 'x' WITH REPLACE FFN {source}"));
    }
}
