//! The table of requests: a row for each says what it sees, where it is answered, what its answer waits for, what it is
//! called in metrics, and which function runs it.
//!
//! Guarantees: everything that the server decides about a request before and after it runs is decided by its row; a
//! request without a row does not compile. Leaves to others: the order of those decisions ([`super::Service::handle`]),
//! what a request does (its handler).

use std::sync::Arc;

use frieze_base::{Fault, InodeId, Reason};
use frieze_net::ReceivedPayload;
use frieze_planes::Principal;
use frieze_wire::edit::EditReply;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Read, Reply, Request, View};

use crate::service::{ClusterHost, Service};
use crate::session::capability::Presenter;
use crate::session::connection::Conn;
use crate::session::request_class::{GatedOn, RequestClass, Sees, is_claim};
use crate::session::responder::{Responder, done};
use crate::session::scratch::Scratch;

/// A request that runs.
pub(super) struct RunningRequest<'a, 's> {
    pub(super) service: &'a Service,
    pub(super) host: &'a dyn ClusterHost,
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
        ($header:ident, $call:ident, $service:ident, $principal:ident)
        $($name:ident($ask:pat) => $class:expr, $run:expr;)*
    ) => {
        /// The row of a request.
        #[expect(unused_variables, reason = "not every row depends on the request")]
        pub fn class_of<'a>($header: &FrameHeader, request: &'a Request) -> RequestClass<'a> {
            use GatedOn::Everything;
            type Row<'a> = RequestClass<'a>;
            match request {
                $(Request::$name($ask) => $class,)*
            }
        }

        /// Runs a request. `None`: it is answered later.
        #[expect(unused_variables, reason = "not every handler needs the request")]
        pub(super) fn run($call: RunningRequest<'_, '_>, request: Request) -> Option<Result<Reply, Fault>> {
            let ($header, $service, $principal) = ($call.header, $call.service, $call.principal);
            match request {
                $(Request::$name($ask) => $run,)*
            }
        }
    };
}

