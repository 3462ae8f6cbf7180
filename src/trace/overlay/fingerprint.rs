//! Which model an overlay is of.

use crate::model::Model;
use serde::{Deserialize, Serialize};

/// Tensors whose bytes are looked at, evenly from all: reading some of every tensor would page a large file in.
const SAMPLED: usize = 64;
/// Bytes looked at from the start, the middle and the end of each.
const SAMPLE: usize = 64;

/// What an overlay says of its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// The model's name when the overlay was begun.
    pub name: String,
    /// Architecture, `llama` for example.
    pub architecture: String,
    /// Layers.
    pub n_layers: u32,
    /// Width of the residual stream.
    pub n_embd: u32,
    /// Tokens of the vocabulary, as rows of the head.
    pub n_vocab: u32,
    /// FNV-1a, 64 bits in hexadecimal digits, of the figures above, of names, shapes and types of all tensors and of
    /// samples of their bytes. Another quantisation of the same weights is another model: its activations differ.
    pub fingerprint: String,
}

impl Provenance {
    /// Of a model.
    pub fn of(name: &str, model: &Model) -> Self {
        let hp = &model.hparams;
        let mut hash = Fnv::new();
        hash.text(hp.arch.name);
        for n in [hp.n_layers, hp.n_embd, model.n_vocab] {
            hash.bytes(&(n as u64).to_le_bytes());
        }
        let gguf = model.gguf();
        let tensors = gguf.tensors();
        let every = tensors.len().div_ceil(SAMPLED).max(1);
        for (i, tensor) in tensors.iter().enumerate() {
            hash.text(&tensor.name);
            hash.text(tensor.ty.name());
            for dim in &tensor.dims {
                hash.bytes(&dim.to_le_bytes());
            }
            if i % every == 0 {
                let data = gguf.data(tensor);
                let last = data.len().saturating_sub(SAMPLE);
                for at in [0, last / 2, last] {
                    let end = data.len().min(at + SAMPLE);
                    hash.bytes(data.get(at..end).unwrap_or_default());
                }
            }
        }
        Self {
            name: name.to_owned(),
            architecture: hp.arch.name.to_owned(),
            n_layers: hp.n_layers as u32,
            n_embd: hp.n_embd as u32,
            n_vocab: model.n_vocab as u32,
            fingerprint: format!("{:016x}", hash.0),
        }
    }

    /// What of this is another model's than `of`; `None` where all but the name is the same.
    pub fn differs(&self, of: &Self) -> Option<String> {
        let figures = [
            ("layers", self.n_layers, of.n_layers),
            ("elements in the stream", self.n_embd, of.n_embd),
            ("tokens", self.n_vocab, of.n_vocab),
        ];
        if self.architecture != of.architecture {
            return Some(format!(
                "architecture {}, not {}",
                self.architecture, of.architecture
            ));
        }
        if let Some((what, a, b)) = figures.into_iter().find(|f| f.1 != f.2) {
            return Some(format!("{a} {what}, not {b}"));
        }
        (self.fingerprint != of.fingerprint).then(|| "other weights".to_owned())
    }
}

/// FNV-1a of 64 bits, <http://www.isthe.com/chongo/tech/comp/fnv/>.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// With its length, so that two texts are not the same as others cut elsewhere.
    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        let mut hash = Fnv::new();
        hash.bytes(b"foobar");
        assert_eq!(hash.0, 0x85944171f73967e8);
    }
}
