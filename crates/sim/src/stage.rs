//! A stage for scenarios: the server, its witness and a few clients that run given steps, one after the other, without
//! a network in between.

use std::sync::Arc;

use frieze_base::{Reason, Rng, Seq};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::edit::{CloneTree, Restore, Undo};
use frieze_wire::forget::Forget;
use frieze_wire::message::{Open, Reply, Request, View};
use frieze_wire::txn::{Make, MakeKind, Op, Remove, Rename, SetAttr, SetXattr, Settle, Target};

use crate::auditor::Auditor;
use crate::client::{AfterOpen, ClientAction, SimClient, Step};
use crate::exchange::{ClientRequest, Handle, MachineResponse};
use crate::machine::{Hardware, USER};
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::Witness;
use crate::world::{WALL_US, settings};

/// The stage.
pub(crate) struct Stage {
    pub(crate) witness: Witness,
    pub(crate) auditor: Auditor,
    pub(crate) rng: Rng,
    clients: Vec<SimClient>,
}

impl Stage {
    /// A server that was just made, and `clients` clients with a session each.
    pub(crate) fn new(seed: u64, clients: usize) -> Verdict<Stage> {
        let mut stage = Stage::dark(seed);
        if !stage.witness.start()? {
            return broken(Rule::Restarts, "the first start died");
        }
        for client in 0..clients {
            stage.clients.push(SimClient::new(USER));
            stage.ask(client, Step::OpenSession)?;
        }
        stage.barrier()?;
        Ok(stage)
    }

    /// A machine on which nothing was ever started.
    pub(crate) fn dark(seed: u64) -> Stage {
        let mut rng = Rng::new(seed);
        let hardware = Hardware { seed: rng.next(), settings: settings(), wall_us: WALL_US, breakage: None };
        Stage {
            witness: Witness::new(hardware, Trace::new(false)),
            auditor: Auditor::default(),
            rng,
            clients: Vec::new(),
        }
    }

    /// A millisecond passes.
    fn tick(&mut self) {
        self.witness.machine.time.advance_us(1000);
    }

    /// Sends a step and returns the request, without waiting for the answer.
    pub(crate) fn send(&mut self, client: usize, step: Step) -> Verdict<ClientRequest> {
        self.tick();
        let known = self.clients[client].conn.filter(|conn| self.witness.machine.is_connected(*conn));
        if known.is_none() {
            self.clients[client].conn = Some(self.witness.connect(self.clients[client].uid));
        }
        self.clients[client].abandon();
        self.clients[client].steps.clear();
        self.clients[client].steps.push_back(step);
        self.clients[client].begin();
        let Some(ask) = self.clients[client].attempt() else { return broken(Rule::Live, "nothing to send") };
        self.deliver(client, ask.clone())?;
        Ok(ask)
    }

    /// Hands over a message once more, as a network that doubles it.
    pub(crate) fn deliver(&mut self, client: usize, ask: ClientRequest) -> Verdict {
        let known = self.clients[client].conn.filter(|conn| self.witness.machine.is_connected(*conn));
        let conn = match known {
            Some(conn) => conn,
            None => {
                let conn = self.witness.connect(self.clients[client].uid);
                *self.clients[client].conn.insert(conn)
            }
        };
        self.witness.deliver(conn, ask)
    }

    /// The answer to the client's last request, if there is one.
    pub(crate) fn take_response(&mut self, client: usize) -> Option<MachineResponse> {
        let mut found = None;
        for answer in std::mem::take(&mut self.witness.said) {
            match self.clients[client].on_response(&answer) {
                ClientAction::Nothing => self.witness.said.push(answer),
                _ => found = Some(answer),
            }
        }
        found
    }

