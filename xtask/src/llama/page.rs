// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured sections of docs/llama.md.

use std::fs;

use anyhow::{Context, Result};

use crate::generated::replace_section;
use crate::paths;

/// Sections that were measured, by name.
#[derive(Debug, Default)]
pub(super) struct MeasuredSections(Vec<(&'static str, String)>);

impl MeasuredSections {
    /// Prints a section and remembers it.
    pub(super) fn section(&mut self, name: &'static str, content: String) {
        println!("{}\n", content.trim_end());
        self.0.push((name, content));
    }

    /// Puts all of them in their places.
    pub(super) fn write(&self) -> Result<()> {
        let path = paths::root().join("docs/llama.md");
        // Not before all is measured: the page may have changed meanwhile.
        let mut text = fs::read_to_string(&path).context("reading docs/llama.md")?;
        for (name, content) in &self.0 {
            // A blank line, without which Markdown takes a table for text.
            text = replace_section(&text, name, &format!("\n{content}"))?;
        }
        fs::write(&path, text).context("writing docs/llama.md")
    }
}
