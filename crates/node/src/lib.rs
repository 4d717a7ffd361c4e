//! The server process: drivers that run the cores.
//!
//! [`ServerParts`] owns the cores (`chain`, `multilog`, `metalog`, `namespace`, `hlc`) and answers one request at a
//! time on the calling thread; [`Server`] gives it sockets and threads. The simulator drives the same parts over
//! simulated disks and clocks.
//!
//! Guarantees: nothing acknowledged as durable is lost; no read at an instant changes its answer; no caller reads or
//! writes without the right to.
//!
//! The path of a request: `serve` (socket) → `service` (identity of the caller, the table of
//! requests, a handler) → `planes` (both planes at one instant) → `replication` (chains) and `metadata` (names).

mod archive;
mod control;
mod directory;
mod fsck;
mod majority;
mod metrics;
mod offline;
mod parts;
mod removal;
mod serve;
mod status;
mod successor;
mod survivor;

pub use archive::{Archive, Listed, MemberArchive, NamedXattr, Part};
pub use frieze_cluster::{ChainStatus as ChainHealth, ClusterState, ClusterStatus};
pub use frieze_metadata::{
    CheckpointStatus, LoadVersion, LostNames, LsmStore, MemoryStore, MetalogStatus, SegmentFiles, StoreBatch,
    StoreItem, StoreView, Unflushed, VersionStore, VisitItem,
};
pub use frieze_net::ReceivedPayload;
pub use frieze_net::{PeerPayload, Peers};
pub use frieze_planes::{KeySettings, PackLimits, Settings, no_wake};
pub use frieze_replication::{ChainEnd, ChainEvent};
pub use frieze_service::{CheckProgress, Checkup, Conn, KeyRight, Responder, Scratch, Steps};
pub use frieze_storage::FORMAT_VERSION;
pub use fsck::fsck;
pub use parts::{Joining, ProcessStats, SOFTWARE, Seams, ServerParts};
pub use serve::Server;
pub use survivor::{Copy, Left as LeftBehind, LeftChain, Other, WentOn, recover, rename_copy, survey, take_moved};
