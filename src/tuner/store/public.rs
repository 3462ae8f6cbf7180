//! Public benchmark results as runs: a table of reports joined with a table of hardware.
//!
//! A row is taken as far as it is known what was measured on what. Nothing is filled in but what a row's own words say:
//! the rest is left empty, and a row without what a run needs is counted and left out.

use super::columns;
use super::files::DataError;
use crate::engine::knobs::Setting;
use crate::tuner::fingerprint;
use crate::tuner::run::{Hardware, ModelShape, Origin, Run, Test, Trial};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;

/// What became of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Import {
    /// The runs, one for every trial of every source.
    pub runs: Vec<Run>,
    /// Rows of the table.
    pub rows: usize,
    /// Rows that became part of a run of the same trial and source.
    pub merged: usize,
    /// Rows left out, by reason.
    pub rejected: BTreeMap<&'static str, usize>,
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rejected: usize = self.rejected.values().sum();
        let taken = self.rows - rejected.min(self.rows);
        let runs = self.runs.len();
        write!(f, "{taken} of {} rows taken, as {runs} runs", self.rows)?;
        if self.merged > 0 {
            let merged = self.merged;
            write!(
                f,
                "\n  {merged} repeat a trial of their source: the mean counts"
            )?;
        }
        for (reason, n) in &self.rejected {
            write!(f, "\n  {n} left out: {reason}")?;
        }
        Ok(())
    }
}

/// Bits of a weight on average, and where that figure is from.
struct Quant {
    name: &'static str,
    bits: f64,
}

const fn quant(name: &'static str, bits: f64) -> Quant {
    Quant { name, bits }
}

/// Whole files of one type: the bytes of a block over its weights, as ggml's and ik_llama.cpp's block layouts have them.
const BY_BLOCK: &[Quant] = &[
    quant("F32", 32.0),
    quant("F16", 16.0),
    quant("BF16", 16.0),
    quant("Q8_0", 34.0 * 8.0 / 32.0),
    quant("Q5_0", 22.0 * 8.0 / 32.0),
    quant("Q4_1", 20.0 * 8.0 / 32.0),
    quant("Q4_0", 18.0 * 8.0 / 32.0),
    quant("MXFP4", 17.0 * 8.0 / 32.0),
    quant("TQ2_0", 66.0 * 8.0 / 256.0),
    quant("IQ5_K", 176.0 * 8.0 / 256.0),
    quant("IQ4_K", 144.0 * 8.0 / 256.0),
    quant("IQ3_K", 110.0 * 8.0 / 256.0),
    quant("IQ2_K_R4", 76.0 * 8.0 / 256.0),
    quant("IQ2_XS_R4", 74.0 * 8.0 / 256.0),
    quant("IQ2_KT", 2.125),
    quant("IQ2_BN", 2.0),
];

/// Mixtures of types: bits a weight of Llama 3.1 8B in the table of llama.cpp's `tools/quantize/README.md`. Other models
/// differ by some percent.
const BY_MIXTURE: &[Quant] = &[
    quant("Q2_K_S", 2.9697),
    quant("Q2_K", 3.1593),
    quant("Q3_K_S", 3.6429),
    quant("Q3_K_M", 3.9960),
    quant("IQ4_XS", 4.4597),
    quant("Q4_K_S", 4.6672),
    quant("Q4_K_M", 4.8944),
    quant("Q5_K_S", 5.5704),
    quant("Q5_K_M", 5.7036),
    quant("Q6_K", 6.5633),
];

/// Bits of a weight of a quantisation, on average over a file.
pub fn bits_per_weight(quant: &str) -> Option<f64> {
    let all = BY_BLOCK.iter().chain(BY_MIXTURE);
    all.into_iter().find(|q| q.name == quant).map(|q| q.bits)
}

/// Models whose active parameters their name does not say: billions, by their public cards.
const ACTIVE_BY_CARD: &[(&str, f64)] = &[
    ("DS-R1 671B", 37.0),
    ("deepseek2 671B", 37.0),
    ("deepseek2 16B", 2.4),
    ("granite-4.0-h-tiny", 1.0),
];

