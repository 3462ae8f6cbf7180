use super::*;
use proptest::prelude::*;
use std::path::Path;

/// Four blocks a type and their values as the PyPI package `gguf` expands them.
#[test]
fn expands_like_the_gguf_package() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/quant");
    for &ty in supported() {
        if ty == GgmlType::F32 {
            continue;
        }
        let blocks = std::fs::read(dir.join(format!("{ty}.bin"))).expect("fixture");
        let want = std::fs::read(dir.join(format!("{ty}.f32"))).expect("fixture");
        let mut got = vec![0.0; want.len() / 4];
        dequantise_row(ty, &blocks, &mut got).expect("whole blocks");
        let mut expected = vec![0.0; got.len()];
        dequantise_row(GgmlType::F32, &want, &mut expected).expect("whole floats");
        for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(
                g.to_bits(),
                e.to_bits(),
                "{ty} element {i}: {g} against {e}"
            );
        }
    }
}

#[test]
fn refuses_by_name_and_says_what_can_be_read() {
    let err = dequantise_row(GgmlType::Q8_K, &[], &mut []).expect_err("no routine");
    let text = err.to_string();
    assert!(
        text.contains("Q8_K") && text.contains("Q4_K, Q5_K"),
        "{text}"
    );
}

#[test]
fn refuses_lengths_that_do_not_agree() {
    for &ty in supported() {
        let (n, bytes) = (ty.block_len(), ty.block_bytes());
        let src = vec![0; 2 * bytes];
        assert!(dequantise_row(ty, &src, &mut vec![0.0; n]).is_err(), "{ty}");
        assert!(dequantise_row(ty, &src[1..], &mut vec![0.0; 2 * n]).is_err());
        assert!(dequantise_row(ty, &src, &mut vec![0.0; 2 * n + 1]).is_err());
        assert!(dequantise_row(ty, &src, &mut vec![0.0; 2 * n]).is_ok());
        assert!(dequantise_row(ty, &[], &mut []).is_ok());
    }
}

type Quantise = fn(&[f32], &mut [u8]) -> Result<(), QuantError>;

/// Type, quantiser, and the step between levels as a share of the block's range.
const QUANTISERS: [(GgmlType, Quantise, f32); 5] = [
    (GgmlType::Q8_0, quantise_q8_0, 1.0 / 127.0),
    (GgmlType::Q4_0, quantise_q4_0, 1.0 / 8.0),
    (GgmlType::Q4_1, quantise_q4_1, 2.0 / 15.0),
    (GgmlType::Q5_0, quantise_q5_0, 1.0 / 16.0),
    (GgmlType::Q5_1, quantise_q5_1, 2.0 / 31.0),
];

#[test]
fn zero_stays_zero() {
    for (ty, quantise, _) in QUANTISERS {
        let mut bytes = vec![0xff; 2 * ty.block_bytes()];
        quantise(&[0.0; 64], &mut bytes).expect("two blocks");
        let mut back = [1.0; 64];
        dequantise_row(ty, &bytes, &mut back).expect("two blocks");
        assert!(back.iter().all(|v| *v == 0.0), "{ty}: {back:?}");
    }
}

#[test]
fn quantisers_refuse_part_blocks() {
    for (ty, quantise, _) in QUANTISERS {
        let mut bytes = vec![0; ty.block_bytes()];
        assert!(quantise(&[0.0; 31], &mut bytes).is_err());
        assert!(quantise(&[0.0; 64], &mut bytes).is_err());
    }
}

proptest! {
    #[test]
    fn round_trip_stays_within_a_step(x in prop::collection::vec(-8.0f32..8.0, 64)) {
        for (ty, quantise, step) in QUANTISERS {
            let mut bytes = vec![0; 2 * ty.block_bytes()];
            quantise(&x, &mut bytes).expect("two blocks");
            let mut back = vec![0.0; 64];
            dequantise_row(ty, &bytes, &mut back).expect("two blocks");
            for (block, back) in x.chunks(32).zip(back.chunks(32)) {
                let amax = block.iter().fold(0.0f32, |m, v| m.max(v.abs()));
                for (x, y) in block.iter().zip(back) {
                    // A whole step, not half: symmetric formats have one level less on one side.
                    let bound = amax * step * 1.01 + amax * 2e-3;
                    prop_assert!((x - y).abs() <= bound, "{ty}: {x} became {y}, bound {bound}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_expand_without_panic(seed in any::<[u8; 32]>()) {
        for &ty in supported() {
            let src: Vec<u8> = seed.iter().copied().cycle().take(2 * ty.block_bytes()).collect();
            let mut dst = vec![0.0; 2 * ty.block_len()];
            prop_assert!(dequantise_row(ty, &src, &mut dst).is_ok());
        }
    }
}
