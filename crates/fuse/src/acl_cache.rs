//! Access lists for the kernel, which asks for them at nearly every check of rights and `ls -l`.
//!
//! Guarantees: an answer from here is the server's answer: an inode has no access list as long as attributes with that
//! fact may be used without asking again. Leaves to others: the rights themselves (the kernel checks, then the server),
//! and requests to the server.

use std::sync::{Mutex, PoisonError};

use frieze_base::{FastMap, InodeId};
use frieze_client::Attr;

use crate::cache::{CachePromise, KernelCache};
use crate::local_changes::LocalChanges;

/// Inodes that have no access list.
#[derive(Default)]
pub(crate) struct AclCache {
    absent: Mutex<FastMap<InodeId, CachePromise>>,
}

impl AclCache {
    /// Attributes were answered, with a promise for how long they hold.
    pub(crate) fn note(&self, attr: &Attr, promise: Option<CachePromise>) {
        let mut absent = self.absent.lock().unwrap_or_else(PoisonError::into_inner);
        let inode = InodeId(attr.inode);
        match promise.filter(|promise| !attr.has_acl && promise.is_of(inode)) {
            Some(promise) => {
                if absent.len() >= ABSENT_MAX {
                    absent.clear();
                }
                absent.insert(inode, promise);
            }
            None => drop(absent.remove(&inode)),
        }
    }

    /// True if an inode of the present has no access list.
    pub(crate) fn is_absent(&self, cache: &KernelCache, own: &LocalChanges, inode: InodeId) -> bool {
        let promise = self.absent.lock().unwrap_or_else(PoisonError::into_inner).get(&inode).copied();
        promise.is_some_and(|promise| cache.is_kept(&promise) && !own.has_changed_inode(promise.change_count(), inode))
    }
}

/// Inodes remembered: 6 MiB. If there are more, all are dropped and requested again.
const ABSENT_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use frieze_client::{Holds, RecallsReply, mono};

    use super::*;
    use crate::notify::KernelNotifier;

    const FILE: InodeId = InodeId(7);

    #[test]
    fn what_was_said_to_have_no_list_has_none_until_it_is_changed_or_recalled() {
        let (cache, own, lists) = (KernelCache::default(), LocalChanges::default(), AclCache::default());
        cache.begin(KernelNotifier::silent());
        cache.take(&RecallsReply { lease_ms: 5000, life: 1, ..RecallsReply::default() }, mono(), false);
        let holds = Holds { files_ms: 4000, ..Holds::NONE };
        let promise = || CachePromise::of_listing(&cache, InodeId(1), Holds::NONE).after(&own).of_inode(FILE, holds);
        let attr = Attr { inode: FILE.0, ..Attr::default() };
        let listed = Attr { has_acl: true, ..attr.clone() };
        let is_absent = || lists.is_absent(&cache, &own, FILE);
        assert!(!is_absent(), "nothing was said");
        let before = promise();
        lists.note(&attr, Some(before));
        assert!(is_absent());
        // An answer from before the mount's own change may come after it.
        own.changed_inode(FILE);
        lists.note(&attr, Some(before));
        assert!(!is_absent());
        lists.note(&attr, Some(promise()));
        assert!(is_absent());
        lists.note(&listed, Some(promise()));
        assert!(!is_absent());
        lists.note(&attr, Some(promise().of_inode(InodeId(8), holds)));
        assert!(!is_absent(), "it is about another");
        lists.note(&attr, None);
        assert!(!is_absent());
    }
}
