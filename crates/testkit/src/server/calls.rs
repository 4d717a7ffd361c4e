//! What a test asks of a server, a method each. A method without a `Result` panics if the server refuses.

use frieze_base::{ByteRange, Fault, Reason, SessionId};
use frieze_node::Scratch;
use frieze_wire::edit::{ChangeTree, CloneTree, CopyRange, EditReply, JoinFiles, RemoveTree, Restore, Undo};
use frieze_wire::forget::{Forget, ForgetReply};
use frieze_wire::holding::{Recalls, RecallsReply};
use frieze_wire::message::{
    Durability, Now, NowReply, Open, Punch, PunchReply, Read, Reply, Request, Seek, Stat, StatReply, Status,
    StatusReply, View,
};
use frieze_wire::scrub::{Scrub, ScrubAction, ScrubReply, ScrubState};
use frieze_wire::timeline::{Diff, DiffReply, Sessions, SessionsReply, Story, StoryReply};
use frieze_wire::txn::{Grant, Make, MakeKind, MakeNameless, MakeSnapshot, Op, Remove, Rename, SetAttr, Target};

use super::{SimMachine, TestConnection};

/// A session and the number of its last change: several take turns on one connection.
#[derive(Clone, Copy)]
pub struct SessionPlace {
    /// The session.
    pub session: SessionId,
    /// Number of its last change.
    pub seq: u64,
}

/// Names and attributes.
impl TestConnection {
    /// Makes a file and returns its capability.
    pub fn make(&mut self, path: &str) -> Vec<u8> {
        self.try_make(path, MakeKind::File(true), false).expect("makes")
    }

    /// Makes a file or directory, or opens it if `or_open`; returns its capability.
    ///
    /// # Errors
    /// The server's answer.
    pub fn try_make(&mut self, path: &str, kind: MakeKind, or_open: bool) -> Result<Vec<u8>, Fault> {
        let mode = if matches!(kind, MakeKind::Directory(_)) { 0o755 } else { 0o644 };
        let make = Make { target: Target::path(path), mode, or_open, kind: Some(kind), ..Make::default() };
        self.txn(Op::Make(make)).map(|reply| reply.capability)
    }

    /// Makes a file with these bytes.
    pub fn make_with(&mut self, path: &str, bytes: &[u8]) {
        let file = self.make(path);
        self.write(&file, Some(0), bytes).expect("writes");
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, path: &str) {
        self.try_make(path, MakeKind::Directory(true), false).expect("makes");
    }

    /// Removes a name; returns the stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn remove(&mut self, path: &str, directory: bool) -> Result<u64, Fault> {
        self.txn(Op::Remove(Remove { target: Target::path(path), directory })).map(|reply| reply.stamp)
    }

    /// Renames; returns the stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<u64, Fault> {
        let rename = Rename { from: Target::path(from), to: Target::path(to), flags: 0 };
        self.txn(Op::Rename(rename)).map(|reply| reply.stamp)
    }

    /// Changes attributes; returns the stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn set_attr(&mut self, path: &str, set: SetAttr) -> Result<u64, Fault> {
        self.txn(Op::SetAttr(SetAttr { target: Target::path(path), ..set })).map(|reply| reply.stamp)
    }

    /// Changes the mode; returns the stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn chmod(&mut self, path: &str, mode: u32) -> Result<u64, Fault> {
        self.set_attr(path, SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Asks for a change of the mode; returns the request's id.
    pub fn send_chmod(&mut self, path: &str, mode: u32) -> u64 {
        self.send_txn(Op::SetAttr(SetAttr { target: Target::path(path), mode: Some(mode), ..SetAttr::default() }))
    }

    /// Changes the owner.
    pub fn chown(&mut self, path: &str, uid: u32) {
        self.set_attr(path, SetAttr { uid: Some(uid), ..SetAttr::default() }).expect("changes the owner");
    }

    /// Cuts or extends a file; returns the stamp.
    pub fn truncate(&mut self, path: &str, size: u64) -> u64 {
        self.try_truncate(path, size).unwrap()
    }

    /// Cuts or extends a file; returns the stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn try_truncate(&mut self, path: &str, size: u64) -> Result<u64, Fault> {
        self.set_attr(path, SetAttr { size: Some(size), ..SetAttr::default() })
    }

    /// Attributes.
    ///
    /// # Errors
    /// The server's answer.
    pub fn stat(&mut self, path: &str, view: View) -> Result<StatReply, Fault> {
        match self.ask(Request::Stat(Stat { target: Target::path(path), view, ..Stat::default() }))? {
            Reply::Stat(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Number of the inode, if the name is there.
    pub fn inode(&mut self, path: &str, view: View) -> Option<u64> {
        self.stat(path, view).ok().map(|reply| reply.attr.inode)
    }

    /// Names this instant.
    pub fn make_snapshot(&mut self, name: &str) -> u64 {
        self.txn(Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: 0, count_max: 0 })).expect("names").stamp
    }
}

