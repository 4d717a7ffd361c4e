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
//! numbered in its session and runs once, however often it has to be sent; the session outlives a restart of the server.
//! The newest stamp seen travels with every request, so a client reads its own writes and what caused them.
//! Leaves to others: what a request means (the server), the `.at` names (`fuse`), the words of a person (`cli`).

mod acl;
mod buffers;
mod call;
mod client;
mod closing;
mod connection;
mod error;
mod file;
mod fs;
mod grants;
mod holding;
mod open_files;
mod options;
mod patience;
mod pool;
mod posting;
mod room;
mod servers;
mod session;
mod sharing;
mod space;
mod stream;
mod timeline;
mod together;

pub use acl::AccessLists;
pub use client::Client;
pub use connection::cluster_at;
pub use error::Error;
pub use file::File;
pub use file::LOSS_LOG;
pub use frieze_base::{ByteRange, ErrorKind, Fault, InodeId, NodeId, Reason, SessionId};
pub use frieze_hlc::{Hlc, Instant, UserTime, ZonePolicy};
pub use frieze_net::{
    Admission, Key, Lies, Lot, NOBODY, Origin, PrivateFile, PrivateFileError, Proof, Refused, Seat, Seldom, ServerAddr,
    host_name, mono, send_unpaced, tcp_proof, user_of,
};
pub use frieze_wire::Holds;
pub use frieze_wire::acl::{ACCESS_ACL_XATTR, ACL_ENTRIES_MAX, Acl, AclNamedEntry, DEFAULT_ACL_XATTR, Rights, is_acl};
pub use frieze_wire::edit::{ActionKind, EditAction, EditReply, Undo};
pub use frieze_wire::forget::{ForgetReply, ForgottenFile, ForgottenHistory, SnapshotLoss};
pub use frieze_wire::holding::{LockKind, LockOutcome, LockRange, RecallsReply};
pub use frieze_wire::message::{
    Attr, ClusterChain, ClusterNodeStatus, ClusterOp, ClusterReply, ClusterTargetStatus, DirEntry, Durability,
    FileKind, HelloReply, ImageStatus, InstantInfo, ListReply, LogReply, MemoryUse, NowReply, PATH_XATTR, Snapshot,
    StatReply, StatusReply, Trouble, TxnReply, Version, VersionKind, View, WriteReply,
};
pub use frieze_wire::quota::{QUOTA_XATTR, Quota, TreeUsage, USAGE_XATTR};
pub use frieze_wire::scrub::{Finding, FindingKind, ScrubAction, ScrubReply, ScrubState};
pub use frieze_wire::timeline::{
    ChangedSpan, DeletedObject, DeletedReply, DiffReply, Difference, LastSeenReply, SessionInfo, SessionsReply, Side,
    StoryReply, UsageReply,
};
pub use frieze_wire::txn::{Caller, SetAttr, Special, Target, TimeValue};
pub use frieze_wire::writers::FileWriter;
pub use fs::{CreateMode, Fs, OpenFlags, RenameMode, XattrMode};
pub use holding::{Granted, Parents, Recaller};
/// What differs beside a name: bits of [`Difference::flags`].
pub mod flags {
    pub use frieze_wire::timeline::{ACL, CONTENT, MODE, OWNER, REPLACED, TIMES, XATTRS};
}

pub use options::Options;
pub use room::Room;
pub use sharing::ForgetOptions;
pub use timeline::Interval;
pub use together::Part;
