//! The table of requests: a row for each says what it sees, where it is answered, what its answer waits for, what it is
//! called in metrics, and which function runs it.
//!
//! Guarantees: everything that the server decides about a request before and after it runs is decided by its row; a
//! request without a row does not compile. Leaves to others: the order of those decisions ([`super::Engine::handle`]),
//! what a request does (its handler).

use std::sync::Arc;

use frieze_base::{Fault, InodeId, Reason, Seq};
use frieze_net::ReceivedPayload;
use frieze_wire::edit::EditReply;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Read, Reply, Request, View};

use super::{Engine, Responder, Scratch, done};
use crate::session::{Conn, Principal};
use frieze_service::{Presenter, claims_past};

/// What a row says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestClass<'a> {
    /// Name in metrics; `None`: the request waits for an event, however long.
    pub(crate) metric: Option<&'static str>,
    /// What of the present the answer says.
    pub(crate) sees: Sees<'a>,
    /// True if the answer may say bytes or lengths of files as they were at an instant.
    pub(crate) sees_instants: bool,
    /// Where it may be answered.
    pub(crate) place: AnswerPlace,
    /// What the answer tells of, as far as the handler does not find it on the way.
    pub(crate) gated_on: GatedOn<'a>,
    /// True if the answer may begin to leave before all of it is read.
    pub(crate) may_stream: bool,
}

/// What of the present an answer says. The past does not change: no answer about it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sees<'a> {
    /// Nothing.
    Nothing,
    /// Names and attributes: it waits until no cache can show an older state.
    Names,
    /// Bytes or lengths of any files, too: it needs a lease on the chains.
    Bytes,
    /// Lengths of the files that its handler finds.
    Lengths,
    /// Bytes of the file of this capability, if that is of the present: what it says is proven where the bytes are
    /// read.
    BytesBy(&'a [u8]),
    /// The same of a range.
    Range(&'a Read),
}

/// Where a request may be answered in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerPlace {
    /// At each server that has what it needs.
    Anywhere,
    /// At the leader of the metalog, which orders changes and knows what sessions hold.
    Leader,
}

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatedOn<'a> {
    /// What its handler looks up.
    Found,
    /// The inode of this capability.
    Capability(&'a [u8]),
    /// Every change: it looks at whole trees.
    Everything,
}

/// A request that runs.
pub(super) struct RunningRequest<'a, 's> {
    pub(super) engine: &'a Engine,
    pub(super) conn: &'a Conn,
    pub(super) principal: &'a Principal,
    pub(super) header: &'a FrameHeader,
    pub(super) payload: ReceivedPayload<'a>,
    pub(super) responder: &'a Arc<dyn Responder>,
    pub(super) scratch: &'s mut Scratch,
}

impl RunningRequest<'_, '_> {
    fn presenter(&self) -> Presenter {
        Presenter::of_any(self.header.session, self.principal.uid)
    }
}

impl<'a> RequestClass<'a> {
    /// A request that sees nothing, unless it is numbered: then it changes something, and waits for what it changed.
    fn plain(metric: &'static str, header: &FrameHeader) -> RequestClass<'a> {
        let sees = if header.seq == Seq(0) { Sees::Nothing } else { Sees::Names };
        RequestClass::seeing(metric, sees)
    }

    /// A request that sees this of the present: at the leader, if that is anything.
    fn seeing(metric: &'static str, sees: Sees<'a>) -> RequestClass<'a> {
        let place = if sees == Sees::Nothing { AnswerPlace::Anywhere } else { AnswerPlace::Leader };
        let gated_on = GatedOn::Found;
        RequestClass { metric: Some(metric), sees, sees_instants: false, place, gated_on, may_stream: false }
    }

    /// A request about names as they are now, if `is_now`.
    fn names(metric: &'static str, is_now: bool) -> RequestClass<'a> {
        RequestClass::seeing(metric, if is_now { Sees::Names } else { Sees::Nothing })
    }

    /// A request about files as they are now, if `is_now`, of which it sees this; or at an instant.
    fn files(metric: &'static str, is_now: bool, sees: Sees<'a>) -> RequestClass<'a> {
        RequestClass::seeing(metric, if is_now { sees } else { Sees::Nothing }).with_instants()
    }

