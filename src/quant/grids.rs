//! The codebooks of the IQ1, IQ2 and IQ3 formats, and their table of signs.
//!
//! A codebook numbers vectors of eight (IQ1, IQ2) or four (IQ3) small integers. The files in
//! `grids/` hold level indices, two or four bits each; here they become one integer a vector, the
//! first element in the lowest byte, so that vector kernels can load them as they are. The numbers
//! are facts of the GGML formats (MIT); `grids/make.py` says where they were read.

/// The levels of IQ2 codebooks.
const IQ2_LEVELS: [u8; 3] = [8, 25, 43];

/// IQ1_S and IQ1_M: vectors of eight values, -1, 0 or 1, each stored one higher.
pub(crate) static IQ1: [u64; 2048] = eights(include_bytes!("grids/iq1.bin"), [0, 1, 2]);
/// IQ2_XXS: vectors of eight magnitudes.
pub(crate) static IQ2_XXS: [u64; 256] = eights(include_bytes!("grids/iq2_xxs.bin"), IQ2_LEVELS);
/// IQ2_XS: vectors of eight magnitudes.
pub(crate) static IQ2_XS: [u64; 512] = eights(include_bytes!("grids/iq2_xs.bin"), IQ2_LEVELS);
/// IQ2_S: vectors of eight magnitudes.
pub(crate) static IQ2_S: [u64; 1024] = eights(include_bytes!("grids/iq2_s.bin"), IQ2_LEVELS);
/// IQ3_XXS: vectors of four magnitudes.
pub(crate) static IQ3_XXS: [u32; 256] = fours(
    include_bytes!("grids/iq3_xxs.bin"),
    [4, 12, 20, 28, 36, 44, 52, 62],
);
/// IQ3_S: vectors of four magnitudes.
pub(crate) static IQ3_S: [u32; 512] = fours(
    include_bytes!("grids/iq3_s.bin"),
    [1, 3, 5, 7, 9, 11, 13, 15],
);

/// Eight signs from seven bits: the eighth makes the number of minus signs even.
pub(crate) static EVEN_SIGNS: [u8; 128] = {
    let mut signs = [0; 128];
    let mut i = 0;
    while i < 128 {
        let seven = i as u8;
        signs[i] = seven | ((seven.count_ones() as u8 & 1) << 7);
        i += 1;
    }
    signs
};

const fn eights<const N: usize>(packed: &[u8], levels: [u8; 3]) -> [u64; N] {
    assert!(packed.len() == 2 * N);
    let mut grid = [0; N];
    let mut i = 0;
    while i < 8 * N {
        let level = levels[(packed[i / 4] >> (2 * (i % 4)) & 3) as usize];
        grid[i / 8] |= (level as u64) << (8 * (i % 8));
        i += 1;
    }
    grid
}

const fn fours<const N: usize>(packed: &[u8], levels: [u8; 8]) -> [u32; N] {
    assert!(packed.len() == 2 * N);
    let mut grid = [0; N];
    let mut i = 0;
    while i < 4 * N {
        let level = levels[(packed[i / 2] >> (4 * (i % 2)) & 15) as usize];
        grid[i / 4] |= (level as u32) << (8 * (i % 4));
        i += 1;
    }
    grid
}
