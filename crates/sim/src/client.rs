//! One simulated client: a session, open files, and one request at a time, which is retried under the same number until
//! it is answered or abandoned.

use std::collections::VecDeque;
use std::sync::Arc;

use frieze_base::{ErrorKind, Reason, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::edit::CopyRange;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{Durability, Punch, Read, Reply, Request, RequestBody, Seek, Sync, Txn, View, Write};
use frieze_wire::txn::{CloseSession, Grant, Op, OpenSession, Settle};

use crate::exchange::{ClientRequest, ConnId, Handle, MachineResponse};
use crate::machine::USER;
use crate::past_answers::{Question, QuestionKind};
use crate::witness::{CHUNK_BYTES, is_dry_run};

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    OpenSession,
    CloseSession,
    Txn {
        op: Box<Op>,
        sync: bool,
    },
    Write {
        handle: Handle,
        offset: Option<u64>,
        bytes: Arc<[u8]>,
        sync: bool,
        tries: u32,
    },
    /// Opens a file and then does something with it.
    Open {
        request: Box<Request>,
        then: AfterOpen,
    },
    Read {
        handle: Handle,
        offset: u64,
        len: u32,
        question: Option<Question>,
    },
    Seek {
        handle: Handle,
        offset: u64,
        data: bool,
    },
    Punch {
        handle: Handle,
        offset: u64,
        len: u64,
        sync: bool,
    },
    Sync {
        inode: u64,
    },
    /// A clone, restore, undo or forgetting.
    Edit {
        request: Box<Request>,
    },
    CopyRange {
        source: Handle,
        source_offset: u64,
        target: Handle,
        target_offset: u64,
        len: u64,
    },
    Ask {
        request: Box<Request>,
        question: Option<Question>,
    },
}

/// Use of a file that was opened.
#[derive(Clone, Debug)]
pub(crate) enum AfterOpen {
    Keep,
    Read { offset: u64, len: u32, question: Option<Question> },
}

/// A request on its way.
pub(crate) struct InFlightRequest {
    pub(crate) step: Step,
    pub(crate) ask: ClientRequest,
    pub(crate) attempts: u32,
}

/// A client.
pub(crate) struct SimClient {
    /// On whose behalf it asks.
    pub(crate) uid: u32,
    pub(crate) conn: Option<ConnId>,
    pub(crate) session: u64,
    pub(crate) handles: Vec<Handle>,
    pub(crate) steps: VecDeque<Step>,
    pub(crate) waiting: Option<InFlightRequest>,
    seq: u64,
    requests: u64,
    hlc: Hlc,
}

/// Consequence of an answer.
#[derive(Debug)]
pub(crate) enum ClientAction {
    /// Not the answer it waits for.
    Nothing,
    /// The step is done; an answer about an instant is to be remembered.
    Done(Option<Question>),
    /// Send it again later, under the same number.
    Later,
}

/// Files a client holds open at most.
const HANDLES_MAX: usize = 6;

impl SimClient {
    pub(crate) fn new(uid: u32) -> SimClient {
        SimClient {
            uid,
            conn: None,
            session: 0,
            handles: Vec::new(),
            steps: VecDeque::new(),
            waiting: None,
            seq: 0,
            requests: 0,
            hlc: Hlc::ZERO,
        }
    }

    /// Takes up the next step, if there is one. True if it now waits for an answer.
    pub(crate) fn begin(&mut self) -> bool {
        if self.session == 0 && !matches!(self.steps.front(), None | Some(Step::OpenSession)) {
            self.steps.clear();
            self.steps.push_back(Step::OpenSession);
        }
        let Some(step) = self.steps.pop_front() else { return false };
        let ask = self.prepare(&step);
        self.waiting = Some(InFlightRequest { step, ask, attempts: 0 });
        true
    }

