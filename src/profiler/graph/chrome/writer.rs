//! Writes the events one by one and counts bytes.

use super::event::{
    BrickArgs, Empty, Event, Finite, KernelArgs, LayerArgs, Micros, Name, Note, SortIndex,
    SpanArgs, StepArgs, Track, Value,
};
use super::{CounterSample, TraceSize, TraceStep};
use crate::engine::StepKind;
use crate::profiler::figures::{KernelInfo, StepEvent, StepTrace};
use crate::profiler::graph::step::nanos;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

const HEAD: &[u8] = b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
const TAIL: &[u8] = b"\n]}\n";
/// Kept free for the note and the tail.
const RESERVE: u64 = 512;
/// Latest moment, nanoseconds: 26 days. Up to here microseconds with three decimals are exact as doubles.
const FAR: u64 = 1 << 51;

/// A trace in the making. Each event goes out as it comes; only ends of tracks are remembered.
pub struct ChromeTrace<W: Write> {
    out: W,
    limit: u64,
    size: TraceSize,
    /// Track ends, nanoseconds: what begins earlier begins here, so that nothing overlaps.
    ends: BTreeMap<(u32, u64), u64>,
    line: Vec<u8>,
}

impl<W: Write> ChromeTrace<W> {
    /// Begins a trace of at most `limit_bytes` bytes, and names the tracks of the model.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn new(mut out: W, limit_bytes: u64) -> io::Result<Self> {
        out.write_all(HEAD)?;
        let mut trace = Self {
            out,
            limit: limit_bytes,
            size: TraceSize {
                bytes: HEAD.len() as u64,
                ..TraceSize::default()
            },
            ends: BTreeMap::new(),
            line: Vec::new(),
        };
        trace.metadata(Track::Counters, "process_name", Name { name: "cbtop" })?;
        for track in Track::MODEL {
            trace.name_track(track)?;
        }
        Ok(trace)
    }

    /// Adds a step. Steps come in the order they ran.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn step(&mut self, step: TraceStep<'_>, kernels: &[KernelInfo]) -> io::Result<()> {
        let at = end(0, step.start_us);
        let trace = step.trace;
        let kind = match trace.kind {
            StepKind::Decode => "decode",
            StepKind::Prefill => "prefill",
        };
        let args = StepArgs {
            position: trace.position,
            tokens: trace.tokens,
        };
        let whole = (at, end(at, trace.wall_us));
        self.slice(Track::Steps, kind, "step", whole, args)?;
        self.layers(at, trace)?;
        self.bricks(at, trace, kernels)?;
        self.threads(at, trace)
    }

    /// Adds a counter's value.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn counter(&mut self, sample: CounterSample<'_>) -> io::Result<()> {
        if !sample.value.is_finite() {
            return Ok(());
        }
        self.event(&Event {
            ph: "C",
            name: sample.name,
            cat: Some("counter"),
            pid: Track::Counters.pid(),
            tid: Track::Counters.tid(),
            ts: Micros(end(0, sample.at_us)),
            dur: None,
            s: None,
            args: Value {
                value: sample.value,
            },
        })
    }

    /// Ends the trace; gives what was written, and the writer.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<(TraceSize, W)> {
        if self.size.left_out > 0 {
            let last = self.ends.values().max().copied().unwrap_or(0);
            self.encode(&Event {
                ph: "i",
                name: "the trace ends here: size limit",
                cat: Some("note"),
                pid: Track::Steps.pid(),
                tid: Track::Steps.tid(),
                ts: Micros(last),
                dur: None,
                s: Some("g"),
                args: Note {
                    left_out: "all events after this one",
                },
            })?;
            self.write()?;
        }
        self.out.write_all(TAIL)?;
        self.out.flush()?;
        self.size.bytes += TAIL.len() as u64;
        Ok((self.size, self.out))
    }

    /// A slice from the first event of a layer to the end of its last.
    fn layers(&mut self, at: u64, trace: &StepTrace) -> io::Result<()> {
        for events in trace.events.chunk_by(|a, b| a.layer == b.layer) {
            if let (Some(first), Some(last)) = (events.first(), events.last()) {
                self.layer(at, first, last)?;
            }
        }
        Ok(())
    }

    fn layer(&mut self, at: u64, first: &StepEvent, last: &StepEvent) -> io::Result<()> {
        let Some(layer) = first.layer else {
            return Ok(());
        };
        let span = (
            end(at, first.start_us),
            end(at, last.start_us + last.work_us + last.sync_us),
        );
        let name = format!("layer {layer}");
        self.slice(Track::Layers, &name, "layer", span, LayerArgs { layer })
    }

    fn bricks(&mut self, at: u64, trace: &StepTrace, kernels: &[KernelInfo]) -> io::Result<()> {
        for event in &trace.events {
            let kernel = event.brick.and_then(|b| kernels.get(b as usize));
            let start = end(at, event.start_us);
            let worked = end(at, event.start_us + event.work_us);
            let synced = end(at, event.start_us + event.work_us + event.sync_us);
            let args = BrickArgs {
                layer: event.layer,
                kernel: kernel.map(|k| k.name.as_str()),
                barrier: event.barrier,
            };
            self.slice(
                Track::Bricks,
                event.id.name(),
                "brick",
                (start, worked),
                args,
            )?;
            if synced > worked {
                self.slice(Track::Bricks, "sync", "wait", (worked, synced), Empty {})?;
            }
            if let Some(kernel) = kernel {
                let args = KernelArgs {
                    variant: &kernel.variant,
                    source: &kernel.source,
                    source_hash: &kernel.source_hash,
                    rows: kernel.rows,
                    columns: kernel.columns,
                    tile_rows: kernel.tile_rows,
                };
                self.slice(
                    Track::Kernels,
                    &kernel.name,
                    "kernel",
                    (start, worked),
                    args,
                )?;
            }
        }
        Ok(())
    }

    fn threads(&mut self, at: u64, trace: &StepTrace) -> io::Result<()> {
        for lane in &trace.threads {
            let track = Track::Thread(lane.thread);
            if !self.ends.contains_key(&(track.pid(), track.tid())) {
                self.name_track(track)?;
            }
            for span in &lane.spans {
                let event = trace.events.get(span.event as usize);
                let worked = end(at, span.start_us + span.work_us);
                let waited = end(at, span.start_us + span.work_us + span.wait_us);
                let args = SpanArgs {
                    layer: event.and_then(|e| e.layer),
                    core: span.core,
                    pieces: span.pieces,
                    stolen: span.stolen,
                    slack_us: Finite(span.slack_us),
                };
                let name = event.map_or("unknown", |e| e.id.name());
                self.slice(track, name, "work", (end(at, span.start_us), worked), args)?;
                if waited > worked {
                    self.slice(track, "wait", "wait", (worked, waited), Empty {})?;
                }
            }
        }
        Ok(())
    }

    fn name_track(&mut self, track: Track) -> io::Result<()> {
        let first = !self.ends.keys().any(|&(pid, _)| pid == track.pid());
        if first && matches!(track, Track::Thread(_)) {
            self.metadata(track, "process_name", Name { name: "threads" })?;
        }
        let name = track.name();
        self.metadata(track, "thread_name", Name { name: &name })?;
        let index = SortIndex {
            sort_index: track.tid(),
        };
        self.metadata(track, "thread_sort_index", index)?;
        self.ends.insert((track.pid(), track.tid()), 0);
        Ok(())
    }

    fn metadata<A: Serialize>(&mut self, track: Track, name: &str, args: A) -> io::Result<()> {
        self.event(&Event {
            ph: "M",
            name,
            cat: None,
            pid: track.pid(),
            tid: track.tid(),
            ts: Micros(0),
            dur: None,
            s: None,
            args,
        })
    }

    /// A slice from one moment to another, nanoseconds. Stamps of a track may overlap by rounding: each slice begins no
    /// earlier than the one before ended.
    fn slice<A: Serialize>(
        &mut self,
        track: Track,
        name: &str,
        cat: &'static str,
        (from, to): (u64, u64),
        args: A,
    ) -> io::Result<()> {
        if self.size.left_out > 0 {
            self.size.left_out += 1;
            return Ok(());
        }
        let last = self.ends.entry((track.pid(), track.tid())).or_insert(0);
        let from = from.max(*last);
        let to = to.max(from);
        *last = to;
        self.event(&Event {
            ph: "X",
            name,
            cat: Some(cat),
            pid: track.pid(),
            tid: track.tid(),
            ts: Micros(from),
            dur: Some(Micros(to - from)),
            s: None,
            args,
        })
    }

    fn event<A: Serialize>(&mut self, event: &Event<'_, A>) -> io::Result<()> {
        if self.size.left_out > 0 {
            self.size.left_out += 1;
            return Ok(());
        }
        self.encode(event)?;
        if self.size.bytes + self.line.len() as u64 + RESERVE > self.limit {
            self.size.left_out = 1;
            return Ok(());
        }
        self.write()
    }

    fn encode<A: Serialize>(&mut self, event: &Event<'_, A>) -> io::Result<()> {
        self.line.clear();
        if self.size.events > 0 {
            self.line.extend_from_slice(b",\n");
        }
        serde_json::to_writer(&mut self.line, event).map_err(io::Error::from)
    }

    fn write(&mut self) -> io::Result<()> {
        self.out.write_all(&self.line)?;
        self.size.bytes += self.line.len() as u64;
        self.size.events += 1;
        Ok(())
    }
}

/// The moment that many microseconds after `at`.
fn end(at: u64, us: f64) -> u64 {
    at.saturating_add(nanos(us)).min(FAR)
}
