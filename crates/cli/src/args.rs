//! The command line: every subcommand, option and help text. No decision is made here.
//!
//! Paths and instants stay text in this module: they are checked by `path` and `past`, whose words are clearer than
//! those of a parser.

mod advise;
mod analyze;
mod attributes;
mod care;
mod cluster;
mod console;
mod files;
mod instants;
mod load;
mod manual;
mod retention;
mod sharing;
mod timeline;
mod top;
mod trace;
mod watch;
mod what_if;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use advise::AdviseArgs;
pub(crate) use analyze::{AnalyzeArgs, EngineArg};
pub(crate) use attributes::{ChmodArgs, ChownArgs, TouchArgs};
pub(crate) use care::{ExportArgs, FsckArgs, ScrubArgs};
pub(crate) use cluster::{AddDeviceArgs, ClusterArgs, ClusterCommand, Goal, WaitArgs};
pub(crate) use console::{ConsoleAddressArgs, ConsoleCommand};
pub(crate) use files::{
    CatArgs, CopyOptions, CpArgs, DfArgs, DuArgs, GetArgs, LnArgs, LsArgs, MkdirArgs, MvArgs, PutArgs, RmArgs,
    RmdirArgs, SetQuotaArgs, StatArgs,
};
pub(crate) use instants::{NowArgs, SnapshotCommand, TimeCommand};
pub(crate) use load::{LoadCommand, LoadMessagesArgs};
pub(crate) use manual::{CompletionArgs, ManArgs, ShellArg};
pub(crate) use retention::{RetentionCommand, RetentionPreviewArgs, RetentionSetArgs, RetentionShowArgs};
pub(crate) use sharing::{CloneTreeArgs, ForgetArgs, RestoreArgs, SessionArg, UndoArgs};
pub(crate) use timeline::{DiffArgs, FindArgs, LogArgs, OldIntervals, RunWithArgs, SessionsArgs};
pub(crate) use top::TopArgs;
pub(crate) use trace::{
    TraceCommand, TraceExportArgs, TraceExportFormat, TraceImportArgs, TraceImportFormat, TraceListArgs, TraceSaveArgs,
    TraceSummaryArgs,
};
pub(crate) use watch::WatchArgs;
pub(crate) use what_if::{ModelArg, OnFlashHitArg, PolicyArg, WhatIfArgs, WritesArg};

/// The default server.
pub(crate) const SERVER_DEFAULT: &str = "127.0.0.1:7470";

/// A file system that can be read at any instant of its past.
///
/// `frieze serve` runs a server on a directory, `frieze mount` shows it as ordinary files, and the other commands work
/// on paths in the file system without a mount. Such a path is absolute and has no `..`: `/reports/may.txt`. Every
/// change is kept, so every command that reads takes `--at INSTANT` and answers as of then.
#[derive(Debug, Parser)]
#[command(name = "frieze", version = env!("FRIEZE_VERSION"), max_term_width = 100)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Run 'frieze COMMAND --help' for what a command does, its examples and its JSON fields.")]
#[command(after_long_help = "\
Examples:
  frieze serve --dir /srv/frieze          run a server; keeps running
  echo v1 | frieze put - /report.txt      store a file
  frieze cat /report.txt --at 30s-ago     read it as it was half a minute ago
  frieze ls -l / --at yesterday           what was in a directory, deleted files included
  frieze mount /mnt/f                     mount it; the past is in /mnt/f/.at/30s-ago/

Instants (--at, .at in a mount):
  2026-11-21T10:00:00.123Z      a time with its zone, to the microsecond
  2026-11-21T10:00:00           in the zone of this machine; the UTC used is printed
  20261121T100000.123Z          the same without colons
  @1439845200.1                 seconds since 1970
  5m-ago                        us, ms, s, m, h, d or w ago
  yesterday                     24 hours ago
  hlc-660c66c7a2800fff          the exact stamp that 'frieze now' and 'frieze log' print
  last-whole                    the newest instant at which everything was whole at the last crash
  before-upgrade                the name of a saved snapshot

