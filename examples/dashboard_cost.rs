//! What the dashboard costs: decode speed of a bare engine against that of a session that is timed brick by brick,
//! published and drawn as the dashboard does it, turn and turn about in one process.
//!
//! ```text
//! cargo run --release --example dashboard_cost -- [--model FILE] [--threads N] [--rounds N] [--seconds S]
//! ```
//!
//! Frames are encoded for a 120x40 terminal and thrown away: a terminal's own work is not cbtop's.
//! `tests/measure-dashboard.sh` measures the program itself, paused and running.

use cbtop::engine::sampler::{Sampler, SamplerConfig};
use cbtop::engine::{Engine, SyncMode, Unobserved};
use cbtop::model::brick::BrickId;
use cbtop::profiler::Clock;
use cbtop::session::snapshot::{Command, RunState, Snapshot};
use cbtop::session::{Loaded, Options, Session, SessionHandle, Source, encode_prompt, spawn};
use cbtop::tui;
use cbtop::tui::update::{Message, update};
use cbtop::tui::view::view;
use clap::Parser;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The terminal that is drawn for.
const AREA: Rect = Rect::new(0, 0, 120, 40);
/// Least time between two frames, as in the event loop.
const FRAME: Duration = Duration::from_millis(100);

#[derive(Parser)]
struct Args {
    /// GGUF file [default: the embedded demo].
    #[arg(short, long)]
    model: Option<PathBuf>,
    /// Threads of the engine [default: every CPU].
    #[arg(short, long)]
    threads: Option<usize>,
    /// Rounds; each measures both sides.
    #[arg(short, long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each side in a round.
    #[arg(short, long, default_value_t = 3.0)]
    seconds: f64,
    /// Text to continue; started again when it ends.
    #[arg(short, long, default_value = "The capital of France is")]
    prompt: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let window = Duration::try_from_secs_f64(args.seconds)?;
    let loaded = Loaded::open(args.model.map_or(Source::Demo, Source::File))?;
    let mut config = loaded.config();
    config.threads = args.threads.unwrap_or(config.threads);
    let options = Options {
        tuner: None,
        config,
        explicit: BTreeSet::new(),
        sampler: SamplerConfig::GREEDY,
        prompt: args.prompt,
        chat: false,
        max_tokens: None,
        endless: true,
        pace: None,
        clock: Clock::calibrated(),
        bandwidth: Vec::new(),
        peaks: Vec::new(),
        sync_mode: SyncMode::Deferred,
        beside: None,
        overlay: None,
        tracers: Default::default(),
        reference: None,
    };
    println!(
        "{}, {} threads, {window:?} a side",
        loaded.name(),
        options.config.threads
    );
    let mut bare = Bare::new(&loaded, &options)?;
    let watched = Watched::new(Session::new(loaded, options)?)?;
    // The session runs from the start; measuring it once warms it up and leaves it paused.
    watched.measure(window / 4)?;
    bare.measure(window / 4)?;
    let mut rounds = Vec::new();
    for round in 1..=args.rounds {
        // Whoever goes first changes, so that a drift of the machine hits both alike.
        let (alone, shown) = if round % 2 == 1 {
            let alone = bare.measure(window)?;
            (alone, watched.measure(window)?)
        } else {
            let shown = watched.measure(window)?;
            (bare.measure(window)?, shown)
        };
        println!("round {round:>2}: bare {alone}   dashboard {shown}");
        rounds.push((alone, shown));
    }
    let drawing = watched.close()?;
    let by = |f: fn(&Speed) -> f64| {
        rounds
            .iter()
            .map(|(alone, shown)| f(shown) / f(alone))
            .collect()
    };
    summary("tokens a second of wall time", by(|s| s.per_second));
    summary("tokens a second of CPU time ", by(|s| s.per_cpu_second));
    let each_us = drawing.seconds * 1e6 / drawing.frames.max(1) as f64;
    println!("drawing: {} frames of {each_us:.0} us", drawing.frames);
    Ok(())
}

fn summary(what: &str, mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let at = |q: f64| ratios[((ratios.len() - 1) as f64 * q).round() as usize];
    let (low, median, high) = (at(0.25), at(0.5), at(0.75));
    let cost = 100.0 * (1.0 - median);
    println!("{what}: ratio {median:.4} (quartiles {low:.4} to {high:.4}), cost {cost:.2}%");
}

/// How fast one side was.
struct Speed {
    per_second: f64,
    /// Of all threads; steadier than wall time where other programs run. NaN where the system does not tell.
    per_cpu_second: f64,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:9.2} tok/s {:9.2} tok/CPU-s",
            self.per_second, self.per_cpu_second
        )
    }
}

/// Wall and CPU time so far.
struct Stopwatch {
    began: Instant,
    cpu_seconds: f64,
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            cpu_seconds: cpu_seconds(),
        }
    }

    fn speed(&self, tokens: u64, ended: Instant) -> Speed {
        Speed {
            per_second: tokens as f64 / (ended - self.began).as_secs_f64(),
            per_cpu_second: tokens as f64 / (cpu_seconds() - self.cpu_seconds),
        }
    }
}