    fn prepare(&mut self, step: &Step) -> ClientRequest {
        let durability = |sync: bool| if sync { Durability::Sync } else { Durability::Async } as i32;
        let mut payload: Arc<[u8]> = [].into();
        let (mut through, mut copied) = (None, None);
        let (request, numbered) = match step {
            Step::OpenSession => {
                let op = Op::OpenSession(OpenSession {
                    command: "sim".to_owned(),
                    host: "sim".to_owned(),
                    uid: self.uid,
                    keeps: false,
                });
                (Request::Txn(Txn { durability: 0, op: Some(op) }), false)
            }
            Step::CloseSession => {
                let op = Op::CloseSession(CloseSession::default());
                (Request::Txn(Txn { durability: 0, op: Some(op) }), true)
            }
            Step::Txn { op, sync } => {
                (Request::Txn(Txn { durability: durability(*sync), op: Some(Op::clone(op)) }), true)
            }
            Step::Write { handle, offset, bytes, sync, .. } => {
                payload = bytes.clone();
                through = Some(handle.clone());
                let write = Write {
                    capability: handle.capability.clone(),
                    offset: offset.unwrap_or(0),
                    append: offset.is_none(),
                    durability: durability(*sync),
                    uid: USER,
                    ..Write::default()
                };
                (Request::Write(write), true)
            }
            Step::Open { request, .. } | Step::Ask { request, .. } => (Request::clone(request), false),
            Step::Read { handle, offset, len, .. } => {
                through = Some(handle.clone());
                let read = Read {
                    capability: handle.capability.clone(),
                    offset: *offset,
                    len: *len,
                    in_steps: true,
                    ..Read::default()
                };
                (Request::Read(read), false)
            }
            Step::Seek { handle, offset, data } => {
                through = Some(handle.clone());
                let seek = Seek { capability: handle.capability.clone(), offset: *offset, data: *data };
                (Request::Seek(seek), false)
            }
            Step::Punch { handle, offset, len, sync } => {
                through = Some(handle.clone());
                let capability = handle.capability.clone();
                let punch = Punch { capability, offset: *offset, len: *len, durability: durability(*sync) };
                (Request::Punch(punch), true)
            }
            Step::Sync { inode } => (Request::Sync(Sync { inode: *inode }), false),
            Step::Edit { request } => (Request::clone(request), !is_dry_run(request)),
            Step::CopyRange { source, source_offset, target, target_offset, len } => {
                through = Some(target.clone());
                copied = Some(source.clone());
                let copy = CopyRange {
                    source: source.capability.clone(),
                    source_offset: *source_offset,
                    target: target.capability.clone(),
                    target_offset: *target_offset,
                    len: *len,
                    also: Vec::new(),
                };
                (Request::CopyRange(copy), true)
            }
        };
        self.seq += u64::from(numbered);
        let seq = if numbered { self.seq } else { 0 };
        let session = if matches!(step, Step::OpenSession) { 0 } else { self.session };
        let header = FrameHeader {
            session: SessionId(session),
            seq: Seq(seq),
            // One request at a time: all earlier ones were answered or abandoned.
            acked: Seq(seq),
            hlc: self.hlc,
            payload_len: payload.len() as u32,
            payload_crc: frieze_base::crc32c(&payload),
            ..FrameHeader::of(FrameKind::Request)
        };
        ClientRequest {
            header,
            body: RequestBody { caller: None, trace: None, request: Some(request) },
            payload,
            handle: through,
            source: copied,
        }
    }

    /// The request it waits for, once more, with a name of its own.
    pub(crate) fn attempt(&mut self) -> Option<ClientRequest> {
        self.requests += 1;
        let waiting = self.waiting.as_mut()?;
        waiting.attempts += 1;
        waiting.ask.header.request_id = self.requests;
        Some(waiting.ask.clone())
    }

    /// Abandons its request: its outcome stays unknown.
    pub(crate) fn abandon(&mut self) {
        self.waiting = None;
    }

    /// An answer has arrived.
    pub(crate) fn on_response(&mut self, answer: &MachineResponse) -> ClientAction {
        let mine = self.conn == Some(answer.conn);
        let of = |waiting: &InFlightRequest| mine && waiting.ask.header.request_id == answer.header.request_id;
        if !self.waiting.as_ref().is_some_and(of) {
            return ClientAction::Nothing;
        }
        self.hlc = self.hlc.max(answer.hlc);
        match &answer.result {
            Err(fault) if fault.kind() == ErrorKind::Unavailable => ClientAction::Later,
            Err(fault) => {
                let Some(InFlightRequest { step, .. }) = self.waiting.take() else { return ClientAction::Nothing };
                self.refused(step, fault.reason)
            }
            Ok(reply) => {
                let Some(InFlightRequest { step, .. }) = self.waiting.take() else { return ClientAction::Nothing };
                self.answered(step, reply)
            }
        }
    }

