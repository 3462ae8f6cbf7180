//! The recommendations: read at every size, and nothing is changed before it was shown.

use super::*;
use crate::session::snapshot::RecommendationStatus;
use crate::tui::fixture::settled;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn recommend(snapshot: &Snapshot, w: u16, h: u16, zoomed: bool) -> String {
    let options = Options {
        recommend: true,
        zoomed,
        ..Options::default()
    };
    text::render(snapshot, w, h, &options)
}

#[test]
fn recommendations_read_well_at_every_size() {
    for (w, h) in SIZES {
        for (name, snapshot) in [("advised", advised()), ("tried", measured())] {
            let beside = recommend(&snapshot, w, h, false);
            looks_like(&format!("advice-{name}-{w}x{h}"), &beside);
            let zoomed = recommend(&snapshot, w, h, true);
            looks_like(&format!("advice-{name}-zoomed-{w}x{h}"), &zoomed);
        }
        looks_like(
            &format!("advice-settled-{w}x{h}"),
            &recommend(&settled(), w, h, false),
        );
    }
    looks_like("advice-40x12", &recommend(&advised(), 40, 12, true));
    let options = Options {
        recommend: true,
        ascii: true,
        zoomed: true,
        ..Options::default()
    };
    let ascii = text::render(&advised(), 120, 40, &options);
    assert!(ascii.is_ascii());
    looks_like("advice-ascii", &ascii);
}

#[test]
fn f062_and_f067_what_the_tuner_says_is_on_the_dashboard_and_can_be_acted_on() {
    for (w, h) in SIZES {
        let screen = recommend(&advised(), w, h, true);
        for shown in [
            "168.0",
            "151.0–180.0",
            "+20.3%",
            "limited by memory, 72% of a token",
            "(89% sure)",
            "threads 1 → 2",
            "412 runs of this machine",
            "other programs lose the CPUs it takes",
            "avx2",
        ] {
            assert!(screen.contains(shown), "{shown} at {w}x{h}:\n{screen}");
        }
    }
    // What is shown as a change is one: the session takes the id.
    let mut a = app(advised(), 120, 40);
    press(&mut a, "a");
    assert!(screen(&a).contains("threads 1 → 2"));
    assert_eq!(press(&mut a, "a"), [Command::Apply("threads".into())]);
}

#[test]
fn a_change_is_shown_before_it_is_made() {
    let mut a = app(advised(), 120, 40);
    assert_eq!(press(&mut a, "a"), []);
    looks_like("advice-confirm-120x40", &screen(&a));
    for shown in ["the engine is built again", "to the last bit", "Esc"] {
        assert!(screen(&a).contains(shown), "{shown}");
    }
    assert_eq!(press(&mut a, "jkzu"), [], "nothing else is done meanwhile");
    key(&mut a, KeyCode::Esc);
    assert_eq!(a.overlay, Overlay::None);
    press(&mut a, "ja");
    let second = screen(&a);
    assert!(second.contains("kv-type f16 → q8_0"), "{second}");
    assert!(second.contains("answers may change"));
    assert_eq!(
        key(&mut a, KeyCode::Enter),
        [Command::Apply("kv-type=q8_0".into())]
    );
    press(&mut a, "jja");
    assert_eq!(a.overlay, Overlay::None, "not in a running session");
    // Weights are loaded again.
    press(&mut a, "ka");
    assert!(screen(&a).contains("weights are loaded again"));
    let mut small = app(advised(), 80, 24);
    press(&mut small, "a");
    looks_like("advice-confirm-80x24", &screen(&small));
}