/// gpt-oss: billions of parameters of the experts chosen for a token and of all else that is read, by the shapes on its
/// card (every expert 3 x 2880 x 2880, 4 chosen, in 24 and 36 layers; embeddings of the prompt's tokens are not read as a
/// whole). The experts are MXFP4 in every file; the rest is F16 in those called F16, Q8_0 in the others.
const GPT_OSS: &[(&str, f64, f64)] = &[("20b", 2.39, 1.22), ("120b", 3.58, 1.55)];

/// `A13B`, `a800m` and the like in a model's name, in billions.
fn active_by_name(model: &str) -> Option<f64> {
    let words = model.split(|c: char| !c.is_ascii_alphanumeric());
    let active = |word: &str| {
        let word = word.to_ascii_lowercase();
        let digits = word.strip_prefix('a')?;
        let (number, unit) = match digits.strip_suffix('b') {
            Some(number) => (number, 1.0),
            None => (digits.strip_suffix('m')?, 1e-3),
        };
        Some(number.parse::<u32>().ok().map(f64::from)? * unit)
    };
    words.into_iter().find_map(active)
}

/// A row of the table of reports.
#[derive(Debug, serde::Deserialize)]
struct Report {
    source: String,
    hardware: String,
    backend: String,
    model: String,
    params_b: Option<f64>,
    active_params_b: Option<f64>,
    quant: String,
    test: String,
    n_tokens: Option<u32>,
    batch: Option<u32>,
    flash_attn: Option<u8>,
    cuda_graphs: Option<u8>,
    threads: Option<u32>,
    tok_per_s: f64,
    stddev: Option<f64>,
}

/// A row of the table of hardware.
#[derive(Debug, serde::Deserialize)]
pub(in crate::tuner) struct Device {
    hardware: String,
    kind: String,
    mem_bw_gbs: Option<f64>,
    fp16_tflops: Option<f64>,
    fp32_tflops: Option<f64>,
    sm_count: Option<f64>,
    l2_mb: Option<f64>,
    mem_gb: Option<f64>,
}

/// Names in the table that are one machine: they must not be on both sides of a split.
const SAME_MACHINE: &[(&str, &str)] = &[
    (
        "GMKtek G3 Plus (Intel N150) - 16GB",
        "GMKtec G3 Plus (Intel N150) - 16GB",
    ),
    ("AmpereOne A192-32X - 512GB", "AmpereOne A192-32X (512GB)"),
    (
        "Pi CM5 - 16GB (AMD AI Pro R9700)",
        "Pi CM5 - 16GB (AMD Radeon AI Pro R9700)",
    ),
];

/// The hardware of a name in the table. Figures of `x4` and the like are a card's: they are multiplied.
pub(in crate::tuner) fn hardware(device: &Device) -> Option<Hardware> {
    let name = device.hardware.as_str();
    let same = SAME_MACHINE.iter().find(|(other, _)| *other == name);
    let name = same.map_or(name, |(_, name)| name);
    let cards = name.rsplit_once(" x").and_then(|(_, n)| n.parse().ok());
    let cards = f64::from(cards.unwrap_or(1_u8).max(1));
    let all = |figure: Option<f64>| figure.map(|f| f * cards);
    let tflops = device.fp32_tflops.or(device.fp16_tflops);
    Some(Hardware {
        name: name.to_owned(),
        kind: columns::machine_kind(&device.kind)?,
        fingerprint: fingerprint::of_name(name),
        mem_gbps: all(device.mem_bw_gbs),
        gflops: all(tflops).map(|t| t * 1e3),
        int8_gops: None,
        cores: all(device.sm_count).map(|n| n as u32),
        cache_mb: all(device.l2_mb),
        memory_gb: all(device.mem_gb),
    })
}

