use super::*;
use proptest::prelude::*;

fn sets() -> Vec<&'static FloatOps> {
    KernelSet::available().into_iter().map(float_ops).collect()
}

fn halves(x: &[f32]) -> Vec<f16> {
    x.iter().map(|v| f16::from_f32(*v)).collect()
}

/// |got - want| within `relative` of want, or `absolute`.
fn close(got: f32, want: f64, relative: f64, absolute: f64) -> bool {
    (f64::from(got) - want).abs() <= relative * want.abs() + absolute
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// Floats of any size the ops meet, with lengths that leave every tail.
fn floats(limit: f32) -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(-limit..limit, 1..150)
}

proptest! {
    #[test]
    fn norms(x in floats(30.0), eps in 1e-6f32..1e-4) {
        let n = x.len() as f64;
        let w: Vec<f32> = (0..x.len()).map(|i| (i as f32).sin()).collect();
        let b: Vec<f32> = (0..x.len()).map(|i| (i as f32).cos()).collect();
        let wide: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        let mean = wide.iter().sum::<f64>() / n;
        let var = wide.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let rms = (wide.iter().map(|v| v * v).sum::<f64>() / n + f64::from(eps)).sqrt();
        let sd = (var + f64::from(eps)).sqrt();
        for ops in sets() {
            let mut out = vec![0.0; x.len()];
            (ops.rms_norm)(&x, &w, eps, &mut out);
            for i in 0..x.len() {
                prop_assert!(close(out[i], wide[i] / rms * f64::from(w[i]), 4e-7, 1e-9));
            }
            (ops.layer_norm)(&x, &w, &b, eps, &mut out);
            for i in 0..x.len() {
                let want = (wide[i] - mean) / sd * f64::from(w[i]) + f64::from(b[i]);
                // The mean is rounded to f32 before it is taken away.
                let absolute = 1e-6 + 4e-6 / sd;
                prop_assert!(close(out[i], want, 1e-6, absolute), "{}: {} {want}", ops.set, out[i]);
            }
        }
    }

    #[test]
    fn dots_and_axpys(x in floats(4.0), a in -2.0f32..2.0) {
        let y: Vec<f32> = x.iter().rev().copied().collect();
        let h = halves(&y);
        let size: f64 = x.iter().zip(&y).map(|(x, y)| f64::from((x * y).abs())).sum();
        let exact: f64 = x.iter().zip(&y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
        let exact_h: f64 = x.iter().zip(&h).map(|(x, y)| f64::from(*x) * y.to_f64()).sum();
        for ops in sets() {
            prop_assert!(close((ops.dot_f32)(&x, &y), exact, 0.0, 1e-6 * size + 1e-30));
            prop_assert!(close((ops.dot_f16)(&x, &h), exact_h, 0.0, 1e-6 * size + 1e-30));
            let mut acc = x.clone();
            (ops.axpy_f32)(a, &y, &mut acc);
            let mut acc_h = x.clone();
            (ops.axpy_f16)(a, &h, &mut acc_h);
            for i in 0..x.len() {
                let want = f64::from(x[i]) + f64::from(a) * f64::from(y[i]);
                prop_assert!(close(acc[i], want, 1e-6, 2e-6));
                let want = f64::from(x[i]) + f64::from(a) * h[i].to_f64();
                prop_assert!(close(acc_h[i], want, 1e-6, 2e-6));
            }
            let mut out = vec![f16::ZERO; x.len()];
            (ops.store_f16)(&x, &mut out);
            prop_assert_eq!(&out, &halves(&x), "{}", ops.set);
        }
    }

    #[test]
    fn activations(x in floats(90.0)) {
        let up: Vec<f32> = x.iter().rev().map(|v| v * 0.1).collect();
        for ops in sets() {
            let mut out = vec![0.0; x.len()];
            (ops.silu_mul)(&x, &up, &mut out);
            for i in 0..x.len() {
                let (g, u) = (f64::from(x[i]), f64::from(up[i]));
                prop_assert!(close(out[i], g / (1.0 + (-g).exp()) * u, 6e-7, 1e-30));
            }
            (ops.gelu_tanh_mul)(&x, &up, &mut out);
            let mut alone = x.clone();
            (ops.gelu_tanh)(&mut alone);
            for i in 0..x.len() {
                let (g, u) = (f64::from(x[i]), f64::from(up[i]));
                // Where tanh is near -1 a relative error of its argument is an absolute one here.
                prop_assert!(close(out[i], gelu(g) * u, 1e-6, 1e-6 * u.abs() + 1e-30), "{} {g}", ops.set);
                prop_assert!(close(alone[i], gelu(g), 1e-6, 1e-6));
            }
            let mut capped = x.clone();
            (ops.softcap)(&mut capped, 30.0);
            for i in 0..x.len() {
                let want = 30.0 * (f64::from(x[i]) / 30.0).tanh();
                prop_assert!(close(capped[i], want, 6e-7, 1e-30), "{} {}: {} {want}", ops.set, x[i], capped[i]);
            }
        }
    }

    #[test]
    fn softmax_and_largest(x in floats(40.0)) {
        let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = x.iter().map(|v| (f64::from(*v) - f64::from(top)).exp()).sum();
        for ops in sets() {
            prop_assert_eq!((ops.max)(&x), top);
            prop_assert_eq!(Some((ops.argmax)(&x)), x.iter().position(|v| *v == top));
            let mut p = x.clone();
            (ops.softmax)(&mut p);
            for i in 0..x.len() {
                // The difference to the largest is rounded before `exp` sees it: half an ulp of 80.
                let want = (f64::from(x[i] - top)).exp() / sum;
                prop_assert!(close(p[i], want, 4e-7, 1e-37), "{}: {} {want}", ops.set, p[i]);
            }
            prop_assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn quantise_stays_within_half_a_step(x in prop::collection::vec(-100f32..100.0, 96), small in 1e-25f32..1.0) {
        let x: Vec<f32> = x.iter().map(|v| v * small).collect();
        for (ops, (op, group)) in sets().into_iter().flat_map(quantisers) {
            let Owned { q, d, step, unit, s32, s16 } = quantised(op, &x);
            let value = |i: usize| f64::from(d[i / 4]) * f64::from(q[i]);
            for i in 0..96 {
                let error = (f64::from(x[i]) - value(i)).abs();
                prop_assert!(error <= f64::from(d[i / 4]) * 0.50002, "{} {} {}", x[i], d[i / 4], q[i]);
                prop_assert!(q[i] != -128);
            }
            for (i, (x, d)) in x.chunks(group).zip(d.chunks(group / 4)).enumerate() {
                let least = x.iter().fold(0.0, |top: f32, x| top.max(x.abs())) / 127.0;
                let unit = unit[i * group / 32];
                prop_assert!(d.iter().all(|d| *d >= least * 0.9999999 && *d <= least * 1.000001 + unit), "{}", ops.set);
                prop_assert!(d.iter().all(|one| *one == d[0]));
            }
            for (i, step) in step.iter().enumerate() {
                prop_assert_eq!(d[i / 2], f32::from(*step) * unit[i / 16]);
                prop_assert!((0..=16384).contains(step));
            }
            for (sums, n) in [(&s32, 32), (&s16, 16)] {
                for (i, s) in sums.iter().enumerate() {
                    let want: f64 = (n * i..n * (i + 1)).map(value).sum();
                    let size: f64 = (n * i..n * (i + 1)).map(|i| value(i).abs()).sum();
                    prop_assert!((f64::from(*s) - want).abs() <= 1e-6 * size, "{} {s} {want}", ops.set);
                }
            }
        }
    }
}

type Quantise = fn(&[f32], Quantised<'_>);

/// What a quantising operation wrote.
struct Owned {
    q: Vec<i8>,
    d: Vec<f32>,
    step: Vec<i16>,
    unit: Vec<f32>,
    s32: Vec<f32>,
    s16: Vec<f32>,
}

fn quantised(op: Quantise, x: &[f32]) -> Owned {
    let n = x.len();
    let mut o = Owned {
        q: vec![9; n],
        d: vec![9.0; n / 4],
        step: vec![9; n / 2],
        unit: vec![9.0; n / 32],
        s32: vec![9.0; n / 32],
        s16: vec![9.0; n / 16],
    };
    let out = Quantised {
        q: &mut o.q,
        d: &mut o.d,
        step: &mut o.step,
        unit: &mut o.unit,
        s32: &mut o.s32,
        s16: &mut o.s16,
    };
    op(x, out);
    o
}

/// Both ways to quantise, with the number of elements that share a scale.
fn quantisers(ops: &'static FloatOps) -> [(&'static FloatOps, (Quantise, usize)); 2] {
    [(ops, (ops.quantise4, 4)), (ops, (ops.quantise16, 16))]
}

#[test]
fn quantise_at_the_edges() {
    for (_, (op, _)) in sets().into_iter().flat_map(quantisers) {
        for (value, nan) in [
            (0.0, false),
            (-0.0, false),
            (1e-40, false),
            (f32::NAN, true),
            (f32::INFINITY, true),
            (f32::NEG_INFINITY, true),
        ] {
            let mut x = [0.0; 64];
            x[5] = value;
            x[40] = 2.54;
            let Owned {
                q,
                d,
                step,
                unit,
                s32,
                s16,
            } = quantised(op, &x);
            assert!(step[..16].iter().all(|step| *step == 0) && unit[0].is_nan() == nan);
            assert!(q[..32].iter().all(|q| *q == 0));
            assert!(d[..8].iter().all(|d| d.is_nan() == nan));
            assert_eq!(s32[0].is_nan() && s16[0].is_nan() && s16[1].is_nan(), nan);
            assert!(nan || (d[..8] == [0.0; 8] && s32[0] == 0.0));
            // The other block is not touched by it.
            assert_eq!((q[40], s16[2], s16[3]), (127, d[10] * 127.0, 0.0));
        }
        let Owned { q, d, .. } = quantised(op, &[f32::MAX; 32]);
        assert!(q.iter().all(|q| *q == 127) && d[0].is_finite());
    }
}

#[test]
fn nothing_and_infinity() {
    for ops in sets() {
        (ops.softmax)(&mut []);
        assert_eq!((ops.max)(&[]), f32::NEG_INFINITY);
        assert_eq!((ops.argmax)(&[]), 0);
        assert_eq!((ops.argmax)(&[f32::NAN, 1.0, 3.0, 3.0]), 2);
        let mut p = [0.0, f32::NEG_INFINITY, 0.0];
        (ops.softmax)(&mut p);
        assert_eq!(p, [0.5, 0.0, 0.5]);
        let mut x = [1.0, 2.0];
        (ops.add)(&mut x, &[0.5, 0.5]);
        (ops.scale)(&mut x, 2.0);
        assert_eq!(x, [3.0, 5.0]);
        let mut x = [1e30, -1e30, 1e-30, f32::NAN];
        (ops.softcap)(&mut x, 50.0);
        assert_eq!(x[..2], [50.0, -50.0]);
        assert!((x[2] - 1e-30).abs() < 1e-36 && x[3].is_nan());
    }
}

proptest! {
    /// F250: against a plain computation in f64.
    #[test]
    fn f250_moments_are_those_of_float64(x in floats(30.0), offset in -1e4f32..1e4, bad in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3), 0..4)) {
        let mut x: Vec<f32> = x.iter().map(|v| v + offset).collect();
        for (at, kind) in &bad {
            let n = x.len();
            x[at.index(n)] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][*kind];
        }
        let finite: Vec<f64> = x.iter().filter(|v| v.is_finite()).map(|v| f64::from(*v)).collect();
        let n = finite.len() as f64;
        let mean = finite.iter().sum::<f64>() / n;
        let m2: f64 = finite.iter().map(|v| (v - mean).powi(2)).sum();
        for ops in sets() {
            let got = (ops.moments)(&x);
            prop_assert_eq!(got.n, finite.len() as u64);
            prop_assert_eq!(got.nan, x.iter().filter(|v| v.is_nan()).count() as u64);
            prop_assert_eq!(got.inf, x.iter().filter(|v| v.is_infinite()).count() as u64);
            if !finite.is_empty() {
                prop_assert!((got.mean - mean).abs() <= 1e-12 * mean.abs() + 1e-15);
                prop_assert!((got.m2 - m2).abs() <= 1e-9 * m2 + 1e-9, "{} {m2}", got.m2);
                let stats = got.stats();
                let wide = |v: f32| f64::from(v);
                let want = [mean, (m2 / n).sqrt(), finite.iter().map(|v| v * v).sum::<f64>().sqrt()];
                for (got, want) in [stats.mean, stats.std, stats.l2_norm].into_iter().zip(want) {
                    // MSE below 1e-6 of the value's own size.
                    prop_assert!((wide(got) - want).abs() <= 1e-6 * want.abs() + 1e-6, "{got} {want}");
                }
                prop_assert_eq!(wide(stats.min), finite.iter().copied().fold(f64::INFINITY, f64::min));
                prop_assert_eq!(wide(stats.max), finite.iter().copied().fold(f64::NEG_INFINITY, f64::max));
            }
        }
    }

    /// F253, F255, F273: the top descends, entropy is that of float64, and nothing is lost.
    #[test]
    fn f253_f255_weights_are_summed_up(scores in floats(20.0), k in 1usize..12, threshold in 0.0f32..0.1) {
        for ops in sets() {
            let mut p = scores.clone();
            (ops.softmax)(&mut p);
            let (mut positions, mut weights) = (vec![0; k], vec![0.0; k]);
            let sums = (ops.weights)(&p, threshold, &mut positions, &mut weights);
            let wide: Vec<f64> = p.iter().map(|p| f64::from(*p)).collect();
            let total: f64 = wide.iter().sum();
            prop_assert!((sums.sum - total).abs() < 1e-12 && (total - 1.0).abs() < 1e-5);
            let p_ln_p: f64 = wide.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum();
            prop_assert!((sums.p_ln_p - p_ln_p).abs() < 1e-6, "{}: {} {p_ln_p}", ops.set, sums.p_ln_p);
            let mut order: Vec<usize> = (0..p.len()).filter(|&i| p[i] >= threshold).collect();
            order.sort_by(|&a, &b| p[b].total_cmp(&p[a]).then(a.cmp(&b)));
            order.truncate(k);
            let got: Vec<usize> = positions[..sums.n_top].iter().map(|p| *p as usize).collect();
            prop_assert_eq!(&got, &order);
            prop_assert!(weights[..sums.n_top].windows(2).all(|w| w[0] >= w[1]));
            prop_assert!(got.iter().zip(&weights).all(|(i, w)| p[*i] == *w));
        }
    }
}
