//! Text files of the workspace.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[".git", "target", "node_modules", "proptest-regressions", "__fuzz__"];
/// Files that hold text, by the end of their name.
const TEXT: &[&str] =
    &["rs", "md", "toml", "txt", "sh", "py", "yml", "yaml", "json", "html", "css", "js", "Makefile", "run"];

/// Text files below `folder`.
pub(crate) fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be listed", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), into)?;
        } else if TEXT.contains(&name.rsplit('.').next().unwrap_or_default()) {
            into.push(entry.path());
        }
    }
    Ok(())
}