    fn refused(&mut self, step: Step, reason: Reason) -> ClientAction {
        match (step, reason) {
            (_, Reason::UnknownSession) => {
                self.lose_session();
                return ClientAction::Done(None);
            }
            (Step::Write { handle, offset: Some(offset), bytes, sync, tries }, Reason::Busy) if tries < 3 => {
                let first = (offset / CHUNK_BYTES) as u32;
                let last = ((offset + bytes.len() as u64 - 1) / CHUNK_BYTES) as u32;
                let inode = handle.inode;
                self.steps.push_front(Step::Write { handle, offset: Some(offset), bytes, sync, tries: tries + 1 });
                for first in (first..=last).step_by(16) {
                    let grant = Grant { inode, first, count: (last - first + 1).min(16) };
                    self.steps.push_front(Step::Txn { op: Box::new(Op::Grant(grant)), sync: false });
                }
                return ClientAction::Done(None);
            }
            (
                Step::Write { handle, .. } | Step::Punch { handle, .. } | Step::Read { handle, .. },
                Reason::StaleHandle,
            ) => {
                self.handles.retain(|open| *open != handle);
            }
            (Step::Ask { question, .. } | Step::Read { question, .. }, _) => return ClientAction::Done(question),
            (Step::Open { then: AfterOpen::Read { question, .. }, .. }, _) => return ClientAction::Done(question),
            _ => {}
        }
        ClientAction::Done(None)
    }

    fn answered(&mut self, step: Step, reply: &Reply) -> ClientAction {
        match (step, reply) {
            (Step::OpenSession, Reply::Txn(reply)) => {
                self.lose_session();
                self.session = reply.id;
            }
            (Step::CloseSession, _) => self.lose_session(),
            (Step::Txn { op, .. }, Reply::Txn(reply)) => match (*op, &reply.attr) {
                (Op::Make(_), Some(attr)) if !reply.capability.is_empty() => self.keep(Handle {
                    session: self.session,
                    inode: attr.inode,
                    born: Hlc(attr.born),
                    view: View::NOW,
                    read: true,
                    write: true,
                    capability: reply.capability.clone(),
                }),
                (Op::Settle(Settle { inode, keep_grant: false, .. }), _) => {
                    self.handles.retain(|open| open.inode != inode);
                }
                (Op::SettleAll(all), _) => {
                    let settled = |open: &Handle| all.files.iter().any(|settle| settle.inode == open.inode);
                    self.handles.retain(|open| !settled(open));
                }
                _ => {}
            },
            (Step::Open { request, then }, Reply::Open(reply)) => {
                let Request::Open(ask) = *request else { return ClientAction::Done(None) };
                let handle = Handle {
                    session: self.session,
                    inode: reply.attr.inode,
                    born: Hlc(reply.attr.born),
                    view: ask.view,
                    read: ask.read,
                    write: ask.write,
                    capability: reply.capability.clone(),
                };
                match then {
                    AfterOpen::Keep => self.keep(handle),
                    AfterOpen::Read { offset, len, question } => {
                        self.steps.push_front(Step::Read { handle, offset, len, question });
                    }
                }
            }
            (Step::Ask { question, .. } | Step::Read { question, .. }, _) => return ClientAction::Done(question),
            _ => {}
        }
        ClientAction::Done(None)
    }

    fn keep(&mut self, handle: Handle) {
        if self.handles.len() >= HANDLES_MAX {
            self.handles.remove(0);
        }
        self.handles.push(handle);
    }

    /// The session has ended: handles and plans go with it.
    pub(crate) fn lose_session(&mut self) {
        self.session = 0;
        self.seq = 0;
        self.handles.clear();
        self.steps.clear();
    }

    /// The question that an answer about an instant answers, if it is one to remember.
    pub(crate) fn lasting(view: View, what: QuestionKind, target: &frieze_wire::txn::Target) -> Option<Question> {
        view.at.map(|_| Question { target: target.clone(), view, what })
    }
}