    /// A look at bytes by a capability, which says whether it is of the past: it sees this, if it is not.
    fn bytes(metric: &'static str, capability: &'a [u8], sees: Sees<'a>) -> RequestClass<'a> {
        let sees = if claims_past(capability) { Sees::Nothing } else { sees };
        RequestClass::seeing(metric, sees).anywhere().gated(GatedOn::Capability(capability)).with_instants()
    }

    fn with_instants(self) -> RequestClass<'a> {
        RequestClass { sees_instants: true, ..self }
    }

    fn anywhere(self) -> RequestClass<'a> {
        RequestClass { place: AnswerPlace::Anywhere, ..self }
    }

    fn at_leader(self) -> RequestClass<'a> {
        RequestClass { place: AnswerPlace::Leader, ..self }
    }

    fn gated(self, gated_on: GatedOn<'a>) -> RequestClass<'a> {
        RequestClass { gated_on, ..self }
    }

    /// A request that waits for an event: no metric says how long it took.
    fn waiting(self) -> RequestClass<'a> {
        RequestClass { metric: None, ..self }
    }

    fn streams(self, may_stream: bool) -> RequestClass<'a> {
        RequestClass { may_stream, ..self }
    }

    /// True if the answer tells of what is now.
    pub(crate) fn is_of_now(&self) -> bool {
        self.sees != Sees::Nothing
    }
}

/// True if a read says that a file is open and asks for nothing: no byte lies there.
pub(crate) fn is_claim(ask: &Read) -> bool {
    ask.len == 0 && ask.offset == u64::MAX
}

/// The class of a read. A claim is answered by the leader, which knows what is open, and says nothing: sessions that
/// all have to claim before others may ask them for what they cache wait for each other in no circle.
fn class_of_read(ask: &Read) -> RequestClass<'_> {
    match is_claim(ask) {
        true => RequestClass::seeing("read", Sees::Nothing)
            .at_leader()
            .gated(GatedOn::Capability(&ask.capability))
            .with_instants(),
        false => RequestClass::bytes("read", &ask.capability, Sees::Range(ask)).streams(ask.in_steps),
    }
}

/// Makes of the rows the class of each request and the call of its handler. A handler that answers later returns
/// `None`.
macro_rules! requests {
    (
        ($header:ident, $call:ident, $engine:ident, $principal:ident)
        $($name:ident($ask:pat) => $class:expr, $run:expr;)*
    ) => {
        /// The row of a request.
        #[expect(unused_variables, reason = "not every row depends on the request")]
        pub(crate) fn class_of<'a>($header: &FrameHeader, request: &'a Request) -> RequestClass<'a> {
            use GatedOn::Everything;
            type Row<'a> = RequestClass<'a>;
            match request {
                $(Request::$name($ask) => $class,)*
            }
        }

        /// Runs a request. `None`: it is answered later.
        #[expect(unused_variables, reason = "not every handler needs the request")]
        pub(super) fn run($call: RunningRequest<'_, '_>, request: Request) -> Option<Result<Reply, Fault>> {
            let ($header, $engine, $principal) = ($call.header, $call.engine, $call.principal);
            match request {
                $(Request::$name($ask) => $run,)*
            }
        }
    };
}

