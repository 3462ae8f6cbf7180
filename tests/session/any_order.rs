//! Commands in any order.

use super::support::*;
use cbtop::session::Session;
use cbtop::session::snapshot::Command;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Act {
    Tick(u8),
    Obey(Command),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let command = prop_oneof![
        4 => Just(Command::TogglePause),
        4 => Just(Command::StepToken),
        6 => Just(Command::StepLayer),
        2 => Just(Command::Restart),
        2 => ".{0,12}".prop_map(Command::NewPrompt),
        1 => Just(Command::NewPrompt("long ".repeat(100))),
        2 => Just(Command::ResetStats),
        3 => prop::sample::select(vec!["chunk", "more-threads", "kernels", "nonsense"])
            .prop_map(|id| Command::Apply(id.into())),
        3 => Just(Command::Undo),
        2 => Just(Command::TryAll),
        1 => any::<bool>().prop_map(Command::Bandit),
    ];
    let act = prop_oneof![
        1 => (1u8..6).prop_map(Act::Tick),
        1 => command.prop_map(Act::Obey),
    ];
    prop::collection::vec(act, 1..50)
}

fn play(s: &mut Session, acts: &[Act]) {
    let mut seq = 0;
    let mut look = |s: &mut Session| {
        let snap = s.snapshot();
        check(&snap, seq);
        seq = snap.seq;
    };
    look(s);
    for act in acts {
        match act {
            Act::Tick(n) => (0..*n).for_each(|_| {
                let (idle, before) = (s.is_idle(), s.generated());
                let text = s.tick();
                assert!(!idle || (text.is_empty() && s.generated() == before));
            }),
            Act::Obey(command) => assert!(s.obey(command.clone())),
        }
        look(s);
    }
    assert!(!s.obey(Command::Quit));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_commands_breaks_a_session(
        acts in acts(),
        endless: bool,
        limit in prop::option::of(0u64..8),
        chunk in 1usize..6,
        ends in prop::option::of(0u32..512),
    ) {
        let mut o = options("hello, you there");
        (o.endless, o.max_tokens) = (endless, limit);
        (o.config.chunk, o.config.n_ctx) = (chunk, 28);
        let loaded = ends.map_or_else(llama, llama_ending_with);
        play(&mut session(loaded, o), &acts);
    }

    #[test]
    fn measured_time_does_no_harm_either(acts in acts(), endless: bool) {
        let mut o = options("hello, you there");
        (o.endless, o.config.n_ctx, o.config.chunk) = (endless, 40, 4);
        o.clock = cbtop::profiler::Clock::calibrated();
        play(&mut session(llama(), o), &acts);
    }
}
