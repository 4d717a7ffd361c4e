//! `serve`: a server in this process, until a signal ends it.

use std::sync::mpsc;

use anyhow::{Error, Result};
use frieze_base::{Fault, Reason};
use frieze_client::{Gateway, Options, Recorder};
use frieze_console::{Audience, Console, ConsoleOptions};
use frieze_hdfs::{Calls, HdfsGateway, HdfsOptions, Trust};
use frieze_node::{Server, Settings};
use nix::sys::signal::{SigSet, Signal};
use rustix::fs::Mode;
use serde_json::json;

use crate::args::ServeArgs;
use crate::failure::{ClusterEnded, ServerRemoved};
use crate::notify;
use crate::run::CommandRun;

/// A thread that panics may leave half a change behind its locks, and other threads would wait for it: the process ends
/// instead, and the next start recovers.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// `frieze serve`.
pub(crate) fn serve(run: &mut CommandRun, args: &ServeArgs) -> Result<()> {
    abort_on_panic();
    // Before any thread is made: each inherits that these are for us to wait for.
    let signals = stop_signals();
    signals.thread_block()?;
    // Files that libraries create below the data directory, too, are for its owner alone.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);

    let mut settings = Settings::load(args.config.as_deref())?;
    settings.dir.clone_from(&args.dir);
    if !args.listen.is_empty() {
        settings.listen.clone_from(&args.listen);
    }
    for (setting, given) in [
        (&mut settings.join, &args.join),
        (&mut settings.name, &args.name),
        (&mut settings.site, &args.site),
        (&mut settings.machine, &args.machine),
        (&mut settings.advertise, &args.advertise),
        (&mut settings.metrics, &args.metrics),
        (&mut settings.hdfs, &args.hdfs),
        (&mut settings.hdfs_data, &args.hdfs_data),
        (&mut settings.webhdfs, &args.webhdfs),
        (&mut settings.console, &args.console),
        (&mut settings.fabric, &run.common.fabric),
        (&mut settings.fabric_address, &run.common.fabric_address),
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
    if let Some(mib) = args.names_memory {
        settings.names_bytes_max = mib.saturating_mul(1 << 20);
    }
    settings.image_percent = args.image_space.unwrap_or(settings.image_percent);
    settings.image_pieces_max = args.image_pieces.unwrap_or(settings.image_pieces_max);
    settings.hdfs_trust_names |= args.hdfs_trust_names;
    settings.console_public |= args.console_public;
    let audience = if settings.console_public { Audience::Public } else { Audience::ThisMachine };
    let trust = if settings.hdfs_trust_names { Trust::Names } else { Trust::Kernel };
    let at = |address: &String| (!address.is_empty()).then(|| address.clone());
    let (hdfs, data, webhdfs) = (at(&settings.hdfs), settings.hdfs_data.clone(), at(&settings.webhdfs));
    let console = at(&settings.console);
    let notes = settings.dir.join("hdfs-leases");
    let dir = settings.dir.display().to_string();
    // Printed whole: the message names the directory, the address or the setting.
    let server = Server::start(settings).map_err(|fault| match fault.reason {
        Reason::Removed => ServerRemoved(fault.message).into(),
        Reason::WrongVersion => Error::msg(format!("{dir}: {}", fault.message)),
        _ => Error::msg(fault.message),
    })?;
    let admission = || server.admission();
    let hdfs = hdfs.map(|listen| HdfsOptions { listen, data, trust, notes: Some(notes), admission: admission() });
    let webhdfs = webhdfs.map(|listen| frieze_http::WebHdfsOptions { listen, trust, admission: admission() });
    let console = console.map(|listen| ConsoleOptions { listen, audience, admission: admission() });
    let wanted = WantedGateways { hdfs, webhdfs, console };
    let addresses = server.addresses();
    let (pid, metrics) = (std::process::id(), server.metrics_address());
    if let Some(address) = &metrics {
        tracing::info!("figures for Prometheus are at http://{address}/metrics");
    }
    let recorder = run.recorder();
    if let Ok(Some(recorder)) = &recorder {
        server.parts().planes.data.device().record(recorder.clone());
    }
    let opened = recorder.and_then(|trace| Gateways::open(&wanted, &server, trace.as_ref()));
    let doors = match opened {
        Ok(doors) => doors,
        Err(error) => {
            server.stop()?;
            return Err(error);
        }
    };
    let hdfs = doors.hdfs.as_ref().map(|door| format!("hdfs://{}", door.address()));
    let webhdfs = doors.web.as_ref().map(|door| format!("http://{}/webhdfs/v1", door.address()));
    let console = doors.console.as_ref().map(|door| format!("http://{}/", door.address()));
    if let Some(url) = &hdfs {
        tracing::info!("Hadoop clients find the file system at {url}");
    }
    if let Some(url) = &webhdfs {
        tracing::info!("WebHDFS clients find the file system at {url}");
    }
    if let Some(url) = &console {
        tracing::info!("the console is at {url}; `frieze console login` signs a browser in");
    }
    run.item(
        || {
            json!({
                "ready": true, "addresses": addresses, "dir": dir, "pid": pid, "metrics": metrics, "hdfs": hdfs,
                "webhdfs": webhdfs, "console": console,
            })
        },
        || Some(format!("ready {}", addresses.join(" "))),
    )?;
    run.flush()?;
    notify::ready(&format!("serving on {}", addresses.join(" ")));

    let end = await_end(&server, signals)?;
    notify::stopping("flushing everything");
    // Acknowledged writes of its clients are in the server before that stops.
    drop(doors);
    server.stop()?;
    match end {
        ServeEnd::Signal => Ok(()),
        ServeEnd::Removed(fault) if fault.reason == Reason::WrongCluster => Err(ClusterEnded(fault.message).into()),
        ServeEnd::Removed(fault) => Err(ServerRemoved(format!("this server has ended: {}", fault.message)).into()),
    }
}

/// Why a server ends.
enum ServeEnd {
    Signal,
    /// It was removed, or its cluster has ended.
    Removed(Fault),
}

/// Waits until a signal comes, or the server is none of its cluster any more.
fn await_end(server: &Server, signals: SigSet) -> Result<ServeEnd> {
    let (send, ended) = mpsc::channel();
    let removed = send.clone();
    // If the receiver is gone, the process is ending already.
    server.on_removal(move |fault| drop(removed.send(Ok(ServeEnd::Removed(fault)))));
    std::thread::Builder::new().name("frieze-signals".to_owned()).spawn(move || {
        let end = signals.wait().map(|signal| {
            tracing::info!(signal = signal.as_str(), "stopping");
            ServeEnd::Signal
        });
        drop(send.send(end));
    })?;
    Ok(ended.recv()??)
}

/// The doors of this process for foreign protocols. Dropped, they are closed.
struct Gateways {
    // First: it uses the calls of the other.
    web: Option<frieze_http::WebHdfsGateway>,
    hdfs: Option<HdfsGateway>,
    console: Option<Console>,
}

/// The doors that the options and settings ask for.
struct WantedGateways {
    hdfs: Option<HdfsOptions>,
    webhdfs: Option<frieze_http::WebHdfsOptions>,
    console: Option<ConsoleOptions>,
}

impl Gateways {
    /// Lets Hadoop clients in, and those by HTTP, and browsers. A file has one writer at the first two.
    fn open(wanted: &WantedGateways, server: &Server, trace: Option<&Recorder>) -> Result<Gateways> {
        let secret = || server.secret_for(frieze_hdfs::TOKENS);
        let client = |command: String, gateway| Options {
            trace: trace.cloned(),
            gateway,
            server: server.home(),
            in_process: Some(server.in_process()),
            command,
            connections_max: DOOR_CONNECTIONS_MAX,
            ..Options::default()
        };
        let hdfs = wanted
            .hdfs
            .as_ref()
            .map(|options| {
                HdfsGateway::open(options, secret(), client(frieze_hdfs::session_of(server.node()), Gateway::Hdfs))
            })
            .transpose()?;
        let open = |options| {
            frieze_http::WebHdfsGateway::open(options, |at| match &hdfs {
                Some(door) => Ok(door.calls()),
                None => Calls::connect(
                    client("webhdfs-door of frieze serve".to_owned(), Gateway::WebHdfs),
                    secret(),
                    at,
                    None,
                ),
            })
        };
        let web = wanted.webhdfs.as_ref().map(open).transpose()?;
        let open = |options| Console::open(options, client("console of frieze serve".to_owned(), Gateway::Library));
        let console = wanted.console.as_ref().map(open).transpose()?;
        Ok(Gateways { web, hdfs, console })
    }
}

/// The signals that end a server or a mount in an orderly way.
pub(crate) fn stop_signals() -> SigSet {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        signals.add(signal);
    }
    signals
}

/// Transfers of Hadoop clients that may be under way at one time; each has a connection to the server while it waits
/// for it.
const DOOR_CONNECTIONS_MAX: usize = 512;
