//! `cbtop tune run`.

use clap::Args;
use std::path::PathBuf;

/// `cbtop tune run`.
#[derive(Debug, Clone, Args)]
pub struct RecipeArgs {
    /// Recipe in YAML; its paths are relative to its folder.
    #[arg(value_name = "FILE")]
    pub recipe: PathBuf,
    /// Print what would run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
}
