//! The client library: paths, handles and views of time.
//!
//! ```no_run
//! use frieze_client::{Client, CreateMode, Options, Target, ZonePolicy};
//!
//! # fn main() -> Result<(), frieze_client::Error> {
//! let client = Client::connect(Options::default())?;
//! let fs = client.fs();
//! let file = fs.create(&Target::path("/report.txt"), 0o644, CreateMode::OpenExisting)?;
//! file.write_at(0, b"v1")?;
//! file.close()?;
//!
//! let then = client.resolve("30s-ago", ZonePolicy::Local)?;
//! for entry in fs.at(then).entries(&Target::path("/"))? {
//!     println!("{}", String::from_utf8_lossy(&entry.name));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Guarantees: blocking, safe to share between threads. A call has a connection to itself while it lasts. A change is
//! numbered in its session and runs once, however often it is sent; the session survives a restart of the server.
//! Every request carries the newest stamp received, so a client reads its own writes and their causes.
//! Leaves to others: what a request means (the server), the `.at` names (`fuse`), commands and their text (`cli`).

mod acl;
mod atomic_write;
mod buffers;
mod cache_leases;
mod change_waits;
mod client;
mod client_core;
mod close;
mod connect;
mod connection;
mod deferred;
mod error;
mod fabric_conn;
mod file;
mod free_space;
mod fs;
mod interval;
mod modes;
mod open_files;
mod options;
mod pool;
mod recaller;
mod request;
mod retry;
mod route;
mod rpc;
mod sequence;
mod servers;
mod session_name;
mod sessions;
mod sharing;
mod space;
mod stream;
mod timeline;
mod trace;
mod watch;
mod write_grants;

pub use acl::AccessLists;
pub use atomic_write::WritePart;
pub use cache_leases::{CacheLease, ChangedParents};
pub use client::Client;
pub use connection::cluster_at;
pub use error::Error;
pub use file::File;
pub use file::read::LOSS_LOG;
pub use free_space::FreeSpace;
pub use frieze_base::{ByteRange, ErrorKind, Fault, InodeId, NodeId, Reason, SessionId};
pub use frieze_hlc::{Hlc, Instant, UserTime, ZonePolicy};
pub use frieze_net::{
    AcceptedConnection, Acceptor, Admission, AdmissionError, ConnectionHandler, FileRange, Guest, Key, LogThrottle,
    NOBODY, Origin, PayloadPart, PrivateFile, PrivateFileError, Proof, Seat, ServerAddr, host_name, mono, send_unpaced,
    tcp_proof, user_of,
};
pub use frieze_trace::{CallKind, CallScope, EventFlags, Gateway, Program, Recorder, RingSettings, Tracer};
pub use frieze_wire::Holds;
pub use frieze_wire::acl::{ACCESS_ACL_XATTR, ACL_ENTRIES_MAX, Acl, AclNamedEntry, DEFAULT_ACL_XATTR, Rights, is_acl};
pub use frieze_wire::edit::{ActionKind, EditAction, EditReply, FileRights, Undo};
pub use frieze_wire::forget::{ForgetReply, ForgottenFile, ForgottenHistory, SnapshotLoss};
pub use frieze_wire::holding::{LockKind, LockOutcome, LockRange, RecallsReply};
pub use frieze_wire::message::{
    Attr, ClusterChain, ClusterNodeStatus, ClusterOp, ClusterReply, ClusterTargetStatus, DirEntry, Durability,
    FabricStatus, FileKind, Gap, HelloReply, ImageStatus, InstantInfo, ListReply, LogReply, MemoryUse, NowReply,
    PATH_XATTR, Snapshot, StatReply, StatusReply, Trouble, TxnReply, Version, VersionKind, View, WriteReply,
};
pub use frieze_wire::mode::{ModeAction, ModeChange};
pub use frieze_wire::quota::{QUOTA_XATTR, Quota, QuotaUse, TreeUsage, USAGE_XATTR};
pub use frieze_wire::retention::{RetainedClass, RetainedInstant, RetentionPreview, RetentionReply};
pub use frieze_wire::scrub::{Finding, FindingKind, ScrubAction, ScrubReply, ScrubState};
pub use frieze_wire::timeline::{
    ChangedSpan, DeletedObject, DeletedReply, DiffReply, Difference, LastExistedReply, SessionInfo, SessionsReply,
    Side, StoryReply, UsageDirectory, UsageReply,
};
pub use frieze_wire::txn::{Caller, SetAttr, Special, Target, TimeValue};
pub use frieze_wire::writers::FileWriter;
pub use fs::Fs;
pub use interval::HistoryInterval;
pub use modes::{CreateMode, OpenFlags, RenameMode, XattrMode};
/// Bits of [`Difference::flags`]: what differs beside a name.
pub mod flags {
    pub use frieze_wire::timeline::{ACL, CONTENT, MODE, OWNER, REPLACED, TIMES, XATTRS};
}

pub use options::{Options, fabric_named};
pub use recaller::Recaller;
pub use session_name::{SessionName, SessionNameError};
pub use sharing::{ForgetOptions, RightsChange};
pub use watch::{ChangeFeed, WatchItem};