/// Bytes.
impl TestConnection {
    /// Opens for reading and writing, with grants on the first chunks; returns the capability.
    ///
    /// # Errors
    /// The server's answer.
    pub fn open(&mut self, path: &str) -> Result<Vec<u8>, Fault> {
        self.open_session();
        let open = Open { target: Target::path(path), view: View::NOW, read: true, write: true, made_at: 0 };
        let Reply::Open(open) = self.ask(Request::Open(open))? else { panic!("no open file") };
        self.txn(Op::Grant(Grant { inode: open.attr.inode, first: 0, count: 4 }))?;
        Ok(open.capability)
    }

    /// Opens for reading; returns the capability.
    ///
    /// # Errors
    /// The server's answer.
    pub fn open_to_read(&mut self, path: &str, view: View) -> Result<Vec<u8>, Fault> {
        let open = Open { target: Target::path(path), view, read: true, write: false, made_at: 0 };
        let Reply::Open(open) = self.ask(Request::Open(open))? else { panic!("no open file") };
        Ok(open.capability)
    }

    /// Gets the right to write chunks of a file.
    pub fn grant(&mut self, path: &str, first: u32, count: u32) {
        let inode = self.stat(path, View::NOW).unwrap().attr.inode;
        self.txn(Op::Grant(Grant { inode, first, count })).unwrap();
    }

    /// Writes, or appends without an offset; returns stamp and offset.
    ///
    /// # Errors
    /// The server's answer.
    pub fn write(&mut self, capability: &[u8], offset: Option<u64>, bytes: &[u8]) -> Result<(u64, u64), Fault> {
        let id = self.send_next(Self::write_request(capability, offset, Durability::Async), bytes);
        match self.reply(id)? {
            Reply::Write(reply) => Ok((reply.stamp, reply.offset)),
            other => panic!("{other:?}"),
        }
    }

    /// Writes these bytes at the start of a file, which is made if it is not there; returns the newest stamp.
    pub fn write_file(&mut self, path: &str, bytes: &[u8]) -> u64 {
        if self.stat(path, View::NOW).is_err() {
            self.make(path);
        }
        let file = self.open(path).unwrap();
        self.write(&file, Some(0), bytes).unwrap();
        self.server.newest().0
    }