    /// Does a step and returns the answer, flushing if it waits for that. `None`: the server died.
    pub(crate) fn ask(&mut self, client: usize, step: Step) -> Verdict<Option<MachineResponse>> {
        self.send(client, step)?;
        if let Some(answer) = self.take_response(client) {
            return Ok(Some(answer));
        }
        self.tick();
        if !self.witness.machine.is_dying() {
            self.witness.flush()?;
        }
        match self.take_response(client) {
            None if !self.witness.machine.is_dying() && !self.witness.read_only => {
                broken(Rule::Live, "a request was not answered by a flush")
            }
            answer => Ok(answer),
        }
    }

    /// Does a step that has to succeed, or to be refused for a reason.
    pub(crate) fn expect(&mut self, client: usize, step: Step, refusal: Option<Reason>) -> Verdict {
        let words = format!("{step:?}");
        let answer = self.ask(client, step)?;
        let found = answer.map(|answer| answer.result.map(|_| ()).map_err(|fault| fault.reason));
        match (&found, refusal) {
            (Some(Ok(())), None) => Ok(()),
            (Some(Err(reason)), Some(refusal)) if *reason == refusal => Ok(()),
            _ => broken(Rule::PromisedErrors, format!("{words} gave {found:?}, expected {refusal:?}")),
        }
    }

    /// Makes a file and returns its handle.
    pub(crate) fn make(&mut self, client: usize, path: &str) -> Verdict<Handle> {
        self.expect(client, txn(make_file(path)), None)?;
        match self.clients[client].handles.last() {
            Some(handle) => Ok(handle.clone()),
            None => broken(Rule::Live, "a file was made and not opened"),
        }
    }

    /// Opens a file for reading and writing.
    pub(crate) fn open(&mut self, client: usize, path: &str) -> Verdict<Handle> {
        let request =
            Request::Open(Open { target: target(path), view: View::NOW, read: true, write: true, made_at: 0 });
        self.expect(client, Step::Open { request: Box::new(request), then: AfterOpen::Keep }, None)?;
        match self.clients[client].handles.last() {
            Some(handle) => Ok(handle.clone()),
            None => broken(Rule::Live, "a file was opened and there is no handle"),
        }
    }

    /// The file that a client opened last.
    pub(crate) fn handle(&self, client: usize) -> Option<Handle> {
        self.clients[client].handles.last().cloned()
    }

    /// A client's connection ends.
    pub(crate) fn hang_up(&mut self, client: usize) {
        if let Some(conn) = self.clients[client].conn.take() {
            self.witness.disconnect(conn);
        }
    }

    /// Everything so far becomes durable.
    pub(crate) fn barrier(&mut self) -> Verdict {
        self.expect(0, Step::Sync { inode: 0 }, None)
    }

    /// Ends the process or the power, starts again, and looks at everything.
    pub(crate) fn crash(&mut self, kind: CrashKind) -> Verdict {
        self.witness.die(kind);
        self.tick();
        self.restart()
    }

    /// Starts the server and looks at everything.
    pub(crate) fn restart(&mut self) -> Verdict {
        if !self.witness.start()? {
            return broken(Rule::Restarts, "it died while it started, and nothing made it");
        }
        let wait_us = self.witness.machine.restart_wait_us();
        self.witness.machine.time.advance_us(wait_us);
        self.look()
    }

    /// Looks at everything, now and at a few instants.
    pub(crate) fn look(&mut self) -> Verdict {
        self.auditor.audit(&mut self.witness, None)?;
        for _ in 0..3 {
            let effects = &self.witness.journal.effects;
            let at = effects[self.rng.below(effects.len() as u64) as usize].stamp;
            self.auditor.audit(&mut self.witness, Some(at))?;
        }
        Ok(())
    }

    /// `len` random bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Arc<[u8]> {
        let mut bytes = vec![0u8; len];
        self.rng.fill(&mut bytes);
        bytes.into()
    }

    /// A write to a handle; `None`: an append.
    pub(crate) fn write(&mut self, handle: &Handle, offset: Option<u64>, len: usize, sync: bool) -> Step {
        Step::Write { handle: handle.clone(), offset, bytes: self.bytes(len), sync, tries: 0 }
    }
}

