//! From flags to a checked configuration, the same for every command that runs a model.

use super::printable;
use crate::cli::{EngineArgs, FactArgs, LoadArgs, SamplerArgs};
use anyhow::{anyhow, bail};
use cbtop::engine::cpu::KernelSet;
use cbtop::engine::edit::Edits;
use cbtop::engine::knobs::Setup;
use cbtop::engine::sampler::SamplerConfig;
use cbtop::engine::{Config, Overflow, SyncMode};
use cbtop::gguf::{LoadMethod, LoadOptions};
use cbtop::session::{Loaded, Source};
use cbtop::trace::TraceError;
use cbtop::trace::overlay::Overlay;
use cbtop::trace::tracer::Tracer;
use cbtop::tuner::profile::Profile;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Opens a file, or the embedded demo where there is none.
pub fn load(model: Option<&Path>, args: &EngineArgs) -> anyhow::Result<Loaded> {
    let source = model.map_or(Source::Demo, |p| Source::File(p.into()));
    let options = match load_options(&args.load)? {
        None => profile_load(args)?,
        given => given,
    };
    let loaded = Loaded::open_with(source, options)?;
    for note in &loaded.outcome.notes {
        eprintln!("cbtop: {}", printable(&note));
    }
    Ok(loaded)
}

/// The profile that is to be started from, and where it is.
fn profile(args: &EngineArgs) -> anyhow::Result<Option<(Profile, &Path)>> {
    let Some(path) = &args.profile else {
        return Ok(None);
    };
    Ok(Some((Profile::read(path)?, path)))
}

/// How a profile has files loaded.
fn profile_load(args: &EngineArgs) -> anyhow::Result<Option<LoadOptions>> {
    let Some((profile, path)) = profile(args)? else {
        return Ok(None);
    };
    if profile.settings.iter().all(|s| s.knob != "load") {
        return Ok(None);
    }
    let setup = profile.apply(&defaults(), path)?;
    Ok(Some(setup.load))
}

/// A setup of any model.
fn defaults() -> Setup {
    Setup {
        config: Config::for_context(usize::MAX),
        load: LoadOptions::default(),
        sync_mode: SyncMode::Deferred,
    }
}

/// How far threads are kept in step: as the flag or the profile says.
pub fn sync_mode(flag: Option<SyncMode>, args: &EngineArgs) -> anyhow::Result<SyncMode> {
    if let Some(mode) = flag {
        return Ok(mode);
    }
    match profile(args)? {
        Some((profile, path)) => Ok(profile.apply(&defaults(), path)?.sync_mode),
        None => Ok(SyncMode::Deferred),
    }
}

/// How files are to be loaded, checked; `None` where no flag says.
pub fn load_options(args: &LoadArgs) -> anyhow::Result<Option<LoadOptions>> {
    if args.load.is_none() && args.load_advice.is_none() && !args.huge_pages {
        return Ok(None);
    }
    let method = args.load.unwrap_or_default();
    if method == LoadMethod::Mmap && args.huge_pages {
        bail!("--huge-pages needs --load read or direct: a mapped file cannot have huge pages");
    }
    if method != LoadMethod::Mmap && args.load_advice.is_some() {
        bail!(
            "--load-advice is about a mapped file, and --load {} makes a copy; give one of them",
            method.name()
        );
    }
    Ok(Some(LoadOptions {
        method,
        advice: args.load_advice.unwrap_or_default(),
        huge_pages: args.huge_pages,
    }))
}

/// The kernel set that `--backend` names.
pub fn kernels(name: &str) -> anyhow::Result<KernelSet> {
    match name {
        "auto" | "cpu" => {
            if let Some(note) = cbtop::engine::cpu::rejected_kernels() {
                eprintln!("cbtop: {note}");
            }
            Ok(KernelSet::best())
        }
        "cuda" => bail!(
            "--backend cuda: this version has no CUDA backend; these can run here: {}",
            KernelSet::available()
                .iter()
                .map(|k| k.name())
                .collect::<Vec<_>>()
                .join(", ")
        ),
        _ => name.parse().map_err(|e| anyhow!("--backend {name}: {e}")),
    }
}

