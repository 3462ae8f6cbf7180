//! Vectors on their way to a file: gathered, so that neighbours are written with one call.

use super::error::StoreError;
use super::target::Target;

/// Most bytes that wait: with less, runs of neighbours get short and a write costs more than it carries.
const WAITING: usize = 16 << 20;
/// Most bytes of one write of neighbours.
const RUN: usize = 256 << 10;

/// A run of neighbours that came one after the other and has this many bytes is written as it is: nothing is won by
/// waiting for more.
const LONG: usize = 16 << 10;

/// Vectors of one width that wait to be written.
#[derive(Debug)]
pub(super) struct Stage {
    width: usize,
    /// Vectors that may wait.
    room: usize,
    /// Neighbours that came one after the other, the newest last, and the number of the first.
    run: Vec<f32>,
    run_at: u64,
    /// Vectors of short runs, in the order they came.
    vectors: Vec<f32>,
    /// Where each goes, as a number of vectors after the file's header, and its place in `vectors`.
    places: Vec<(u64, usize)>,
    gathered: Vec<f32>,
}

impl Stage {
    pub fn new(width: u32) -> Self {
        let width = width as usize;
        Self {
            width,
            room: (WAITING / 4) / width.max(1),
            run: Vec::new(),
            run_at: 0,
            vectors: Vec::new(),
            places: Vec::new(),
            gathered: Vec::new(),
        }
    }

    /// Takes a vector of the stage's width; `at` counts vectors after `base` bytes.
    pub fn put(
        &mut self,
        target: &Target,
        base: u64,
        at: u64,
        vector: &[f32],
    ) -> Result<(), StoreError> {
        if self.room < 2 {
            return target.write_at(bytemuck::cast_slice(vector), base + at * self.bytes());
        }
        let in_run = (self.run.len() / self.width.max(1)) as u64;
        if at != self.run_at + in_run || self.run.len() * 4 >= RUN {
            self.end_run(target, base)?;
            self.run_at = at;
        }
        self.run.extend_from_slice(vector);
        Ok(())
    }

    /// Writes the run, or lets its vectors wait for neighbours.
    fn end_run(&mut self, target: &Target, base: u64) -> Result<(), StoreError> {
        if self.run.len() * 4 >= LONG {
            let at = base + self.run_at * self.bytes();
            return write_run(target, &mut self.run, at);
        }
        let n = self.run.len() / self.width.max(1);
        if self.places.len() + n > self.room {
            self.flush_waiting(target, base)?;
        }
        if self.vectors.capacity() == 0 {
            self.vectors.reserve_exact(self.room * self.width);
        }
        for i in 0..n {
            let place = self.vectors.len() + i * self.width;
            self.places.push((self.run_at + i as u64, place));
        }
        self.vectors.append(&mut self.run);
        Ok(())
    }

    /// Writes all that wait.
    pub fn flush(&mut self, target: &Target, base: u64) -> Result<(), StoreError> {
        self.end_run(target, base)?;
        self.flush_waiting(target, base)
    }

    fn flush_waiting(&mut self, target: &Target, base: u64) -> Result<(), StoreError> {
        self.places.sort_unstable();
        let bytes = self.bytes();
        let (mut start, mut next) = (0, 0);
        for &(at, place) in &self.places {
            if at != next || self.gathered.len() * 4 >= RUN {
                write_run(target, &mut self.gathered, base + start * bytes)?;
                start = at;
            }
            let vector = self.vectors.get(place..place + self.width);
            self.gathered.extend_from_slice(vector.unwrap_or_default());
            next = at + 1;
        }
        write_run(target, &mut self.gathered, base + start * bytes)?;
        self.vectors.clear();
        self.places.clear();
        Ok(())
    }

    /// Forgets all that wait.
    pub fn clear(&mut self) {
        self.run.clear();
        self.vectors.clear();
        self.places.clear();
        self.gathered.clear();
    }

    fn bytes(&self) -> u64 {
        self.width as u64 * 4
    }
}

fn write_run(target: &Target, run: &mut Vec<f32>, at: u64) -> Result<(), StoreError> {
    if !run.is_empty() {
        target.write_at(bytemuck::cast_slice(run), at)?;
        run.clear();
    }
    Ok(())
}
