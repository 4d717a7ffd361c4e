//! The server process: drivers that run the cores.
//!
//! [`Engine`] owns the cores (`chain`, `multilog`, `metalog`, `namespace`, `hlc`) and answers one request at a time on
//! whichever thread asks; [`Server`] gives it sockets and threads. The simulator drives the same engine over simulated
//! disks and clocks.
//!
//! Guarantees: nothing acknowledged as durable is lost; no read at an instant changes its answer; nobody reads or
//! writes what they may not.
//!
//! Where a request goes: `serve` (socket) → `engine` (who asks) → `views` (readers) or `changes` and `edits` (writers) → `data`
//! (chains and device) or `meta` (metalog and namespace); `durability` makes it last.

mod archive;
mod brought;
mod caching;
mod capability;
mod changes;
mod clock;
mod control;
mod cuts;
mod data;
mod device;
mod differences;
mod directory;
mod durability;
mod edits;
mod elsewhere;
mod engine;
mod forget;
mod fsck;
mod gone;
mod grants;
mod held;
mod holding;
mod identity;
mod imaging;
mod locks;
mod log;
mod majority;
mod memory;
mod meta;
mod metrics;
mod offline;
mod opened;
mod peers;
mod plugin;
mod punch;
mod questions;
mod reading;
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
mod store;
mod story;
mod successor;
mod survivor;
mod timed;
mod timeline;
mod traces;
mod unshown;
mod views;

pub use archive::{Archive, Listed, MemberArchive, Part, Xattr};
pub use brought::Brought;
pub use data::{ChainEnd, Report as ChainReport};
pub use durability::no_wake;
pub use engine::{Engine, Joining, ProcessStats, Responder, SOFTWARE, Scratch, Seams};
pub use frieze_cluster::{ChainStatus as ChainHealth, ClusterState, ClusterStatus};
pub use fsck::{CheckProgress, Checkup, fsck};
pub use identity::{FORMAT_VERSION, FORMAT_VERSION_MIN};
pub use meta::{MetalogStatus, SegmentFiles, Unflushed};
pub use peers::{PeerPayload, Peers};
pub use plugin::{BINDING_XATTR, TimePlugin};
pub use serve::Server;
pub use session::{Conn, KeyRight};
pub use settings::{KeySettings, Settings};
pub use steps::Steps;
pub use store::{Item, Left, LoadVersion, LsmStore, MemoryStore, Newest, Section, ShowNewest, VersionStore, VisitItem};
pub use survivor::{Copy, Left as LeftBehind, LeftChain, Other, WentOn, recover, rename_copy, survey, take_moved};