fn model(report: &Report) -> Result<ModelShape, &'static str> {
    let params = report.params_b.ok_or("number of parameters not reported")?;
    let given = report.active_params_b.filter(|a| *a < params);
    let by_card = || {
        let found = ACTIVE_BY_CARD
            .iter()
            .find(|(m, _)| report.model.starts_with(m));
        found.map(|(_, active)| *active)
    };
    let active = active_by_name(&report.model).or(given).or_else(by_card);
    let active = active
        .or(report.active_params_b)
        .ok_or("active parameters of a mixture of experts not known")?;
    let name = report.model.to_lowercase();
    let gpt_oss = GPT_OSS.iter().find(|(size, _, _)| {
        name.starts_with(&format!("gpt-oss-{size}")) || name.starts_with(&format!("gpt-oss {size}"))
    });
    let quant = match (gpt_oss, report.quant.as_str()) {
        (_, "") => return Err("quantisation not reported"),
        (Some(_), _) => "MXFP4",
        (None, quant) => quant,
    };
    let bits = |quant| bits_per_weight(quant).ok_or("bytes of the quantisation not known");
    let gigabytes = match gpt_oss {
        Some((_, experts, rest)) => {
            let rest_bits = bits(if report.quant == "F16" { "F16" } else { "Q8_0" })?;
            (experts * bits("MXFP4")? + rest * rest_bits) / 8.0
        }
        None => active * bits(quant)? / 8.0,
    };
    Ok(ModelShape {
        name: report.model.clone(),
        quant: quant.to_owned(),
        params: params * 1e9,
        active_params: Some(active * 1e9),
        weight_bytes: gigabytes * 1e9,
        ..ModelShape::default()
    })
}

/// `llama.cpp CUDA`, `ik_llama.cpp CPU`, `llama.cpp Vulkan vulkan_radv`.
fn backend(name: &str) -> String {
    if let Some(of) = name.strip_prefix("ik_llama.cpp:") {
        return format!("ik_llama.cpp {of}");
    }
    if let Some(of) = name.strip_prefix("ollama/llama.cpp ") {
        return format!("ollama {of}");
    }
    let name = name.replace(" llama.cpp-", " ").replace(['(', ')'], "");
    format!("llama.cpp {name}")
}

fn run(report: &Report, hardware: &HashMap<&str, Hardware>) -> Result<Run, &'static str> {
    let hardware = hardware.get(report.hardware.as_str());
    let hardware = hardware.ok_or("hardware not in the table")?.clone();
    let tokens = report.n_tokens.filter(|n| *n > 0);
    let tokens = tokens.ok_or("length of the test not reported")?;
    let (prompt, generated) = match report.test.as_str() {
        "pp" => (tokens, 0),
        "tg" => (0, tokens),
        _ => return Err("test is neither pp nor tg"),
    };
    let batch = report.batch.filter(|n| *n > 0);
    let batch = batch.ok_or("number of sequences not reported")?;
    let model = model(report)?;
    // All weights, whether a token uses them or not, at the bits of those that it uses.
    let active = model.active_params.unwrap_or(model.params);
    let file_gb = model.params / active * model.weight_bytes / 1e9;
    if hardware.memory_gb.is_some_and(|memory| file_gb > memory) {
        return Err("weights larger than the memory of the hardware named: it was not alone");
    }
    let bound = hardware.mem_gbps.map(|b| b * 1e9 / model.weight_bytes);
    if generated > 0 && batch == 1 && bound.is_some_and(|b| report.tok_per_s > b) {
        return Err("faster than the bandwidth allows");
    }
    let switch = |on: u8| if on == 0 { "off" } else { "on" };
    let settings = [
        ("threads", report.threads.map(|n| n.to_string())),
        ("flash-attn", report.flash_attn.map(|f| switch(f).into())),
        ("cuda-graphs", report.cuda_graphs.map(|g| switch(g).into())),
    ];
    let setting = |(knob, value): (&str, Option<String>)| Some(Setting::new(knob, value?));
    let run = Run {
        trial: Trial {
            hardware,
            model,
            backend: backend(&report.backend),
            test: Test {
                prompt,
                generated,
                depth: 0,
                batch,
            },
            settings: settings.into_iter().filter_map(setting).collect(),
        },
        origin: Origin::Public,
        source: report.source.clone(),
        unix_s: None,
        tok_s: report.tok_per_s,
        stddev: report.stddev,
        repetitions: 1,
        warm: None,
        background: None,
        shares: None,
    };
    columns::check(&run).map_err(|_| "a value out of range")?;
    Ok(run)
}

