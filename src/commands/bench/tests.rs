use super::numbers::{Numbers, Pair};
use super::plan::{Case, Plan, Test};
use super::print::{Format, Printer};
use super::record::{Record, Subject, mean_and_stddev, size_label};
use super::start::Start;
use super::{BenchArgs, long_flags, run, utc};
use cbtop::engine::KvType;
use cbtop::engine::batch::Split;
use cbtop::engine::config::Schedule;
use cbtop::engine::cpu::KernelSet;
use clap::Parser;
use proptest::prelude::*;
use std::io::{self, Write};
use std::path::Path;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn parse(line: &str) -> BenchArgs {
    let args = ["cbtop", "bench"]
        .into_iter()
        .chain(line.split_whitespace());
    let mut args = long_flags(args.map(Into::into));
    args.remove(1);
    Cli::try_parse_from(args).expect(line).bench
}

fn tiny() -> String {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/models/llama.Q4_K_M.gguf");
    path.display().to_string()
}

fn bench(line: &str) -> Result<String, String> {
    let mut args = parse(line);
    args.model = vec![tiny()];
    let mut out = Vec::new();
    run(&args, &mut out).map_err(|e| format!("{e:#}"))?;
    Ok(String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn numbers_are_lists_and_ranges() {
    let read = |s: &str| s.parse::<Numbers>().map(|n| n.0);
    assert_eq!(read("512"), Ok(vec![512]));
    assert_eq!(read("1,2,8"), Ok(vec![1, 2, 8]));
    assert_eq!(read("1-4"), Ok(vec![1, 2, 3, 4]));
    assert_eq!(read("0-400+150"), Ok(vec![0, 150, 300]));
    assert_eq!(read("64-512*2,3"), Ok(vec![64, 128, 256, 512, 3]));
    assert_eq!(read("5-5"), Ok(vec![5]));
    assert_eq!(read("7-7*1"), Ok(vec![7]));
}

#[test]
fn wrong_numbers_are_refused() {
    for wrong in [
        "",
        ",",
        "1,",
        "-1",
        "1-",
        "4-1",
        "1-9+0",
        "1-9*1",
        "0-9*2",
        "1-9*0",
        "x",
        "1.5",
        "+1",
        "1-4-6",
        "99999999999",
        "1-5000",
        "1-2+3*4",
        " 1",
        "0x10",
    ] {
        assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
    }
    for wrong in ["", "512", "512,", ",128", "512,128,1", "a,b"] {
        assert!(wrong.parse::<Pair>().is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn a_list_gives_itself(list in prop::collection::vec(0usize..1 << 24, 1..50)) {
        let text: Vec<_> = list.iter().map(usize::to_string).collect();
        prop_assert_eq!(text.join(",").parse::<Numbers>(), Ok(Numbers(list)));
    }

    #[test]
    fn a_range_is_every_step_up_to_its_end(first in 0usize..5000, step in 1usize..50, n in 0usize..200, over in 0usize..50) {
        let last = first + n * step + over % step;
        let expected: Vec<_> = (0..=n).map(|i| first + i * step).collect();
        prop_assert_eq!(format!("{first}-{last}+{step}").parse::<Numbers>(), Ok(Numbers(expected)));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[0-9,+*x-]{0,24}|.{0,12}") {
        if let Ok(Numbers(list)) = text.parse() {
            prop_assert!((1..=1000).contains(&list.len()));
        }
        let _ = text.parse::<Pair>();
    }

    #[test]
    fn deviation_of_a_shifted_list_is_the_same(values in prop::collection::vec(-1e3..1e3f64, 2..20), by in -1e3..1e3f64) {
        let shifted: Vec<_> = values.iter().map(|v| v + by).collect();
        let ((m1, s1), (m2, s2)) = (mean_and_stddev(&values), mean_and_stddev(&shifted));
        prop_assert!((m1 + by - m2).abs() < 1e-9 && (s1 - s2).abs() < 1e-9);
    }
}

#[test]
fn statistics_are_those_of_a_sample() {
    assert_eq!(
        mean_and_stddev(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]),
        (5.0, (32.0f64 / 7.0).sqrt())
    );
    assert_eq!(mean_and_stddev(&[3.5]), (3.5, 0.0));
    assert_eq!(mean_and_stddev(&[]), (0.0, 0.0));
}

#[test]
fn dates_follow_the_calendar() {
    assert_eq!(utc::iso(0), "1970-01-01T00:00:00Z");
    assert_eq!(utc::iso(951_782_399), "2000-02-28T23:59:59Z");
    assert_eq!(utc::iso(951_782_400), "2000-02-29T00:00:00Z");
    assert_eq!(utc::iso(1_709_251_200), "2024-03-01T00:00:00Z");
    assert_eq!(utc::iso(4_107_542_399), "2100-02-28T23:59:59Z");
    assert_eq!(utc::iso(4_107_542_400), "2100-03-01T00:00:00Z");
    assert_eq!(utc::now().len(), 20);
}

#[test]
fn sizes_have_few_digits() {
    let labels = [
        (42_000, "42K"),
        (1_234, "1.2K"),
        (134_515_008, "135M"),
        (999_600_000, "1.0B"),
        (8_030_261_312, "8.0B"),
    ];
    for (n, label) in labels {
        assert_eq!(size_label(n), label);
    }
}

#[test]
fn long_flags_of_llama_bench_may_have_one_dash() {
    let args = |line: &str| long_flags(line.split(' ').map(Into::into));
    assert_eq!(
        args("cbtop bench -pg 1,2 -ub 8 -p 4"),
        args("cbtop bench --pg 1,2 --ubatch-size 8 -p 4")
    );
    assert_eq!(args("cbtop run -pg"), ["cbtop", "run", "-pg"]);
    assert_eq!(args("cbtop"), ["cbtop"]);
}

#[test]
fn flags_multiply_in_llama_benchs_order() {
    let plan = Plan::from_args(&parse(
        "-p 8,16 -n 4 -pg 8,2 -d 0,32 -t 1,2 -ctk f16,f32 -ctv f16,f32",
    ))
    .expect("a plan");
    assert_eq!(plan.cases.len(), 2 * 2 * 2 * 4);
    let labels: Vec<_> = plan.cases.iter().take(9).map(Case::label).collect();
    let expected = [
        "pp8 with 1 thread",
        "pp16 with 1 thread",
        "tg4 with 1 thread",
        "pp8+tg2 with 1 thread",
        "pp8 @ d32 with 1 thread",
        "pp16 @ d32 with 1 thread",
        "tg4 @ d32 with 1 thread",
        "pp8+tg2 @ d32 with 1 thread",
        "pp8 with 2 threads",
    ];
    assert_eq!(labels, expected);
    assert!(plan.shows_kv && !plan.shows_chunk);
    let defaults = Plan::from_args(&parse("")).expect("a plan");
    assert_eq!(
        defaults
            .cases
            .iter()
            .map(|c| c.test.label())
            .collect::<Vec<_>>(),
        ["pp512", "tg128"]
    );
    let no_prompt = Plan::from_args(&parse("-p 0")).expect("a plan");
    assert_eq!(no_prompt.cases.len(), 1);
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    for (line, why) in [
        ("-p 0 -n 0", "nothing to measure"),
        ("-t 0", "threads is 0"),
        ("-t 1,10000", "threads is 10000"),
        ("-p 16777216 -n 0 -d 1", "context length"),
        ("-ub 0", "chunk is 0"),
        ("-ctk f16 -ctv f32", "share one type"),
        ("--batch 65", "sequences is 65"),
        ("--batch 0", "sequences is 0"),
        ("--batch 8 -ub 4", "chunk"),
        ("--backend gpu", "gpu"),
        ("-p 1-1000 -t 1-100", "10000 tests"),
    ] {
        let error = bench(line).expect_err(line);
        assert!(error.contains(why), "{line}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let mut args = parse("-p 1 -n 1");
    args.model = vec!["/nowhere/a.gguf,/nowhere/b.gguf".into()];
    let error = run(&args, &mut Vec::new()).expect_err("no file");
    assert!(
        format!("{error:#}").contains("/nowhere/a.gguf"),
        "{error:#}"
    );
}

#[test]
fn garbage_is_bad_usage() {
    for line in [
        "-t x",
        "-p -5",
        "-r 0",
        "-o yaml",
        "-ctk q9 -ctv q9",
        "-ctk f32",
        "-pg 5",
        "-n 9-1",
        "stray",
    ] {
        let args = ["cbtop".into()].into_iter().chain(
            long_flags(
                ["cbtop", "bench"]
                    .into_iter()
                    .chain(line.split(' '))
                    .map(Into::into),
            )
            .into_iter()
            .skip(2),
        );
        assert!(Cli::try_parse_from(args).is_err(), "{line}");
    }
}

fn record() -> Record {
    Record {
        subject: Subject {
            file: "dir/a \"b\".gguf".into(),
            kind: "llama 135M Q4_1".into(),
            bytes: 97_700_000,
            params: 134_515_008,
            start: Start {
                how: "mmap, willneed".into(),
                load_ms: 45.25,
                first_token_ms: 81.5,
                rss_bytes: Some(132_120_576),
                faults: None,
            },
        },
        case: Case {
            test: Test {
                n_prompt: 0,
                n_gen: 128,
                n_depth: 0,
            },
            threads: 2,
            kernels: KernelSet::Avx2,
            kv_type: KvType::F16,
            chunk: 512,
            schedule: Schedule::Dynamic,
            pin: false,
            prefetch: Default::default(),
            batch: 1,
            split: Split::Simple,
        },
        cpu: "A CPU".into(),
        time: "2026-11-30T07:25:00Z".into(),
        samples_ns: vec![1_280_000_000, 1_000_000_000],
        gbps: Some(11.25),
        beside: None,
        batch_gain: None,
    }
}

fn print(format: Format, line: &str) -> String {
    let plan = Plan::from_args(&parse(line)).expect("a plan");
    let mut printer = Printer::new(format, &plan);
    let mut prompt = record();
    prompt.case.test = Test {
        n_prompt: 512,
        n_gen: 0,
        n_depth: 1024,
    };
    prompt.gbps = None;
    let mut out = Vec::new();
    printer.header(&mut out).expect("header");
    printer.row(&prompt, &mut out).expect("row");
    printer.row(&record(), &mut out).expect("row");
    printer.footer(&mut out).expect("footer");
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn the_table_is_llama_benchs() {
    let expected = "\
| model                          |       size |     params | backend    | threads |            test |                  t/s | kernels |     GB/s |
| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: | -------------------: | ------- | -------: |
| llama 135M Q4_1                |  93.17 MiB |   134.52 M | CPU        |       2 |   pp512 @ d1024 |       456.00 ± 79.20 | avx2    |        - |
| llama 135M Q4_1                |  93.17 MiB |   134.52 M | CPU        |       2 |           tg128 |       114.00 ± 19.80 | avx2    |    11.25 |
";
    let text = print(Format::Md, "");
    assert_eq!(
        text,
        format!(
            "{expected}\nllama 135M Q4_1: load 45 ms (mmap, willneed), first token after 82 ms, resident 126.0 MiB, \
             page faults -\nbuild: cbtop {}\n",
            env!("CARGO_PKG_VERSION")
        )
    );
    let wide = print(Format::Md, "-ub 64 --kv-type f32");
    assert!(
        wide.contains("| threads | n_ubatch | type_k | type_v |            test |"),
        "{wide}"
    );
    let widths: Vec<_> = wide.lines().take(4).map(|l| l.chars().count()).collect();
    assert!(widths.windows(2).all(|w| w[0] == w[1]), "{wide}");
}

const NAMES: &str = "build_commit,cpu_info,backends,model_filename,model_type,model_size,model_n_params,n_batch,n_ubatch,\
n_threads,type_k,type_v,n_prompt,n_gen,n_depth,test_time,avg_ns,stddev_ns,avg_ts,stddev_ts,kernels,schedule,pin,gbps,n_seq,split,seq_ts,batch_gain,prefetch,load,load_ms,first_token_ms,rss_bytes,minor_faults,major_faults";

#[test]
fn csv_is_quoted_and_leaves_the_unknown_empty() {
    let text = print(Format::Csv, "");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], NAMES);
    assert!(
        lines[1].contains("\"dir/a \"\"b\"\".gguf\",\"llama 135M Q4_1\",\"97700000\""),
        "{text}"
    );
    assert!(
        lines[1].contains(
            "\"avx2\",\"dynamic\",\"false\",,\"1\",\"simple\",\"456.0\",,\"4096\",\"mmap, willneed\",\"45.25\",\"81.5\",\"132120576\",,"
        ),
        "{text}"
    );
    assert!(
        lines[2].contains("\"false\",\"11.25\",\"1\",\"simple\",\"114.0\",,\"4096\",\"mmap"),
        "{text}"
    );
}

#[test]
fn json_carries_every_sample() {
    let array: serde_json::Value = serde_json::from_str(&print(Format::Json, "")).expect("JSON");
    let lines: Vec<serde_json::Value> = print(Format::Jsonl, "")
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(array.as_array(), Some(&lines));
    let row = &lines[1];
    assert_eq!(
        row["samples_ns"],
        serde_json::json!([1_280_000_000u64, 1_000_000_000u64])
    );
    assert_eq!(row["samples_ts"], serde_json::json!([100.0, 128.0]));
    assert_eq!(row["avg_ts"], 114.0);
    assert_eq!(row["avg_ns"], 1_140_000_000u64);
    assert!(lines[0]["gbps"].is_null());
    // The order is llama-bench's, which a map read back no longer shows.
    let text = print(Format::Jsonl, "");
    let places: Vec<_> = NAMES
        .split(',')
        .map(|n| text.find(&format!("\"{n}\":")))
        .collect();
    assert!(
        places.iter().all(Option::is_some) && places.is_sorted(),
        "{text}"
    );
}

#[test]
fn sql_is_a_table_and_its_rows() {
    let text = print(Format::Sql, "");
    assert!(
        text.starts_with("CREATE TABLE IF NOT EXISTS llama_bench (\n  build_commit TEXT,\n"),
        "{text}"
    );
    assert_eq!(text.matches("INSERT INTO llama_bench").count(), 2);
    assert!(
        text.contains("stddev_ts REAL")
            && text.contains("n_gen INTEGER")
            && text.contains(", NULL, 1, 'simple', 456.0, NULL);"),
        "{text}"
    );
}

#[test]
fn a_tiny_model_is_measured() {
    let text = bench("-p 8 -n 4 -pg 6,2 -d 0,5 -t 1,2 -r 3 -o jsonl").expect("runs");
    let rows: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 2 * 2 * 3);
    for row in &rows {
        assert_eq!(row["samples_ts"].as_array().map(Vec::len), Some(3));
        assert!(row["avg_ts"].as_f64().is_some_and(|v| v > 0.0));
        assert_eq!(row["gbps"].is_null(), row["n_prompt"] != 0, "{row}");
        assert_eq!(row["model_filename"], tiny());
    }
}

#[test]
fn batches_are_compared_with_one_sequence() {
    let text =
        bench("-p 8 -n 3 -d 0,4 --batch 4,1,2 -t 2 -r 2 --kv-type q8_0 -o jsonl").expect("runs");
    let rows: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(rows.len(), 2 * 2 * 3);
    for group in rows.chunks(3) {
        for (row, n) in group.iter().zip([1.0, 2.0, 4.0]) {
            let number = |name: &str| row[name].as_f64().expect(name);
            assert_eq!(number("n_seq"), n);
            assert!((number("seq_ts") * n - number("avg_ts")).abs() < 1e-6 * number("avg_ts"));
            let gain = number("avg_ts") / group[0]["avg_ts"].as_f64().expect("a rate");
            assert!((number("batch_gain") - gain).abs() < 1e-9 * gain);
            assert_eq!(row["type_k"], "q8_0");
        }
    }
    let text = bench("-p 0 -n 2 --batch 2 -r 1").expect("runs");
    assert!(
        text.contains(
            "|            test | batch |                  t/s | t/s each | x batch 1 | kernels |"
        ),
        "{text}"
    );
    assert!(
        text.contains(" |         - | "),
        "nothing to compare with: {text}"
    );
    for split in Split::ALL {
        bench(&format!(
            "-p 9 -n 0 --batch 3 -ub 7 -r 1 --split {}",
            split.name()
        ))
        .expect("runs");
    }
}

#[test]
fn every_chunk_and_kernel_set_runs() {
    let kernels: Vec<_> = KernelSet::available().iter().map(|k| k.name()).collect();
    let text = bench(&format!(
        "-p 5 -n 0 -ub 1,4,512 --backend {} -r 1 --no-warmup",
        kernels.join(",")
    ))
    .expect("runs");
    assert_eq!(
        text.lines().filter(|l| l.contains("pp5")).count(),
        3 * kernels.len(),
        "{text}"
    );
}

struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_output_is_told_as_such() {
    for format in ["md", "csv", "json", "jsonl", "sql"] {
        let mut args = parse(&format!("-p 1 -n 0 -t 1 -r 1 -o {format}"));
        args.model = vec![tiny()];
        let error = run(&args, &mut Closed).expect_err("closed");
        let io = error
            .chain()
            .find_map(|c| c.downcast_ref::<io::Error>())
            .expect("an I/O error");
        assert_eq!(io.kind(), io::ErrorKind::BrokenPipe, "{format}");
    }
}
