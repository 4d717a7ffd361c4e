//! History that has expired: the check before every read, and the words of its refusal.

use frieze_base::{Fault, InodeId};
use frieze_hlc::Hlc;
use frieze_namespace::Inode;
use frieze_wire::txn::Caller;

use crate::planes::Planes;

impl Planes {
    /// The check before any read of an inode at an instant (`None`: now).
    ///
    /// # Errors
    /// `HistoryExpired`, with the earliest instant that is kept.
    pub fn check_kept(&self, id: InodeId, at: Option<Hlc>) -> Result<(), Fault> {
        self.meta.check_kept(id, at)?;
        at.map_or(Ok(()), |at| self.check_exact(id, at))
    }

    /// As [`Planes::check_kept`], for an inode that the caller did not name himself: the error names the path that the
    /// inode has at the first of `instants` at which the caller may know it.
    ///
    /// # Errors
    /// As [`Planes::check_kept`]; those of the store.
    pub fn check_kept_naming(&self, caller: &Caller, id: InodeId, at: Hlc, instants: [Hlc; 2]) -> Result<(), Fault> {
        let Err(fault) = self.check_kept(id, Some(at)) else { return Ok(()) };
        let refuse = |path: &[u8]| {
            self.meta.check_kept_called(id, Some(at), path)?;
            self.check_exact_called(id, at, path)
        };
        for instant in instants {
            let mut cut = self.meta.history().tree_at(instant, caller);
            if id == InodeId::ROOT {
                return refuse(b"/");
            }
            for named in cut.names(id)? {
                if cut.may_list(named.parent)?
                    && let Some(directory) = cut.path(named.parent)?
                {
                    let path = [&directory[..], b"/", &named.name].concat();
                    return refuse(&path);
                }
            }
        }
        Err(fault)
    }

    /// The expired history of an inode: of the file itself, or of the directory that it lies in.
    pub fn forgotten(&self, id: InodeId, inode: &Inode) -> Option<frieze_wire::forget::ForgottenHistory> {
        let directory = Some(inode.parent).filter(|_| !inode.is_directory());
        self.meta.newest_horizon([id].into_iter().chain(directory))
    }

    /// The path of an inode at the first of these instants at which it had one.
    pub fn path_of(&self, id: InodeId, instants: &[Hlc]) -> Result<Vec<u8>, Fault> {
        if id == InodeId::ROOT {
            return Ok(b"/".to_vec());
        }
        let root = Caller::root();
        for at in instants {
            let mut cut = self.meta.history().tree_at(*at, &root);
            if let Some(named) = cut.names(id)?.into_iter().next()
                && let Some(path) = cut.path(named.parent)?
            {
                return Ok([&path[..], b"/", &named.name].concat());
            }
        }
        Ok(format!("inode {id}").into_bytes())
    }
}
