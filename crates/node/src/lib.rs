//! The server process: drivers that run the cores.
//!
//! [`Engine`] owns the cores (`chain`, `multilog`, `metalog`, `namespace`, `hlc`) and answers one request at a time on
//! the calling thread; [`Server`] gives it sockets and threads. The simulator drives the same engine over simulated
//! disks and clocks.
//!
//! Guarantees: nothing acknowledged as durable is lost; no read at an instant changes its answer; no caller reads or
//! writes without the right to.
//!
//! The path of a request: `serve` (socket) → `engine` (identity of the caller) → `views` (readers) or `changes` and
//! `edits` (writers) → `data` (chains and device) or `meta` (metalog and namespace); `durability` flushes it.

mod archive;
mod caching;
mod changes;
mod control;
mod cuts;
mod differences;
mod directory;
mod durability;
mod edits;
mod elsewhere;
mod engine;
mod forget;
mod fsck;
mod gone;
mod held;
mod holding;
mod imaging;
mod log;
mod majority;
mod memory;
mod metrics;
mod node_keys;
mod offline;
mod punch;
mod questions;
mod reclaim;
mod remains;
mod removal;
mod scope;
mod scrub;
mod seen;
mod serve;
mod session;
mod settings;
mod settling;
mod status;
mod steps;
mod story;
mod successor;
mod survivor;
mod timed;
mod timeline;
mod traces;
mod unshown;
mod views;

pub use archive::{Archive, Listed, MemberArchive, Part, Xattr};
pub use durability::no_wake;
pub use engine::{Engine, Joining, ProcessStats, Responder, SOFTWARE, Scratch, Seams};
pub use frieze_cluster::{ChainStatus as ChainHealth, ClusterState, ClusterStatus};
pub use frieze_metadata::{
    CleanStartImage, CurrentVersions, ImageSection, LoadVersion, LsmStore, MemoryStore, MetalogStatus, SegmentFiles,
    ShowVersions, StoreItem, StoreView, Unflushed, VersionStore, VisitItem,
};
pub use frieze_net::ReceivedPayload;
pub use frieze_net::{PeerPayload, Peers};
pub use frieze_replication::{ChainEnd, ChainEvent};
pub use frieze_service::{BINDING_XATTR, TimePlugin};
pub use frieze_storage::FORMAT_VERSION;
pub use fsck::{CheckProgress, Checkup, fsck};
pub use serve::Server;
pub use session::{Conn, KeyRight};
pub use settings::{KeySettings, Settings};
pub use steps::Steps;
pub use survivor::{Copy, Left as LeftBehind, LeftChain, Other, WentOn, recover, rename_copy, survey, take_moved};
