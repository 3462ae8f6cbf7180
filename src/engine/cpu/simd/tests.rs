use super::isa::{Avx2, Avx512, Emulated, Isa, dpbusd};
use super::*;

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
        let a = bytes(seed + 2000, 256);
        // SAFETY: the instructions are available; the arrays have the size of a vector.
        unsafe {
            let load = |p: *const u8| format::load256(p);
            let (u, s, a) = (load(u.as_ptr()), load(s.as_ptr().cast()), load(a.as_ptr()));
            let array = |v: __m256i| std::mem::transmute::<__m256i, [i32; 8]>(v);
            assert_eq!(array(Avx2::dot(u, s)), array(Emulated::dot(u, s)));
            assert_eq!(
                array(Avx2::dot_signed(a, s)),
                array(Emulated::dot_signed(a, s))
            );
            if wide {
                assert_eq!(array(Avx512::dot(u, s)), array(Emulated::dot(u, s)));
                let acc = Avx512::add(Avx512::dot(u, s), u, s);
                assert_eq!(array(acc), array(Emulated::add(Emulated::dot(u, s), u, s)));
                assert_eq!(
                    array(Avx512::dot_signed(a, s)),
                    array(Emulated::dot_signed(a, s))
                );
            }
        }
    }
}
