//! The command line: which server, which tree, and whether it may be changed.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use frieze_client::{Key, Options, PrivateFile, ServerAddr};
use tracing_subscriber::EnvFilter;

use crate::scoped_path::ToolScope;
use crate::tool_context::ToolAccess;

/// Undo, restore and history of frieze for agents, over the Model Context Protocol.
///
/// A client of the protocol (an editor, an agent, a chat program) starts frieze-mcp and talks to it over standard input
/// and output. Its tools: checkpoint, changes, diff, undo, restore, read_at, history, sessions. Run each agent, or each
/// turn of an agent, by `frieze run --name NAME`, so that its changes are a session that can be undone by itself.
#[derive(Debug, Parser)]
#[command(name = "frieze-mcp", version, max_term_width = 100)]
#[command(after_long_help = "\
A client's configuration (most clients read this form of it):

  {
    \"mcpServers\": {
      \"frieze\": {
        \"command\": \"frieze-mcp\",
        \"args\": [\"--server\", \"127.0.0.1:7470\", \"--root\", \"/project\", \"--mount\", \"/mnt/f\"]
      }
    }
  }

An agent's turn as a session, which undo finds by its name:

  frieze run --name turn-12 -- my-agent \"rename the module\"

docs/mcp.md describes each tool with an example.")]
pub(crate) struct CommandLine {
    /// Server to ask: HOST:PORT, or unix:PATH of its socket. Of several, separated by commas, the first that answers.
    #[arg(long, value_name = "ADDR,...", env = "FRIEZE_SERVER", default_value = "127.0.0.1:7470")]
    #[arg(hide_env_values = true)]
    server: String,

    /// File with the line NAME:SECRET of a key in the server's settings: proves the identity of a caller on another
    /// machine.
    #[arg(long, value_name = "FILE", env = "FRIEZE_KEY", hide_env_values = true)]
    key: Option<PathBuf>,

    /// The tree that the tools reach: a directory of the file system. Paths outside it are refused, and a symbolic link
    /// does not lead out of it.
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: String,

    /// Where the file system is mounted for the agent: tools then accept paths below DIR, too, as the agent knows them.
    #[arg(long, value_name = "DIR")]
    mount: Option<String>,

    /// Refuse undo, restore and names of checkpoints: only look.
    #[arg(long)]
    read_only: bool,

    /// Seconds to retry while the server is unreachable.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    timeout: u32,
}

impl CommandLine {
    /// What is logged on standard error: `FRIEZE_LOG`, by default warnings.
    pub(crate) fn log_filter(&self) -> EnvFilter {
        let asked = std::env::var("FRIEZE_LOG").ok().filter(|text| !text.is_empty());
        asked.and_then(|text| EnvFilter::try_new(text).ok()).unwrap_or_else(|| EnvFilter::new("warn"))
    }

    /// How the client library connects.
    ///
    /// # Errors
    /// If an address or the key file cannot be read as one.
    pub(crate) fn client_options(&self) -> Result<Options> {
        let mut servers = ServerAddr::parse_list(&self.server).map_err(|error| anyhow::anyhow!("--server {error}"))?;
        let key = self.key.as_ref().map(|file| {
            let secret = PrivateFile::read_secret(file).with_context(|| format!("--key {}", file.display()))?;
            let line = secret.text.trim().split_once(':').map(|(name, secret)| Key::new(name, secret));
            let Some(Ok(key)) = line else {
                bail!("--key {}: expected one line NAME:SECRET, the secret of at least 16 characters", file.display());
            };
            Ok(key)
        });
        Ok(Options {
            server: servers.remove(0),
            others: servers,
            key: key.transpose()?,
            timeout: Duration::from_secs(self.timeout.into()),
            prefers_socket: true,
            ..Options::default()
        })
    }

    /// The tree that tools reach.
    ///
    /// # Errors
    /// If `--root` or `--mount` is no plain absolute path.
    pub(crate) fn scope(&self) -> Result<ToolScope> {
        Ok(ToolScope::new(&self.root, self.mount.as_deref())?)
    }

    /// Whether tools may change the tree.
    pub(crate) fn access(&self) -> ToolAccess {
        if self.read_only { ToolAccess::ReadOnly } else { ToolAccess::ReadWrite }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_has_a_configuration_that_is_json() {
        CommandLine::command().debug_assert();
        let help = CommandLine::command().render_long_help().to_string();
        let (start, end) = (help.find("  {\n").unwrap(), help.find("\n  }\n").unwrap());
        let found: serde_json::Value = serde_json::from_str(&help[start..end + 4]).unwrap();
        let args = &found["mcpServers"]["frieze"]["args"];
        let typed =
            std::iter::once("frieze-mcp").chain(args.as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
        let options = CommandLine::try_parse_from(typed).unwrap();
        assert_eq!((options.root.as_str(), options.mount.as_deref()), ("/project", Some("/mnt/f")));
        options.client_options().unwrap();
        options.scope().unwrap();
    }
}
