//! Work in the background: expired history is freed, replicas that the cluster took away are removed, damage is found
//! and repaired, images are built.

mod checkup;
mod erase;
mod forget;
mod gc;
mod image_builder;
mod memory;
mod replica_gc;
mod scrub;
mod session_expiry;
mod thin;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use frieze_locks::{RwLock, levels};
use frieze_planes::{Files, Planes, ThinningPass};

pub use self::checkup::{CheckProgress, Checkup};
pub use self::memory::machine_bytes;
pub use self::replica_gc::Remains;
pub use self::scrub::{Scrub, ScrubSummary};
use crate::read::Reader;
use crate::session::Sessions;
use crate::write::Writers;

/// Work in the background.
pub struct Upkeep {
    /// Names and bytes.
    pub planes: Arc<Planes>,
    /// Files over both planes.
    pub files: Arc<Files>,
    /// Sessions and what they hold.
    pub sessions: Arc<Sessions>,
    /// Answers about what is.
    pub read: Arc<Reader>,
    /// Changes of bytes and names.
    pub write: Arc<Writers>,
    /// Replicas that the cluster took away.
    pub remains: Remains,
    /// Where policies of retention were applied to what is stored.
    pub thinning: ThinningPass,
    /// Known damage, and the scrub under way.
    pub scrub: Scrub,
    /// Read lock: an edit, while it is planned and run. Write lock: an expiry of history.
    pub forgetting: RwLock<levels::HistoryExpiry, ()>,
    /// Bytes of files that are neither segments nor index runs in the kernel's memory, as of the last look.
    pub files_cached: AtomicU64,
}
