//! The kv cache: keys and values of every sequence, layer, head and slot, in f16, f32 or blocks of int8.

use super::attention::{AttentionElem, AttentionOps};
use super::pages::Zeroes;
use crate::engine::{Config, EngineError, KvType};
use crate::model::Hparams;
use half::f16;

/// What the cache is made of: an element, or a block of them.
pub trait KvElem: Copy + Send + Sync + 'static {
    /// Elements in one.
    const LEN: usize;

    /// Rounds from f32; `src` has [`LEN`](Self::LEN) elements for each of `dst`.
    fn store(src: &[f32], dst: &mut [Self]);
}

impl KvElem for f16 {
    const LEN: usize = 1;

    fn store(src: &[f32], dst: &mut [Self]) {
        use half::slice::HalfFloatSliceExt;
        dst.convert_from_f32_slice(src);
    }
}

impl KvElem for f32 {
    const LEN: usize = 1;

    fn store(src: &[f32], dst: &mut [Self]) {
        dst.copy_from_slice(src);
    }
}

/// 32 elements as int8 with a common scale, laid out as GGUF's `Q8_0`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Q8Block {
    /// The scale; element `i` is `d * q[i]`.
    pub d: f16,
    /// The integers, -127 to 127.
    pub q: [i8; 32],
}

impl KvElem for Q8Block {
    const LEN: usize = 32;

    /// The largest magnitude becomes 127. A block that holds a NaN or an infinity gets a scale that is not finite, so
    /// that whatever is computed from it is not a number either; so does one above what f16 can scale (8.3 million).
    fn store(src: &[f32], dst: &mut [Self]) {
        for (x, block) in src.chunks_exact(Self::LEN).zip(dst) {
            let top = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            let finite = x.iter().all(|v| v.is_finite());
            let inverse = if top > 0.0 && finite {
                127.0 / top
            } else {
                0.0
            };
            block.d = f16::from_f32(if finite { top / 127.0 } else { f32::NAN });
            for (q, v) in block.q.iter_mut().zip(x) {
                *q = (v * inverse).round_ties_even() as i8;
            }
        }
    }
}

/// Keys or values of all sequences: `[sequence][layer][head][slot][dim]`, so that a head's slots lie one after the other.
pub struct Plane<E> {
    /// Integer storage of the right size: the allocator hands out zeroed pages that cost nothing until written.
    cells: Zeroes<u16>,
    base: *mut E,
    heads: usize,
    n_ctx: usize,
    /// Elements of a head.
    dim: usize,
    /// `E`s of a head.
    row: usize,
}

// SAFETY: `base` points into `cells`, never resized; writers are kept apart by the callers of `write`.
unsafe impl<E: KvElem> Send for Plane<E> {}
// SAFETY: as above.
unsafe impl<E: KvElem> Sync for Plane<E> {}

impl<E: KvElem> Plane<E> {
    /// `layers` of all sequences together; `dim` is whole blocks.
    fn new(layers: usize, heads: usize, n_ctx: usize, dim: usize) -> Result<Self, EngineError> {
        let row = dim / E::LEN;
        let n = layers * heads * n_ctx * row;
        let halves = (n * size_of::<E>()).div_ceil(2);
        let mut cells: Zeroes<u16> =
            Zeroes::try_new(halves).map_err(|_| EngineError::OutOfMemory {
                what: "the kv cache",
                bytes: halves as u64 * 2,
            })?;
        // On a cache line, which is aligned for every element.
        let base = cells.as_mut_ptr().cast();
        Ok(Self {
            cells,
            base,
            heads,
            n_ctx,
            dim,
            row,
        })
    }

    fn offset(&self, layer: usize, head: usize, slot: usize) -> usize {
        let at = ((layer * self.heads + head) * self.n_ctx + slot) * self.row;
        assert!(head < self.heads && slot < self.n_ctx);
        assert!((at + self.row) * size_of::<E>() <= self.cells.len() * 2);
        at
    }

    /// Stores one head of one slot. `layer` counts through the sequences: [`KvCache::layer`].
    ///
    /// # Safety
    /// No other thread reads or writes this slot of this head meanwhile.
    pub unsafe fn write(&self, layer: usize, head: usize, slot: usize, src: &[f32]) {
        assert_eq!(src.len(), self.dim);
        let at = self.offset(layer, head, slot);
        // SAFETY: in bounds by `offset`'s assertions; exclusive by the caller's promise.
        let dst = unsafe { std::slice::from_raw_parts_mut(self.base.add(at), self.row) };
        E::store(src, dst);
    }

    /// Slots `first..end` of a head, `[end - first][dim]`.
    ///
    /// # Safety
    /// No thread writes to these slots meanwhile.
    pub unsafe fn rows(&self, layer: usize, head: usize, first: usize, end: usize) -> &[E] {
        assert!(first < end);
        let at = self.offset(layer, head, first);
        self.offset(layer, head, end - 1);
        // SAFETY: both ends in bounds by `offset`'s assertions; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(at), (end - first) * self.row) }
    }
}

/// Keys and values in one element type, and what reads them.
pub(super) struct Planes<E> {
    /// Keys.
    pub(super) k: Plane<E>,
    /// Values.
    pub(super) v: Plane<E>,
    /// Kernels.
    pub(super) ops: AttentionOps<E>,
}

