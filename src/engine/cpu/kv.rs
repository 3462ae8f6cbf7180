//! The kv cache: keys and values of every layer, head and position, in f16 or f32.

use crate::engine::{EngineError, KvType};
use crate::model::Hparams;
use half::f16;

/// An element of the cache.
pub trait KvElem: Copy + Send + Sync + 'static {
    /// Rounds from f32.
    fn store(src: &[f32], dst: &mut [Self]);
}

impl KvElem for f16 {
    fn store(src: &[f32], dst: &mut [Self]) {
        use half::slice::HalfFloatSliceExt;
        dst.convert_from_f32_slice(src);
    }
}

impl KvElem for f32 {
    fn store(src: &[f32], dst: &mut [Self]) {
        dst.copy_from_slice(src);
    }
}

/// Keys or values of all layers: `[layer][head][position][dim]`, so that a head's positions lie one after the other.
pub struct Plane<E> {
    /// Integer storage of the right size: the allocator hands out zeroed pages that cost nothing until written.
    cells: Vec<u16>,
    base: *mut E,
    heads: usize,
    n_ctx: usize,
    dim: usize,
}

// SAFETY: `base` points into `cells`, never resized; writers are kept apart by the callers of `write`.
unsafe impl<E: KvElem> Send for Plane<E> {}
// SAFETY: as above.
unsafe impl<E: KvElem> Sync for Plane<E> {}

impl<E: KvElem> Plane<E> {
    fn new(layers: usize, heads: usize, n_ctx: usize, dim: usize) -> Result<Self, EngineError> {
        let n = layers * heads * n_ctx * dim;
        // One spare element: the storage is aligned for u16, elements may be f32.
        let halves = (n + 1) * size_of::<E>() / 2;
        let mut probe: Vec<u16> = Vec::new();
        probe
            .try_reserve_exact(halves)
            .map_err(|_| EngineError::OutOfMemory {
                what: "the kv cache",
                bytes: halves as u64 * 2,
            })?;
        drop(probe);
        let mut cells = vec![0u16; halves];
        let at = cells.as_mut_ptr();
        let base = at
            .wrapping_byte_add(at.align_offset(align_of::<E>()) * 2)
            .cast();
        Ok(Self {
            cells,
            base,
            heads,
            n_ctx,
            dim,
        })
    }

    fn offset(&self, layer: usize, head: usize, position: usize) -> usize {
        let at = ((layer * self.heads + head) * self.n_ctx + position) * self.dim;
        assert!(head < self.heads && position < self.n_ctx);
        assert!((at + self.dim) * size_of::<E>() <= self.cells.len() * 2);
        at
    }

    /// Stores one head of one position.
    ///
    /// # Safety
    /// No other thread reads or writes this position of this head meanwhile.
    pub unsafe fn write(&self, layer: usize, head: usize, position: usize, src: &[f32]) {
        assert_eq!(src.len(), self.dim);
        let at = self.offset(layer, head, position);
        // SAFETY: in bounds by `offset`'s assertions; exclusive by the caller's promise.
        let dst = unsafe { std::slice::from_raw_parts_mut(self.base.add(at), self.dim) };
        E::store(src, dst);
    }

    /// Positions `first..end` of a head, `[end - first][dim]`.
    ///
    /// # Safety
    /// No thread writes to these positions meanwhile.
    pub unsafe fn rows(&self, layer: usize, head: usize, first: usize, end: usize) -> &[E] {
        assert!(first < end);
        let at = self.offset(layer, head, first);
        self.offset(layer, head, end - 1);
        // SAFETY: both ends in bounds by `offset`'s assertions; no writer by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(at), (end - first) * self.dim) }
    }
}

/// Keys and values in one element type.
pub struct Planes<E> {
    /// Keys.
    pub k: Plane<E>,
    /// Values.
    pub v: Plane<E>,
}

/// The cache of one sequence.
pub enum KvCache {
    /// 16-bit.
    F16(Planes<f16>),
    /// 32-bit.
    F32(Planes<f32>),
}

impl KvCache {
    /// An empty cache for `n_ctx` positions.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`].
    pub fn new(hp: &Hparams, n_ctx: usize, ty: KvType) -> Result<Self, EngineError> {
        fn planes<E: KvElem>(hp: &Hparams, n_ctx: usize) -> Result<Planes<E>, EngineError> {
            Ok(Planes {
                k: Plane::new(hp.n_layers, hp.n_head_kv, n_ctx, hp.head_dim_k)?,
                v: Plane::new(hp.n_layers, hp.n_head_kv, n_ctx, hp.head_dim_v)?,
            })
        }
        if bytes_per_token(hp, ty)
            .checked_mul(n_ctx as u64)
            .is_none_or(|b| b > 1 << 46)
        {
            return Err(EngineError::OutOfMemory {
                what: "the kv cache",
                bytes: u64::MAX,
            });
        }
        Ok(match ty {
            KvType::F16 => Self::F16(planes(hp, n_ctx)?),
            KvType::F32 => Self::F32(planes(hp, n_ctx)?),
        })
    }
}

/// Bytes of one position in all layers.
pub fn bytes_per_token(hp: &Hparams, ty: KvType) -> u64 {
    (hp.n_layers * (hp.k_dim() + hp.v_dim()) * ty.bytes()) as u64
}
