//! An auditor with all rights: it walks the whole tree at an instant, and repeats questions that were answered before.
//! It calls the server past the network; its answers are judged like all others.

use frieze_base::{Reason, Rng, Seq, SessionId};
use frieze_hlc::Hlc;
use frieze_wire::frame::{FrameHeader, FrameKind};
use frieze_wire::message::{
    Attr, DirEntry, FileKind, GetXattr, List, Log, Open, Read, ReadLink, Reply, Request, RequestBody, Snapshots, Stat,
    Txn, View,
};
use frieze_wire::txn::{Op, OpenSession, Target};
use prost::Message;

use crate::exchange::{ClientRequest, ConnId, Handle, MachineResponse};
use crate::past_answers::{ComparableAnswer, Question, QuestionKind, entries_of};
use crate::violation::{Rule, Verdict, broken};
use crate::witness::Witness;

/// The auditor.
#[derive(Default)]
pub(crate) struct Auditor {
    conn: Option<ConnId>,
    session: u64,
    requests: u64,
}

/// An answer to a remembered question, and whether it says that it is incomplete (where it can).
type RepeatedAnswer = (ComparableAnswer, Option<bool>);

impl Auditor {
    /// Asks one thing. `None`: the server died over it.
    pub(crate) fn ask(
        &mut self,
        witness: &mut Witness,
        request: Request,
        handle: Option<Handle>,
    ) -> Verdict<Option<MachineResponse>> {
        let conn = match self.conn.filter(|conn| witness.machine.is_connected(*conn)) {
            Some(conn) => conn,
            None => *self.conn.insert(witness.connect(0)),
        };
        self.requests += 1;
        let header = FrameHeader {
            request_id: self.requests,
            session: SessionId(self.session),
            seq: Seq(0),
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = RequestBody { caller: None, trace: None, request: Some(request) };
        witness.deliver(conn, ClientRequest { header, body, payload: [].into(), handle, source: None })?;
        let mine = |answer: &MachineResponse| answer.conn == conn && answer.header.request_id == self.requests;
        let found = witness.said.iter().position(mine).map(|place| witness.said.remove(place));
        match found {
            None if !witness.machine.is_dying() => broken(Rule::Live, "a question was not answered at once"),
            found => Ok(found),
        }
    }

    /// Makes sure of a session to open files in. False if there is none to be had now.
    fn in_session(&mut self, witness: &mut Witness) -> Verdict<bool> {
        if witness.model.sessions.contains_key(&self.session) {
            return Ok(true);
        }
        self.session = 0;
        let open = OpenSession { command: "audit".to_owned(), host: "sim".to_owned(), uid: 0, keeps: false };
        let request = Request::Txn(Txn { durability: 0, op: Some(Op::OpenSession(open)) });
        if let Some(MachineResponse { result: Ok(Reply::Txn(reply)), .. }) = self.ask(witness, request, None)? {
            self.session = reply.id;
        }
        Ok(self.session != 0)
    }

    /// Looks at everything at an instant (`None`: now). False if the server died over it.
    pub(crate) fn audit(&mut self, witness: &mut Witness, at: Option<Hlc>) -> Verdict<bool> {
        if let Err(what) = witness.model.tree.check(at.unwrap_or(Hlc::MAX)) {
            return broken(Rule::Tree, format!("the model itself is no tree: {what}"));
        }
        let view = View { at: at.map(|at| at.0), user_at: None };
        if at.is_none()
            && self
                .ask(
                    witness,
                    Request::Snapshots(Snapshots { with_bytes: false, after: String::new(), count_max: 0 }),
                    None,
                )?
                .is_none()
        {
            return Ok(false);
        }
        let has_session = self.in_session(witness)?;
        let mut left = vec![Vec::new()];
        while let Some(directory) = left.pop() {
            let target = Target { base: 1, path: directory.clone(), follow: false };
            let list = List {
                target: target.clone(),
                view,
                after: Vec::new(),
                count_max: 0,
                with_attrs: true,
                by_handle: false,
            };
            let Some(answer) = self.ask(witness, Request::List(list), None)? else { return Ok(false) };
            let Ok(Reply::List(reply)) = answer.result else { continue };
            for entry in reply.entries {
                let path = [&directory[..], &b"/"[..], &entry.name[..]].concat();
                let target = Target { base: 1, path: path.clone(), follow: false };
                let attr = entry.attr.as_ref();
                let died = match FileKind::try_from(entry.kind) {
                    Ok(FileKind::Directory) => {
                        left.push(path);
                        !self.look_at_xattrs(witness, &target, view)?
                    }
                    Ok(FileKind::Symlink) => {
                        let ask = ReadLink { target, view };
                        self.ask(witness, Request::ReadLink(ask), None)?.is_none()
                    }
                    _ if has_session => {
                        let log =
                            Log { target: target.clone(), view, after: 0, count_max: 0, upto: 0, ..Log::default() };
                        self.ask(witness, Request::Log(log), None)?.is_none()
                            || !self.look_at_xattrs(witness, &target, view)?
                            || !self.read_whole(witness, target, view, attr)?
                    }
                    _ => false,
                };
                if died {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn look_at_xattrs(&mut self, witness: &mut Witness, target: &Target, view: View) -> Verdict<bool> {
        let ask = |name: &[u8]| Request::GetXattr(GetXattr { target: target.clone(), view, name: name.to_vec() });
        let Some(answer) = self.ask(witness, ask(b""), None)? else { return Ok(false) };
        let Ok(Reply::Bytes(names)) = answer.result else { return Ok(true) };
        for name in names.value.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if self.ask(witness, ask(name), None)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn read_whole(&mut self, witness: &mut Witness, target: Target, view: View, attr: Option<&Attr>) -> Verdict<bool> {
        let size = attr.map_or(0, |attr| attr.size);
        let Some(opened) = self.open(witness, target, view)? else { return Ok(false) };
        let Some(handle) = opened else { return Ok(true) };
        let mut offset = 0;
        // A file with a far write is mostly hole: the auditor reads both its ends.
        if size > WHOLE_BYTES {
            let ask = Read {
                capability: handle.capability.clone(),
                offset: size - WHOLE_BYTES,
                len: WHOLE_BYTES as u32,
                in_steps: true,
                ..Read::default()
            };
            if self.ask(witness, Request::Read(ask), Some(handle.clone()))?.is_none() {
                return Ok(false);
            }
        }
        while offset <= size.min(WHOLE_BYTES) {
            let ask = Read {
                capability: handle.capability.clone(),
                offset,
                len: STEP_BYTES,
                in_steps: true,
                ..Read::default()
            };
            if self.ask(witness, Request::Read(ask), Some(handle.clone()))?.is_none() {
                return Ok(false);
            }
            offset += u64::from(STEP_BYTES);
        }
        Ok(true)
    }

    /// `None`: died. `Some(None)`: refused.
    fn open(&mut self, witness: &mut Witness, target: Target, view: View) -> Verdict<Option<Option<Handle>>> {
        let ask = Open { target, view, read: true, write: false, made_at: 0 };
        let Some(answer) = self.ask(witness, Request::Open(ask), None)? else { return Ok(None) };
        let Ok(Reply::Open(reply)) = answer.result else { return Ok(Some(None)) };
        Ok(Some(Some(Handle {
            session: self.session,
            inode: reply.attr.inode,
            born: Hlc(reply.attr.born),
            view,
            read: true,
            write: false,
            capability: reply.capability,
        })))
    }

    /// Asks again something that was answered before, and compares. False if the server died over it.
    pub(crate) fn ask_again(&mut self, witness: &mut Witness, place: usize) -> Verdict<bool> {
        let (question, before) = witness.memory.get(place);
        if matches!(question.what, QuestionKind::Bytes { .. }) && !self.in_session(witness)? {
            return Ok(true);
        }
        let Some((comparable_answer, incomplete)) = self.question(witness, &question)? else { return Ok(false) };
        let excused = |code: u32| witness.excused(Reason::from_code(code));
        if comparable_answer == before || comparable_answer.as_ref().is_err_and(|code| excused(*code)) {
            return Ok(true);
        }
        // Forgotten since: that it is was judged when the answer came.
        let lists = question.what == QuestionKind::List && is_less_of_a_list(&before, &comparable_answer);
        if lists || comparable_answer == Err(Reason::HistoryExpired as u32) {
            witness.memory.replace(place, comparable_answer);
            return Ok(true);
        }
        let in_gap = question.view.instant().is_some_and(|at| witness.in_gap(at));
        if !in_gap || incomplete == Some(false) {
            return broken(
                Rule::SameForEver,
                format!("{question:?} was answered {} and is answered {}", brief(&before), brief(&comparable_answer)),
            );
        }
        witness.memory.replace(place, comparable_answer);
        Ok(true)
    }

    /// Repeats some of the earlier questions.
    pub(crate) fn ask_some_again(&mut self, witness: &mut Witness, rng: &mut Rng, count: usize) -> Verdict<bool> {
        for _ in 0..count {
            let Some(place) = witness.memory.choose(rng) else { return Ok(true) };
            if !self.ask_again(witness, place)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn question(&mut self, witness: &mut Witness, question: &Question) -> Verdict<Option<RepeatedAnswer>> {
        let Question { target, view, what } = question;
        let (target, view) = (target.clone(), *view);
        let request = match what {
            QuestionKind::Stat => Request::Stat(Stat { target, view, ..Stat::default() }),
            QuestionKind::List => Request::List(List {
                target,
                view,
                after: Vec::new(),
                count_max: 0,
                with_attrs: true,
                by_handle: false,
            }),
            QuestionKind::Link => Request::ReadLink(ReadLink { target, view }),
            QuestionKind::Xattr { name } => Request::GetXattr(GetXattr { target, view, name: name.clone() }),
            QuestionKind::Bytes { offset, len } => {
                let ask = Open { target: target.clone(), view, read: true, write: false, made_at: 0 };
                let Some(answer) = self.ask(witness, Request::Open(ask), None)? else { return Ok(None) };
                let reply = match answer.result {
                    Ok(Reply::Open(reply)) => reply,
                    other => return Ok(Some(comparable(&other, &[]))),
                };
                let handle = Handle {
                    session: self.session,
                    inode: reply.attr.inode,
                    born: Hlc(reply.attr.born),
                    view,
                    read: true,
                    write: false,
                    capability: reply.capability.clone(),
                };
                let read = Read {
                    capability: reply.capability,
                    offset: *offset,
                    len: *len,
                    in_steps: true,
                    ..Read::default()
                };
                let Some(answer) = self.ask(witness, Request::Read(read), Some(handle))? else { return Ok(None) };
                return Ok(Some(comparable(&answer.result, &answer.payload)));
            }
        };
        let Some(answer) = self.ask(witness, request, None)? else { return Ok(None) };
        Ok(Some(comparable(&answer.result, &answer.payload)))
    }
}

/// An answer in the form that is remembered.
pub(crate) fn comparable(result: &Result<Reply, frieze_base::Fault>, payload: &[u8]) -> RepeatedAnswer {
    let lasting = |attr: &Attr| Attr { bytes_live: 0, ..attr.clone() };
    match result {
        Err(fault) => (Err(fault.reason as u32), None),
        Ok(Reply::Stat(reply)) => (Ok(lasting(&reply.attr).encode_to_vec()), Some(reply.answered.incomplete)),
        Ok(Reply::List(reply)) => {
            let mut bytes = Vec::new();
            for entry in &reply.entries {
                let mut entry = entry.clone();
                entry.attr = entry.attr.as_ref().map(lasting);
                bytes.extend_from_slice(&entry.encode_length_delimited_to_vec());
            }
            (Ok(bytes), Some(reply.answered.incomplete))
        }
        Ok(Reply::Bytes(reply)) => (Ok(reply.value.clone()), None),
        Ok(Reply::Read(reply)) => (Ok(payload.to_vec()), Some(reply.answered.incomplete)),
        Ok(_) => (Ok(Vec::new()), None),
    }
}

/// True if two listings differ only in that the second has nothing but the names of some entries.
fn is_less_of_a_list(before: &ComparableAnswer, now: &ComparableAnswer) -> bool {
    let (before, now) = (entries_of(before), entries_of(now));
    let less = |(before, now): (&DirEntry, &DirEntry)| match now.attr {
        Some(_) => before == now,
        None => (&before.name, before.inode, before.kind) == (&now.name, now.inode, now.kind),
    };
    !now.is_empty() && before.len() == now.len() && before.iter().zip(&now).all(less)
}

fn brief(comparable_answer: &ComparableAnswer) -> String {
    match comparable_answer {
        Ok(bytes) => {
            let head = &bytes[..bytes.len().min(64)];
            format!("{} bytes {:08x} {head:02x?}", bytes.len(), frieze_base::crc32c(bytes))
        }
        Err(code) => format!("{:?}", Reason::from_code(*code)),
    }
}

/// Largest file that an audit reads from end to end.
const WHOLE_BYTES: u64 = 1 << 20;
/// Bytes it reads at once.
const STEP_BYTES: u32 = 256 << 10;