impl<E: KvElem> Planes<E> {
    /// Stores key and value of one head of one slot.
    ///
    /// # Safety
    /// As [`Plane::write`].
    pub(super) unsafe fn write(
        &self,
        layer: usize,
        head: usize,
        slot: usize,
        k: &[f32],
        v: &[f32],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            self.k.write(layer, head, slot, k);
            self.v.write(layer, head, slot, v);
        }
    }
}

/// The caches of all sequences.
pub struct KvCache {
    /// Keys and values.
    pub(super) planes: KvPlanes,
    layers: usize,
}

/// [`Planes`] of the type in use.
pub(super) enum KvPlanes {
    /// 16-bit.
    F16(Planes<f16>),
    /// 32-bit.
    F32(Planes<f32>),
    /// Blocks of int8.
    Q8_0(Planes<Q8Block>),
}

impl KvCache {
    /// Empty caches for the sequences of `c`.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`], or heads that are not whole blocks of the type.
    pub fn new(hp: &Hparams, c: &Config) -> Result<Self, EngineError> {
        fn planes<E: AttentionElem>(hp: &Hparams, c: &Config) -> Result<Planes<E>, EngineError> {
            let layers = c.n_seq * hp.n_layers;
            Ok(Planes {
                k: Plane::new(layers, hp.n_head_kv, c.n_ctx, hp.head_dim_k)?,
                v: Plane::new(layers, hp.n_head_kv, c.n_ctx, hp.head_dim_v)?,
                ops: E::ops(c.kernels),
            })
        }
        c.check_heads(hp)?;
        if bytes_per_token(hp, c.kv_type)
            .checked_mul(c.n_ctx as u64)
            .and_then(|b| b.checked_mul(c.n_seq as u64))
            .is_none_or(|b| b > 1 << 46)
        {
            return Err(EngineError::OutOfMemory {
                what: "the kv cache",
                bytes: u64::MAX,
            });
        }
        Ok(Self {
            planes: match c.kv_type {
                KvType::F16 => KvPlanes::F16(planes(hp, c)?),
                KvType::F32 => KvPlanes::F32(planes(hp, c)?),
                KvType::Q8_0 => KvPlanes::Q8_0(planes(hp, c)?),
            },
            layers: hp.n_layers,
        })
    }

    /// Everything that lies in it, as bits.
    #[cfg(test)]
    pub(in crate::engine) fn bits(&self) -> Vec<u16> {
        fn both<E: KvElem>(p: &Planes<E>) -> Vec<u16> {
            let of = |plane: &Plane<E>| {
                // SAFETY: no job runs while the cache is borrowed, and `base` is the first of so many.
                unsafe { std::slice::from_raw_parts(plane.base.cast::<u16>(), plane.cells.len()) }
                    .to_vec()
            };
            [of(&p.k), of(&p.v)].concat()
        }
        match &self.planes {
            KvPlanes::F16(p) => both(p),
            KvPlanes::F32(p) => both(p),
            KvPlanes::Q8_0(p) => both(p),
        }
    }

    /// Where layer `layer` of sequence `seq` is.
    pub(super) fn layer(&self, seq: usize, layer: usize) -> usize {
        seq * self.layers + layer
    }
}

/// Bytes of one position in all layers.
pub fn bytes_per_token(hp: &Hparams, ty: KvType) -> u64 {
    let head = ty.bytes(hp.head_dim_k) + ty.bytes(hp.head_dim_v);
    (hp.n_layers * hp.n_head_kv * head) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gguf::GgmlType;
    use crate::quant::dequantise_row;
    use proptest::prelude::*;

    #[test]
    fn a_block_is_ggufs() {
        assert_eq!(size_of::<Q8Block>(), GgmlType::Q8_0.block_bytes());
        assert_eq!(KvType::Q8_0.bytes(64), 2 * GgmlType::Q8_0.block_bytes());
        for ty in KvType::ALL {
            assert_eq!(ty.name().parse(), Ok(ty));
        }
    }

    #[test]
    fn what_is_not_finite_stays_so() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = [1.0; 32];
            x[7] = bad;
            let mut block = [Q8Block {
                d: f16::ZERO,
                q: [0; 32],
            }];
            Q8Block::store(&x, &mut block);
            assert!(!block[0].d.is_finite());
        }
        let mut block = [Q8Block {
            d: f16::ONE,
            q: [1; 32],
        }];
        Q8Block::store(&[0.0; 32], &mut block);
        assert_eq!((block[0].d, block[0].q), (f16::ZERO, [0; 32]));
    }

    proptest! {
        #[test]
        fn blocks_read_back_as_ggufs_do(x in prop::collection::vec(-50.0f32..50.0, 64)) {
            let mut blocks = [Q8Block { d: f16::ZERO, q: [0; 32] }; 2];
            Q8Block::store(&x, &mut blocks);
            let bytes: Vec<u8> = blocks
                .iter()
                .flat_map(|b| b.d.to_le_bytes().into_iter().chain(b.q.map(|q| q as u8)))
                .collect();
            let mut back = vec![0.0; 64];
            dequantise_row(GgmlType::Q8_0, &bytes, &mut back).expect("two blocks");
            for (chunk, (x, back)) in x.chunks(32).zip(back.chunks(32)).enumerate() {
                let top = x.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                // Half a step, and what f16 takes from the scale.
                let bound = top / 127.0 * 0.5 + top * 6e-4;
                for (x, b) in x.iter().zip(back) {
                    prop_assert!((x - b).abs() <= bound, "block {chunk}: {x} {b}");
                }
            }
        }
    }
}
