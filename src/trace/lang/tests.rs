use super::*;

mod properties;

/// The only statement of a text.
fn one(source: &str) -> Statement {
    let mut statements = parse(source).unwrap_or_else(|error| panic!("{}", error.render(source)));
    assert_eq!(statements.len(), 1, "{source}");
    statements.remove(0).value
}

fn trace(source: &str) -> Trace {
    match one(source) {
        Statement::Trace(trace) => trace,
        other => panic!("{other}"),
    }
}

fn layers(written: &str) -> Option<Layers> {
    trace(&format!("TRACE 'x' LAYERS {written}")).layers
}

fn positions(written: &str) -> Option<Positions> {
    trace(&format!("TRACE 'x' POSITIONS {written}")).positions
}

fn edits(written: &str) -> Vec<Edit> {
    trace(&format!("TRACE 'x' WITH {written}")).edits
}

fn message(source: &str) -> String {
    parse(source).expect_err(source).message
}

fn shown(source: &str) -> String {
    parse(source).expect_err(source).render(source)
}

#[test]
fn statements_of_the_specification() {
    let source = "-- Answer trajectory\n\
        TRACE \"The capital of France is\" FOR \"Paris\";\n\
        TRACE \"The capital of France is\" DECOMPOSE LAYERS 22-27;\n\
        TRACE \"The capital of France is\" POSITIONS ALL SAVE \"france.trace\"; /* all\nof them */\n\
        TRACE \"The capital of France is\" FOR \"Paris\" LAYERS 20-33 POSITIONS ALL;";
    let prompt = || "The capital of France is".to_owned();
    let answers = || vec!["Paris".to_owned()];
    let expected = [
        Trace {
            prompt: prompt(),
            answers: answers(),
            ..Trace::default()
        },
        Trace {
            prompt: prompt(),
            decompose: true,
            layers: Some(Layers::Range(22, 27)),
            ..Trace::default()
        },
        Trace {
            prompt: prompt(),
            positions: Some(Positions::All),
            save: Some("france.trace".to_owned()),
            ..Trace::default()
        },
        Trace {
            prompt: prompt(),
            answers: answers(),
            layers: Some(Layers::Range(20, 33)),
            positions: Some(Positions::All),
            ..Trace::default()
        },
    ];
    let parsed = parse(source).expect("the specification's own statements");
    assert_eq!(
        parsed.iter().map(|s| s.value.clone()).collect::<Vec<_>>(),
        expected.map(Statement::Trace)
    );
    assert_eq!(
        &source[parsed[0].span.clone()],
        "TRACE \"The capital of France is\" FOR \"Paris\""
    );
    assert!(source[parsed[3].span.clone()].ends_with("POSITIONS ALL"));
}

#[test]
fn the_reference_holds() {
    let page = include_str!("../../../docs/src/trace-language.md");
    let blocks = page.split("```trace\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    for block in &blocks {
        let read = parse(block).unwrap_or_else(|error| panic!("{}", error.render(block)));
        assert!(!read.is_empty());
    }
    assert!(blocks.len() > 8);
    let wrong = "TRACE \"The capital of France is\" FRO \"Paris\"";
    assert!(page.contains(&format!("```text\n{}\n```", shown(wrong))));
}

