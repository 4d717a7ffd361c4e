//! Lookup of a name: from a complete directory, by prefetch, or by a request; and the kernel's entry for it.

use frieze_base::InodeId;
use frieze_client::{Attr, Fs, Target};
use nix::errno::Errno;

use crate::attr_prefetch::{LookupRequest, PrefetchStep};
use crate::attributes::{attributes, too_many, valid};
use crate::cache::{CachePromise, GrantRequest};
use crate::node::{FuseNode, NodeId, ViewTime};
use crate::operations::{FuseCaller, FuseEntry, LookupResult};
use crate::tree::MountTree;

impl MountTree {
    /// The state for a change with a request for a cache grant.
    pub(crate) fn asking(&self) -> Option<GrantRequest> {
        self.cache.ask(&self.complete_dirs.local_changes).filter(|_| !self.base.is_past())
    }

    /// The answer about a file just made or changed under a name of `directory`, if it has one; asks for its attributes
    /// only if the server did not send them.
    pub(crate) fn made(
        &self,
        who: FuseCaller,
        attr: Option<Attr>,
        target: &Target,
        asking: Option<&GrantRequest>,
        directory: Option<NodeId>,
    ) -> Result<FuseEntry, Errno> {
        let (attr, asking) = match attr {
            Some(attr) => (attr, asking),
            None => (self.ask(who, self.base, |fs| fs.stat(target))?.attr, None),
        };
        let inode = Some(InodeId(attr.inode));
        let promise = asking.map(|asking| match directory {
            Some(directory) => self.granted(asking, InodeId(directory.0), inode),
            None => asking.promise(None, inode),
        });
        // It is the answer to a change that has ended.
        let promise = promise.map(|promise| promise.after(&self.complete_dirs.local_changes));
        Ok(self.entry_for(NodeId(attr.inode), &attr, self.base, promise))
    }

    /// Looks up a name in a directory of the tree; the kernel has one more reference to the result.
    pub(crate) fn find(&self, who: FuseCaller, dir: &FuseNode, name: &[u8]) -> Result<FuseEntry, Errno> {
        match self.look_up(who, dir, name)? {
            LookupResult::Entry(entry) => Ok(entry),
            LookupResult::Absent(_) => Err(Errno::ENOENT),
        }
    }

    pub(crate) fn look_up(&self, who: FuseCaller, dir: &FuseNode, name: &[u8]) -> Result<LookupResult, Errno> {
        if !dir.when.is_past()
            && let Some(promise) = self.complete_dirs.is_absent(&self.cache, dir.inode, name)
        {
            return Ok(LookupResult::Absent(promise));
        }
        if !dir.when.is_past()
            && let Some((attr, promise)) = self.look_ahead(who, dir, name)
        {
            let node = self.nodes.refer_beside(dir, InodeId(attr.inode)).map_err(too_many)?;
            return Ok(LookupResult::Entry(self.entry_for(node, &attr, dir.when, Some(promise))));
        }
        let asking = self.asking().filter(|_| !dir.when.is_past());
        let found = self.ask_noting(who, dir.when, asking.as_ref(), |fs| fs.stat(&Target::under(dir.inode, name)));
        match (found, asking) {
            (Ok(found), asking) => {
                let inode = InodeId(found.attr.inode);
                let node = self.nodes.refer_beside(dir, inode).map_err(too_many)?;
                let promise = asking.map(|asking| self.granted(&asking, dir.inode, Some(inode)));
                Ok(LookupResult::Entry(self.entry_for(node, &found.attr, dir.when, promise)))
            }
            (Err(Errno::ENOENT), Some(asking)) => Ok(LookupResult::Absent(self.granted(&asking, dir.inode, None))),
            (Err(errno), _) => Err(errno),
        }
    }

    /// The prefetched entry of a name, if a program walks through its directory.
    pub(crate) fn look_ahead(&self, who: FuseCaller, dir: &FuseNode, name: &[u8]) -> Option<(Attr, CachePromise)> {
        let own = &self.complete_dirs.local_changes;
        let (after, names) = match self.prefetch.next(&self.cache, own, dir.inode, name) {
            PrefetchStep::Ask => return None,
            PrefetchStep::Known(known) => return Some(*known),
            PrefetchStep::List { after, names } => (after, names),
        };
        let still = own.still()?;
        let asking = self.asking()?;
        let list = |fs: &Fs| fs.list(&Target::inode(dir.inode), &after, names, true);
        let Ok(page) = self.ask_noting(who, dir.when, Some(&asking), list) else {
            self.prefetch.stop_walk(dir.inode);
            return None;
        };
        let promise = self.granted(&asking, dir.inode, None);
        let asked = LookupRequest { who, directory: dir.inode, name, after, still };
        self.prefetch.found(&self.cache, asked, page, promise)
    }

    /// The promise of an answer about a name, which also prolongs the entry of its directory.
    pub(crate) fn granted(&self, asking: &GrantRequest, directory: InodeId, inode: Option<InodeId>) -> CachePromise {
        let promise = asking.promise(Some(directory), inode);
        self.complete_dirs.prolong(&self.cache, &promise);
        promise
    }

    /// An entry for a file of the tree, with the validity of the promise.
    pub(crate) fn entry_for(
        &self,
        node: NodeId,
        attr: &Attr,
        when: ViewTime,
        promise: Option<CachePromise>,
    ) -> FuseEntry {
        if !when.is_past() {
            self.acl_cache.note(attr, promise);
        }
        FuseEntry { promise, ..self.entry(node, attr, when) }
    }

    /// An entry for a file of the tree.
    pub(crate) fn entry(&self, node: NodeId, attr: &Attr, when: ViewTime) -> FuseEntry {
        FuseEntry { attributes: attributes(node, attr), valid: valid(when), promise: None }
    }
}
