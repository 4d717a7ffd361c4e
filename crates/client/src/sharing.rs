//! Clones, restores, undos and shared ranges, which copy no byte; and `forget`, which deletes history.

use frieze_hlc::Hlc;
use frieze_wire::edit::{ChangeTree, CloneTree, CopyRange, EditReply, JoinFiles, RemoveTree, Restore, Undo};
use frieze_wire::forget::{Forget, ForgetReply};
use frieze_wire::message::{Reply, Request};
use frieze_wire::mode::ModeChange;
use frieze_wire::retention::{Retention, RetentionPreview, RetentionReply};
use frieze_wire::txn::Target;

use crate::file::check_range;
use crate::{Error, File, Fs};

/// What becomes of the files of a tree.
#[derive(Clone, Debug, Default)]
pub struct RightsChange {
    /// Changes of the mode, one after the other.
    pub modes: Vec<ModeChange>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
}

impl Fs {
    /// Makes `target` a clone of `source` at this view's instant: a file, or a directory with all that is below it. The
    /// clone shares every byte and copies none; later changes of one do not affect the other.
    ///
    /// With `dry_run` nothing is made: the reply says what would be.
    ///
    /// # Errors
    /// `Exists` if the name is taken; `AccessDenied` for a tree of which the caller may not read all, then and now;
    /// `TooLarge` for more than 64 MiB of names; as any call.
    ///
    /// # Cost
    /// One record for each name of the tree.
    pub fn clone_tree(&self, source: &Target, target: &Target, dry_run: bool) -> Result<EditReply, Error> {
        let at = self.view().at.unwrap_or(0);
        let clone = CloneTree { source: source.clone(), at, target: target.clone(), dry_run };
        self.edit(Request::Clone(clone), dry_run)
    }

    /// Restores a file or tree to its state at `at`, by one change at now: the replaced state stays readable at the
    /// instants before. With `delete`, names made since are removed.
    ///
    /// # Errors
    /// `NotFound` if it did not exist then; `AccessDenied` and `NotPermitted` as the single changes; `Busy` if it keeps
    /// changing; `TooLarge` for too much at once; as any call.
    ///
    /// # Cost
    /// Proportional to the differences between then and now.
    pub fn restore(&self, target: &Target, at: Hlc, delete: bool, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("restoring")?;
        let restore = Restore { target: target.clone(), at: at.0, delete, dry_run };
        self.edit(Request::Restore(restore), dry_run)
    }

    /// Undoes the changes of an actor: every name, attribute, length and range of bytes whose newest version is the
    /// actor's gets the newest version by another actor. What others changed later, or built on, stays, and the reply
    /// lists it.
    ///
    /// # Errors
    /// As [`Fs::restore`]; `InvalidArgument` if it names neither an actor nor an instant.
    pub fn undo(&self, undo: Undo) -> Result<EditReply, Error> {
        self.must_be_now("undoing")?;
        let dry_run = undo.dry_run;
        self.edit(Request::Undo(undo), dry_run)
    }

    /// Removes a file, or a directory with all that is below it, by one change: readers see all of it, or none.
    ///
    /// # Errors
    /// `NotFound`; `AccessDenied` and `NotPermitted` if any of it may not be removed: then all of it stays; `Busy` if
    /// it keeps changing; `TooLarge` for more than 64 MiB of names; as any call.
    ///
    /// # Cost
    /// One record for each name of the tree.
    pub fn remove_tree(&self, target: &Target, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("removing")?;
        let remove = RemoveTree { target: target.clone(), dry_run };
        self.edit(Request::RemoveTree(remove), dry_run)
    }

    /// Changes mode and owner of a file, or of a directory with all that is below it, by one change: readers see all
    /// of it as before, or none. What has the wanted mode and owner is left.
    ///
    /// # Errors
    /// `NotFound`; `AccessDenied` and `NotPermitted` if any of it may not be changed: then all of it stays; `Busy` if
    /// it keeps changing; `TooLarge` for more than 64 MiB of changes, about 2 million files; as any call.
    ///
    /// # Cost
    /// One record for each file of the tree.
    pub fn change_tree(&self, target: &Target, change: &RightsChange, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("changing")?;
        let RightsChange { modes, uid, gid } = change;
        let (modes, uid, gid) = (modes.clone(), *uid, *gid);
        let change = ChangeTree { target: target.clone(), modes, uid, gid, dry_run, policy: None };
        self.edit(Request::ChangeTree(change), dry_run)
    }

    /// Gives a file, or a directory and all that is below it, a policy of retention, as one change: which instants of
    /// the past are kept. What is made in the directory later has it, too. What earlier policies have thinned stays
    /// thinned.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no policy; `NotPermitted` unless the caller owns all of it; else as
    /// [`Fs::change_tree`].
    ///
    /// # Cost
    /// One record for each file of the tree.
    pub fn set_retention(&self, target: &Target, policy: &str, dry_run: bool) -> Result<EditReply, Error> {
        self.must_be_now("changing")?;
        let policy = Some(policy.to_owned());
        let change = ChangeTree { target: target.clone(), policy, dry_run, ..ChangeTree::default() };
        self.edit(Request::ChangeTree(change), dry_run)
    }