#[test]
fn layers_and_positions() {
    assert_eq!(layers("all"), Some(Layers::All));
    assert_eq!(layers("0 - 4294967295"), Some(Layers::Range(0, u32::MAX)));
    assert_eq!(layers("EVERY 4"), Some(Layers::Every(4)));
    assert_eq!(layers("every:4"), Some(Layers::Every(4)));
    assert_eq!(layers("1,5, 9"), Some(Layers::List(vec![1, 5, 9])));
    assert_eq!(layers("0"), Some(Layers::List(vec![0])));
    assert_eq!(layers("7-7"), Some(Layers::Range(7, 7)));
    assert_eq!(positions("ALL"), Some(Positions::All));
    assert_eq!(positions("Last"), Some(Positions::Last));
    assert_eq!(positions("3"), Some(Positions::One(3)));
    assert_eq!(positions("0-3"), Some(Positions::Range(0, 3)));
    for bad in [
        "EVERY 0",
        "5-4",
        "1.5",
        "1,",
        "1,2-3",
        "-1",
        "every",
        "4294967296",
        "1e3",
        "ALL 3",
        "5--9",
    ] {
        message(&format!("TRACE 'x' LAYERS {bad}"));
    }
    for bad in ["1,2", "EVERY 2", "3-1", "", "FIRST"] {
        message(&format!("TRACE 'x' POSITIONS {bad}"));
    }
}

#[test]
fn edits_of_a_trace() {
    let edit = |how, site, layer, positions| Edit {
        how,
        site,
        layer,
        positions,
    };
    assert_eq!(
        edits("zero FFN at layer 3, SCALE -1.5e-3 HEAD 0 POSITION 1-2 AT LAYER 1"),
        [
            edit(How::Zero, Site::Ffn, 3, None),
            edit(
                How::Scale(-1.5e-3),
                Site::Head(0),
                1,
                Some(Positions::Range(1, 2))
            ),
        ]
    );
    assert_eq!(
        edits(
            "REPLACE RESIDUAL FROM FILE 'a' AT LAYER 2, REPLACE NEURON 7 AT LAYER 2 POSITION ALL FROM 'b', SCALE .5 ATTENTION AT LAYER 9"
        ),
        [
            edit(How::FromFile("a".into()), Site::Residual, 2, None),
            edit(
                How::FromPrompt("b".into()),
                Site::Neuron(7),
                2,
                Some(Positions::All)
            ),
            edit(How::Scale(0.5), Site::Attention, 9, None),
        ]
    );
    // Clauses of the statement go on behind the last edit.
    let both = trace("TRACE 'x' WITH ZERO FFN AT LAYER 3 POSITION LAST POSITIONS ALL DECOMPOSE");
    assert_eq!(
        (both.positions, both.decompose),
        (Some(Positions::All), true)
    );
    for bad in [
        "ZERO FFN",
        "ZERO FFN AT LAYER 0",
        "ZERO FFN AT LAYER 1 AT LAYER 2",
        "ZERO FFN AT LAYER 1 FROM 'y'",
        "SCALE 2 FFN FROM FILE 'y' AT LAYER 1",
        "REPLACE FFN AT LAYER 1",
        "REPLACE FFN AT LAYER 1 FROM ''",
        "SCALE FFN AT LAYER 1",
        "SCALE inf FFN AT LAYER 1",
        "SCALE NaN FFN AT LAYER 1",
        "SCALE 1e39 FFN AT LAYER 1",
        "SCALE - FFN AT LAYER 1",
        "ZERO HEAD AT LAYER 1",
        "ZERO HEAD -1 AT LAYER 1",
        "ZERO LOGITS AT LAYER 1",
        "ZERO FFN AT LAYER 1,",
    ] {
        message(&format!("TRACE 'x' WITH {bad}"));
    }
}

#[test]
fn patch_and_facts() {
    let patch = Patch {
        prompt: "a".into(),
        source: "b".into(),
        answer: " c".into(),
        site: Some(Site::Ffn),
        layers: Some(Layers::Every(2)),
        format: Some(Format::Csv),
    };
    assert_eq!(
        one("patch 'a' format csv layers every:2 for ' c' site ffn from 'b'"),
        Statement::Patch(patch)
    );
    let fact = |layer| Fact {
        prompt: "a".into(),
        answer: "b".into(),
        layer,
    };
    assert_eq!(one("INSERT 'a'->'b'"), Statement::Insert(fact(None)));
    assert_eq!(
        one("delete 'a' -> 'b' layer 3;"),
        Statement::Delete(fact(Some(3)))
    );
    assert_eq!(one(" facts ;; "), Statement::Facts);
    for bad in [
        "PATCH 'a'",
        "PATCH 'a' FROM 'b'",
        "PATCH 'a' FOR 'c'",
        "PATCH 'a' FROM 'b' FOR 'c', 'd'",
        "PATCH 'a' FROM 'b' FOR 'c' SITE NEURON 1",
        "PATCH 'a' FROM 'b' FOR 'c' TOP 1",
        "INSERT 'a' 'b'",
        "INSERT 'a' -> 'b' LAYER 0",
        "INSERT 'a' -> ''",
        "FACTS LAYER 1",
    ] {
        message(bad);
    }
}

