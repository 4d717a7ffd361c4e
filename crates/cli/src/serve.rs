//! `serve`: a server in this process, until a signal ends it.

use anyhow::{Error, Result};
use frieze_node::{Server, Settings};
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

use crate::args::Serve;
use crate::run::Run;

/// `frieze serve`.
pub(crate) fn serve(run: &mut Run, args: &Serve) -> Result<()> {
    // Before any thread is made: each inherits that these are for us to wait for.
    let signals = stop_signals();
    signals.thread_block()?;

    let mut settings = Settings::load(args.config.as_deref())?;
    settings.dir.clone_from(&args.dir);
    if !args.listen.is_empty() {
        settings.listen.clone_from(&args.listen);
    }
    for (setting, given) in [
        (&mut settings.join, &args.join),
        (&mut settings.name, &args.name),
        (&mut settings.site, &args.site),
        (&mut settings.advertise, &args.advertise),
    ] {
        if let Some(given) = given {
            setting.clone_from(given);
        }
    }
    if let Some(mib) = args.memory {
        settings.memory_bytes_max = mib.saturating_mul(1 << 20);
    }
    if let Some(mib) = args.index_memory {
        settings.index_bytes_max = mib.saturating_mul(1 << 20);
    }
    settings.image_percent = args.image_space.unwrap_or(settings.image_percent);
    settings.image_pieces_max = args.image_pieces.unwrap_or(settings.image_pieces_max);
    // Told whole: the message names the directory, the address or the setting.
    let server = Server::start(settings).map_err(|fault| Error::msg(fault.message))?;
    let addresses = server.addresses();
    let pid = std::process::id();
    run.item(
        || json!({ "ready": true, "addresses": addresses, "dir": args.dir.display().to_string(), "pid": pid }),
        || Some(format!("ready {}", addresses.join(" "))),
    )?;
    run.flush()?;

    let signal = signals.wait()?;
    tracing::info!(signal = signal.as_str(), "stopping");
    server.stop()?;
    Ok(())
}

/// The signals that end a server or a mount in an orderly way.
pub(crate) fn stop_signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    signals
}
