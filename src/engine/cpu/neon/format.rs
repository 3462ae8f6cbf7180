//! How each weight format's integers and scales are read.

use super::widen4;
use crate::quant::IQ4_VALUES;
use std::arch::aarch64::*;

/// A quantised format. The value of an element is `scale * q + min`, where `scale` and `min` belong to
/// [`SUB`](Self::SUB) elements.
pub(super) trait Format {
    /// Elements in a block: 32 or 256.
    const LEN: usize;
    /// Bytes in a block.
    const BYTES: usize;
    /// Elements that share a scale: 16 or 32.
    const SUB: usize;
    /// Whether `min` is ever non-zero.
    const MIN: bool;

    /// The integers of elements `32 j .. 32 j + 32` of the block at `w`, in order.
    unsafe fn quants(w: *const u8, j: usize) -> [int8x16_t; 2];

    /// Writes `LEN / SUB` scales and, with [`MIN`](Self::MIN), as many minimums of the block at `w`.
    unsafe fn scales(w: *const u8, scale: &mut [f32; 16], min: &mut [f32; 16]);
}

/// The half-precision number at `p`.
#[inline(always)]
pub(super) unsafe fn half(p: *const u8) -> f32 {
    vgetq_lane_f32::<0>(widen4(vdup_n_u16(p.cast::<u16>().read_unaligned())))
}

#[inline(always)]
unsafe fn signed(v: [uint8x16_t; 2], offset: i8) -> [int8x16_t; 2] {
    v.map(|v| vsubq_s8(vreinterpretq_s8_u8(v), vdupq_n_s8(offset)))
}

/// Sixteen bytes of nibbles: the low ones, then the high ones.
#[inline(always)]
unsafe fn nibbles(w: *const u8) -> [uint8x16_t; 2] {
    let v = vld1q_u8(w);
    [vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8::<4>(v)]
}

/// 32 bytes, shifted right, masked.
#[inline(always)]
unsafe fn fields(w: *const u8, shift: usize, mask: u8) -> [uint8x16_t; 2] {
    let by = vdupq_n_s8(-(shift as i8));
    let mask = vdupq_n_u8(mask);
    [w, w.add(16)].map(|w| vandq_u8(vshlq_u8(vld1q_u8(w), by), mask))
}

/// `low | high << LEFT`
#[inline(always)]
unsafe fn join<const LEFT: i32>(low: [uint8x16_t; 2], high: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
    [
        vorrq_u8(low[0], vshlq_n_u8::<LEFT>(high[0])),
        vorrq_u8(low[1], vshlq_n_u8::<LEFT>(high[1])),
    ]
}

/// Bit `i` of the 32-bit word at `w` as 16 in byte `i`.
#[inline(always)]
unsafe fn sixteens(w: *const u8) -> [uint8x16_t; 2] {
    const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let bit = vld1q_u8(BIT.as_ptr());
    [0, 2].map(|at| {
        let bytes = vcombine_u8(vdup_n_u8(*w.add(at)), vdup_n_u8(*w.add(at + 1)));
        vandq_u8(vtstq_u8(bytes, bit), vdupq_n_u8(16))
    })
}

#[inline(always)]
unsafe fn levels(w: *const u8) -> [int8x16_t; 2] {
    let table = vld1q_s8(IQ4_VALUES.as_ptr());
    nibbles(w).map(|n| vqtbl1q_s8(table, n))
}

/// A format of 32 elements with a scale and perhaps a minimum.
macro_rules! block {
    ($name:ident, $bytes:literal, min $min:literal, |$w:ident| $quants:expr, scales $scales:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const LEN: usize = 32;
            const BYTES: usize = $bytes;
            const SUB: usize = 32;
            const MIN: bool = $min;
            #[inline(always)]
            unsafe fn quants($w: *const u8, _: usize) -> [int8x16_t; 2] {
                $quants
            }
            #[inline(always)]
            unsafe fn scales($w: *const u8, scale: &mut [f32; 16], min: &mut [f32; 16]) {
                (scale[0], min[0]) = $scales
            }
        }
    };
}

block!(Q4_0, 18, min false, |w| signed(nibbles(w.add(2)), 8), scales (half(w), 0.0));
block!(Q4_1, 20, min true, |w| signed(nibbles(w.add(4)), 0), scales (half(w), half(w.add(2))));
block!(Q5_0, 22, min false,
    |w| signed(join::<0>(nibbles(w.add(6)), sixteens(w.add(2))), 16), scales (half(w), 0.0));
