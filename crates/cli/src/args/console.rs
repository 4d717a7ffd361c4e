//! `console`.

use clap::{Args, Subcommand};

/// Sign a browser in to the console, the web page of `frieze serve --console`
///
/// The console knows you by this command's connection, as the kernel reports it; so the command runs on the machine of
/// the server, as the user that you are. From another machine, let the page through by ssh first.
#[derive(Debug, Subcommand)]
#[command(after_long_help = "\
Examples:
  frieze console login                print a link that signs a browser in
  frieze console logout               sign all of your browsers out")]
pub(crate) enum ConsoleCommand {
    Login(ConsoleLoginArgs),
    Logout(ConsoleLogoutArgs),
}

/// Print a link that signs a browser in, once, with your rights
///
/// Open the link within five minutes. The browser stays signed in until you sign out, or do not use it for twelve
/// hours, or the server is started again.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze console login
  frieze console login --console 127.0.0.1:9881
  ssh -L 9880:127.0.0.1:9880 SERVER frieze console login      open the link on this machine

JSON: url, user, uid, expires_s (seconds that the link works).")]
pub(crate) struct ConsoleLoginArgs {
    #[command(flatten)]
    pub(crate) address: ConsoleAddressArgs,
}

/// Sign all of your browsers out, and void links that were not used
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze console logout

JSON: user, uid, signed_out (how many browsers).")]
pub(crate) struct ConsoleLogoutArgs {
    #[command(flatten)]
    pub(crate) address: ConsoleAddressArgs,
}

/// Where the console is.
#[derive(Debug, Args)]
pub(crate) struct ConsoleAddressArgs {
    /// The address that `frieze serve --console` listens on.
    #[arg(long, value_name = "HOST:PORT", env = "FRIEZE_CONSOLE", default_value = frieze_console::DEFAULT_ADDRESS)]
    pub(crate) console: String,
}
