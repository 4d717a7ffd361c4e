//! The command that advises.

use std::path::PathBuf;

use clap::Args;

/// What would make this load faster or cheaper, and the command that does it
///
/// Looks at a trace, or without one at the rings of this user, and simulates the server's memory under the load by the
/// server's own code. For each topic it prints what to change, what that gains, and how sure it is; then the topics
/// that promise nothing. It changes nothing. What other hardware would do says 'frieze what-if'.
///
/// Topics: memory of the server, its share for young records, programs that wait for stable storage or write little
/// pieces, the history of short-lived files, images of old pages.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze advise                               from what programs recorded with --trace-ring
  frieze advise ~/traces/monday               from a trace, for the server that answers
  frieze advise ~/traces/monday --memory 8G   for a server with 8 GiB for everything
  frieze advise trace --json | jq -r 'select(.command) | .command'

JSON: one line a topic: topic, change, gain, points, command, confidence, because; null where there is nothing to do.")]
pub(crate) struct AdviseArgs {
    /// Directory of a trace [default: the rings of this user].
    #[arg(value_name = "TRACE")]
    pub(crate) trace: Option<PathBuf>,

    /// Memory of the server for everything [default: what the server says; without a server half of this machine's].
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
}
