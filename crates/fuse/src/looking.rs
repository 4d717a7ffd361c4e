//! What a name stands for: known whole, looked ahead, or asked of the server; and what the kernel is told of it.

use frieze_base::InodeId;
use frieze_client::{Attr, Fs, Target};
use nix::errno::Errno;

use crate::ahead::{Asked, Next};
use crate::cache::{Asking, Promise};
use crate::node::{Node, NodeId, When};
use crate::operations::{Entry, Found, Who};
use crate::tree::{Tree, attributes, too_many, valid};

impl Tree {
    /// Asks to change something, and for the right to cache what is answered.
    pub(crate) fn asking(&self) -> Option<Asking> {
        self.cache.ask(&self.whole.own).filter(|_| !self.base.is_past())
    }

    /// The answer about a file just made or changed under a name of `directory`, if it has one; asks for its attributes
    /// only if the server did not send them.
    pub(crate) fn made(
        &self,
        who: Who,
        attr: Option<Attr>,
        target: &Target,
        asking: Option<&Asking>,
        directory: Option<NodeId>,
    ) -> Result<Entry, Errno> {
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
        let promise = promise.map(|promise| promise.after(&self.whole.own));
        Ok(self.entry_for(NodeId(attr.inode), &attr, self.base, promise))
    }

    /// What a name in a directory of the tree stands for; the kernel holds one more reference to it.
    pub(crate) fn find(&self, who: Who, dir: &Node, name: &[u8]) -> Result<Entry, Errno> {
        match self.look_up(who, dir, name)? {
            Found::Entry(entry) => Ok(entry),
            Found::Absent(_) => Err(Errno::ENOENT),
        }
    }

    pub(crate) fn look_up(&self, who: Who, dir: &Node, name: &[u8]) -> Result<Found, Errno> {
        if !dir.when.is_past()
            && let Some(promise) = self.whole.is_absent(&self.cache, dir.inode, name)
        {
            return Ok(Found::Absent(promise));
        }
        if !dir.when.is_past()
            && let Some((attr, promise)) = self.look_ahead(who, dir, name)
        {
            let node = self.nodes.refer_beside(dir, InodeId(attr.inode)).map_err(too_many)?;
            return Ok(Found::Entry(self.entry_for(node, &attr, dir.when, Some(promise))));
        }
        let asking = self.asking().filter(|_| !dir.when.is_past());
        let found = self.ask_noting(who, dir.when, asking.as_ref(), |fs| fs.stat(&Target::under(dir.inode, name)));
        match (found, asking) {
            (Ok(found), asking) => {
                let inode = InodeId(found.attr.inode);
                let node = self.nodes.refer_beside(dir, inode).map_err(too_many)?;
                let promise = asking.map(|asking| self.granted(&asking, dir.inode, Some(inode)));
                Ok(Found::Entry(self.entry_for(node, &found.attr, dir.when, promise)))
            }
            (Err(Errno::ENOENT), Some(asking)) => Ok(Found::Absent(self.granted(&asking, dir.inode, None))),
            (Err(errno), _) => Err(errno),
        }
    }

    /// What is known of a name because a program walks through its directory.
    pub(crate) fn look_ahead(&self, who: Who, dir: &Node, name: &[u8]) -> Option<(Attr, Promise)> {
        let own = &self.whole.own;
        let (after, names) = match self.ahead.next(&self.cache, own, dir.inode, name) {
            Next::Ask => return None,
            Next::Known(known) => return Some(*known),
            Next::List { after, names } => (after, names),
        };
        let still = own.still()?;
        let asking = self.asking()?;
        let list = |fs: &Fs| fs.list(&Target::inode(dir.inode), &after, names, true);
        let Ok(page) = self.ask_noting(who, dir.when, Some(&asking), list) else {
            self.ahead.give_up(dir.inode);
            return None;
        };
        let promise = self.granted(&asking, dir.inode, None);
        let asked = Asked { who, directory: dir.inode, name, after, still };
        self.ahead.found(&self.cache, asked, page, promise)
    }

    /// The promise of an answer about a name, which also prolongs what is known of its directory.
    pub(crate) fn granted(&self, asking: &Asking, directory: InodeId, inode: Option<InodeId>) -> Promise {
        let promise = asking.promise(Some(directory), inode);
        self.whole.prolong(&self.cache, &promise);
        promise
    }

    /// An entry for a file of the tree, which holds as the promise says.
    pub(crate) fn entry_for(&self, node: NodeId, attr: &Attr, when: When, promise: Option<Promise>) -> Entry {
        if !when.is_past() {
            self.lists.note(attr, promise);
        }
        Entry { promise, ..self.entry(node, attr, when) }
    }

    /// An entry for a file of the tree.
    pub(crate) fn entry(&self, node: NodeId, attr: &Attr, when: When) -> Entry {
        Entry { attributes: attributes(node, attr), valid: valid(when), promise: None }
    }
}