/// The same request as one that was sent before it, under an older number: a message that comes late.
pub(crate) fn late(ask: &ClientRequest, request_id: u64) -> ClientRequest {
    let mut ask = ask.clone();
    ask.header.request_id = request_id;
    debug_assert!(ask.header.seq != Seq(0), "only changes are numbered");
    ask
}

pub(crate) fn target(path: &str) -> Target {
    Target { base: 1, path: path.as_bytes().to_vec(), follow: false }
}

pub(crate) fn txn(op: Op) -> Step {
    Step::Txn { op: Box::new(op), sync: false }
}

pub(crate) fn sync_txn(op: Op) -> Step {
    Step::Txn { op: Box::new(op), sync: true }
}

pub(crate) fn make_file(path: &str) -> Op {
    Op::Make(Make {
        target: target(path),
        mode: 0o644,
        or_open: false,
        kind: Some(MakeKind::File(true)),
        ..Make::default()
    })
}

pub(crate) fn make_directory(path: &str) -> Op {
    Op::Make(Make {
        target: target(path),
        mode: 0o755,
        or_open: false,
        kind: Some(MakeKind::Directory(true)),
        ..Make::default()
    })
}

pub(crate) fn unlink(path: &str) -> Op {
    Op::Remove(Remove { target: target(path), directory: false })
}

pub(crate) fn rename(from: &str, to: &str) -> Op {
    Op::Rename(Rename { from: target(from), to: target(to), flags: 0 })
}

pub(crate) fn truncate(path: &str, len: u64) -> Op {
    Op::SetAttr(SetAttr { target: target(path), size: Some(len), ..SetAttr::default() })
}

pub(crate) fn set_xattr(path: &str, value: Vec<u8>) -> Op {
    Op::SetXattr(SetXattr { target: target(path), name: b"user.note".to_vec(), value, flags: 0 })
}

pub(crate) fn clone_tree(from: &str, at: Hlc, to: &str) -> Step {
    let ask = CloneTree { source: target(from), at: at.0, target: target(to), dry_run: false };
    Step::Edit { request: Box::new(Request::Clone(ask)) }
}

pub(crate) fn restore(path: &str, at: Hlc) -> Step {
    let ask = Restore { target: target(path), at: at.0, delete: true, dry_run: false };
    Step::Edit { request: Box::new(Request::Restore(ask)) }
}

/// Expires the history of a path before an instant.
pub(crate) fn forget(path: &str, before: Hlc) -> Step {
    let ask = Forget { target: target(path), before: before.0, dry_run: false, with_snapshots: false };
    Step::Edit { request: Box::new(Request::Forget(ask)) }
}

/// Undoes everything since an instant.
pub(crate) fn undo(after: Hlc) -> Step {
    let ask = Undo { target: target("/"), after: after.0, ..Undo::default() };
    Step::Edit { request: Box::new(Request::Undo(ask)) }
}

pub(crate) fn settle(handle: &Handle, keep_grant: bool) -> Op {
    Op::Settle(Settle { inode: handle.inode, keep_grant, ..Settle::default() })
}

/// A read of now from the start of a file.
pub(crate) fn read(handle: &Handle, len: u32) -> Step {
    Step::Read { handle: handle.clone(), offset: 0, len, question: None }
}

/// The attributes of a path at an instant.
pub(crate) fn stat_at(path: &str, at: Hlc) -> Step {
    let view = View { at: Some(at.0), user_at: None };
    let request = Request::Stat(frieze_wire::message::Stat { target: target(path), view, ..Default::default() });
    Step::Ask { request: Box::new(request), question: None }
}

/// The stamp of an acknowledged change.
pub(crate) fn stamp_of(answer: Option<MachineResponse>) -> Hlc {
    match answer.map(|answer| answer.result) {
        Some(Ok(Reply::Txn(reply))) => Hlc(reply.stamp),
        Some(Ok(Reply::Write(reply))) => Hlc(reply.stamp),
        _ => Hlc::ZERO,
    }
}