Exit status:
  0  everything asked for was done
  1  something failed: one line each on stderr; with several paths the others are done
  2  the command line is wrong; nothing was done
  3  of 'serve': the server was removed from its cluster
  4  of 'serve': the cluster of the server has ended, and was recovered from another server
  130  of 'what-if': Ctrl-C ended it early; the answer has the systems that were done

Environment:
  FRIEZE_SERVER  as --server, by default 127.0.0.1:7470
  FRIEZE_KEY     as --key
  FRIEZE_CLIENT  file with what is not given otherwise, by default $XDG_CONFIG_HOME/frieze/client.toml or
                 /etc/frieze/client.toml: server = \"db1:7470,db2:7470\", key = \"/etc/frieze/key\"
  FRIEZE_LOG     what is logged on stderr: error, warn, info, debug, trace, or frieze_node=debug")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads a command line, the program's name first.
    ///
    /// # Errors
    /// The error, or the requested help.
    pub(crate) fn read<T: Into<OsString> + Clone>(typed: impl IntoIterator<Item = T>) -> Result<Cli, clap::Error> {
        let matches = Cli::command().try_get_matches_from(typed)?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        let source = matches.value_source("server");
        cli.common.server_typed = source == Some(ValueSource::CommandLine);
        cli.common.server_told = source != Some(ValueSource::DefaultValue);
        Ok(cli)
    }
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct CommonArgs {
    /// Server to ask: HOST:PORT, or unix:PATH of its socket. Of several, separated by commas, the first that answers.
    #[arg(long, global = true, value_name = "ADDR,...", env = "FRIEZE_SERVER", default_value = SERVER_DEFAULT)]
    #[arg(hide_env_values = true)]
    pub(crate) server: String,

    /// True if the server was named on the command line, not by the environment or by default.
    #[arg(skip)]
    pub(crate) server_typed: bool,

    /// True if it was named there or by the environment.
    #[arg(skip)]
    pub(crate) server_told: bool,

    /// Print JSON: one document, or one line an item. Field names stay the same from version to version; numbers of
    /// 2^53 and above are strings.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When a change is acknowledged: async (the server has it in memory: a crash of the server does not lose it, a
    /// loss of power within its next moments may) or sync (it is on stable storage).
    #[arg(long, global = true, value_name = "WHEN", default_value = "async", hide_possible_values = true)]
    pub(crate) durability: DurabilityArg,

    /// File with the line NAME:SECRET of a key in the server's settings: proves the identity of a caller on another
    /// machine.
    #[arg(long, global = true, value_name = "FILE", env = "FRIEZE_KEY", hide_env_values = true)]
    pub(crate) key: Option<PathBuf>,

    /// Fabric for the payloads of large reads and writes, where both ends have it: auto (RDMA hardware that libfabric
    /// knows, if there is any), none, or a provider as fi_info lists it, such as 'verbs;ofi_rxm'. Everything else goes
    /// by TCP.
    #[arg(long, global = true, value_name = "PROVIDER", env = "FRIEZE_FABRIC", hide_env_values = true)]
    pub(crate) fabric: Option<String>,

    /// IP address of this machine on the fabric's network [default: the provider's choice].
    #[arg(long, global = true, value_name = "IP", env = "FRIEZE_FABRIC_ADDRESS", hide_env_values = true)]
    pub(crate) fabric_address: Option<String>,

    /// Seconds to retry while the server is unreachable.
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) timeout: u32,

    /// Record the calls of this command, mount or gateway into this directory, as a trace that 'frieze analyze' reads:
    /// a new one, or one that was recorded before and goes on.
    #[arg(long = "trace", global = true, value_name = "DIR", env = "FRIEZE_TRACE", hide_env_values = true)]
    pub(crate) trace_into: Option<PathBuf>,

    /// Size of that trace at most, such as 10G: its oldest hours are removed.
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        env = "FRIEZE_TRACE_MAX",
        hide_env_values = true,
        default_value = "10G"
    )]
    pub(crate) trace_max: String,

    /// Record the calls of this command, mount or gateway in a file of this size, such as 256M: the newest stay. See
    /// 'frieze trace --help'.
    #[arg(long, global = true, value_name = "SIZE", env = "FRIEZE_TRACE_RING", hide_env_values = true)]
    pub(crate) trace_ring: Option<String>,

    /// Directory of that file [default: $XDG_STATE_HOME/frieze/trace].
    #[arg(long, global = true, value_name = "DIR", env = "FRIEZE_TRACE_DIR", hide_env_values = true)]
    pub(crate) trace_dir: Option<PathBuf>,

    /// Send spans of requests to a collector of traces by OTLP over HTTP, such as http://127.0.0.1:4318: of this command,
    /// mount or server, and with a server's own --otlp down the chains. See docs/operating.md.
    #[arg(long, global = true, value_name = "URL", env = "FRIEZE_OTLP", hide_env_values = true)]
    pub(crate) otlp: Option<String>,

    /// Share of the requests that is sampled: 0.01 is one of a hundred. A sampled request is sampled everywhere.
    #[arg(
        long,
        global = true,
        value_name = "SHARE",
        env = "FRIEZE_OTLP_SHARE",
        hide_env_values = true,
        default_value_t = 0.01
    )]
    pub(crate) otlp_share: f64,

    /// Print details on stderr: the instant used, its precision, and whether it was stable.
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,

    /// No progress bars.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// When a change is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DurabilityArg {
    Async,
    Sync,
}

