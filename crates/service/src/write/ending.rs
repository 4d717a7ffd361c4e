//! Sessions that were stopped from writing, and are about to end.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use frieze_base::SessionId;
use frieze_locks::{Mutex, levels};

/// Sessions without a connection for too long, which were stopped from writing. True once all heads know of it: then no
/// more of their writes are acknowledged. Empty while the heads are being informed.
#[derive(Default)]
pub struct Ending(pub(crate) Mutex<levels::StoppedSessions, Stopped>);

pub(crate) type Stopped = BTreeMap<SessionId, Arc<OnceLock<bool>>>;
