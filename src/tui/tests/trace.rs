//! The residual trace at every size, its keys, and frames out of all bounds.

use super::*;
use crate::session::snapshot::TraceFrame;
use crate::tui::fixture::trace::{full, single, traced, without_lens};
use crate::tui::theme::Theme;

fn pane(frame: TraceFrame, w: u16, h: u16, zoomed: bool) -> App {
    let mut a = app(traced(frame), w, h);
    a.focus = Panel::Trace;
    a.zoomed = zoomed;
    a
}

#[test]
#[ignore]
fn look() {
    let size = std::env::var("LOOK").unwrap_or("80x24".into());
    let (w, h) = size.split_once('x').expect("WxH");
    let (w, h) = (w.parse().expect("w"), h.parse().expect("h"));
    let mut compared = full();
    compared.map = None;
    let mut heads = full();
    heads.map = None;
    heads.beside = None;
    for (name, frame, zoomed) in [
        ("single", single(), true),
        ("heads", heads, true),
        ("single beside", single(), false),
        ("map", full(), true),
        ("compare", compared, true),
        ("norms", without_lens(), true),
        ("empty", TraceFrame::default(), true),
    ] {
        println!(
            "==== {name}\n{}",
            screen(&pane(frame.clone(), w, h, zoomed))
        );
        if std::env::var("ASCII").is_ok() {
            let mut a = pane(frame, w, h, zoomed);
            a.theme = Theme::new(false, true);
            println!("==== {name} ascii\n{}", screen(&a));
        }
    }
}
