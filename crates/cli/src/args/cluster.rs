//! `cluster`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Look after the servers of a cluster.
///
/// A server is alone until another joins it: 'frieze serve --dir DIR --join ADDR' makes one more server of the cluster
/// that the server at ADDR belongs to. Names are kept by all servers, and ordered by one of them, the leader; the bytes
/// of files lie on chains of servers, each of which has a copy. When a server is lost, the others continue; when it
/// comes back, it syncs by itself.
///
/// NODE is the name of a server or the number that it got when it joined. Changes are for root, and the user that the
/// server runs as.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  frieze cluster status
  frieze cluster chains
  frieze cluster drain db3            its chains go to the others; then:
  frieze cluster remove db3
  frieze cluster balance on           every server gets its share
  frieze cluster wait --for whole     before and after a server is restarted
  frieze cluster add-device /disk2    one more disk of this machine

JSON of status: cluster, leader, told_by, version, replicas, copies_wanted (of every chain: replicas, or as many as \
there are
servers that are neither draining nor declared dead), balancing, whole (chains that have them all, and work), \
troubles (a list of what,
remedy), sync_bytes_per_s (what the server that answers gives
at most to syncing servers; 0: no limit), nodes (a list of node, name, machine, site, address,
state (up, draining, offline, or unknown: no leader is known and the answering server has had no recent contact with \
it),
metalog (voter, learner or joining, as far as the server that answers knows; null: none of these), lease_left_ms,
clock_offset_us, targets, serving, heads, to_drain, capacity_bytes, remains_chains, remains_bytes, incarnation, \
heartbeat, offline_since, last_contact,
trouble, disk_full, disk_failed), chains (a list of chain, epoch, waits,
waits_for, lost (null, or from and to: acknowledged writes between these stamps may be missing), targets (a list of \
node, state, left_bytes,
left_s, bytes_per_s)). 'nodes' and 'chains' print those, one a line.")]
pub(crate) struct ClusterArgs {
    /// The operation [default: status].
    #[command(subcommand)]
    pub(crate) what: Option<ClusterCommand>,
}