#[test]
fn texts_and_comments() {
    let prompt = |written: &str| trace(&format!("TRACE {written}")).prompt;
    assert_eq!(
        prompt(r#""a\"b\\c\nd\te\u{e9}\u{1F600}""#),
        "a\"b\\c\nd\te\u{e9}\u{1f600}"
    );
    assert_eq!(prompt("'it\\'s \"so\"\nand on'"), "it's \"so\"\nand on");
    assert_eq!(
        prompt("\"-- no /* comment */\" -- but this"),
        "-- no /* comment */"
    );
    assert_eq!(prompt("/* ' */ 'x' /* -- */"), "x");
    assert_eq!(parse("\u{feff} -- nothing\n /**/ ;"), Ok(Vec::new()));
    for bad in [
        "'a",
        "'a\\'",
        "'a\\",
        "'\\q'",
        "'\\u'",
        "'\\u{}'",
        "'\\u{d800}'",
        "'\\u{1234567}'",
        "'\\u{41'",
        "/*",
        "''",
    ] {
        message(&format!("TRACE {bad}"));
    }
}

#[test]
fn the_first_statement_at_fault_is_named_and_nothing_returned() {
    assert!(message("FACTS; TRACE 'x' TOP 0; FACTS").starts_with("statement 2: "));
    assert!(message("FACTS; FACTS; 'x").starts_with("statement 3: "));
    assert!(message("TRACE 'x' TOP 0; FACTS").starts_with("statement 1: "));
    assert!(!message("TRACE 'x' TOP 0;").contains("statement"));
    // A mistake of words comes before one of letters further on.
    assert_eq!(
        message("TRCE 'x' “y”"),
        "expected TRACE, PATCH, INSERT, DELETE or FACTS, found `TRCE`"
    );
}

#[test]
fn sources_up_to_a_megabyte() {
    let fill = |piece: &str| piece.repeat(MAX_SOURCE / piece.len());
    for piece in [
        ";",
        "FACTS;",
        "(",
        "'",
        "''",
        "/*",
        "/**/",
        "--",
        "-",
        "\"\\",
        "TRACE ",
        "9",
        "9 ",
        "a",
        "\u{1f600}",
        "\\u{",
    ] {
        let source = fill(piece);
        if let Err(error) = parse(&source) {
            assert!(error.render(&source).chars().count() < 1000, "{piece}");
        }
    }
    let edits = format!(
        "TRACE 'x' WITH ZERO FFN AT LAYER 1{}",
        ", SCALE 1 HEAD 2 AT LAYER 1".repeat(30_000)
    );
    assert_eq!(trace(&edits).edits.len(), 30_001);
    let list = format!("TRACE 'x' LAYERS 1{}", ",2".repeat(500_000));
    assert!(matches!(trace(&list).layers, Some(Layers::List(layers)) if layers.len() == 500_001));
    let over = " ".repeat(MAX_SOURCE + 1);
    assert_eq!(
        message(&over),
        "the statements are 1048577 bytes long, at most 1048576 are read"
    );
    assert!(completions(&over).is_empty());
}

#[test]
fn what_can_follow() {
    let join = |prefix: &str| completions(prefix).join(" ");
    assert_eq!(join(""), "TRACE PATCH INSERT DELETE FACTS");
    assert_eq!(join("FACTS; t"), "TRACE");
    assert_eq!(join("TRACE "), "");
    assert_eq!(
        join("TRACE 'x' "),
        "FOR DECOMPOSE HEADS LAYERS POSITIONS TOP AFTER WITH SAVE FORMAT"
    );
    assert_eq!(join("TRACE 'x' for 'y' decompose fo"), "FORMAT");
    assert_eq!(join("TRACE 'x' LAYERS "), "ALL EVERY");
    assert_eq!(join("TRACE 'x' LAYERS 3"), "");
    assert_eq!(join("TRACE 'x' LAYERS 3 t"), "TOP");
    assert_eq!(join("TRACE 'x' AFTER "), "ATTENTION");
    assert_eq!(join("TRACE 'x' WITH "), "ZERO SCALE REPLACE");
    assert_eq!(
        join("TRACE 'x' WITH ZERO "),
        "ATTENTION FFN RESIDUAL HEAD NEURON"
    );
    assert_eq!(join("TRACE 'x' WITH ZERO FFN "), "AT POSITION");
    assert_eq!(join("TRACE 'x' WITH REPLACE FFN AT LAYER 1 FROM "), "FILE");
    assert_eq!(
        join("TRACE 'x' WITH ZERO FFN AT LAYER 1 pos"),
        "POSITION POSITIONS"
    );
    assert_eq!(join("PATCH 'x' "), "FROM FOR SITE LAYERS FORMAT");
    assert_eq!(join("PATCH 'x' FROM 'y' SITE r"), "RESIDUAL");
    assert_eq!(join("INSERT 'x' -> 'y' "), "LAYER");
    for nothing in [
        "TRACE 'x",
        "TRACE 'x' -- f",
        "TRACE 'x' /* f",
        "NONSENSE 'x' ",
        "TRACE 'x' TOP 0 ",
        "TRACE 'x' FOO",
    ] {
        assert_eq!(join(nothing), "", "{nothing}");
    }
}

#[test]
fn errors_are_shown_on_the_source() {
    insta::assert_snapshot!(shown("TRCE \"x\""), @r#"
    expected TRACE, PATCH, INSERT, DELETE or FACTS, found `TRCE`
     --> line 1, column 1
      |
    1 | TRCE "x"
      | ^^^^
      = help: did you mean TRACE?
    "#);
    insta::assert_snapshot!(shown("FACTS;\nTRACE \"x\"\n  FRO \"y\";"), @r#"
    statement 2: `FRO` is no clause of TRACE
     --> line 3, column 3
      |
    3 |   FRO "y";
      |   ^^^
      = help: did you mean FOR?
    "#);
    insta::assert_snapshot!(shown("TRACE \"日本語\\t\t\" LAYERS 27-22"), @r#"
    the range 27-22 runs backwards
     --> line 1, column 23
      |
    1 | TRACE "日本語\t    " LAYERS 27-22
      |                             ^^^^^
      = help: write 22-27
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" LAYERS 3 DECOMPOSE layers 4"), @r#"
    LAYERS is given twice
     --> line 1, column 30
      |
    1 | TRACE "x" LAYERS 3 DECOMPOSE layers 4
      |                              ^^^^^^
      = help: a clause may stand once; take one of them out
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" LAYERS FRIST"), @r#"
    expected ALL, EVERY or a number, found `FRIST`
     --> line 1, column 18
      |
    1 | TRACE "x" LAYERS FRIST
      |                  ^^^^^
      = help: LAYERS takes ALL, a-b, EVERY k or a list such as 1,5,9
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" TOP 0"), @r#"
    so many candidates are not shown
     --> line 1, column 15
      |
    1 | TRACE "x" TOP 0
      |               ^
      = help: TOP takes a number from 1 to 1000
    "#);
    insta::assert_snapshot!(shown("TRACE \"x"), @r#"
    a text that does not end
     --> line 1, column 7
      |
    1 | TRACE "x
      |       ^
      = help: close it with "; inside of it write \"
    "#);
    insta::assert_snapshot!(shown("TRACE “x”"), @r#"
    `“` is not of the language
     --> line 1, column 7
      |
    1 | TRACE “x”
      |       ^
      = help: texts stand in straight quotes, "like this"
    "#);
    insta::assert_snapshot!(shown(r#"TRACE "C:\quant""#), @r#"
    `\q` is no escape
     --> line 1, column 10
      |
    1 | TRACE "C:\quant"
      |          ^^
      = help: there are \" \' \\ \n \r \t \u{..}; write \\ for a backslash
    "#);
    insta::assert_snapshot!(shown("PATCH \"a\" FROM \"b\""), @r#"
    PATCH needs FOR
     --> line 1, column 7
      |
    1 | PATCH "a" FROM "b"
      |       ^^^^^^^^^^^^
      = help: add FOR "the word whose logit is watched"
    "#);
    insta::assert_snapshot!(shown("PATCH \"a\" FROM \"b\" FOR \"c\", \"d\""), @r#"
    PATCH watches one word
     --> line 1, column 27
      |
    1 | PATCH "a" FROM "b" FOR "c", "d"
      |                           ^
      = help: write a PATCH for each of them
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" WITH ZERO FFN POSITION 3"), @r#"
    the edit needs AT LAYER
     --> line 1, column 16
      |
    1 | TRACE "x" WITH ZERO FFN POSITION 3
      |                ^^^^^^^^^^^^^^^^^^^
      = help: add AT LAYER n, from 1
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" WITH REPLACE FFN AT LAYER 0 FROM \"y\""), @r#"
    layer 0 is the embedding, which is not edited
     --> line 1, column 37
      |
    1 | TRACE "x" WITH REPLACE FFN AT LAYER 0 FROM "y"
      |                                     ^
      = help: AT takes LAYER n, from 1
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" WITH SCALE 0.5 FFN AT LAYER 3 FROM \"y\""), @r#"
    only REPLACE takes FROM
     --> line 1, column 41
      |
    1 | TRACE "x" WITH SCALE 0.5 FFN AT LAYER 3 FROM "y"
      |                                         ^^^^
      = help: write REPLACE, or take FROM out
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" WITH SCALE inf FFN AT LAYER 3"), @r#"
    expected `-`, `+` or a number, found `inf`
     --> line 1, column 22
      |
    1 | TRACE "x" WITH SCALE inf FFN AT LAYER 3
      |                      ^^^
      = help: SCALE takes a finite number, such as 0.5
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" TRACE \"y\""), @r#"
    `;` is missing in front of `TRACE`
     --> line 1, column 11
      |
    1 | TRACE "x" TRACE "y"
      |           ^^^^^
      = help: every statement but the last ends with `;`
    "#);
    insta::assert_snapshot!(shown("TRACE \"x\" LAYERS 1-3, 7"), @r#"
    expected a clause of TRACE or `;`, found `,`
     --> line 1, column 21
      |
    1 | TRACE "x" LAYERS 1-3, 7
      |                     ^
      = help: LAYERS takes ALL, a-b, EVERY k or a list such as 1,5,9
    "#);
    insta::assert_snapshot!(shown("INSERT \"a\" \"b\""), @r#"
    expected `->`, found a text
     --> line 1, column 12
      |
    1 | INSERT "a" "b"
      |            ^^^
      = help: write INSERT "prompt" -> "answer"
    "#);
    insta::assert_snapshot!(shown("TRACE"), @r#"
    expected the prompt, found the end
     --> line 1, column 6
      |
    1 | TRACE
      |      ^
      = help: TRACE takes a prompt in quotes and then clauses
    "#);
}