/// CPU time of all threads, from Linux's scheduler, to the nanosecond.
fn cpu_seconds() -> f64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return f64::NAN;
    };
    let on_cpu = |task: io::Result<std::fs::DirEntry>| -> Option<f64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    tasks.filter_map(on_cpu).sum::<f64>() / 1e9
}

/// The engine alone, doing what a session has it do.
struct Bare {
    loaded: Loaded,
    engine: Engine<Unobserved>,
    sampler: Sampler,
    prompt: Vec<u32>,
}

impl Bare {
    fn new(loaded: &Loaded, options: &Options) -> Result<Self, Box<dyn Error>> {
        Ok(Self {
            engine: Engine::new(
                Arc::clone(&loaded.model),
                options.config.clone(),
                Unobserved,
            )?,
            sampler: Sampler::new(options.sampler, loaded.model.n_vocab),
            prompt: encode_prompt(loaded, &options.prompt, false)?,
            loaded: loaded.clone(),
        })
    }

    fn measure(&mut self, window: Duration) -> Result<Speed, Box<dyn Error>> {
        let watch = Stopwatch::start();
        let mut decoded = 0u64;
        while watch.began.elapsed() < window {
            self.engine.truncate(0);
            self.engine.prefill(&self.prompt)?;
            let mut next = self.engine.sample(&mut self.sampler).id;
            let ends = |id| self.loaded.tokenizer.is_end_of_generation(id);
            while !ends(next) && self.engine.room() > 0 && watch.began.elapsed() < window {
                self.engine.decode(next)?;
                next = self.engine.sample(&mut self.sampler).id;
                decoded += 1;
            }
        }
        Ok(watch.speed(decoded, Instant::now()))
    }
}

/// Frames drawn, and the time they took.
#[derive(Default)]
struct Drawing {
    frames: u64,
    seconds: f64,
}

/// The snapshot of a session that has come to a stop, and when it came.
type Standstill = (Arc<Snapshot>, Instant);

/// A session with a dashboard that nobody sees.
struct Watched {
    commands: Sender<Command>,
    standstill: Receiver<Standstill>,
    screen: std::thread::JoinHandle<Drawing>,
}

impl Watched {
    fn new(session: Session) -> Result<Self, Box<dyn Error>> {
        let handle = spawn(session)?;
        let commands = handle.commands.clone();
        let (tell, standstill) = channel();
        let screen = std::thread::Builder::new()
            .name("screen".into())
            .spawn(move || draw_all(handle, &tell).unwrap_or_default())?;
        Ok(Self {
            commands,
            standstill,
            screen,
        })
    }

    fn pause(&self) -> Result<Standstill, Box<dyn Error>> {
        self.commands.send(Command::TogglePause)?;
        Ok(self.standstill.recv_timeout(Duration::from_secs(60))?)
    }

    fn measure(&self, window: Duration) -> Result<Speed, Box<dyn Error>> {
        let watch = Stopwatch::start();
        self.commands.send(Command::Restart)?;
        std::thread::sleep(window);
        let (last, ended) = self.pause()?;
        let embeddings = last.bricks.iter().find(|b| b.id == BrickId::Embed);
        Ok(watch.speed(embeddings.map_or(0, |b| b.steps), ended))
    }

    fn close(self) -> Result<Drawing, Box<dyn Error>> {
        self.commands.send(Command::Quit)?;
        self.screen
            .join()
            .map_err(|_| "the drawing thread failed".into())
    }
}

/// The event loop's part: every snapshot updates the state, frames come at its pace. Tells of every snapshot of a session
/// that stands still.
fn draw_all(mut handle: SessionHandle, tell: &Sender<Standstill>) -> io::Result<Drawing> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let first = handle.frames.borrow_and_update().clone();
        let mut app = tui::Options::default().app(first, AREA);
        let viewport = Viewport::Fixed(AREA);
        let mut terminal = Terminal::with_options(
            CrosstermBackend::new(io::sink()),
            TerminalOptions { viewport },
        )?;
        let mut drawing = Drawing::default();
        let mut last = Instant::now();
        let mut due: Option<Instant> = None;
        loop {
            let at = due.unwrap_or(last);
            tokio::select! {
                biased;
                changed = handle.frames.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let now = Instant::now();
                    let snapshot = handle.frames.borrow_and_update().clone();
                    let still = snapshot.state == RunState::Paused;
                    if still && tell.send((Arc::clone(&snapshot), now)).is_err() {
                        break;
                    }
                    update(&mut app, Message::Snapshot(snapshot));
                    due = due.or(Some(last + FRAME));
                }
                () = tokio::time::sleep_until(at.into()), if due.is_some() => {
                    last = Instant::now();
                    due = None;
                    terminal.draw(|frame| view(&app, frame))?;
                    drawing.frames += 1;
                    drawing.seconds += last.elapsed().as_secs_f64();
                }
            }
        }
        Ok(drawing)
    })
}
