//! What a package takes from the command line's description: `completion` and `man`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print the completion script of a shell.
///
/// The script completes commands, options and their values, and names of local files. It is written to standard output;
/// packages of frieze install it for all three shells.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze completion bash >~/.local/share/bash-completion/completions/frieze
  frieze completion zsh >~/.zfunc/_frieze              with fpath+=~/.zfunc before compinit in ~/.zshrc
  frieze completion fish >~/.config/fish/completions/frieze.fish
  source <(frieze completion bash)                     in this shell only")]
pub(crate) struct CompletionArgs {
    /// Shell that reads the script.
    #[arg(value_name = "SHELL")]
    pub(crate) shell: ShellArg,
}

/// Shell that a completion script is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellArg {
    Bash,
    Zsh,
    Fish,
}

/// Write the manual pages.
///
/// Writes a page for each command into DIR, which is created if it does not exist: frieze.1, frieze-serve.1 and so on.
/// The text is that of --help. Packages of frieze install the pages.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze man --dir ~/.local/share/man/man1             then: man frieze-serve
  frieze man --dir /tmp/pages && man -l /tmp/pages/frieze.1

JSON: dir, pages (their number).")]
pub(crate) struct ManArgs {
    /// Directory for the pages.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
}
