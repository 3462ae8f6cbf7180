//! Writes files of chains, in chunks of tokens that come layer by layer.

use std::path::Path;

use super::chains::{Fields, HEAD, KINDS, Kind, MAX_META, Shape, TraceStore};
use super::error::{Problem, StoreError};
use super::stage::Stage;
use super::target::Target;

/// Writes a file of chains. Memory: 16 MiB of vectors that wait, and a bit for every vector of the chunk.
///
/// Chains are written in chunks: [`begin_chunk`](Self::begin_chunk), [`put`](Self::put) for every vector in any order,
/// [`end_chunk`](Self::end_chunk). Dropped without [`finish`](Self::finish), a new file leaves no trace, and one appended
/// to keeps the chunks that were ended.
#[derive(Debug)]
pub struct TraceWriter {
    target: Target,
    shape: Shape,
    n_tokens: u32,
    chunk: Option<Chunk>,
    stage: Stage,
    previous_meta: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Chunk {
    n_tokens: u32,
    /// Where its chains end.
    end: u64,
    /// A bit for every vector that came.
    put: Vec<u64>,
    /// Vectors that did not come yet, without the deltas of layer 0.
    missing: u64,
    /// Whether a write failed: what waited then is lost.
    failed: bool,
}

impl TraceWriter {
    /// Begins a new file, which takes the place of what is at `path` when it is finished.
    ///
    /// # Errors
    /// A size of 0, another writer at work, and what the system refuses.
    pub fn create(path: &Path, hidden_size: u32, n_layers: u32) -> Result<Self, StoreError> {
        for (field, value) in [("hidden_size", hidden_size), ("n_layers", n_layers)] {
            if value == 0 {
                let problem = Problem::Shape {
                    field,
                    value: 0,
                    must: "1 or more",
                };
                return Err(StoreError::new(path, problem));
            }
        }
        let shape = Shape {
            hidden_size,
            n_layers,
        };
        if shape.end(1).is_none() {
            return Err(StoreError::new(path, Problem::Overflow));
        }
        let writer = Self::over(Target::create(path)?, shape, 0, None);
        writer.write_head(None)?;
        Ok(writer)
    }

    /// Goes on in a finished file, or in one that a killed writer left: what was not complete is cut off. Metadata go out
    /// of force at once; see [`previous_meta`](Self::previous_meta).
    ///
    /// # Errors
    /// As [`TraceStore::open`]; version 1, another writer at work, and what the system refuses.
    pub fn append(path: &Path) -> Result<Self, StoreError> {
        let target = Target::open(path)?;
        let store = TraceStore::open(path)?;
        if store.version() == 1 {
            return Err(StoreError::new(path, Problem::AppendToVersion1));
        }
        let (shape, n_tokens) = (store.shape(), store.n_tokens());
        let writer = Self::over(target, shape, n_tokens, store.into_meta());
        writer.write_head(None)?;
        writer.target.sync()?;
        writer.target.set_len(writer.end())?;
        Ok(writer)
    }

    fn over(target: Target, shape: Shape, n_tokens: u32, previous_meta: Option<Vec<u8>>) -> Self {
        Self {
            target,
            shape,
            n_tokens,
            chunk: None,
            stage: Stage::new(shape.hidden_size),
            previous_meta,
        }
    }

    /// Numbers of a vector.
    pub fn hidden_size(&self) -> u32 {
        self.shape.hidden_size
    }

    /// Layers of the model; a chain has one waypoint more.
    pub fn n_layers(&self) -> u32 {
        self.shape.n_layers
    }

    /// Chains of ended chunks, those that were in the file before included.
    pub fn n_tokens(&self) -> u32 {
        self.n_tokens
    }

    /// What stood beside the chains of a file that is appended to.
    pub fn previous_meta(&self) -> Option<&[u8]> {
        self.previous_meta.as_deref()
    }

