//! Recipes that are right, wrong and hostile.

use super::*;
use proptest::prelude::*;

const EXAMPLE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/examples/tuner-training.yaml"
));

fn error(text: &str) -> RecipeError {
    Recipe::parse(text).expect_err("refused")
}

#[test]
fn the_example_is_a_recipe() {
    let recipe = Recipe::parse(EXAMPLE).expect("the example");
    assert_eq!(recipe.name, "brick-tuner-training");
    let [collect, train, validate] = recipe.stages.as_slice() else {
        panic!("{recipe:?}")
    };
    let Work::Profile(p) = &collect.work else {
        panic!("{collect:?}")
    };
    assert_eq!(
        (p.batch_sizes.as_slice(), p.models.len()),
        ([1, 2, 4, 8].as_slice(), 4)
    );
    assert_eq!((p.runs_per_config, p.warmup_runs), (Some(5), Some(2)));
    let Work::Train(t) = &train.work else {
        panic!("{train:?}")
    };
    assert_eq!(t.models[0].params["max_depth"], 6.0);
    assert_eq!(train.input.as_deref(), Some(Path::new("runs.sqlite")));
    let Work::Falsify(f) = &validate.work else {
        panic!("{validate:?}")
    };
    assert_eq!(f.min_score, 90.0);
    let plan = recipe.plan(Path::new("/recipes"));
    assert!(plan[0].contains("5 repetitions each after a warm-up"));
    assert!(plan[0].contains("(the recipe's batch_sizes, kernels, warmup_runs are not used)"));
    assert_eq!(plan.len(), 3);
    assert!(
        plan[0].starts_with(
            "1. collect: sweep over /recipes/../tests/fixtures/models/llama.Q4_K_M.gguf"
        )
    );
    assert!(
        plan[1].contains("on /recipes/runs.sqlite; the model goes to /recipes/tuner.safetensors")
    );
    assert!(plan[2].contains("at least 90 of 100"));
}

#[test]
fn what_is_not_known_is_named_with_its_line() {
    let with = |from: &str, to: &str| error(&EXAMPLE.replacen(from, to, 1));
    let line = |needle: &str| {
        let found = EXAMPLE.lines().position(|l| l.contains(needle));
        found.map(|l| l as u64 + 1)
    };
    for (from, to, says, at) in [
        (
            "type: profile",
            "type: profil",
            "no stage type 'profil'",
            "type: profile",
        ),
        (
            "runs_per_config: 5",
            "runs_per_conf: 5",
            "runs_per_conf",
            "runs_per_config",
        ),
        (
            "runs_per_config: 5",
            "runs_per_config: 0",
            "give 1 to 1000",
            "runs_per_config",
        ),
        (
            "min_score: 90",
            "min_score: 101",
            "give 0 to 100",
            "min_score",
        ),
        (
            "min_score: 90",
            "framework: cbtop",
            "has no 'framework'",
            "min_score",
        ),
        (
            "framework: cbtop",
            "framework: torch",
            "no framework 'torch'",
            "framework",
        ),
        ("input: tuner", "inputs: tuner", "inputs", "input: tuner"),
    ] {
        let e = with(from, to);
        assert!(e.what.contains(says), "{e}");
        assert_eq!(e.line, line(at), "{e}");
        assert_eq!(e.to_string().lines().count(), 1, "{e}");
    }
    for (from, to, says) in [
        ("max_iter: 1000", "max_iters: 1000", "no 'max_iters'"),
        ("max_iter: 1000", "max_iter: -1", "more than 0"),
        (
            "name: kernel_classifier",
            "name: kernels",
            "no model 'kernels'",
        ),
        ("type: LogisticRegression", "type: Forest", "not a Forest"),
        ("name: train", "name: collect", "two stages 'collect'"),
    ] {
        let e = with(from, to);
        assert!(e.what.contains(says), "{e}");
        assert!(e.line.is_some());
    }
}

#[test]
fn nothing_is_planned_that_will_not_happen() {
    let with = |from: &str, to: &str| error(&EXAMPLE.replacen(from, to, 1));
    // Only what was trained in the recipe has runs that were held out.
    let other = with("input: tuner.safetensors", "input: other.safetensors");
    assert!(
        other.what.contains("is not the 'output' of 'train'"),
        "{other}"
    );
    let list = with("min_score: 90", "checklist: list.yaml");
    assert!(list.what.contains("leave the key out"), "{list}");
    let useless = with("output: runs.sqlite", "input: runs.sqlite");
    assert!(useless.what.contains("has no 'input'"), "{useless}");
    let alone = error(
        "name: a\nversion: \"1\"\nstages: [{name: c, type: falsify, config: {min_score: 1}}]",
    );
    assert!(alone.what.contains("add one of type 'ml'"), "{alone}");
    let few = Recipe::parse(&EXAMPLE.replacen("runs_per_config: 5", "runs_per_config: 1", 1));
    let plan = few.expect("a recipe").plan(Path::new("."));
    assert!(plan[0].contains("3 repetitions"), "{plan:?}");
    let bare = Recipe::parse("name: a\nversion: \"1\"\nstages: [{name: t, type: ml}]");
    let plan = bare.expect("a recipe").plan(Path::new("."));
    if let Some(path) = BrickTuner::default_path() {
        assert!(
            plan[0].ends_with(&format!("goes to {}", path.display())),
            "{plan:?}"
        );
    }
}

#[test]
fn hostile_text_is_refused_at_once() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..30 {
        let list = vec![format!("*a{}", i - 1); 9].join(", ");
        laughs.push_str(&format!("a{i}: &a{i} [{list}]\n"));
    }
    laughs.push_str("name: *a29\nversion: \"1\"\nstages: []\n");
    error(&laughs);
    error(&"[".repeat(200_000));
    error(&format!("name: {}", "{a: ".repeat(100_000)));
    error(&"- ".repeat(100_000));
    error(&"x".repeat(MAX_BYTES + 1));
    error("");
    error("stages: 7");
    error("name: [1]\nversion: 1\nstages: []");
    error("name: a\nversion: \"1\"\nstages: []");
    error("name: a\nname: b\nversion: \"1\"\nstages: []");
    error("name: a\nversion: \"1\"\nstages: [{name: c, type: profile, config: {models: [{}]}}]");
    error(
        "name: a\nversion: \"1\"\nstages: [{name: c, type: profile, config: {models: [a], batch_sizes: [-1]}}]",
    );
    error(
        "name: a\nversion: \"1\"\nstages: [{name: c, type: profile, config: {models: [\"a\\0b\"]}}]",
    );
    error(
        "name: a\nversion: \"1\"\nstages: [{name: c, type: profile, config: {models: [a], batch_sizes: [1e99]}}]",
    );
}

proptest! {
    #[test]
    fn no_text_makes_it_fail(cut in 0usize..EXAMPLE.len(), junk in "[\\x00-\\x7f]{0,12}", keep in 0usize..EXAMPLE.len()) {
        let head: String = EXAMPLE.chars().take(cut).collect();
        let tail: String = EXAMPLE.chars().skip(keep).collect();
        if let Err(e) = Recipe::parse(&format!("{head}{junk}{tail}")) {
            prop_assert_eq!(e.to_string().lines().count(), 1);
        }
    }
}