/// One run for every trial of a source. Where it reports a trial several times, what differed was not reported: the mean of
/// the reports stands for all, with their spread, and their number for that of the repetitions.
fn merge(runs: Vec<Run>) -> Vec<Run> {
    let mut trials: HashMap<(String, String), usize> = HashMap::new();
    let mut merged: Vec<(Run, Vec<f64>)> = Vec::new();
    for run in runs {
        let key = (run.source.clone(), run.trial.key());
        let at = *trials.entry(key).or_insert(merged.len());
        match merged.get_mut(at) {
            Some((_, rates)) => rates.push(run.tok_s),
            None => {
                let rates = vec![run.tok_s];
                merged.push((run, rates));
            }
        }
    }
    let one = |(run, rates): (Run, Vec<f64>)| {
        if rates.len() == 1 {
            return run;
        }
        let n = rates.len() as f64;
        let mean = rates.iter().sum::<f64>() / n;
        let squares: f64 = rates.iter().map(|r| (r - mean).powi(2)).sum();
        Run {
            tok_s: mean,
            stddev: Some((squares / (n - 1.0)).sqrt()),
            repetitions: u32::try_from(rates.len()).unwrap_or(u32::MAX),
            ..run
        }
    };
    merged.into_iter().map(one).collect()
}

fn table<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>, DataError> {
    let wrong = |e: csv::Error| DataError::format(path, e.to_string());
    let mut reader = csv::Reader::from_path(path).map_err(wrong)?;
    reader
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(wrong)
}