    /// Begins a chunk of so many tokens.
    ///
    /// # Errors
    /// A chunk of 0 tokens or within another, more tokens than a file can count, a chunk whose bits have no room in memory.
    pub fn begin_chunk(&mut self, n_tokens: u32) -> Result<(), StoreError> {
        if self.chunk.is_some() {
            return Err(self.fail(Problem::Order {
                what: "a chunk is open already",
                remedy: "end or cancel it first",
            }));
        }
        if n_tokens == 0 {
            return Err(self.fail(Problem::Shape {
                field: "a chunk's number of tokens",
                value: 0,
                must: "1 or more",
            }));
        }
        let end = self.n_tokens.checked_add(n_tokens);
        let Some(end) = end.and_then(|tokens| self.shape.end(tokens)) else {
            return Err(self.fail(Problem::Full {
                limit: u32::MAX.into(),
                what: "tokens",
            }));
        };
        let vectors = u64::from(n_tokens) * self.shape.vectors();
        let mut put = Vec::new();
        let words = usize::try_from(vectors.div_ceil(64)).unwrap_or(usize::MAX);
        if put.try_reserve_exact(words).is_err() {
            return Err(self.fail(Problem::Shape {
                field: "a chunk's number of tokens",
                value: n_tokens.into(),
                must: "fewer",
            }));
        }
        put.resize(words, 0);
        self.chunk = Some(Chunk {
            n_tokens,
            end,
            put,
            missing: vectors - u64::from(n_tokens) * (KINDS - 1),
            failed: false,
        });
        Ok(())
    }

    /// Stores one vector of the open chunk. The two deltas of layer 0 may be left out: they are zeros.
    ///
    /// # Errors
    /// No open chunk, a token, layer or width that does not exist, a vector that came before, a failed write. After a
    /// failed write the chunk can only be cancelled.
    pub fn put(
        &mut self,
        token_in_chunk: u32,
        layer: u32,
        kind: Kind,
        vector: &[f32],
    ) -> Result<(), StoreError> {
        let (at, place) = self.mark(token_in_chunk, layer, kind, vector.len())?;
        let base =
            HEAD + u64::from(self.n_tokens) * self.shape.vectors() * self.shape.vector_bytes();
        let done = self.stage.put(&self.target, base, at, vector);
        if let Some(chunk) = &mut self.chunk {
            chunk.failed = done.is_err();
            if let (Ok(()), Some(word)) = (&done, chunk.put.get_mut(place)) {
                *word |= 1 << (at % 64);
                chunk.missing -= u64::from(counts(layer, kind));
            }
        }
        done
    }

    /// The vector's number in the chunk and the word of its bit, if it may come now.
    fn mark(
        &self,
        token: u32,
        layer: u32,
        kind: Kind,
        width: usize,
    ) -> Result<(u64, usize), StoreError> {
        let chunk = self.open_chunk()?;
        let out_of_range =
            |what, index, count| self.fail(Problem::OutOfRange { what, index, count });
        if token >= chunk.n_tokens {
            let count = chunk.n_tokens.into();
            return Err(out_of_range("token", token.into(), count));
        }
        if layer > self.shape.n_layers {
            let count = u64::from(self.shape.n_layers) + 1;
            return Err(out_of_range("layer", layer.into(), count));
        }
        if width as u64 != u64::from(self.shape.hidden_size) {
            return Err(self.fail(Problem::Width {
                got: width,
                wanted: self.shape.hidden_size,
            }));
        }
        let at = u64::from(token) * self.shape.vectors() + u64::from(layer) * KINDS + kind as u64;
        let place = (at / 64) as usize;
        if chunk
            .put
            .get(place)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
        {
            return Err(self.fail(Problem::Twice { token, layer }));
        }
        Ok((at, place))
    }

    /// Ends the open chunk: its chains are in the file from now on. In a file appended to they are on the disk before the
    /// header counts them.
    ///
    /// # Errors
    /// No open chunk, vectors that did not come (the chunk stays open), a failed write.
    pub fn end_chunk(&mut self) -> Result<(), StoreError> {
        let chunk = self.open_chunk()?;
        if chunk.missing > 0 {
            return Err(self.fail(self.missing(chunk)));
        }
        let (end, n_tokens) = (chunk.end, self.n_tokens + chunk.n_tokens);
        let done = self.commit(end, n_tokens);
        match (&done, &mut self.chunk) {
            (Ok(()), chunk) => *chunk = None,
            (Err(_), Some(chunk)) => chunk.failed = true,
            (Err(_), None) => {}
        }
        done
    }

