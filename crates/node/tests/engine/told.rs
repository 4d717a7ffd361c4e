//! What an answer tells of goes out when nobody else can be shown the state before it.

use frieze_wire::frame::Holds;
use frieze_wire::holding::Recalls;
use frieze_wire::message::{Attr, ListReply};

use super::*;

impl Served {
    /// Asks as a session that caches; the request's id.
    fn send_asking(&mut self, request: Request) -> u64 {
        let id = self.next;
        self.next += 1;
        let header = FrameHeader {
            request_id: id,
            session: self.session,
            holds: Holds::ASKED,
            ..FrameHeader::of(FrameKind::Request)
        };
        let body = RequestBody { caller: None, request: Some(request) };
        let responder: Arc<dyn Responder> = self.answers.clone();
        self.engine.handle(&self.conn, &header, body, &[], &responder, &mut Scratch::default());
        id
    }

    /// Keeps a question for recalls waiting, which acknowledges those before it.
    fn wait_for_recalls(&mut self, acked: u64, life: u64) -> u64 {
        self.send(Request::Recalls(Recalls { acked, life }), &[], 0)
    }

    fn recalled(&self, question: u64) -> Option<frieze_wire::holding::RecallsReply> {
        match self.answer(question)?.0 {
            Ok(Reply::Recalls(reply)) => Some(reply),
            other => panic!("{other:?}"),
        }
    }

    fn change_mode(&mut self, path: &str, mode: u32) -> u64 {
        self.seq += 1;
        let op = Op::SetAttr(SetAttr { target: Target::path(path), mode: Some(mode), ..SetAttr::default() });
        self.send(Request::Txn(Txn { durability: 0, op: Some(op) }), &[], self.seq)
    }
}

fn list(with_attrs: bool) -> Request {
    let (target, view) = (Target::path("/d"), View::NOW);
    Request::List(List { target, view, after: Vec::new(), count_max: 0, with_attrs, by_handle: false })
}

fn listed(answer: Option<Answer>) -> Option<Attr> {
    let Ok(Reply::List(ListReply { entries, .. })) = answer?.0 else { panic!("no listing") };
    entries.into_iter().next().and_then(|entry| entry.attr)
}

/// A believer that was granted what `/d/f` is like, with a question for recalls waiting, and the life it knows.
fn believer(machine: &Machine, engine: &Arc<Engine>) -> (Served, u64, u64) {
    let mut believer = machine.connect(engine.clone(), Caller::root());
    believer.open_session();
    let hello = believer.wait_for_recalls(0, 0);
    let life = believer.recalled(hello).expect("told at once the first time").life;
    let question = believer.wait_for_recalls(0, life);
    let stat = Request::Stat(Stat { target: Target::path("/d/f"), view: View::NOW });
    let id = believer.send_asking(stat);
    believer.answer(id).expect("answered at once").0.expect("is there");
    (believer, question, life)
}

#[test]
fn a_listing_tells_of_a_change_to_an_entry_when_all_others_have_forgotten() {
    let machine = Machine::new();
    let mut writer = machine.serve();
    writer.mkdir("/d");
    writer.make("/d/f");
    let engine = writer.engine.clone();
    let (mut believer, question, life) = believer(&machine, &engine);
    let mut reader = machine.connect(engine, Caller::root());

    let changed = writer.change_mode("/d/f", 0o600);
    assert!(writer.answer(changed).is_none(), "the believer may still show the old mode");
    let plain = reader.send(list(false), &[], 0);
    assert!(reader.answer(plain).is_some(), "names alone tell nothing of it");
    let with_attributes = reader.send(list(true), &[], 0);
    assert!(reader.answer(with_attributes).is_none(), "the listing shows the new mode");

    let recall = believer.recalled(question).expect("there is something to tell");
    believer.wait_for_recalls(recall.number, life);
    assert_eq!(listed(reader.answer(with_attributes)).expect("answered").mode & 0o777, 0o600);
    writer.answer(changed).expect("answered").0.expect("changed");
}