requests! {
    (header, call, service, principal)
    // A connection handles these before it runs anything.
    Hello(ask) => Row::plain("hello", header), Some(Err(Reason::BadFrame.into()));
    Prove(ask) => Row::plain("hello", header), Some(Err(Reason::BadFrame.into()));
    Ping(ask) => Row::plain("ping", header), Some(Ok(done()));
    ConnectFabric(ask) => Row::plain("hello", header), Some(call.responder.connect_fabric(&ask).map(|()| done()));

    // Names and attributes.
    Stat(ask) => Row::files("stat", ask.view.at.is_none() && !ask.recent, lengths_of(ask.view)),
        Some(service.read.stat(principal, &ask, &mut call.scratch.asking).map(Reply::Stat));
    List(ask) => Row::files("list", ask.view.at.is_none(), Sees::Bytes),
        Some(service.read.list(principal, &ask, &mut call.scratch.asking).map(Reply::List));
    ReadLink(ask) => Row::names("read_link", ask.view.at.is_none()),
        Some(service.read.read_link(principal, &ask, &call.scratch.asking).map(Reply::Bytes));
    Access(ask) => Row::names("access", ask.view.at.is_none()),
        Some(service.read.access(principal, &ask, &call.scratch.asking).map(|()| done()));
    GetXattr(ask) => Row::names("get_xattr", ask.view.at.is_none()),
        Some(service.read.get_xattr(principal, &ask, &call.scratch.asking).map(Reply::Bytes));
    Open(ask) => Row::files("open", ask.view.at.is_none(), lengths_of(ask.view)),
        Some(service.read.open_file(principal, header.session, &ask, &mut call.scratch.asking).map(Reply::Open));

    // Bytes.
    Read(ask) => class_of_read(ask), Some(service.read.read(call.presenter(), &ask, call.scratch).map(|(reply, crc)| {
        call.scratch.payload_crc = crc;
        Reply::Read(reply)
    }));
    Seek(ask) => Row::bytes("seek", &ask.capability, Sees::BytesBy(&ask.capability)),
        Some(service.read.seek(call.presenter(), &ask, call.scratch).map(Reply::Seek));
    Write(ask) => Row::plain("write", header).anywhere().gated(GatedOn::Capability(&ask.capability)), {
        service.write.write(principal, header, &ask, call.payload, call.responder, call.scratch);
        None
    };
    Punch(ask) => Row::plain("punch", header).anywhere().gated(GatedOn::Capability(&ask.capability)), {
        service.write.punch(principal, header, &ask, call.responder);
        None
    };
    Sync(ask) => Row::plain("sync", header).anywhere(), {
        service.write.sync(header, InodeId(ask.inode), call.responder);
        None
    };

    // Changes of names.
    Txn(ask) => Row::plain("change", header).at_leader(),
        service.write.transact(call.conn, principal, header, ask, call.responder, &mut call.scratch.asking)
            .map(|answer| answer.map(Reply::Txn));
    Clone(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, ask.dry_run, &|now| {
            service.tree_ops.plan_clone(principal, &ask, now)
        }));
    Restore(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, ask.dry_run, &|now| {
            service.tree_ops.plan_restore(principal, &ask, now)
        }));
    Undo(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, ask.dry_run, &|now| {
            service.tree_ops.plan_undo(principal, &ask, now)
        }));
    RemoveTree(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, ask.dry_run, &|now| {
            service.tree_ops.plan_remove(principal, &ask, now)
        }));
    ChangeTree(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, ask.dry_run, &|now| {
            service.tree_ops.plan_change(principal, &ask, now)
        }));
    JoinFiles(ask) => Row::names("edit", true).gated(Everything), edited(
        service.tree_ops.edit(principal, header, false, &|now| {
            service.tree_ops.plan_join(principal, header, &ask, now)
        }));
    CopyRange(ask) => Row::plain("edit", header).at_leader().gated(Everything), edited(
        service.tree_ops.edit(principal, header, false, &|now| {
            service.tree_ops.plan_copy_range(principal, header, &ask, now)
        }));
    Retention(ask) => Row::names("retention", true).with_instants(),
        Some(service.planes.retention(principal, &ask).map(Reply::Retention));
    Forget(ask) => Row::names("forget", true).gated(Everything),
        Some(service.upkeep.forget(principal, header, &ask).map(Reply::Forgot));

    // What sessions hold.
    Lock(ask) => Row::plain("lock", header).at_leader().waiting(),
        Some(service.sessions.lock(header.session, &ask).map(Reply::Lock));
    TestLock(ask) => Row::plain("lock", header).at_leader(),
        Some(Ok(Reply::TestLock(service.sessions.test_lock(header.session, &ask))));
    CancelLock(ask) => Row::plain("lock", header).at_leader(),
        Some(Ok(Reply::Lock(service.sessions.cancel_lock(header.session, &ask))));
    Recalls(ask) => Row::plain("recalls", header).at_leader().waiting(),
        service.sessions.recalls(header, &ask, call.responder).err().map(Err);

    // History.
    Now(ask) => Row::plain("now", header), Some(service.planes.now(&ask).map(Reply::Now));
    Log(ask) => Row::files("history", !ask.is_past(), Sees::Bytes),
        Some(service.history.log(principal, &ask, &call.scratch.asking).map(Reply::Log));
    Diff(ask) => Row::plain("history", header).with_instants(),
        Some(service.history.diff(principal, &ask).map(Reply::Diff));
    Story(ask) => Row::files("history", ask.view.at.is_none(), Sees::Bytes),
        Some(service.history.story(principal, &ask, &call.scratch.asking).map(Reply::Story));
    AwaitChange(ask) => Row::plain("history", header).waiting(), {
        let (header, to) = (*header, call.responder.clone());
        let reply = Box::new(move |reply| to.respond(&header, Ok(Reply::AwaitChange(reply)), &[], 0));
        service.planes.await_change(&ask, reply).err().map(Err)
    };
    LastExisted(ask) => Row::files("history", true, Sees::Bytes).gated(Everything),
        Some(service.history.last_existed(principal, &ask).map(Reply::LastExisted));
    Deleted(ask) => Row::names("history", ask.view.at.is_none()).gated(Everything).with_instants(),
        Some(service.history.deleted(principal, &ask).map(Reply::Deleted));
    Snapshots(ask) => Row::plain("status", header), Some(service.history.snapshots(&ask).map(Reply::Snapshots));
    Sessions(ask) => Row::plain("status", header),
        Some(service.history.list_sessions(principal, &ask).map(Reply::Sessions));
    Usage(ask) => Row::files("status", true, Sees::Bytes).gated(Everything),
        Some(service.history.usage(principal, &ask).map(Reply::Usage));

    // The server and its cluster.
    Status(ask) => Row::plain("status", header), {
        Some(Ok(Reply::Status(Box::new(call.host.status()))))
    };
    Scrub(ask) => Row::plain("status", header), Some(service.upkeep.scrub_asked(principal, &ask).map(Reply::Scrub));
    ClusterMap(ask) => Row::plain("cluster", header),
        Some(Ok(Reply::ClusterMap(call.host.cluster_map())));
    Join(ask) => Row::plain("cluster", header), Some(call.host.admit_node(principal, ask).map(Reply::Join));
    Cluster(ask) => Row::plain("cluster", header), Some(call.host.cluster(principal, ask).map(Reply::Cluster));
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
    use frieze_base::Seq;

    use crate::session::request_class::AnswerPlace;
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
