//! Small conversions between message fields and the types that they encode.

use frieze_base::{Fault, Reason};
use frieze_hlc::{Hlc, UserTime};

use crate::edit::{EditKind, EditReply};
use crate::message::{Refusal, View};
use crate::peer::control::HeartbeatRefusal;
use crate::txn::{Caller, Outcome, Target};

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal { reason: fault.reason as u32, message: fault.message }
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        Fault { reason: Reason::from_code(refusal.reason), message: refusal.message }
    }
}

impl From<Fault> for HeartbeatRefusal {
    fn from(fault: Fault) -> HeartbeatRefusal {
        HeartbeatRefusal { reason: fault.reason as u32, message: fault.message }
    }
}

impl From<HeartbeatRefusal> for Fault {
    fn from(refusal: HeartbeatRefusal) -> Fault {
        Fault { reason: Reason::from_code(refusal.reason), message: refusal.message }
    }
}

impl Outcome {
    /// The outcome of a failed transaction.
    pub fn failed(stamp: Hlc, fault: Fault) -> Outcome {
        Outcome { stamp: stamp.0, reason: fault.reason as u32, message: fault.message, ..Outcome::default() }
    }

    /// The outcome as a result.
    ///
    /// # Errors
    /// The fault the transaction failed with.
    pub fn into_result(self) -> Result<Outcome, Fault> {
        if self.reason == 0 {
            return Ok(self);
        }
        Err(Fault { reason: Reason::from_code(self.reason), message: self.message })
    }
}

impl View {
    /// Now.
    pub const NOW: View = View { at: None, user_at: None };

    /// The instant `at` of system time, whatever the user times.
    pub const fn exact(at: Hlc) -> View {
        View { at: Some(at.0), user_at: None }
    }

    /// The instant of system time, if it is not now.
    pub fn instant(self) -> Option<Hlc> {
        self.at.map(Hlc)
    }

    /// The instant of user time, if one is given.
    pub fn user_time(self) -> Option<UserTime> {
        self.user_at.map(UserTime)
    }

    /// True if nothing may be changed through it.
    pub fn is_past(self) -> bool {
        self.at.is_some() || self.user_at.is_some()
    }
}

impl Caller {
    /// The superuser.
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Vec::new() }
    }

    /// True if the caller belongs to `gid`.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl EditReply {
    /// Makes the plan of a dry run one that would be refused. A restore that the caller has no right to make has no
    /// actions: they name what the caller may not be allowed to list. An undo leaves such names out by itself.
    pub fn refuse(&mut self, fault: Fault, kind: EditKind) {
        if kind == EditKind::Restore && fault.reason.kind() == frieze_base::ErrorKind::Denied {
            self.actions.clear();
        }
        (self.refused, self.refused_words) = (fault.reason as u32, fault.message);
    }
}

impl Target {
    /// The inode itself.
    pub fn inode(inode: frieze_base::InodeId) -> Target {
        Target { base: inode.0, path: Vec::new(), follow: false }
    }

    /// A name (or path) below a directory, the last place not followed.
    pub fn under(directory: frieze_base::InodeId, path: impl Into<Vec<u8>>) -> Target {
        Target { base: directory.0, path: path.into(), follow: false }
    }

    /// A path from the root, the last place followed.
    pub fn path(path: impl Into<Vec<u8>>) -> Target {
        Target { base: frieze_base::InodeId::ROOT.0, path: path.into(), follow: true }
    }
}
