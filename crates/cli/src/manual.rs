//! `completion` and `man`: the command line as scripts for shells and as manual pages.
//!
//! Guarantees: both are made of the same description as `--help`, so they name every option; the same build writes the
//! same bytes. Leaves to others: where a system looks for them (`scripts/packages.py`).

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use serde_json::json;

use crate::args::{Cli, CompletionArgs, ManArgs, ShellArg};
use crate::run::CommandRun;

/// `frieze completion`.
pub(crate) fn completion(run: &mut CommandRun, args: &CompletionArgs) -> Result<()> {
    let shell = match args.shell {
        ShellArg::Bash => Shell::Bash,
        ShellArg::Zsh => Shell::Zsh,
        ShellArg::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "frieze", &mut script);
    run.bytes(&script)
}

/// `frieze man`.
pub(crate) fn man(run: &mut CommandRun, args: &ManArgs) -> Result<()> {
    let dir = args.dir.as_path();
    std::fs::create_dir_all(dir).with_context(|| format!("the directory {} cannot be made", dir.display()))?;
    let pages = pages();
    for (name, page) in &pages {
        let path = dir.join(format!("{name}.1"));
        std::fs::write(&path, page).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let line = || Some(format!("{} pages in {}", pages.len(), shown(dir)));
    run.item(|| json!({ "dir": shown(dir), "pages": pages.len() }), line)
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

/// The whole command line, with the options that `bench` parses by itself.
pub(crate) fn command_line() -> Command {
    let bench = frieze_bench::BenchOptions::command().name("bench").bin_name("frieze bench");
    let mut command = Cli::command().mut_subcommand("bench", |_| bench);
    command.build();
    command
}

/// Every manual page with its name, parents first.
fn pages() -> Vec<(String, Vec<u8>)> {
    let mut pages = Vec::new();
    collect(&command_line(), "frieze", "", &mut pages);
    pages
}

fn collect(command: &Command, name: &str, parent: &str, pages: &mut Vec<(String, Vec<u8>)>) {
    pages.push((name.to_owned(), page(command, name, parent)));
    let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
    for command in below {
        collect(command, &format!("{name}-{}", command.get_name()), name, pages);
    }
}

/// The page of `command`; options of every command are in the page of `frieze` alone.
fn page(command: &Command, name: &str, parent: &str) -> Vec<u8> {
    let mut command = command.clone().display_name(name).disable_help_subcommand(true);
    if !parent.is_empty() {
        command = command.mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
    }
    let usage = command.render_usage().to_string();
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let subcommands = command.get_subcommands().any(|below| below.get_name() != "help");
    let options = command.get_arguments().any(|arg| !arg.is_hide_set());
    let source = format!("frieze {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).title(name.to_uppercase()).source(source).manual("frieze");

    let mut page = Vec::new();
    let written = "a vector takes every byte";
    man.render_title(&mut page).expect(written);
    man.render_name_section(&mut page).expect(written);
    let mut synopsis = Roff::new();
    synopsis.control("SH", ["SYNOPSIS"]).text([bold(usage.trim_start_matches("Usage:").trim())]);
    synopsis.to_writer(&mut page).expect(written);
    man.render_description_section(&mut page).expect(written);
    if options {
        man.render_options_section(&mut page).expect(written);
    }
    if subcommands {
        man.render_subcommands_section(&mut page).expect(written);
    }
    let mut sections = Roff::new();
    let _ends = after.map(|text| sections_of(&text, &mut sections));
    let also = match parent {
        "" => "frieze-serve(1), frieze-mount(1)".to_owned(),
        "frieze" => "frieze(1) for the options of every command".to_owned(),
        _ => format!("frieze(1) for the options of every command, {parent}(1)"),
    };
    sections.control("SH", ["SEE ALSO"]).text([roman(also)]);
    sections.to_writer(&mut page).expect(written);
    page
}

/// The end of a help text as sections: a line `Examples:` or `JSON: ...` is a heading, indented lines keep their form.
fn sections_of(text: &str, out: &mut Roff) {
    let mut is_kept = false;
    for line in text.lines() {
        let keeps = line.starts_with(' ');
        if keeps != is_kept && !line.is_empty() {
            out.control(if keeps { "nf" } else { "fi" }, []);
            is_kept = keeps;
        }
        if line.is_empty() {
            out.control("PP", []);
        } else if let Some(heading) = line.strip_suffix(':').filter(|_| !keeps) {
            out.control("SH", [heading.to_uppercase().as_str()]);
        } else if let Some(fields) = line.strip_prefix("JSON: ") {
            out.control("SH", ["JSON"]).text([roman(fields)]);
        } else {
            out.text([roman(line)]);
        }
    }
    if is_kept {
        out.control("fi", []);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(name: &str) -> String {
        let page = pages().into_iter().find(|(found, _)| found == name).map(|(_, page)| page);
        String::from_utf8(page.unwrap_or_else(|| panic!("there is a page {name}"))).unwrap()
    }

    #[test]
    fn every_command_has_a_page_with_its_own_options() {
        let serve = page_of("frieze-serve");
        assert!(serve.starts_with(".ie"), "{serve}");
        assert!(serve.contains("\\-\\-hdfs\\-trust\\-names"), "{serve}");
        assert!(!serve.contains("\\-\\-durability"), "options of every command are in frieze(1)");
        assert!(page_of("frieze").contains("\\-\\-durability"));
        assert!(page_of("frieze-bench").contains("seq\\-write"), "bench parses its arguments by itself");
        assert!(page_of("frieze-snapshot-create").contains("frieze\\-snapshot(1)"));
    }

    #[test]
    fn examples_keep_their_lines() {
        let serve = page_of("frieze-serve");
        let examples = serve.split(".SH EXAMPLES").nth(1).expect("serve has examples");
        assert!(examples.starts_with("\n.nf\n  frieze serve \\-\\-dir /srv/frieze\n"), "{examples}");
        assert!(examples.contains(".fi\n"), "{examples}");
    }

    #[test]
    fn a_line_that_begins_with_a_dot_is_text() {
        let mut out = Roff::new();
        sections_of("Examples:\n  x\n\n.at is text\n", &mut out);
        assert!(out.render().ends_with(".SH EXAMPLES\n.nf\n  x\n.PP\n.fi\n\\&.at is text\n"), "{}", out.render());
    }
}