/// Which past is read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Reading the past")]
pub(crate) struct PastArgs {
    /// Read as of this instant, such as 5m-ago or 2026-11-21T10:00:00Z ('frieze --help' lists the forms).
    #[arg(long, value_name = "INSTANT")]
    pub(crate) at: Option<String>,

    /// Cut every file at this time of its own data, written as an instant (files need a time plug-in: 'frieze time').
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) user_at: Option<String>,

    /// If policies of retention do not keep that instant, read the newest before it that all of them keep, and say
    /// which.
    #[arg(long, requires = "at")]
    pub(crate) nearest: bool,
}

/// `--at` where it makes no sense: taken only to be refused in clear words.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct NoPastArgs {
    #[arg(long, value_name = "INSTANT", hide = true)]
    pub(crate) at: Option<String>,
    #[arg(long, value_name = "TIME", hide = true, allow_hyphen_values = true)]
    pub(crate) user_at: Option<String>,
}

/// The subcommands, in the order of `--help`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<ServeArgs>),
    Mount(MountArgs),
    Umount(UmountArgs),
    Ls(LsArgs),
    Stat(StatArgs),
    Cat(CatArgs),
    Put(PutArgs),
    Get(GetArgs),
    Cp(CpArgs),
    Mv(MvArgs),
    Ln(LnArgs),
    Rm(RmArgs),
    Mkdir(MkdirArgs),
    Rmdir(RmdirArgs),
    Chmod(ChmodArgs),
    Chown(ChownArgs),
    Touch(TouchArgs),
    Du(DuArgs),
    Df(DfArgs),
    Quota(SetQuotaArgs),
    Log(LogArgs),
    Watch(WatchArgs),
    Clone(CloneTreeArgs),
    Restore(RestoreArgs),
    Undo(UndoArgs),
    Forget(ForgetArgs),
    #[command(subcommand)]
    Retention(RetentionCommand),
    Diff(DiffArgs),
    Find(FindArgs),
    Sessions(SessionsArgs),
    Run(RunWithArgs),
    Now(NowArgs),
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    #[command(subcommand)]
    Time(TimeCommand),
    Sync(SyncArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Scrub(ScrubArgs),
    #[command(subcommand)]
    Trace(TraceCommand),
    WhatIf(WhatIfArgs),
    #[command(subcommand)]
    Load(LoadCommand),
    Analyze(AnalyzeArgs),
    Advise(AdviseArgs),
    Cluster(ClusterArgs),
    #[command(subcommand)]
    Console(ConsoleCommand),
    Fsck(FsckArgs),
    Export(ExportArgs),
    Bench(BenchArgs),
    Completion(CompletionArgs),
    Man(ManArgs),
}

