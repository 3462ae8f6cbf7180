use super::isa::{Avx2, Avx512, Emulated, Isa, dpbusd};
use super::*;
use std::arch::x86_64::*;

fn bytes(seed: u32, modulo: u32) -> [u8; 32] {
    std::array::from_fn(|i| {
        (seed.wrapping_mul(2_654_435_761).wrapping_add(i as u32 * 97) % modulo) as u8
    })
}

#[test]
fn dpbusd_follows_the_manual() {
    // Lane 0 of the example in Intel's description: unsigned times signed, no saturation.
    let mut u = [0; 32];
    let mut s = [0; 32];
    (u[0], u[1], u[2], u[3]) = (255, 255, 255, 255);
    (s[0], s[1], s[2], s[3]) = (-128, -128, -128, -128);
    assert_eq!(dpbusd([5; 8], u, s)[0], 5 - 4 * 255 * 128);
    assert_eq!(dpbusd([i32::MAX; 8], [1; 32], [1; 32])[1], i32::MIN + 3);
}

#[test]
fn instruction_sets_agree() {
    if !KernelSet::Avx2.is_available() {
        println!("skipped: no AVX2 here");
        return;
    }
    let wide = KernelSet::Avx512.is_available();
    if !wide {
        println!("skipped: no AVX-512 VNNI here");
    }
    for seed in 0..500 {
        let u = bytes(seed, 64);
        let s = bytes(seed + 1000, 255).map(|b| (b as i8).max(-127));
        // SAFETY: the instructions are available; the arrays have the size of a vector.
        unsafe {
            let load = |p: *const u8| format::load256(p);
            let (u, s) = (load(u.as_ptr()), load(s.as_ptr().cast()));
            let array = |v: __m256i| std::mem::transmute::<__m256i, [i32; 8]>(v);
            let zero = _mm256_setzero_si256();
            let once = Emulated::add(zero, u, s);
            assert_eq!(array(Avx2::lanes(Avx2::add(zero, u, s))), array(once));
            if wide {
                let twice = Avx512::lanes(Avx512::add(Avx512::add(zero, u, s), u, s));
                assert_eq!(array(twice), array(Emulated::add(once, u, s)));
            }
        }
    }
}
