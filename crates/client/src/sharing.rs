//! Copies and older states without a byte copied: clones, restores, undos, ranges; and older states given up.

use frieze_hlc::Hlc;
use frieze_wire::edit::{CloneTree, CopyRange, EditReply, JoinFiles, RemoveTree, Restore, Undo};
use frieze_wire::forget::{Forget, ForgetReply};
use frieze_wire::message::{Reply, Request};
use frieze_wire::txn::Target;

use crate::file::check_range;
use crate::{Error, File, Fs};

impl Fs {
    /// Makes `target` a copy of what `source` is at this view's instant: a file, or a directory with all that is below
    /// it. It shares every byte and copies none; both go their own ways from then on.
    ///
    /// With `dry_run` nothing is made: the answer says what would be.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `AccessDenied` for a tree of which the caller may not read all, then and now;
    /// `TooLarge` for more than 262,144 names; as any call.
    ///
    /// # Cost
    /// One record for each name of the tree.
    pub fn clone_tree(&self, source: &Target, target: &Target, dry_run: bool) -> Result<EditReply, Error> {
        let at = self.view().at.unwrap_or(0);
        let ask = CloneTree { source: source.clone(), at, target: target.clone(), dry_run };
        self.edit(Request::Clone(ask), dry_run)
    }

    /// Makes a file or tree what it was at `at`, by one change at now: what it replaces stays readable at the instants
    /// before. With `delete`, names made since go.
    ///
    /// # Errors
    /// `NotFound` if it was not there then; `AccessDenied` and `NotPermitted` as the single changes; `Busy` if it keeps
    /// changing; `TooLarge` for too much at once; as any call.
    ///
    /// # Cost
    /// That of what differs between then and now.
    pub fn restore(&self, target: &Target, at: Hlc, delete: bool, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("restoring")?;
        let ask = Restore { target: target.clone(), at: at.0, delete, dry_run };
        self.edit(Request::Restore(ask), dry_run)
    }

    /// Takes back what an actor did: every name, attribute, length and range of bytes whose newest version is the actor's
    /// gets its newest version by anybody else. What others changed later, or built on, is left and told.
    ///
    /// # Errors
    /// As [`Fs::restore`]; `InvalidArgument` if it says neither whose changes nor since when.
    pub fn undo(&self, undo: Undo) -> Result<EditReply, Error> {
        self.must_be_now("undoing")?;
        let dry_run = undo.dry_run;
        self.edit(Request::Undo(undo), dry_run)
    }

    /// Removes a file, or a directory with all that is below it, by one change: whoever looks sees all of it, or none.
    ///
    /// # Errors
    /// `NotFound`; `AccessDenied` and `NotPermitted` if any of it may not be removed: then all of it stays; `Busy` if it keeps changing;
    /// `TooLarge` for more than 262,144 names; as any call.
    ///
    /// # Cost
    /// One record for each name of the tree.
    pub fn remove_tree(&self, target: &Target, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("removing")?;
        let ask = RemoveTree { target: target.clone(), dry_run };
        self.edit(Request::RemoveTree(ask), dry_run)
    }

    /// Gives up what a file, or all that lay below a directory at `before`, was before that instant, and frees its space.
    /// What was visible at the instant stays, and so does what snapshots hold back, unless it is to go through them: those of whom a
    /// file belongs to, and the superuser's. Reads before it fail with `HistoryExpired` from then on, for ever. It waits until the
    /// space is free.
    ///
    /// # Errors
    /// `NotPermitted` unless the caller owns it; `Future`; `HistoryExpired` before the file system was made;
    /// `InvalidArgument` for what was made after the instant; as any call.
    ///
    /// # Cost
    /// A look at everything that lay below, and a pass over the versions of all inodes.
    pub fn forget(&self, target: &Target, before: Hlc, how: ForgetOptions) -> Result<ForgetReply, Error> {
        self.must_be_now("forgetting")?;
        let ForgetOptions { dry_run, with_snapshots } = how;
        let ask = Request::Forget(Forget { target: target.clone(), before: before.0, dry_run, with_snapshots });
        match self.ask_edit(ask, dry_run)? {
            Reply::Forgot(reply) => Ok(reply),
            other => Err(self.unexpected("what was forgotten", &other)),
        }
    }
}

/// How [`Fs::forget`] goes about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgetOptions {
    /// Nothing is forgotten: the answer says what would be, and refuses what would be refused.
    pub dry_run: bool,
    /// Through snapshots: they show nothing of it any more, whoever made them.
    pub with_snapshots: bool,
}

impl File {
    /// Joins files to this one, by one change: their bytes come behind its own, in this order, and their names go. Nothing is copied.
    /// Returns how many bytes it has got.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no file, this file itself or one named twice; `Busy` if one of them is being written to; `Unsupported`
    /// and `TooLarge` where sharing does not fit, as [`File::copy_range`]; as removing and reading each. Then nothing has changed.
    pub fn join(&self, sources: &[Target]) -> Result<u64, Error> {
        self.must_write()?;
        let ask = JoinFiles { target: self.capability().to_vec(), sources: sources.to_vec() };
        self.note_dirty();
        let numbered = self.shared.number()?;
        match self.shared.ask(&self.ask(Request::JoinFiles(ask), numbered.seq, &[]), &mut [])?.0 {
            Reply::Edited(reply) => Ok(reply.len),
            other => Err(self.shared.unexpected("files that are joined", &other)),
        }
    }

    /// Copies `len` bytes from `offset` to `target_offset` of another open file, or this one, by sharing them. Returns how
    /// many: fewer where this file ends before. What is shared is the state of this file's view, or of the moment.
    ///
    /// # Errors
    /// `Unsupported` and `TooLarge` where sharing does not fit (a target with a time plug-in, a file of too many shared
    /// ranges): read and write instead. `NotOpenFor`; as any call.
    pub fn copy_range(&self, offset: u64, target: &File, target_offset: u64, len: u64) -> Result<u64, Error> {
        self.must_read()?;
        target.must_write()?;
        check_range(offset, len)?;
        check_range(target_offset, len)?;
        let ask = CopyRange {
            source: self.capability().to_vec(),
            source_offset: offset,
            target: target.capability().to_vec(),
            target_offset,
            len,
            also: Vec::new(),
        };
        target.note_dirty();
        let numbered = target.shared.number()?;
        match target.shared.ask(&target.ask(Request::CopyRange(ask), numbered.seq, &[]), &mut [])?.0 {
            // A retry of one that had run: how much it copied is what was asked, within the length of the source then.
            Reply::Edited(reply) if reply.repeated => Ok(len.min(self.stat()?.attr.size.saturating_sub(offset))),
            Reply::Edited(reply) => Ok(reply.len),
            other => Err(target.shared.unexpected("a copied range", &other)),
        }
    }
}