/// An operation on a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the cluster in a few lines; exits with 1 if it has a trouble, and prints the remedy.
    #[command(after_long_help = "Example:\n  frieze cluster status --json | jq .whole")]
    Status,
    /// The servers.
    #[command(
        after_long_help = "Example:\n  frieze cluster nodes\n\nMETALOG says whether the server votes, learns, or will \
            vote once it has caught up (joining); LEASE is how long the server may answer at most, CLOCK how far its \
            clock is from the leader's."
    )]
    Nodes,
    /// The chains, and their servers.
    #[command(after_long_help = "Example:\n  frieze cluster chains")]
    Chains,
    /// Let a server give its chains away, so that it can be removed.
    #[command(after_long_help = "Example:\n  frieze cluster drain db3")]
    Drain {
        /// Its name or number.
        node: String,
        /// Do not wait until it has none left.
        #[arg(long)]
        background: bool,
    },
    /// Let a server keep its copies.
    #[command(after_long_help = "Example:\n  frieze cluster undrain db3")]
    Undrain {
        /// Its name or number.
        node: String,
    },
    /// Take a drained server out of the cluster, for good.
    #[command(after_long_help = "Example:\n  frieze cluster drain db3\n  frieze cluster remove db3")]
    Remove {
        /// Its name or number.
        node: String,
    },
    /// Declare that a server will not come back, nor the data that only it has
    ///
    /// Use it for an offline server whose disks are lost: its chains continue without it, and it is removed. The lease
    /// of a server that was lost just now has to end first: the command waits for that. Refused for a server that is
    /// online, and for one that alone has the newest data of some chain: the answer names those
    /// chains and the loss. If the disks are there, start that server again; nothing is lost then. With --accept-loss
    /// such chains resume from a stale copy, or empty; 'frieze cluster status' and 'frieze status' then report the
    /// loss, and reads of it are marked incomplete. If a majority of the servers that vote lost its memory, they elect
    /// no leader without that server; with --accept-loss they do, and the names that only it had are lost.
    #[command(
        after_long_help = "Examples:\n  frieze cluster declare-dead db3 --yes\n  frieze cluster declare-dead db3 \
            --yes --accept-loss   the data that only db3 had is lost"
    )]
    DeclareDead {
        /// Its name or number.
        node: String,
        /// Yes, its disks are lost.
        #[arg(long, required = true)]
        yes: bool,
        /// Also if no other server has the newest data of a chain: accept that it is lost.
        #[arg(long)]
        accept_loss: bool,
    },
    /// Recover a cluster from one server when its majority is lost for good
    ///
    /// Run it on the machine of a surviving server, while that server is stopped. Without --yes nothing is changed: it
    /// prints what is there. With several surviving servers, inspect each, and recover from the one whose metalog ends
    /// last (and has full copies of most chains); the others join it anew, with empty directories.
    ///
    /// With --yes --accept-loss that server is the only one of the cluster, and of every chain. It keeps all that it
    /// has. What the lost servers may have acknowledged beyond that is a gap: answers about instants in it, and reads
    /// of now of bytes that may be stale, are marked incomplete, and 'last-whole' is the instant before it. The cluster
    /// gets another identity: its former servers are refused for ever, mounts and clients connect anew. Be sure that
    /// the others are stopped, and stay so: a majority of them that is started again serves the old cluster beside this
    /// one. If their disks are there, start them instead: nothing is lost then. The others are contacted at their last
    /// addresses: if one answers, nothing is done. A copy of a directory becomes another cluster beside them with
    /// --copy. A server that is the only one of its cluster, because it was recovered before or because the others were
    /// removed, is refused: no majority is lost.
    #[command(
        after_long_help = "Examples:\n  frieze cluster recover --dir /var/lib/frieze                       what is \
            left; changes nothing\n  frieze cluster recover --dir /var/lib/frieze --yes --accept-loss   go on from \
            it\n  frieze cluster recover --dir /srv/copy --copy --yes --accept-loss  the copy is another \
            cluster\n\nJSON: cluster, node, name, others (a list of node, name, address, state, answers), voters, \
            is_sole, went_on_from (null, or cluster, at), known_entry, known, known_time, last_entry, last, \
            kept,\nchains (a list of chain, copy (full, stale, none), last, newest, whole), went_on (null, or \
            cluster, from, to)."
    )]
    Recover {
        /// Data directory of the server that is left.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Yes, recover from it.
        #[arg(long, requires = "accept_loss")]
        yes: bool,
        /// Accept that data which only the others had is lost.
        #[arg(long, requires = "yes")]
        accept_loss: bool,
        /// DIR is a copy, and the cluster may continue without it: answers of the other servers do not count.
        #[arg(long)]
        copy: bool,
    },
    /// Make a copy of the directory of a server that is alone another cluster.
    ///
    /// A copied directory is the same server to every client. This gives it an identity and a secret of its own; its
    /// files and its past stay. A copy of one of several members of a cluster becomes a cluster of its own by 'frieze
    /// cluster recover --copy'.
    #[command(after_long_help = "Example:\n  frieze cluster new-identity --dir /srv/copy --yes\n\nJSON: cluster.")]
    NewIdentity {
        /// Data directory of the copy.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Yes, it is a copy.
        #[arg(long, required = true)]
        yes: bool,
    },
    /// Let a server start on its directory after that was moved to another disk.
    ///
    /// A server of a cluster does not start on a copy of its directory: two would be one. This declares that the
    /// original is not used any more, and that nothing was written to it since it was copied.
    #[command(after_long_help = "Example:\n  frieze cluster moved --dir /disk2/frieze --yes")]
    Moved {
        /// Data directory, where it is now.
        #[arg(long, value_name = "DIR")]
        dir: PathBuf,
        /// Yes, the original is used no more.
        #[arg(long, required = true)]
        yes: bool,
    },
    /// Move chains until every server has its share, or stop that.
    #[command(after_long_help = "Example:\n  frieze cluster balance on")]
    Balance {
        /// on or off.
        #[arg(value_parser = ["on", "off"])]
        on: String,
    },
    /// Serve from one more disk of this machine.
    ///
    /// Every disk has a server of its own, so that a failing disk takes no other with it. This runs it, as 'frieze
    /// serve --dir DIR --join ...' would: it joins the cluster of the server at --server (or begins one with it), at
    /// the next free port of the same host, and is marked as a server of the same machine, so that two copies of the
    /// same bytes never share a machine as long as there are others. It runs until SIGTERM or SIGINT; started again
    /// with the same DIR it is the same server. Existing data moves to it only after 'frieze cluster balance on'. The
    /// servers of a machine share its memory: give each its part with --memory.
    #[command(
        after_long_help = "Examples:\n  frieze cluster add-device /disk2/frieze --memory 4096\n  frieze cluster \
            balance on\n\nJSON: as of 'frieze serve'."
    )]
    AddDevice(AddDeviceArgs),
    /// Wait until the cluster is as a script needs it.
    ///
    /// whole: every chain has all the wanted copies and works, and every online server has sent a heartbeat since the
    /// command began, so that one that was killed just now does not count. joined: the server NAME, or every one, is up
    /// and has a lease. drained: the server NAME has no copies left. Exits with 0 when the goal is reached, and with 1
    /// if it is not within --timeout seconds, or cannot be; what is still missing, including that no server answers, is
    /// printed on stderr whenever it changes (not with --quiet). A single server is whole.
    #[command(
        after_long_help = "Examples:\n  frieze cluster wait --for whole --timeout 600\n  frieze cluster wait --for \
            joined db4\n  frieze cluster wait --for drained db3 && frieze cluster remove db3\n\nJSON: as of 'frieze \
            cluster status', when it is so."
    )]
    Wait(WaitArgs),
    /// How many copies there are to be of everything, as far as there are servers.
    ///
    /// On a single server the number is kept for when others join it.
    #[command(after_long_help = "Example:\n  frieze cluster replicas 3")]
    Replicas {
        /// How many.
        #[arg(value_parser = clap::value_parser!(u32).range(1..=8))]
        count: u32,
    },
}

/// The goal of a wait.
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The goal.
    #[arg(long = "for", value_name = "WHAT", value_enum)]
    pub(crate) goal: Goal,

    /// Name or number of the server; required for drained.
    #[arg(value_name = "NAME", required_if_eq("goal", "drained"))]
    pub(crate) node: Option<String>,
}

/// How a cluster, or a server of it, is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Goal {
    /// Every chain has every copy.
    Whole,
    /// The server is up and has a lease.
    Joined,
    /// The server has nothing left to give away.
    Drained,
}

/// Options of the server of one more disk.
#[derive(Debug, Args)]
pub(crate) struct AddDeviceArgs {
    /// Directory on that disk that holds everything of it; made if it is not there.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Address to listen on [default: the next port of the server of this machine that has the highest].
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) listen: Option<String>,

    /// Name of the server [default: the name of the machine and that of DIR].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Its memory, as of 'frieze serve', in MiB.
    #[arg(long, value_name = "MIB")]
    pub(crate) memory: Option<u64>,

    /// Settings file (TOML).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}
