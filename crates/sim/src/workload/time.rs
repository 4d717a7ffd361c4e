//! Edits, expiries, and questions about intervals.

use frieze_hlc::Hlc;
use frieze_wire::edit::{CloneTree, Restore, Undo};
use frieze_wire::forget::Forget;
use frieze_wire::message::{FileKind, Request, View};
use frieze_wire::timeline::{Deleted, Diff, LastExisted, Sessions, Story, Usage};
use frieze_wire::txn::Target;

use super::{Workload, ask};
use crate::client::{SimClient, Step};
use crate::witness::CHUNK_BYTES;

impl Workload<'_> {
    /// A path to clone, restore or read: often a directory, sometimes all of the tree.
    fn part(&mut self, at: Hlc) -> Target {
        match self.rng.below(6) {
            0 => self.target(b"/".to_vec()),
            1 | 2 => self.existing(at, Some(FileKind::File)),
            3 => self.existing(at, None),
            _ => self.existing(at, Some(FileKind::Directory)),
        }
    }

    fn edit(request: Request) -> Vec<Step> {
        vec![Step::Edit { request: Box::new(request) }]
    }

    fn is_dry_run(&mut self) -> bool {
        self.rng.chance(10)
    }

    pub(super) fn clone_tree(&mut self, _: &SimClient) -> Vec<Step> {
        let at = if self.rng.chance(2) { 0 } else { self.instant() };
        let looked = if at == 0 { Hlc::MAX } else { Hlc(at) };
        // A tree in a tree in a tree soon fills the disk.
        let whole = self.witness.model.tree.ids().count() > 150;
        let kind = if whole || self.rng.chance(2) { FileKind::File } else { FileKind::Directory };
        let source = self.existing(looked, Some(kind));
        let target = self.fresh(Some(kind));
        let dry_run = self.is_dry_run();
        Self::edit(Request::Clone(CloneTree { source, at, target, dry_run }))
    }

    pub(super) fn restore(&mut self, _: &SimClient) -> Vec<Step> {
        let at = self.instant();
        let mut target = self.part(Hlc(at));
        target.follow = false;
        let (delete, dry_run) = (self.rng.chance(2), self.is_dry_run());
        Self::edit(Request::Restore(Restore { target, at, delete, dry_run }))
    }

    pub(super) fn undo(&mut self, client: &SimClient) -> Vec<Step> {
        let target = match self.rng.chance(2) {
            true => self.target(b"/".to_vec()),
            false => self.part(Hlc::MAX),
        };
        let known: Vec<u64> = self.witness.model.sessions.keys().copied().collect();
        let sessions = match self.rng.below(3) {
            0 => Vec::new(),
            1 if !known.is_empty() => vec![*self.rng.choose(&known)],
            _ => vec![client.session],
        };
        let after = self.instant();
        let upto = if self.rng.chance(2) { 0 } else { self.instant().max(after) };
        let uid = self.rng.chance(3).then_some(crate::machine::USER);
        let dry_run = self.is_dry_run();
        Self::edit(Request::Undo(Undo { target, sessions, uid, after, upto, dry_run }))
    }

    pub(super) fn copy_range(&mut self, client: &SimClient) -> Vec<Step> {
        let (Some(source), Some(target)) = (self.handle(client, false), self.handle(client, true)) else {
            return self.open(client);
        };
        let (source_offset, target_offset) = (self.length(source.inode), self.length(target.inode));
        let len = match self.rng.below(4) {
            0 => CHUNK_BYTES,
            1 => u64::MAX / 4,
            _ => self.rng.between(1, 20_000),
        };
        vec![Step::CopyRange { source, source_offset, target, target_offset, len }]
    }

    /// Expires the history of a part of the tree; seldom of all of it, or no question would be left.
    pub(super) fn forget(&mut self, _: &SimClient) -> Vec<Step> {
        let before = self.instant();
        let looked = if self.rng.chance(2) { Hlc(before) } else { Hlc::MAX };
        let target = match self.rng.chance(8) {
            true => self.part(looked),
            false => {
                let kind = if self.rng.chance(2) { FileKind::Directory } else { FileKind::File };
                self.existing(looked, Some(kind))
            }
        };
        let dry_run = self.is_dry_run();
        let with_snapshots = self.rng.chance(3);
        Self::edit(Request::Forget(Forget { target, before, dry_run, with_snapshots }))
    }

    /// Space of the history of a file or directory.
    pub(super) fn usage(&mut self, _: &SimClient) -> Vec<Step> {
        let view = if self.rng.chance(2) { self.past() } else { View::NOW };
        let target = match self.rng.chance(3) {
            true => self.existing(view.instant().unwrap_or(Hlc::MAX), Some(FileKind::File)),
            false => self.part(view.instant().unwrap_or(Hlc::MAX)),
        };
        let count_max = *self.rng.choose(&[0, 0, 2]);
        ask(Request::Usage(Usage { target, view, after: Vec::new(), count_max }))
    }

    /// Two instants in order.
    fn interval(&mut self) -> (u64, u64) {
        let (one, two) = (self.instant(), self.instant());
        (one.min(two), one.max(two))
    }

    pub(super) fn diff(&mut self, _: &SimClient) -> Vec<Step> {
        let (from, to) = self.interval();
        let at = if self.rng.chance(4) { from } else { to };
        let target = self.part(Hlc(at));
        ask(Request::Diff(Diff { target, from, to, skip: 0, count_max: 0 }))
    }

    pub(super) fn story(&mut self, _: &SimClient) -> Vec<Step> {
        let (after, upto) = self.interval();
        let view = View { at: Some(upto), user_at: None };
        let target = match self.rng.chance(3) {
            true => self.target(b"/".to_vec()),
            false => self.existing(Hlc(upto), Some(FileKind::Directory)),
        };
        let recursive = self.rng.chance(2);
        let count_max = *self.rng.choose(&[0, 0, 3, 20]);
        ask(Request::Story(Story { target, view, after, upto, recursive, count_max, ..Story::default() }))
    }

    pub(super) fn deleted(&mut self, _: &SimClient) -> Vec<Step> {
        let view = if self.rng.chance(2) { self.past() } else { View::NOW };
        let (_, path) = self.directory(view.instant().unwrap_or(Hlc::MAX));
        let target = self.target(if path.is_empty() { b"/".to_vec() } else { path });
        ask(Request::Deleted(Deleted { target, view, after: Vec::new(), count_max: 0 }))
    }

    pub(super) fn last_existed(&mut self, _: &SimClient) -> Vec<Step> {
        let at = Hlc(self.instant());
        let path = self.existing(at, None).path;
        ask(Request::LastExisted(LastExisted { path }))
    }

    pub(super) fn sessions(&mut self, _: &SimClient) -> Vec<Step> {
        let sessions: Vec<u64> = self.witness.model.sessions.keys().copied().collect();
        let after = if self.rng.chance(2) || sessions.is_empty() { 0 } else { *self.rng.choose(&sessions) };
        let since = if self.rng.chance(2) { 0 } else { self.instant() };
        ask(Request::Sessions(Sessions { since, after, count_max: 0 }))
    }
}