    /// The policy of a file or directory, what it has thinned, and whether the instant `at` of it is kept exactly.
    ///
    /// # Errors
    /// `NotFound`; as any call.
    pub fn retention(&self, target: &Target, at: Option<Hlc>) -> Result<RetentionReply, Error> {
        self.ask_retention(Retention { target: target.clone(), at: at.map_or(0, |at| at.0), preview: String::new() })
    }

    /// What a policy would keep of a file, or of all files below a directory, if they got it now; by class, in writes
    /// and bytes of the server that is asked. Nothing changes.
    ///
    /// # Errors
    /// `InvalidArgument` for a text that is no policy; `NotPermitted` unless the caller owns the path; as any call.
    ///
    /// # Cost
    /// A pass over all records of the files.
    pub fn preview_retention(&self, target: &Target, policy: &str) -> Result<RetentionPreview, Error> {
        let ask = Retention { target: target.clone(), at: 0, preview: policy.to_owned() };
        Ok(self.ask_retention(ask)?.preview.unwrap_or_default())
    }

    fn ask_retention(&self, ask: Retention) -> Result<RetentionReply, Error> {
        match self.query(Request::Retention(ask))? {
            Reply::Retention(reply) => Ok(reply),
            other => Err(self.unexpected("a policy of retention", &other)),
        }
    }

    /// Deletes the history before an instant of a file, or of all that was below a directory at `before`, and frees its
    /// space. The state at the instant stays, and so do the states that snapshots reference, unless the snapshots of
    /// the file's owner and the superuser are to be passed over. Reads before the instant fail with `HistoryExpired`
    /// from then on. Waits until the space is free.
    ///
    /// # Errors
    /// `NotPermitted` unless the caller owns it; `Future`; `HistoryExpired` before the file system was made;
    /// `InvalidArgument` for a file made after the instant; as any call.
    ///
    /// # Cost
    /// A look at everything that was below, and a pass over the versions of all inodes.
    pub fn forget(&self, target: &Target, before: Hlc, how: ForgetOptions) -> Result<ForgetReply, Error> {
        self.must_be_now("forgetting")?;
        let ForgetOptions { dry_run, with_snapshots } = how;
        let request = Request::Forget(Forget { target: target.clone(), before: before.0, dry_run, with_snapshots });
        match self.query_edit(request, dry_run)? {
            Reply::Forgot(reply) => Ok(reply),
            other => Err(self.unexpected("expired history", &other)),
        }
    }
}

/// Options of [`Fs::forget`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgetOptions {
    /// Deletes nothing: the reply says what would be deleted, or is the refusal.
    pub dry_run: bool,
    /// Passes over snapshots: they show nothing of it any more, whichever user made them.
    pub with_snapshots: bool,
}

impl File {
    /// Joins files to this one, by one change: their bytes follow its own, in this order, and their names are removed.
    /// Nothing is copied. Returns the new length.
    ///
    /// # Errors
    /// `InvalidArgument` for a source that is no file, this file itself or one named twice; `Busy` if one of them is
    /// being written to; `Unsupported` and `TooLarge` if sharing does not fit, as [`File::copy_range`]; as removing and
    /// reading each. Then nothing has changed.
    pub fn join(&self, sources: &[Target]) -> Result<u64, Error> {
        self.must_write()?;
        let join = JoinFiles { target: self.capability().to_vec(), sources: sources.to_vec() };
        self.note_dirty();
        let number = self.shared.number()?;
        match self.shared.call(&self.request(Request::JoinFiles(join), number.seq, &[]), &mut [])?.0 {
            Reply::Edited(reply) => Ok(reply.len),
            other => Err(self.shared.unexpected("files that are joined", &other)),
        }
    }

    /// Copies `len` bytes from `offset` to `target_offset` of another open file, or this one, by sharing them. Returns
    /// how many: fewer if this file ends before. The source is this file at its view, or now.
    ///
    /// # Errors
    /// `Unsupported` and `TooLarge` if sharing does not fit (a target with a time plug-in, a file of too many shared
    /// ranges): read and write instead. `NotOpenFor`; as any call.
    pub fn copy_range(&self, offset: u64, target: &File, target_offset: u64, len: u64) -> Result<u64, Error> {
        self.must_read()?;
        target.must_write()?;
        check_range(offset, len)?;
        check_range(target_offset, len)?;
        let copy = CopyRange {
            source: self.capability().to_vec(),
            source_offset: offset,
            target: target.capability().to_vec(),
            target_offset,
            len,
            also: Vec::new(),
        };
        target.note_dirty();
        let number = target.shared.number()?;
        match target.shared.call(&target.request(Request::CopyRange(copy), number.seq, &[]), &mut [])?.0 {
            // A retry of a copy that had run: it copied what was requested, within the length of the source then.
            Reply::Edited(reply) if reply.repeated => Ok(len.min(self.stat()?.attr.size.saturating_sub(offset))),
            Reply::Edited(reply) => Ok(reply.len),
            other => Err(target.shared.unexpected("a copied range", &other)),
        }
    }
}
