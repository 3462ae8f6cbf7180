//! Every key does what the table says, and one thing only.

use super::*;

#[test]
fn no_key_is_bound_twice() {
    let mut seen: Vec<Key> = Vec::new();
    for key in Keymap::default().bindings.into_iter().flat_map(|b| b.keys) {
        assert!(!seen.contains(&key), "{} is bound twice", key.label());
        seen.push(key);
    }
}

#[test]
fn every_key_in_the_table_does_its_action() {
    let map = Keymap::default();
    for binding in &map.bindings {
        assert!(!binding.help.is_empty());
        for key in &binding.keys {
            assert_eq!(
                map.action(&key.event()),
                Some(binding.action),
                "{}",
                key.label()
            );
        }
    }
}

#[test]
fn shift_and_alt() {
    let map = Keymap::default();
    assert_eq!(
        map.action(&KeyEvent::new(KeyCode::Char('N'), KeyModifiers::SHIFT)),
        Some(Action::StepLayer)
    );
    assert_eq!(
        map.action(&KeyEvent::new(KeyCode::Tab, KeyModifiers::SHIFT)),
        Some(Action::FocusPrevious)
    );
    assert_eq!(
        map.action(&KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT)),
        None
    );
}