block!(Q5_1, 24, min true,
    |w| signed(join::<0>(nibbles(w.add(8)), sixteens(w.add(4))), 0), scales (half(w), half(w.add(2))));
block!(Q8_0, 34, min false,
    |w| [vld1q_s8(w.add(2).cast()), vld1q_s8(w.add(18).cast())], scales (half(w), 0.0));
block!(Iq4Nl, 18, min false, |w| levels(w.add(2)), scales (half(w), 0.0));

/// A format of 256 elements.
macro_rules! superblock {
    ($name:ident, $bytes:literal, sub $sub:literal, min $min:literal, |$w:ident, $j:ident| $quants:expr,
     |$s:ident, $scale:ident, $m:ident| $scales:expr) => {
        pub(super) struct $name;
        impl Format for $name {
            const LEN: usize = 256;
            const BYTES: usize = $bytes;
            const SUB: usize = $sub;
            const MIN: bool = $min;
            #[inline(always)]
            unsafe fn quants($w: *const u8, $j: usize) -> [int8x16_t; 2] {
                $quants
            }
            #[inline(always)]
            unsafe fn scales($s: *const u8, $scale: &mut [f32; 16], $m: &mut [f32; 16]) {
                $scales
            }
        }
    };
}

superblock!(Q2K, 84, sub 16, min true,
|w, j| signed(fields(w.add(16 + j / 4 * 32), 2 * (j % 4), 3), 0),
|w, scale, min| {
    let (d, dmin) = (half(w.add(80)), half(w.add(82)));
    for i in 0..16 {
        let packed = *w.add(i);
        scale[i] = d * f32::from(packed & 15);
        min[i] = -dmin * f32::from(packed >> 4);
    }
});
superblock!(Q3K, 110, sub 16, min false,
|w, j| {
    let low = fields(w.add(32 + j / 4 * 32), 2 * (j % 4), 3);
    signed(join::<2>(low, fields(w, j, 1)), 4)
},
|w, scale, _min| {
    let d = half(w.add(108));
    for (i, scale) in scale.iter_mut().enumerate() {
        let low = (*w.add(96 + i % 8) >> (4 * (i / 8))) & 15;
        let high = (*w.add(104 + i % 4) >> (2 * (i / 4))) & 3;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
});
superblock!(Q4K, 144, sub 32, min true,
    |w, j| signed(fields(w.add(16 + j / 2 * 32), 4 * (j % 2), 15), 0),
    |w, scale, min| six_bits(w, scale, min));
superblock!(Q5K, 176, sub 32, min true,
    |w, j| {
        let low = fields(w.add(48 + j / 2 * 32), 4 * (j % 2), 15);
        signed(join::<4>(low, fields(w.add(16), j, 1)), 0)
    },
    |w, scale, min| six_bits(w, scale, min));
superblock!(Q6K, 210, sub 16, min false,
|w, j| {
    let (half, group) = (j / 4, j % 4);
    let low = fields(w.add(half * 64 + group % 2 * 32), 4 * (group / 2), 15);
    signed(join::<4>(low, fields(w.add(128 + half * 32), 2 * group, 3)), 32)
},
|w, scale, _min| {
    let d = half(w.add(208));
    for (i, scale) in scale.iter_mut().enumerate() {
        *scale = d * f32::from(*w.add(192 + i) as i8);
    }
});
superblock!(Iq4Xs, 136, sub 32, min false,
|w, j| levels(w.add(8 + 16 * j)),
|w, scale, _min| {
    let d = half(w);
    let high = w.add(2).cast::<u16>().read_unaligned();
    for (i, scale) in scale.iter_mut().take(8).enumerate() {
        let low = (*w.add(4 + i / 2) >> (4 * (i % 2))) & 15;
        let high = ((high >> (2 * i)) & 3) as u8;
        *scale = d * f32::from((low | high << 4) as i8 - 32);
    }
});

/// The scales and minimums that Q4_K and Q5_K pack into 12 bytes behind `d` and `dmin`.
#[inline(always)]
unsafe fn six_bits(w: *const u8, scale: &mut [f32; 16], min: &mut [f32; 16]) {
    let (d, dmin) = (half(w), half(w.add(2)));
    let b = w.add(4);
    for i in 0..4 {
        let (s, m, high) = (*b.add(i), *b.add(i + 4), *b.add(i + 8));
        scale[i] = d * f32::from(s & 63);
        min[i] = -dmin * f32::from(m & 63);
        scale[i + 4] = d * f32::from(high & 15 | s >> 6 << 4);
        min[i + 4] = -dmin * f32::from(high >> 4 | m >> 6 << 4);
    }
}
