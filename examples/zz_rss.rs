fn rss() -> u64 {
    std::fs::read_to_string("/proc/self/statm")
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 4
}
fn peak() -> String {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .filter(|l| l.starts_with("VmHWM") || l.starts_with("RssAnon") || l.starts_with("RssFile"))
        .collect::<Vec<_>>()
        .join(" ")
}
use cbtop::engine::*;
use cbtop::model::Model;
use cbtop::tokenizer::*;
use std::sync::Arc;
// usage: FILE THREADS ROUNDS N  "method advice huge"...   : interleaved A/B of decode speed
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let threads: usize = a[2].parse().unwrap();
    let rounds: usize = a[3].parse().unwrap();
    let n: u32 = a[4].parse().unwrap();
    let mut all = vec![];
    for w in &a[5..] {
        let v: Vec<&str> = w.split(' ').collect();
        let t0 = std::time::Instant::now();
        let say = |w: &str| {
            println!(
                "{:>8.1} ms  {:>7} KiB  {} {}",
                t0.elapsed().as_secs_f64() * 1e3,
                rss(),
                peak(),
                w
            )
        };
        println!("== {w}");
        let mut g = cbtop::gguf::Gguf::open(std::path::Path::new(&a[1])).unwrap();
        say("gguf");
        let o = cbtop::gguf::LoadOptions {
            method: v[0].parse().unwrap(),
            advice: v[1].parse().unwrap(),
            huge_pages: v[2] == "1",
        };
        println!("{:?}", g.load(o).unwrap().notes);
        say("load");
        let tk = Tokenizer::from_gguf(&g).unwrap();
        say("tokenizer");
        let m = Arc::new(Model::new(Arc::new(g)).unwrap());
        say("model");
        let mut c = Config::for_context(m.hparams.n_ctx_train);
        c.threads = threads;
        c.n_ctx = 2048;
        let mut e = Engine::new(m.clone(), c, Unobserved).unwrap();
        say("engine");
        let ids = tk.encode("The capital of France is", true, false).unwrap();
        say("encode");
        e.prefill(&ids).unwrap();
        say("prefill");
        drop(e);
        all.push((w.clone(), m, vec![], vec![]));
    }
    for _ in 0..rounds {
        for (_, m, v, means) in all.iter_mut() {
            let mut c = Config::for_context(m.hparams.n_ctx_train);
            c.threads = threads;
            c.n_ctx = 256;
            let mut e = Engine::new(m.clone(), c, Unobserved).unwrap();
            for i in 0..3u32 {
                e.decode(i).unwrap();
            }
            let t0 = std::time::Instant::now();
            for i in 0..n {
                let t = std::time::Instant::now();
                e.decode(i * 37 % 1000).unwrap();
                v.push(t.elapsed().as_secs_f64());
            }
            means.push(n as f64 / t0.elapsed().as_secs_f64());
        }
    }
    let base: Vec<f64> = all[0].3.clone();
    for (w, _, v, means) in all.iter_mut() {
        v.sort_by(f64::total_cmp);
        let mut r: Vec<f64> = means.iter().zip(&base).map(|(a, b)| a / b).collect();
        r.sort_by(f64::total_cmp);
        println!(
            "{w:24} best {:.1}  p25 {:.1}  median {:.1} tok/s; ratio to first median {:.3} ({:.3} to {:.3})",
            1.0 / v[0],
            1.0 / v[v.len() / 4],
            1.0 / v[v.len() / 2],
            r[r.len() / 2],
            r[r.len() / 4],
            r[3 * r.len() / 4]
        );
    }
}