/// Make everything written so far durable.
///
/// Returns when every acknowledged change, made through this command, a mount or a program, is on the server's stable
/// storage. A PATH must exist; one barrier covers everything, so it only names the object of interest.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze sync                     everything
  frieze sync /journal.txt        fails if there is no such file
  sync /mnt/f/journal.txt         the same through a mount, without this command

JSON: one line a path: path, durable (the stamp up to which everything is on stable storage).")]
pub(crate) struct SyncArgs {
    /// Files or directories [default: everything].
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,

    #[command(flatten)]
    pub(crate) no_past: NoPastArgs,
}

/// Run a server on a directory.
///
/// Stores the whole file system and its past in DIR, which is created if it does not exist. Prints a line that starts
/// with `ready` and the addresses as soon as it serves, and runs until SIGTERM or SIGINT; then it completes the
/// requests under way, makes everything durable and stops. It may be killed at any moment: what was acknowledged is
/// there at the next start.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("hadoop").multiple(true).args(["hdfs", "webhdfs"])))]
#[command(after_long_help = "\
Examples:
  frieze serve --dir /srv/frieze
  frieze serve --dir /srv/frieze --listen 127.0.0.1:0        any free port; the ready line names it
  frieze serve --dir /srv/frieze --listen 127.0.0.1:7470 --listen unix:/run/frieze.sock
  frieze serve --dir /srv/frieze --metrics 9470              curl http://127.0.0.1:9470/metrics
  frieze serve --dir /srv/frieze --hdfs 127.0.0.1:8020       hdfs dfs -ls hdfs://127.0.0.1:8020/
  frieze serve --dir /srv/frieze --webhdfs 127.0.0.1:9870
      curl -L 'http://127.0.0.1:9870/webhdfs/v1/logs/today?op=OPEN'
  frieze serve --dir /srv/frieze --console 127.0.0.1:9880    then 'frieze console login' prints a link
  FRIEZE_LOG=debug frieze serve --dir /srv/frieze 2>frieze.log

Without keys in the configuration the server refuses to listen beyond this machine.

JSON: one line when ready: ready (true), addresses, dir, pid, metrics (the address of the figures, or null), hdfs, \
webhdfs, console (URLs, or null).")]
pub(crate) struct ServeArgs {
    /// Directory that holds everything.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Address to listen on: HOST:PORT (port 0: any free one) or unix:PATH; may be given several times
    /// [default: 127.0.0.1:7470].
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<String>,

    /// Join the cluster of the server at ADDR as one more server; a single server at ADDR becomes the first of a new
    /// cluster. DIR has to be empty; a server that is already a member continues as the same node. Several addresses,
    /// separated by commas, are tried in turn.
    #[arg(long, value_name = "ADDR,...")]
    pub(crate) join: Option<String>,

    /// Name of this server in its cluster [default: the name of the machine]. Fixed when it joins.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The site that it stands at: copies of the same data are spread over sites. Fixed when it joins.
    #[arg(long, value_name = "SITE")]
    pub(crate) site: Option<String>,

    /// The machine that it runs on: no two copies of the same data are placed on one machine as long as there are
    /// others. The servers of one machine, one for each disk, give the same name [default: the name of the machine].
    /// Fixed when it joins.
    #[arg(long, value_name = "MACHINE")]
    pub(crate) machine: Option<String>,

    /// Where the other servers and the clients reach it [default: the first address it listens on].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) advertise: Option<String>,

    /// Serve Prometheus metrics at http://ADDR/metrics: HOST:PORT, or a PORT of this machine. Not authenticated
    /// [default: none].
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,

    /// Serve unmodified Hadoop clients at hdfs://HOST:PORT, such as 127.0.0.1:8020. The kernel identifies a
    /// local client, so ADDR has to be an address of this machine alone [default: none].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) hdfs: Option<String>,

