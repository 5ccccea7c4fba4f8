// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes man pages and shell completions, for packages.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::base::exit::{Failure, Verdict};
use crate::cmd::command_line::Flags;

/// Sections of all man pages, in their markup.
const SECTIONS: &str = r#".SH "EXIT STATUS"
.TP
0
the result is right, or the command did its work
.TP
1
a result differs, a board does not work, or a program has errors
.TP
2
the command line or an input file is wrong
.TP
3
the device is missing or not usable
.TP
4
the device or its driver failed
.TP
5
the output could not be written
.SH ENVIRONMENT
.TP
ROCKET_DEVICE
the device to use without \-\-device: a path, model, or auto
.TP
ROCKET_PROFILE
the profile of the board, before all other places
.TP
XDG_CONFIG_HOME
the directory of the user's configuration, instead of ~/.config
.TP
NPU_THREADS
threads of the CPU that pack and unpack, as bench \-\-threads
.TP
NO_COLOR
no colours
.TP
RUST_LOG
what the libraries log, such as trace
.SH FILES
.TP
/dev/accel/accel*
the NPU
.TP
~/.config/rocket\-npu/profile.json
the profile that calibrate and first write
.TP
/etc/rocket\-npu/profile.json
a profile for all users
"#;

/// The folder of `npu-probe manual FOLDER`, if this is the command line.
pub(crate) fn folder() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    words.next().filter(|word| word == "manual")?;
    words.next().map(PathBuf::from)
}

/// Writes the files into `folder`, with their installed names.
pub(crate) fn run(folder: &Path) -> Result<Verdict, Failure> {
    write(folder).map_err(Failure::output(format!(
        "writing into {}",
        folder.display()
    )))?;
    Ok(Verdict::Pass)
}

fn write(folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Flags::command(), folder)?;
    for page in fs::read_dir(folder)? {
        let page = page?.path();
        let name = page.file_name().and_then(|name| name.to_str());
        // Another program's pages may be there.
        if name.is_some_and(|name| name.starts_with("npu-probe") && name.ends_with(".1")) {
            let mut page = OpenOptions::new().append(true).open(page)?;
            page.write_all(SECTIONS.as_bytes())?;
        }
    }
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        clap_complete::generate_to(shell, &mut Flags::command(), "npu-probe", folder)?;
    }
    Ok(())
}
