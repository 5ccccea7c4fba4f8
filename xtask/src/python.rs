// SPDX-License-Identifier: MIT OR Apache-2.0
//! The private Python environment for checks that run stock binaries.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::paths;
use crate::process::{self, ExternalError, external, run_checked};

const INSTALL_LIMIT: Duration = Duration::from_secs(600);

/// Runs the tests of `command` with pytest, all or some. Prints failures with an external cause,
/// which are no errors: a missing program, or a failed download.
pub(crate) fn pytest(
    name: &str,
    missing: Option<String>,
    command: impl FnOnce() -> Result<Command>,
    tests: &[String],
) -> Result<()> {
    if let Some(missing) = missing {
        println!("SKIP {name}: needs the program {missing}, which this machine does not have");
        return Ok(());
    }
    match command() {
        Ok(mut python) => run_checked(python.args(["-m", "pytest"]).args(tests)),
        Err(error) if error.chain().any(|cause| cause.is::<ExternalError>()) => {
            println!("SKIP-EXTERNAL {name}: {error:#}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// The start of a command line of Python in the directory `name` of the tests.
pub(crate) fn command(name: &str) -> Result<Command> {
    let mut command = Command::new(environment()?);
    command
        .current_dir(paths::root().join("tests").join(name))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // On a busy machine spinning threads would take many times as long.
        .env("OPENBLAS_NUM_THREADS", "1");
    Ok(command)
}

/// Sets up the environment if it is missing; returns its Python.
fn environment() -> Result<PathBuf> {
    let directory = paths::target().join("venv");
    let (python, stamp) = (directory.join("bin/python"), directory.join("complete"));
    let requirements = paths::root().join("tests/requirements.txt");
    let wanted = fs::read_to_string(&requirements).context("reading the requirements")?;
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) {
        return Ok(python);
    }
    println!("installing numpy, pytest and libraries that read models into target/venv");
    let mut create = Command::new("python3");
    create.args(["-m", "venv", "--clear"]).arg(&directory);
    process::run(&create, INSTALL_LIMIT)?
        .checked("python3 -m venv")
        .context("is the package python3-venv installed?")?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"])
        .args(["install", "-r"])
        .arg(&requirements);
    process::run(&pip, INSTALL_LIMIT)
        .and_then(|output| output.checked("pip install"))
        .map_err(|error| external(&error))?;
    fs::write(&stamp, wanted).context("writing the stamp")?;
    Ok(python)
}