requests! {
    (header, call, engine, principal)
    // A connection handles these before it runs anything.
    Hello(ask) => Row::plain("hello", header), Some(Err(Reason::BadFrame.into()));
    Prove(ask) => Row::plain("hello", header), Some(Err(Reason::BadFrame.into()));
    Ping(ask) => Row::plain("ping", header), Some(Ok(done()));

    // Names and attributes.
    Stat(ask) => Row::files("stat", ask.view.at.is_none() && !ask.recent, lengths_of(ask.view)),
        Some(engine.stat(principal, &ask, &mut call.scratch.asking).map(Reply::Stat));
    List(ask) => Row::files("list", ask.view.at.is_none(), Sees::Bytes),
        Some(engine.list(principal, &ask, &mut call.scratch.asking).map(Reply::List));
    ReadLink(ask) => Row::names("read_link", ask.view.at.is_none()),
        Some(engine.read_link(principal, &ask, &call.scratch.asking).map(Reply::Bytes));
    Access(ask) => Row::names("access", ask.view.at.is_none()),
        Some(engine.access(principal, &ask, &call.scratch.asking).map(|()| done()));
    GetXattr(ask) => Row::names("get_xattr", ask.view.at.is_none()),
        Some(engine.get_xattr(principal, &ask, &call.scratch.asking).map(Reply::Bytes));
    Open(ask) => Row::files("open", ask.view.at.is_none(), lengths_of(ask.view)),
        Some(engine.open_file(principal, header.session, &ask, &mut call.scratch.asking).map(Reply::Open));

    // Bytes.
    Read(ask) => class_of_read(ask), Some(engine.read(call.presenter(), &ask, call.scratch).map(|(reply, crc)| {
        call.scratch.payload_crc = crc;
        Reply::Read(reply)
    }));
    Seek(ask) => Row::bytes("seek", &ask.capability, Sees::BytesBy(&ask.capability)),
        Some(engine.seek(call.presenter(), &ask, call.scratch).map(Reply::Seek));
    Write(ask) => Row::plain("write", header).anywhere().gated(GatedOn::Capability(&ask.capability)), {
        engine.write(principal, header, &ask, call.payload, call.responder, call.scratch);
        None
    };
    Punch(ask) => Row::plain("punch", header).anywhere().gated(GatedOn::Capability(&ask.capability)), {
        engine.punch(principal, header, &ask, call.responder);
        None
    };
    Sync(ask) => Row::plain("sync", header).anywhere(), {
        engine.sync(header, InodeId(ask.inode), call.responder);
        None
    };

    // Changes of names.
    Txn(ask) => Row::plain("change", header).at_leader(),
        engine.transact(call.conn, principal, header, ask, call.responder, &mut call.scratch.asking)
            .map(|answer| answer.map(Reply::Txn));
    Clone(ask) => Row::names("edit", true).gated(Everything), edited(
        engine.edit(principal, header, ask.dry_run, &|now| engine.plan_clone(principal, &ask, now)));
    Restore(ask) => Row::names("edit", true).gated(Everything), edited(
        engine.edit(principal, header, ask.dry_run, &|now| engine.plan_restore(principal, &ask, now)));
    Undo(ask) => Row::names("edit", true).gated(Everything), edited(
        engine.edit(principal, header, ask.dry_run, &|now| engine.plan_undo(principal, &ask, now)));
    RemoveTree(ask) => Row::names("edit", true).gated(Everything), edited(
        engine.edit(principal, header, ask.dry_run, &|now| engine.plan_remove(principal, &ask, now)));
    JoinFiles(ask) => Row::names("edit", true).gated(Everything), edited(
        engine.edit(principal, header, false, &|now| engine.plan_join(principal, header, &ask, now)));
    CopyRange(ask) => Row::plain("edit", header).at_leader().gated(Everything), edited(
        engine.edit(principal, header, false, &|now| engine.plan_copy_range(principal, header, &ask, now)));
    Forget(ask) => Row::names("forget", true).gated(Everything),
        Some(engine.forget(principal, header, &ask).map(Reply::Forgot));

    // What sessions hold.
    Lock(ask) => Row::plain("lock", header).at_leader().waiting(),
        Some(engine.lock(header.session, &ask).map(Reply::Lock));
    TestLock(ask) => Row::plain("lock", header).at_leader(),
        Some(Ok(Reply::TestLock(engine.test_lock(header.session, &ask))));
    CancelLock(ask) => Row::plain("lock", header).at_leader(),
        Some(Ok(Reply::Lock(engine.cancel_lock(header.session, &ask))));
    Recalls(ask) => Row::plain("recalls", header).at_leader().waiting(),
        engine.recalls(header, &ask, call.responder).err().map(Err);

    // History.
    Now(ask) => Row::plain("now", header), Some(engine.now(&ask).map(Reply::Now));
    Log(ask) => Row::files("history", !ask.is_past(), Sees::Bytes),
        Some(engine.log(principal, &ask, &call.scratch.asking).map(Reply::Log));
    Diff(ask) => Row::plain("history", header).with_instants(), Some(engine.diff(principal, &ask).map(Reply::Diff));
    Story(ask) => Row::files("history", ask.view.at.is_none(), Sees::Bytes),
        Some(engine.story(principal, &ask, &call.scratch.asking).map(Reply::Story));
    LastSeen(ask) => Row::files("history", true, Sees::Bytes).gated(Everything),
        Some(engine.last_seen(principal, &ask).map(Reply::LastSeen));
    Deleted(ask) => Row::names("history", ask.view.at.is_none()).gated(Everything).with_instants(),
        Some(engine.deleted(principal, &ask).map(Reply::Deleted));
    Snapshots(ask) => Row::plain("status", header), Some(engine.snapshots(&ask).map(Reply::Snapshots));
    Sessions(ask) => Row::plain("status", header), Some(engine.list_sessions(principal, &ask).map(Reply::Sessions));
    Usage(ask) => Row::files("status", true, Sees::Bytes).gated(Everything),
        Some(engine.usage(principal, &ask).map(Reply::Usage));

    // The server and its cluster.
    Status(ask) => Row::plain("status", header), {
        engine.ask_majority();
        Some(Ok(Reply::Status(Box::new(engine.status()))))
    };
    Scrub(ask) => Row::plain("status", header), Some(engine.scrub_asked(principal, &ask).map(Reply::Scrub));
    ClusterMap(ask) => Row::plain("cluster", header), Some(Ok(Reply::ClusterMap(engine.cluster_map())));
    Join(ask) => Row::plain("cluster", header), Some(engine.take_in(principal, ask).map(Reply::Join));
    Cluster(ask) => Row::plain("cluster", header), Some(engine.cluster_asked(principal, ask).map(Reply::Cluster));
}