    /// Port for the data of Hadoop clients; in a cluster the same at every server, where their clients find the others
    /// when one is lost [default: port 9866 of the host of --hdfs].
    #[arg(long, value_name = "HOST:PORT", requires = "hdfs")]
    pub(crate) hdfs_data: Option<String>,

    /// Serve HTTP clients by Hadoop's WebHDFS at http://HOST:PORT/webhdfs/v1/PATH?op=..., such as 127.0.0.1:9870: curl,
    /// and Hadoop's webhdfs://. Users as with --hdfs [default: none].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) webhdfs: Option<String>,

    /// Trust the user name that clients of --hdfs and --webhdfs on other machines send, except root, as HDFS does
    /// without Kerberos: only for networks where every user is trusted.
    #[arg(long, requires = "hadoop")]
    pub(crate) hdfs_trust_names: bool,

    /// Serve a web page at http://HOST:PORT/, such as 127.0.0.1:9880: files with a time slider, history, restore and
    /// undo, the cluster. `frieze console login` signs a browser in [default: none].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) console: Option<String>,

    /// Let browsers of other machines in to the console. Nothing that they send and see is encrypted: only for networks
    /// that are trusted.
    #[arg(long, requires = "console")]
    pub(crate) console_public: bool,

    /// Settings file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Memory for everything, including the kernel's copies of files, in MiB [default: half of the machine's]. With
    /// less, more is read from the disk; with too little the server prints how much it needs. `frieze status` shows its
    /// use.
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u64>,

    /// Part of the memory for the index of history, in MiB [default: a quarter, 1024 at most]. The unused part of a
    /// larger index stays on disk.
    #[arg(long, value_name = "MIB")]
    pub(crate) index_memory: Option<u64>,

    /// Part of the memory for names and inodes, in MiB [default: an eighth]. Those that were not used for long stay on
    /// disk beyond it.
    #[arg(long, value_name = "MIB")]
    pub(crate) names_memory: Option<u64>,

    /// Space for images of pages that were written in many small pieces, in percent of the history [default: 10]; 0 for
    /// none. They make reads of such states quick.
    #[arg(long, value_name = "PERCENT")]
    pub(crate) image_space: Option<u32>,

    /// Of how many pieces a page of 64 KiB may consist at any instant before it gets an image [default: 16].
    #[arg(long, value_name = "COUNT")]
    pub(crate) image_pieces: Option<u32>,
}

/// Mount the file system.
///
/// Shows the file system as ordinary files at MOUNTPOINT, an existing directory, and goes to the background once it is
/// mounted. Every directory has a hidden `.at` with its past: `.at/5m-ago/`, `.at/2026-11-21T10:00:00Z/`,
/// `.at/SNAPSHOT/`, `.at/user-TIME/`. With `--at` the whole mount shows one instant and is read-only.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze mount /mnt/f
  cat /mnt/f/.at/30s-ago/report.txt       the file as it was half a minute ago
  ls /mnt/f/.at                           saved snapshots
  frieze mount /mnt/monday --at 2026-11-16T09:00:00Z
  frieze mount -o suid,dev /mnt/root      for a tree of programs and devices, as root
  frieze mount -o remount,nosuid /mnt/root
  frieze umount /mnt/f

JSON: one line when mounted: mounted (true), mountpoint, server, pid, at, at_time; when remounted: remounted (true), \
mountpoint.")]
pub(crate) struct MountArgs {
    /// Directory to mount on.
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoint: PathBuf,

    /// Stay in the foreground until unmounted or interrupted.
    #[arg(long)]
    pub(crate) foreground: bool,

    /// Where the background mount keeps its log; without it the log is dropped.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,

    /// Allow other users of this machine to use the mount. The default where root mounts; others need user_allow_other
    /// in /etc/fuse.conf.
    #[arg(long)]
    pub(crate) allow_other: bool,

    /// Rules for programs and devices on it, and for changes, in the words of mount(8); `remount` changes those of an
    /// existing mount. Only root may give suid, dev and remount. Without them: nosuid, nodev, exec, rw.
    #[arg(short = 'o', long, value_name = "OPTIONS", value_delimiter = ',')]
    pub(crate) options: Vec<MountFlag>,