    fn commit(&mut self, end: u64, n_tokens: u32) -> Result<(), StoreError> {
        let base = self.end();
        self.stage.flush(&self.target, base)?;
        // Deltas of layer 0 that were left out at the end: a file grows with zeros.
        self.target.set_len(end)?;
        if self.target.in_place() {
            self.target.sync()?;
        }
        let before = std::mem::replace(&mut self.n_tokens, n_tokens);
        self.write_head(None)
            .inspect_err(|_| self.n_tokens = before)
    }

    /// Forgets the open chunk, if there is one, and cuts off what was written of it.
    ///
    /// # Errors
    /// A failed write.
    pub fn cancel_chunk(&mut self) -> Result<(), StoreError> {
        if self.chunk.is_some() {
            self.stage.clear();
            // The header may count the chunk already where its write failed half-way.
            self.write_head(None)?;
            self.target.set_len(self.end())?;
            self.chunk = None;
        }
        Ok(())
    }

    /// Ends the file, with `meta` beside the chains; a new one takes its name. All is on the disk afterwards.
    ///
    /// # Errors
    /// An open chunk, metadata over 256 MiB, a failed write. A new file then leaves what it would have replaced; one appended
    /// to keeps its chains.
    pub fn finish(self, meta: Option<&[u8]>) -> Result<(), StoreError> {
        self.check_ended()?;
        let meta = match meta {
            None => None,
            Some(bytes) => {
                let len = u32::try_from(bytes.len()).ok();
                let len = len.filter(|l| *l <= MAX_META).ok_or_else(|| {
                    self.fail(Problem::Full {
                        limit: MAX_META.into(),
                        what: "bytes of metadata",
                    })
                })?;
                self.target.write_at(bytes, self.end())?;
                Some((self.end(), len, crc32fast::hash(bytes)))
            }
        };
        self.target.sync()?;
        self.write_head(meta)?;
        self.target.finish()
    }

    /// Ends the file as version 1, for programs that know no other: no metadata, and nothing can be appended later.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_version_1(self) -> Result<(), StoreError> {
        self.check_ended()?;
        self.target.sync()?;
        let fields = Fields {
            version: 1,
            ..self.fields(None)
        };
        self.target.write_at(&fields.write().0, 0)?;
        self.target.finish()
    }

    fn check_ended(&self) -> Result<(), StoreError> {
        match self.chunk {
            None => Ok(()),
            Some(_) => Err(self.fail(Problem::Order {
                what: "a chunk is still open",
                remedy: "end or cancel it before the file is finished",
            })),
        }
    }

    fn open_chunk(&self) -> Result<&Chunk, StoreError> {
        let (what, remedy) = match &self.chunk {
            Some(chunk) if !chunk.failed => return Ok(chunk),
            Some(_) => ("writing this chunk failed", "cancel it and write it again"),
            None => ("no chunk is open", "begin one first"),
        };
        Err(self.fail(Problem::Order { what, remedy }))
    }

    fn missing(&self, chunk: &Chunk) -> Problem {
        let per_token = self.shape.vectors();
        let all = 0..u64::from(chunk.n_tokens) * per_token;
        let came = |at: u64| {
            let word = chunk.put.get((at / 64) as usize).copied();
            word.unwrap_or_default() >> (at % 64) & 1 == 1
        };
        let required = |at: &u64| matches!(at % per_token, 0 | KINDS..);
        let first = all.filter(required).find(|&at| !came(at)).unwrap_or(0);
        Problem::Missing {
            missing: chunk.missing,
            token: (first / per_token) as u32,
            layer: (first % per_token / KINDS) as u32,
        }
    }

    fn fields(&self, meta: Option<(u64, u32, u32)>) -> Fields {
        Fields {
            version: 2,
            shape: self.shape,
            n_tokens: self.n_tokens,
            meta,
        }
    }

    fn write_head(&self, meta: Option<(u64, u32, u32)>) -> Result<(), StoreError> {
        self.target.write_at(&self.fields(meta).write().0, 0)
    }

    /// Where the chains end. A chunk is refused before this could overflow.
    fn end(&self) -> u64 {
        self.shape.end(self.n_tokens).unwrap_or(HEAD)
    }

    fn fail(&self, problem: Problem) -> StoreError {
        StoreError::new(self.target.path(), problem)
    }
}

/// Whether a chunk is incomplete without this vector.
fn counts(layer: u32, kind: Kind) -> bool {
    layer > 0 || kind == Kind::Residual
}