/// What the attributes of one file say of the present: by user time the newest record of any chain counts.
fn lengths_of<'a>(view: View) -> Sees<'a> {
    if view.user_at.is_none() { Sees::Lengths } else { Sees::Bytes }
}

fn edited(edited: Result<EditReply, Fault>) -> Option<Result<Reply, Fault>> {
    Some(edited.map(Reply::Edited))
}

#[cfg(test)]
mod tests {
    use frieze_base::SessionId;
    use frieze_wire::FrameKind;
    use frieze_wire::message::{Stat, Txn, Write};

    use super::*;

    fn header(seq: u64) -> FrameHeader {
        FrameHeader { session: SessionId(7), seq: Seq(seq), ..FrameHeader::of(FrameKind::Request) }
    }

    #[test]
    fn a_request_about_the_past_sees_nothing_of_now_and_is_answered_anywhere() {
        let header = header(0);
        let now = Request::Stat(Stat::default());
        let class = class_of(&header, &now);
        assert_eq!((class.sees, class.place), (Sees::Lengths, AnswerPlace::Leader));
        let past = Request::Stat(Stat { view: View { at: Some(5), ..View::NOW }, ..Stat::default() });
        let class = class_of(&header, &past);
        assert_eq!((class.sees, class.place, class.sees_instants), (Sees::Nothing, AnswerPlace::Anywhere, true));
    }

    #[test]
    fn what_is_numbered_waits_for_what_it_changes() {
        let write = Request::Write(Write { capability: vec![1; 3], ..Write::default() });
        let (plain, numbered) = (header(0), header(4));
        assert!(!class_of(&plain, &write).is_of_now() && class_of(&numbered, &write).is_of_now());
        let class = class_of(&numbered, &write);
        assert_eq!((class.place, class.gated_on), (AnswerPlace::Anywhere, GatedOn::Capability(&[1; 3])));
        let change = Request::Txn(Txn::default());
        assert_eq!(class_of(&numbered, &change).place, AnswerPlace::Leader);
    }

    #[test]
    fn a_claim_goes_to_the_leader_and_waits_for_nothing() {
        let claim = Request::Read(Read { offset: u64::MAX, ..Read::default() });
        let header = header(0);
        let class = class_of(&header, &claim);
        assert_eq!((class.sees, class.place), (Sees::Nothing, AnswerPlace::Leader));
        let read = Request::Read(Read { len: 1, in_steps: true, ..Read::default() });
        let class = class_of(&header, &read);
        assert!(matches!(class.sees, Sees::Range(_)) && class.may_stream);
        assert_eq!(class.place, AnswerPlace::Anywhere);
    }
}