/// Reads a table of reports and one of hardware, both CSV with the columns of [`Report`] and [`Device`].
///
/// # Errors
/// A file that cannot be read, lacks a column, or has no number where one must be.
pub fn import(reports: &Path, devices: &Path) -> Result<Import, DataError> {
    let devices: Vec<Device> = table(devices)?;
    let named = |d| Some((d, hardware(d)?));
    let known = devices.iter().filter_map(named);
    let known = known.map(|(d, hw)| (d.hardware.as_str(), hw)).collect();
    let reports: Vec<Report> = table(reports)?;
    let mut import = Import {
        rows: reports.len(),
        ..Import::default()
    };
    let mut runs = Vec::new();
    for report in &reports {
        match run(report, &known) {
            Ok(run) => runs.push(run),
            Err(reason) => *import.rejected.entry(reason).or_default() += 1,
        }
    }
    let taken = runs.len();
    import.runs = merge(runs);
    import.merged = taken - import.runs.len();
    Ok(import)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_parameters_are_read_from_names() {
        let of = active_by_name;
        assert_eq!(of("qwen35moe 122B.A10B"), Some(10.0));
        assert_eq!(of("Hunyuan-A13B-Instruct-UD-Q6_K_XL"), Some(13.0));
        assert_eq!(of("granite-3.1-3b-a800m"), Some(0.8));
        assert_eq!(of("LFM2.5-8B-A1B"), Some(1.0));
        assert_eq!(of("llama 8B"), None);
        assert_eq!(of("Alab-8B"), None);
        assert_eq!(of("A99999999999999999999B"), None);
    }

    #[test]
    fn backends_have_a_program_and_a_way_to_compute() {
        let names = [
            ("CUDA", "llama.cpp CUDA"),
            ("ik_llama.cpp:CPU", "ik_llama.cpp CPU"),
            ("ollama/llama.cpp GPU", "ollama GPU"),
            ("Vulkan (vulkan_radv)", "llama.cpp Vulkan vulkan_radv"),
            ("ROCm llama.cpp-hip", "llama.cpp ROCm hip"),
        ];
        for (name, ours) in names {
            assert_eq!(backend(name), ours);
        }
    }

    const REPORTS: &str = "source,hardware,backend,model,params_b,active_params_b,quant,test,n_tokens,batch,flash_attn,cuda_graphs,threads,tok_per_s,stddev\n";
    const DEVICES: &str = "hardware,kind,mem_bw_gbs,fp16_tflops,fp32_tflops,sm_count,l2_mb,mem_gb\n\
        G x2,gpu,500,,10,20,4,12\nP,cpu,,,,,,\n";

    fn of(rows: &str) -> Import {
        let dir = tempfile::tempdir().expect("folder");
        let (reports, devices) = (dir.path().join("r.csv"), dir.path().join("d.csv"));
        std::fs::write(&reports, format!("{REPORTS}{rows}")).expect("written");
        std::fs::write(&devices, DEVICES).expect("written");
        import(&reports, &devices).expect("read")
    }

    #[test]
    fn rows_become_runs_with_the_cards_figures_added_up() {
        let import = of("s,G x2,CUDA,m 8B,8,8,Q8_0,tg,128,1,1,0,4,100,2\n");
        let run = &import.runs[0];
        let hw = &run.trial.hardware;
        assert_eq!((hw.mem_gbps, hw.gflops), (Some(1000.0), Some(20_000.0)));
        assert_eq!((hw.cores, hw.memory_gb), (Some(40), Some(24.0)));
        assert_eq!(run.trial.model.weight_bytes, 8.5e9);
        assert_eq!(run.trial.test.to_string(), "tg128");
        assert_eq!(run.trial.setting("cuda-graphs"), Some("off"));
        assert_eq!(run.trial.setting("flash-attn"), Some("on"));
        assert_eq!(run.trial.setting("threads"), Some("4"));
        assert_eq!((run.stddev, run.repetitions), (Some(2.0), 1));
        assert_eq!((run.warm, run.unix_s), (None, None));
    }

    #[test]
    fn rows_that_cannot_be_are_left_out_and_counted() {
        let import = of("s,G x2,CUDA,m 8B,8,8,Q8_0,tg,128,1,,,,118,\n\
             s,G x2,CUDA,m 8B,8,8,Q8_0,tg,128,4,,,,200,\n\
             s,G x2,CUDA,m 8B,8,8,Q8_0,pp,512,1,,,,2000,\n\
             s,G x2,CUDA,m 70B,70,70,Q8_0,tg,128,1,,,,5,\n\
             s,P,CPU,m 8B,8,8,,tg,128,1,,,,5,\n\
             s,P,CPU,m 8B,8,8,Q8_0,tg,,1,,,,5,\n\
             s,P,CPU,m 8B,8,8,Q9_9,tg,16,1,,,,5,\n\
             s,P,CPU,m,,,Q8_0,tg,16,1,,,,5,\n\
             s,P,CPU,moe,16,,Q8_0,tg,16,1,,,,5,\n\
             s,P,CPU,m 8B,8,8,Q8_0,tg,16,1,,,,0,\n\
             s,Q,CPU,m 8B,8,8,Q8_0,tg,16,1,,,,5,\n");
        assert_eq!(
            import.to_string(),
            "2 of 11 rows taken, as 2 runs
  1 left out: a value out of range
  1 left out: active parameters of a mixture of experts not known
  1 left out: bytes of the quantisation not known
  1 left out: faster than the bandwidth allows
  1 left out: hardware not in the table
  1 left out: length of the test not reported
  1 left out: number of parameters not reported
  1 left out: quantisation not reported
  1 left out: weights larger than the memory of the hardware named: it was not alone"
        );
    }

    #[test]
    fn reports_of_one_trial_are_one_run() {
        let row = |source: &str, rate: u32| {
            format!("{source},P,CPU,m 8B,8,8,Q8_0,tg,16,1,,,,{rate},0.5\n")
        };
        let import = of(&[row("s", 4), row("t", 5), row("s", 6), row("s", 8)].concat());
        assert_eq!((import.rows, import.merged, import.runs.len()), (4, 2, 2));
        let run = &import.runs[0];
        assert_eq!(
            (run.tok_s, run.stddev, run.repetitions),
            (6.0, Some(2.0), 3)
        );
    }

    #[test]
    fn gpt_oss_is_mxfp4_in_every_file() {
        let import = of("s,P,CPU,gpt-oss-20b-F16,20.91,3.6,F16,tg,16,1,,,,5,\n\
             s,P,CPU,gpt-oss 120B,116.83,5.1,MXFP4,tg,16,1,,,,5,\n");
        let models = import.runs.iter().map(|r| &r.trial.model);
        let bytes: Vec<_> = models
            .map(|m| (m.quant.as_str(), (m.weight_bytes / 1e7).round()))
            .collect();
        assert_eq!(bytes, [("MXFP4", 371.0), ("MXFP4", 355.0)]);
    }

    #[test]
    fn wrong_tables_are_named() {
        let dir = tempfile::tempdir().expect("folder");
        let path = dir.path().join("x.csv");
        for text in ["", "a,b\n1,2\n", "hardware,kind\nX,gpu,7\n"] {
            std::fs::write(&path, text).expect("written");
            if let Err(e) = import(&path, &path) {
                assert!(e.to_string().contains("x.csv"), "{e}");
            } else {
                assert!(text.is_empty());
            }
        }
    }
}