/// The engine's knobs: the model's defaults with what the user set, checked; and the names of what was set.
pub fn config(
    args: &EngineArgs,
    loaded: &Loaded,
) -> anyhow::Result<(Config, BTreeSet<&'static str>)> {
    let mut config = loaded.config();
    let mut explicit = BTreeSet::new();
    let mut in_profile = BTreeSet::new();
    if let Some((profile, path)) = profile(args)? {
        let setup = Setup {
            config,
            ..defaults()
        };
        config = profile.apply(&setup, path)?.config;
        in_profile.extend(profile.settings.into_iter().map(|s| s.knob));
    }
    if args.backend != "auto" || !in_profile.contains("backend") {
        config.kernels = kernels(&args.backend)?;
    }
    if args.backend != "auto" {
        explicit.insert("backend");
    }
    let mut set = |name, value: Option<usize>, knob: &mut usize| {
        if let Some(value) = value {
            explicit.insert(name);
            *knob = value;
        }
    };
    set("threads", args.threads, &mut config.threads);
    set("ctx", args.ctx, &mut config.n_ctx);
    set("chunk", args.chunk, &mut config.chunk);
    set("keep", args.keep, &mut config.keep);
    if let Some(how) = args.overflow {
        explicit.insert("overflow");
        config.overflow = how;
    }
    let load = &args.load;
    if load.load.is_some() || load.load_advice.is_some() || load.huge_pages {
        explicit.insert("load");
    }
    if args.chunk.is_none() {
        let most = match config.overflow {
            Overflow::Stop => config.n_ctx,
            // Half of the ring, so that a chunk of a long prompt does not evict all that its first tokens refer to.
            Overflow::Ring => config.n_ctx.saturating_sub(config.keep) / 2,
        };
        config.chunk = config.chunk.min(most.max(1));
    }
    if args.keep.is_some() && config.overflow == Overflow::Stop {
        bail!("--keep is for a context that turns round; add --overflow ring");
    }
    if let Some(ty) = args.kv_type {
        explicit.insert("kv-type");
        config.kv_type = ty;
    }
    if let Some(how) = args.schedule {
        explicit.insert("schedule");
        config.schedule = how;
    }
    if let Some(sets) = &args.kernels_for {
        explicit.insert("kernels-for");
        config.kernels_for = sets.clone();
    }
    if let Some(how) = args.attention {
        explicit.insert("attention");
        config.attention = how;
    }
    if let Some(how) = args.waiting {
        explicit.insert("waiting");
        config.waiting = how;
    }
    if args.pin {
        explicit.insert("pin");
        config.pin = true;
    }
    if let Some(prefetch) = args.prefetch {
        explicit.insert("prefetch");
        config.prefetch = prefetch;
    }
    config.check()?;
    config.check_heads(&loaded.model.hparams)?;
    Ok((config, explicit))
}

/// The sampler, checked.
pub fn sampler(args: &SamplerArgs) -> anyhow::Result<SamplerConfig> {
    // A flag typed with a sign is a mistake; only the library takes it for "greedy".
    if args.temp < 0.0 {
        bail!("--temp is {}, expected 0 to 10000", args.temp);
    }
    let config = SamplerConfig {
        temperature: args.temp,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
    };
    config.check().map_err(|e| anyhow!(e))?;
    Ok(config)
}

/// The changes of the facts in force; the file must exist.
pub fn facts(args: &FactArgs, loaded: &Loaded) -> anyhow::Result<Option<Arc<Edits>>> {
    let Some(path) = &args.overlay else {
        return Ok(None);
    };
    let overlay = Overlay::open(path, &loaded.name(), &loaded.model)?;
    Ok(overlay.in_force(&loaded.model)?)
}

/// What runs statements on a model; the overlay's file may not exist yet.
pub fn tracer(loaded: &Loaded, overlay: Option<&Path>) -> Result<Tracer, TraceError> {
    let (model, tokenizer) = (Arc::clone(&loaded.model), Arc::clone(&loaded.tokenizer));
    Tracer::new(model, tokenizer, loaded.name(), overlay)
}