    /// Writes these bytes at the start of a file, which is made if it is not there.
    ///
    /// # Errors
    /// The server's answer.
    pub fn try_write_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), Fault> {
        self.try_make(path, MakeKind::File(true), true)?;
        let capability = self.open(path)?;
        self.write(&capability, Some(0), bytes).map(drop)
    }

    /// Sends a write as over a socket, on a connection with this scratch; returns the request's id.
    pub fn send_write(
        &mut self,
        scratch: &mut Scratch,
        capability: &[u8],
        offset: Option<u64>,
        durability: Durability,
        bytes: &[u8],
    ) -> u64 {
        self.seq += 1;
        let seq = frieze_base::Seq(self.seq);
        let request = Self::write_request(capability, offset, durability);
        self.send_frame(request, bytes, scratch, |header| header.seq = seq)
    }

    /// Begins a stream of writes; returns the connection's scratch.
    pub fn begin_stream(&mut self, capability: &[u8], offset: u64, bytes: &[u8]) -> Scratch {
        let mut scratch = Scratch::default();
        self.continue_stream(&mut scratch, capability, offset, bytes).expect("writes");
        scratch
    }

    /// Writes the next part of a stream; returns its stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn continue_stream(
        &mut self,
        scratch: &mut Scratch,
        capability: &[u8],
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, Fault> {
        let id = self.send_write(scratch, capability, Some(offset), Durability::Async, bytes);
        match self.reply(id)? {
            Reply::Write(reply) => Ok(reply.stamp),
            other => panic!("{other:?}"),
        }
    }

    /// Reads the first MiB of a file.
    ///
    /// # Errors
    /// The server's answer.
    pub fn read(&mut self, path: &str, view: View) -> Result<Vec<u8>, Fault> {
        self.open_session();
        let capability = self.open_to_read(path, view)?;
        self.read_open(&capability, 0, 1 << 20)
    }

    /// Reads the first MiB of a file as it was at a stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn at(&mut self, path: &str, stamp: u64) -> Result<Vec<u8>, Fault> {
        self.read(path, View { at: Some(stamp), user_at: None })
    }

    /// Why a file cannot be read at a stamp.
    pub fn reason_at(&mut self, path: &str, stamp: u64) -> Reason {
        self.at(path, stamp).unwrap_err().reason
    }

    /// Reads from an open file.
    ///
    /// # Errors
    /// The server's answer.
    pub fn read_open(&mut self, capability: &[u8], offset: u64, len: u32) -> Result<Vec<u8>, Fault> {
        let capability = capability.to_vec();
        let read = Read { capability, offset, len, in_steps: false, ..Read::default() };
        let id = self.send(Request::Read(read), &[], 0);
        let (reply, payload) = self.answer(id).expect("answered at once");
        reply.map(|_| payload)
    }

    /// Reads a range of an open file whole and in steps, which give the same.
    ///
    /// # Errors
    /// The server's answer, the same for both.
    pub fn read_both_ways(&mut self, capability: &[u8], range: ByteRange) -> Result<Vec<u8>, Fault> {
        let mut ask = |in_steps| {
            let (capability, offset, len) = (capability.to_vec(), range.start(), range.len() as u32);
            let read = Read { capability, offset, len, in_steps, ..Read::default() };
            let id = self.send(Request::Read(read), &[], 0);
            self.answer(id).expect("answered at once")
        };
        let ((whole, bytes), (steps, stepped)) = (ask(false), ask(true));
        assert_eq!(whole.as_ref().err(), steps.as_ref().err());
        assert!(bytes == stepped, "{range:?} reads differently in steps");
        whole.map(|_| bytes)
    }

    /// The request that makes a hole in an open file.
    pub fn punch_request(capability: &[u8], offset: u64, len: u64, durability: Durability) -> Request {
        Request::Punch(Punch { capability: capability.to_vec(), offset, len, durability: durability as i32 })
    }

    /// Makes a hole in an open file.
    ///
    /// # Errors
    /// The server's answer.
    pub fn punch(&mut self, capability: &[u8], offset: u64, len: u64) -> Result<PunchReply, Fault> {
        let id = self.send_next(Self::punch_request(capability, offset, len, Durability::Async), &[]);
        match self.reply(id)? {
            Reply::Punch(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// The next data, or the next hole, from `offset` on.
    pub fn seek(&mut self, path: &str, view: View, offset: u64, data: bool) -> Option<u64> {
        let capability = self.open_to_read(path, view).unwrap();
        match self.ask(Request::Seek(Seek { capability, offset, data })) {
            Ok(Reply::Seek(found)) => Some(found),
            Err(fault) if fault.reason == Reason::NotFound => None,
            other => panic!("{other:?}"),
        }
    }

    /// Every border between data and hole.
    pub fn borders(&mut self, path: &str, view: View) -> Vec<u64> {
        let (mut found, mut at, mut data) = (Vec::new(), 0, true);
        while let Some(next) = self.seek(path, view, at, data) {
            found.push(next);
            (at, data) = (next, !data);
        }
        found
    }

    /// Bytes of a file that are no hole.
    pub fn bytes_live(&mut self, path: &str, view: View) -> u64 {
        self.stat(path, view).unwrap().attr.bytes_live
    }
}

/// Trees and history.
impl TestConnection {
    /// Changes a tree or several files at once.
    ///
    /// # Errors
    /// The server's answer.
    pub fn edit(&mut self, request: Request) -> Result<EditReply, Fault> {
        self.open_session();
        let id = self.send_next(request, &[]);
        match self.reply(id)? {
            Reply::Edited(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Clones a tree as it was at a stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn clone_tree(&mut self, from: &str, at: u64, to: &str) -> Result<EditReply, Fault> {
        let (source, target) = (Target::path(from), Target::path(to));
        self.edit(Request::Clone(CloneTree { source, at, target, dry_run: false }))
    }

    /// Restores a tree to a stamp; `delete` removes what was made since.
    ///
    /// # Errors
    /// The server's answer.
    pub fn restore(&mut self, path: &str, at: u64, delete: bool) -> Result<EditReply, Fault> {
        self.edit(Request::Restore(Restore { target: Target::path(path), at, delete, dry_run: false }))
    }

    /// Undoes what sessions did.
    ///
    /// # Errors
    /// The server's answer.
    pub fn undo(&mut self, sessions: &[u64]) -> Result<EditReply, Fault> {
        let sessions = sessions.to_vec();
        self.edit(Request::Undo(Undo { target: Target::path("/"), sessions, ..Undo::default() }))
    }

    /// Removes a tree.
    ///
    /// # Errors
    /// The server's answer.
    pub fn remove_tree(&mut self, path: &str, dry_run: bool) -> Result<EditReply, Fault> {
        self.edit(Request::RemoveTree(RemoveTree { target: Target::path(path), dry_run }))
    }

    /// Changes mode and owner of a tree.
    ///
    /// # Errors
    /// The server's answer.
    pub fn change_tree(&mut self, change: ChangeTree) -> Result<EditReply, Fault> {
        self.edit(Request::ChangeTree(change))
    }

    /// Appends files to an open file, and removes them.
    ///
    /// # Errors
    /// The server's answer.
    pub fn join(&mut self, target: &[u8], sources: &[&str]) -> Result<EditReply, Fault> {
        let sources = sources.iter().map(|path| Target::path(*path)).collect();
        self.edit(Request::JoinFiles(JoinFiles { target: target.to_vec(), sources }))
    }

    /// Writes these bytes to all of these places, or to none.
    ///
    /// # Errors
    /// The server's answer.
    pub fn write_together(&mut self, parts: &[(&str, u64, &[u8])]) -> Result<EditReply, Fault> {
        let ask = self.stage_together(parts)?;
        self.edit(ask)
    }

    /// Writes these bytes to a file without a name; the returned request shows them in all of these places.
    ///
    /// # Errors
    /// The server's answer.
    pub fn stage_together(&mut self, parts: &[(&str, u64, &[u8])]) -> Result<Request, Fault> {
        let opened: Vec<Vec<u8>> = parts.iter().map(|(path, ..)| self.open(path)).collect::<Result<_, _>>()?;
        let beside = self.inode(parts[0].0, View::NOW).expect("it was opened");
        let staged = self.txn(Op::MakeNameless(MakeNameless { beside }))?;
        self.txn(Op::Grant(Grant { inode: staged.id, first: 0, count: 8 }))?;
        let mut ranges = Vec::new();
        let mut at = 0;
        for ((_, offset, bytes), target) in parts.iter().zip(opened) {
            self.write(&staged.capability, Some(at), bytes)?;
            ranges.push(CopyRange {
                source: staged.capability.clone(),
                source_offset: at,
                target,
                target_offset: *offset,
                len: bytes.len() as u64,
                also: Vec::new(),
            });
            at += bytes.len() as u64;
        }
        let also = ranges.split_off(1);
        Ok(Request::CopyRange(CopyRange { also, ..ranges.remove(0) }))
    }

    /// What differs in a tree between two stamps.
    ///
    /// # Errors
    /// The server's answer.
    pub fn diff(&mut self, path: &str, from: u64, to: u64) -> Result<DiffReply, Fault> {
        let ask = Diff { target: Target::path(path), from, to, skip: 0, count_max: 0 };
        match self.ask(Request::Diff(ask))? {
            Reply::Diff(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// What happened to a name in an interval.
    pub fn story(&mut self, path: &str, after: u64, upto: u64, count_max: u32) -> StoryReply {
        let view = View { at: Some(upto), user_at: None };
        let ask =
            Story { target: Target::path(path), view, after, upto, recursive: false, count_max, ..Story::default() };
        match self.ask(Request::Story(ask)) {
            Ok(Reply::Story(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Forgets the history of a tree before a stamp.
    pub fn forget(&mut self, path: &str, before: u64) -> ForgetReply {
        self.try_forget(path, before).unwrap()
    }

    /// Forgets the history of a tree before a stamp.
    ///
    /// # Errors
    /// The server's answer.
    pub fn try_forget(&mut self, path: &str, before: u64) -> Result<ForgetReply, Fault> {
        self.forget_with(Forget { target: Target::path(path), before, dry_run: false, with_snapshots: false })
    }

    /// What forgetting the history of a tree before a stamp would do.
    ///
    /// # Errors
    /// The server's answer.
    pub fn plan_forget(&mut self, path: &str, before: u64) -> Result<ForgetReply, Fault> {
        self.forget_with(Forget { target: Target::path(path), before, dry_run: true, with_snapshots: false })
    }

    /// Forgets the history of a tree before a stamp, and the snapshots of it.
    ///
    /// # Errors
    /// The server's answer.
    pub fn forget_with_snapshots(&mut self, path: &str, before: u64) -> Result<ForgetReply, Fault> {
        self.forget_with(Forget { target: Target::path(path), before, dry_run: false, with_snapshots: true })
    }

    /// Forgets history.
    ///
    /// # Errors
    /// The server's answer.
    pub fn forget_with(&mut self, ask: Forget) -> Result<ForgetReply, Fault> {
        self.open_session();
        let id = self.send_next(Request::Forget(ask), &[]);
        match self.reply(id)? {
            Reply::Forgot(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }
}

/// The server and its sessions.
impl TestConnection {
    /// Status of the server.
    pub fn status(&mut self) -> StatusReply {
        match self.ask(Request::Status(Status {})) {
            Ok(Reply::Status(status)) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// The present, named.
    ///
    /// # Errors
    /// The server's answer.
    pub fn now_named(&mut self, name: &str) -> Result<NowReply, Fault> {
        match self.ask(Request::Now(Now { name: name.to_owned(), nearest: 0 }))? {
            Reply::Now(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Starts, stops or shows a scrub.
    ///
    /// # Errors
    /// The server's answer.
    pub fn ask_scrub(&mut self, action: ScrubAction) -> Result<ScrubReply, Fault> {
        let ask = Scrub { action: action as i32, bytes_per_s: 0, with_findings: true };
        match self.ask(Request::Scrub(ask))? {
            Reply::Scrub(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    /// Progress and findings of the scrub.
    pub fn scrub_state(&mut self) -> ScrubReply {
        self.ask_scrub(ScrubAction::Look).unwrap()
    }

    /// Scrubs to the end.
    pub fn scrub(&mut self) -> ScrubReply {
        self.ask_scrub(ScrubAction::Start).unwrap();
        self.server.scrub(&|_| true).unwrap();
        let reply = self.scrub_state();
        assert_eq!((reply.state(), reply.trouble.as_str()), (ScrubState::Finished, ""));
        assert_eq!(reply.done_bytes, reply.all_bytes);
        reply
    }

    /// A page of the sessions, ended ones too.
    pub fn sessions(&mut self, count_max: u32, after: u64) -> SessionsReply {
        match self.ask(Request::Sessions(Sessions { since: 0, after, count_max })) {
            Ok(Reply::Sessions(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a session to its end, which makes a file or nothing; returns its number.
    pub fn run_session(&mut self, command: &str, makes: Option<&str>) -> u64 {
        let id = self.open_session_as(command, "h");
        if let Some(path) = makes {
            self.make(path);
        }
        self.close_session();
        id
    }

    /// Advances the time, and runs the upkeep of sessions for eight seconds more.
    pub fn tend_after(&self, machine: &SimMachine, us: u64) {
        machine.time.advance_us(us);
        for _ in 0..16 {
            self.server.tend().expect("tends");
            machine.time.advance_us(500_000);
        }
    }

    /// Opens another session.
    pub fn new_session(&mut self) -> SessionPlace {
        self.session = SessionId(0);
        self.open_session();
        SessionPlace { session: self.session, seq: self.seq }
    }

    /// Continues with session `now` where `before` made the last requests.
    pub fn switch_session(&mut self, sessions: &mut [SessionPlace], before: usize, now: usize) -> SessionId {
        sessions[before].seq = self.seq;
        (self.session, self.seq) = (sessions[now].session, sessions[now].seq);
        self.session
    }

    /// Keeps a request for recalls waiting, which acknowledges those before it; returns its id.
    pub fn wait_for_recalls(&mut self, acked: u64, life: u64) -> u64 {
        self.send(Request::Recalls(Recalls { acked, life, ..Recalls::default() }), &[], 0)
    }

    /// The recalls that were sent in answer to a request, if any.
    pub fn recalls(&self, request: u64) -> Option<RecallsReply> {
        match self.answer(request)?.0 {
            Ok(Reply::Recalls(reply)) => Some(reply),
            other => panic!("{other:?}"),
        }
    }
}