#[test]
fn what_has_gone_meanwhile_is_not_applied() {
    let mut a = app(advised(), 120, 40);
    press(&mut a, "a");
    update(&mut a, Message::Snapshot(Arc::new(settled())));
    assert_eq!(press(&mut a, "a"), []);
    assert!(
        a.notice
            .as_deref()
            .is_some_and(|n| n.contains("nothing was changed"))
    );
    let mut s = advised();
    press(&mut a, "A");
    assert!(a.notice.as_deref().is_some_and(|n| n.contains("no open")));
    update(&mut a, Message::Snapshot(Arc::new(s.clone())));
    press(&mut a, "a");
    for r in &mut s.recommendations {
        r.status = RecommendationStatus::Measuring { done: 1, total: 2 };
    }
    update(&mut a, Message::Snapshot(Arc::new(s)));
    assert_eq!(press(&mut a, "a"), []);
}

#[test]
fn all_are_tried_after_they_were_listed_and_stopped_at_once() {
    let mut a = app(advised(), 80, 24);
    assert_eq!(press(&mut a, "A"), []);
    looks_like("advice-try-all-80x24", &screen(&a));
    assert_eq!(press(&mut a, "A"), [Command::TryAll]);
    let mut a = app(measured(), 80, 24);
    assert_eq!(press(&mut a, "A"), [Command::TryAll], "a race is on");
}

#[test]
fn the_bandit_is_switched_and_shown() {
    let mut a = app(advised(), 120, 40);
    assert_eq!(press(&mut a, "B"), [Command::Bandit(false)]);
    let mut a = app(decode(120), 120, 40);
    assert_eq!(press(&mut a, "B"), [Command::Bandit(true)]);
}

#[test]
fn the_best_stands_first_and_the_cursor_stays_on_its_own() {
    let mut a = app(advised(), 120, 40);
    let order: Vec<&str> = a.ranked_advice().iter().map(|r| r.id.as_str()).collect();
    assert_eq!(
        order,
        ["threads", "kv-type=q8_0", "load=read,huge-pages", "kv-f16"]
    );
    press(&mut a, "5j");
    let mut s = advised();
    for r in &mut s.recommendations {
        if let Some(i) = r.expected.as_mut().filter(|i| i.mid < 145.0) {
            i.mid = 199.0;
        }
    }
    update(&mut a, Message::Snapshot(Arc::new(s)));
    let selected = a.selected_advice().map(|(at, r)| (at, r.id.clone()));
    assert_eq!(selected, Some((2, "kv-type=q8_0".into())));
    // A click selects what is drawn there.
    let area = a.layout().panel(Panel::Advice).unwrap_or_default();
    let at = screen(&a).lines().position(|l| l.contains("Use 2 threads"));
    click(&mut a, area.x + 5, at.unwrap_or_default() as u16);
    assert_eq!(
        a.selected_advice().map(|(_, r)| r.id.as_str()),
        Some("threads")
    );
}

#[test]
fn nothing_that_helps_is_said_in_words() {
    for (w, h) in SIZES {
        let screen = recommend(&settled(), w, h, false);
        assert!(screen.contains("Nothing to change"), "{screen}");
    }
    let mut s = measured();
    s.recommendations.retain(|r| {
        !matches!(
            r.status,
            RecommendationStatus::Open | RecommendationStatus::Measuring { .. }
        )
    });
    let screen = recommend(&s, 80, 24, true);
    assert!(screen.contains("nothing else is expected"), "{screen}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_selected_one_is_always_in_view(w in 40u16..250, h in 12u16..70, moves in 0usize..7, zoomed: bool, which in 0usize..2) {
        let snapshot = if which == 0 { advised() } else { measured() };
        let mut a = app(snapshot, w, h);
        press(&mut a, "5");
        a.zoomed = zoomed;
        for _ in 0..moves { press(&mut a, "j"); }
        let area = a.layout().panel(Panel::Advice).unwrap_or_default();
        let selected = a.selected_advice().map(|(at, _)| at);
        let seen = (area.y..area.bottom()).filter_map(|y| panels::advice::item_at(&a, area, y));
        prop_assert!(seen.into_iter().any(|at| Some(at) == selected));
    }
}
