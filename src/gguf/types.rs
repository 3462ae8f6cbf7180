//! Element types of GGUF tensors and the sizes of their blocks.

use serde::Serialize;

macro_rules! ggml_types {
    ($($(#[$doc:meta])* $variant:ident = $id:literal, $name:literal, $block:literal, $bytes:literal;)*) => {
        /// A tensor element type (`ggml_type`), with its block geometry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[allow(non_camel_case_types)]
        #[repr(u32)]
        pub enum GgmlType { $($(#[$doc])* $variant = $id,)* }

        impl GgmlType {
            /// Every type this program can name.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$variant,)*];

            /// The type with this number in a GGUF file, if known.
            pub fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$variant),)* _ => None }
            }

            /// llama.cpp's name, for example `Q4_K`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Elements in a block.
            pub const fn block_len(self) -> usize {
                match self { $(Self::$variant => $block,)* }
            }

            /// Bytes of a block.
            pub const fn block_bytes(self) -> usize {
                match self { $(Self::$variant => $bytes,)* }
            }
        }
    };
}

ggml_types! {
    /// 32-bit float.
    F32 = 0, "F32", 1, 4;
    /// 16-bit IEEE float.
    F16 = 1, "F16", 1, 2;
    /// 4-bit, scale.
    Q4_0 = 2, "Q4_0", 32, 18;
    /// 4-bit, scale and minimum.
    Q4_1 = 3, "Q4_1", 32, 20;
    /// 5-bit, scale.
    Q5_0 = 6, "Q5_0", 32, 22;
    /// 5-bit, scale and minimum.
    Q5_1 = 7, "Q5_1", 32, 24;
    /// 8-bit, scale.
    Q8_0 = 8, "Q8_0", 32, 34;
    /// 8-bit, scale and sum (activations only).
    Q8_1 = 9, "Q8_1", 32, 36;
    /// 2-bit k-quant.
    Q2_K = 10, "Q2_K", 256, 84;
    /// 3-bit k-quant.
    Q3_K = 11, "Q3_K", 256, 110;
    /// 4-bit k-quant.
    Q4_K = 12, "Q4_K", 256, 144;
    /// 5-bit k-quant.
    Q5_K = 13, "Q5_K", 256, 176;
    /// 6-bit k-quant.
    Q6_K = 14, "Q6_K", 256, 210;
    /// 8-bit k-quant (activations only).
    Q8_K = 15, "Q8_K", 256, 292;
    /// 2.06-bit codebook.
    IQ2_XXS = 16, "IQ2_XXS", 256, 66;
    /// 2.31-bit codebook.
    IQ2_XS = 17, "IQ2_XS", 256, 74;
    /// 3.06-bit codebook.
    IQ3_XXS = 18, "IQ3_XXS", 256, 98;
    /// 1.56-bit codebook.
    IQ1_S = 19, "IQ1_S", 256, 50;
    /// 4-bit non-linear.
    IQ4_NL = 20, "IQ4_NL", 32, 18;
    /// 3.44-bit codebook.
    IQ3_S = 21, "IQ3_S", 256, 110;
    /// 2.5-bit codebook.
    IQ2_S = 22, "IQ2_S", 256, 82;
    /// 4.25-bit non-linear.
    IQ4_XS = 23, "IQ4_XS", 256, 136;
    /// 8-bit integer.
    I8 = 24, "I8", 1, 1;
    /// 16-bit integer.
    I16 = 25, "I16", 1, 2;
    /// 32-bit integer.
    I32 = 26, "I32", 1, 4;
    /// 64-bit integer.
    I64 = 27, "I64", 1, 8;
    /// 64-bit float.
    F64 = 28, "F64", 1, 8;
    /// 1.75-bit codebook.
    IQ1_M = 29, "IQ1_M", 256, 56;
    /// bfloat16.
    BF16 = 30, "BF16", 1, 2;
    /// 1.69-bit ternary.
    TQ1_0 = 34, "TQ1_0", 256, 54;
    /// 2.06-bit ternary.
    TQ2_0 = 35, "TQ2_0", 256, 66;
    /// 4-bit microscaling float.
    MXFP4 = 39, "MXFP4", 32, 17;
}

impl GgmlType {
    /// Bytes of `n` elements, or `None` when `n` is not a whole number of blocks or the size overflows.
    pub fn bytes_for(self, n: u64) -> Option<u64> {
        let block = self.block_len() as u64;
        if !n.is_multiple_of(block) {
            return None;
        }
        (n / block).checked_mul(self.block_bytes() as u64)
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