    /// Set by `frieze mount` for the process it starts: leave the terminal once mounted.
    #[arg(long, hide = true)]
    pub(crate) detach: bool,

    #[command(flatten)]
    pub(crate) past: PastArgs,
}

/// A word of `mount -o`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MountFlag {
    /// Programs run with their set-user-id and set-group-id bits.
    Suid,
    /// They do not.
    Nosuid,
    /// Device files act as devices.
    Dev,
    /// They do not.
    Nodev,
    /// Programs run.
    Exec,
    /// They do not.
    Noexec,
    /// Everything can be changed that the caller may change.
    Rw,
    /// Nothing can be changed.
    Ro,
    /// Below `.at`, an instant that policies of retention do not keep is a link to the newest before it that they keep.
    Nearest,
    /// Changes the mount that is there.
    Remount,
}

/// Unmount the file system.
///
/// Takes the mount away and ends its background process. A mount in use is refused, unless `--lazy` is given: then the
/// name goes at once and the rest when the last user is done.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze umount /mnt/f
  frieze umount --lazy /mnt/f

JSON: one line a mountpoint: unmounted.")]
pub(crate) struct UmountArgs {
    /// Mountpoints.
    #[arg(value_name = "MOUNTPOINT", required = true)]
    pub(crate) mountpoints: Vec<PathBuf>,

    /// Detach now, clean up when it is no longer in use.
    #[arg(short, long)]
    pub(crate) lazy: bool,
}

/// Show how the server is.
///
/// Shows the state of the server that is named with --server, and of its cluster as far as that server knows it. Prints
/// its health (each trouble, and its remedy: with this server, a server that is away, copies or a majority that are
/// missing), the error bound of its clock, which instants can be read (earliest to stable), what is not yet on stable
/// storage, space, damage that a scrub has found, and intervals that a crash lost. Exits with 1 if it is not healthy.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze status
  frieze status --json | jq .dirty_bytes

JSON: health, healthy, troubles (a list of what, remedy), fenced, server, software, cluster, uptime_ms, \
clock_error_us, newest, newest_time, earliest,
earliest_time, stable, stable_time, durable, durable_time, dirty_bytes, dirty_age_ms, flushes,
flush_bytes_median, capacity_bytes, free_bytes, log_bytes, forgotten_bytes, forgotten_waiting_bytes, packs, \
packed_bytes, unpacked_dead_bytes, thinning_files_left, index_bytes, \
index_bytes_max, shelved_records, shelf_bytes, memory (an
object of bytes: bytes_max, and for its parts what they may hold, *_bytes_max, and hold, *_bytes; what of older \
records was
found in memory, *_hit_bytes, and not, *_missed_bytes; \
names_cold_bytes, names_loads; admitted, evicted, refused, healed, unbounded), images (count, \
bytes, bytes_max, pieces_max, pieces_most, looked_upto,
looked_upto_time, wishes, lost), fabric (provider, trouble, writes, reads, server_reads, bytes, failures, \
registered_bytes, registrations; null if the settings exclude it), \
records, inodes, sessions, connections, metalog_index, resident_bytes, \
resident_bytes_peak, cpu_ns, damaged, corrupt_reads, scrub_due, scrub_due_time, scrubbed, scrubbed_time, last_whole, \
last_whole_time, gaps (a list of from, from_time, to, to_time).")]
pub(crate) struct StatusArgs {}

/// Measure the file system beside the machine's own ceiling.
///
/// Runs a load and prints its figure, the ceiling of this machine measured in the same run (loopback, disk, memory),
/// the ratio, and the processor time and memory of client and server.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "Run 'frieze bench --help' for the scenarios and their options.")]
pub(crate) struct BenchArgs {
    /// Scenario and its options.
    #[arg(value_name = "SCENARIO", trailing_var_arg = true, allow_hyphen_values = true, num_args = 0..)]
    pub(crate) args: Vec<OsString>,
}
