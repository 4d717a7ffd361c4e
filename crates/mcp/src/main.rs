//! `frieze-mcp`: undo, restore and history for agents, as tools of the Model Context Protocol.
//!
//! An agent that edits files calls `checkpoint` before a change, `changes` and `diff` to see what came of it, `undo` to
//! take back one session's part of it, `restore` and `read_at` to go back. A client of the protocol starts this program
//! and talks to it over its standard input and output.
//!
//! Guarantees: an answer is bounded, and says how to continue; `undo` and `restore` show a plan first, unless the call
//! says `dry_run: false`; a tool reaches only what lies below `--root`; a failure is a sentence that names the object
//! and the next step, as the result of the tool. Leaves to others: what an undo is (the server), the protocol (`rmcp`).
//!
//! The protocol's library runs on tokio, in this process only (ADR 3, ADR 89): one thread for messages, and blocking
//! threads for calls of the client library.

mod answers;
mod arguments;
mod command_line;
mod error;
mod page_cursor;
mod scoped_path;
mod tool_context;
mod tools;
mod words;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Parser;
use rmcp::ServiceExt;
use rmcp::transport::stdio_pipes;

use crate::command_line::CommandLine;
use crate::tool_context::ToolContext;
use crate::tools::ToolServer;

/// Calls that run at once; further ones wait. A model has few under way.
const CALLS_MAX: usize = 16;

fn main() -> ExitCode {
    let options = CommandLine::parse();
    // Standard output belongs to the protocol.
    tracing_subscriber::fmt()
        .with_env_filter(options.log_filter())
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    match serve(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If standard error is closed there is no receiver.
            let _ = writeln!(io::stderr(), "frieze-mcp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &CommandLine) -> anyhow::Result<()> {
    let context = Arc::new(ToolContext::new(options.client_options()?, options.scope()?, options.access()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(CALLS_MAX)
        .build()
        .context("the threads for calls cannot be started")?;
    let served = runtime.block_on(async {
        let running = ToolServer::new(context.clone()).serve(stdio_pipes()).await.context(
            "no client of the Model Context Protocol is at standard input: 'frieze-mcp --help' shows how one starts it",
        )?;
        running.waiting().await.context("the conversation ended early")
    });
    runtime.shutdown_background();
    context.close();
    served.map(drop)
}
