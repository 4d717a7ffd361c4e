//! Bytes written to several places at one stamp: they wait in a file without a name until one change of metadata shows
//! them.

use frieze_wire::edit::{CopyRange, EditReply};
use frieze_wire::txn::{CloseSession, Grant, MakeNameless};

use super::*;

impl Served {
    /// Writes these bytes to all of these places, or to none.
    pub(crate) fn together(&mut self, parts: &[(&str, u64, &[u8])]) -> Result<EditReply, Fault> {
        let ask = self.wait_together(parts)?;
        self.edit(ask)
    }

    /// The bytes wait; the request shows them.
    pub(crate) fn wait_together(&mut self, parts: &[(&str, u64, &[u8])]) -> Result<Request, Fault> {
        let opened: Vec<Vec<u8>> = parts.iter().map(|(path, ..)| self.open(path)).collect::<Result<_, _>>()?;
        let beside = self.inode(parts[0].0, View::NOW).expect("it was opened");
        let waiting = self.txn(Op::MakeNameless(MakeNameless { beside }))?;
        self.txn(Op::Grant(Grant { inode: waiting.id, first: 0, count: 8 }))?;
        let mut ranges = Vec::new();
        let mut at = 0;
        for ((_, offset, bytes), target) in parts.iter().zip(opened) {
            self.write(&waiting.capability, Some(at), bytes)?;
            ranges.push(CopyRange {
                source: waiting.capability.clone(),
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
}

#[test]
fn what_is_written_together_is_seen_so_at_every_instant() {
    let mut machine = Machine::new();
    let mut served = machine.serve();
    let (one, other) = (served.make("/one"), served.make("/other"));
    served.write(&one, Some(0), &pattern(100_000, 1)[..65_536]).unwrap();
    served.write(&other, Some(0), b"other").unwrap();
    let (before, long) = (served.at("/one", served.engine.planes.newest().0).unwrap(), pattern(70_000, 7));
    // Over the boundary of two chunks, beyond the end of the file, into another file, and twice in one place.
    let parts = [("/one", 60_000, &long[..]), ("/other", 1, b"TH"), ("/one", 60_001, b"later")];
    let reply = served.together(&parts).unwrap();
    assert_eq!(reply.len, 70_007);
    let mut after = [&before[..60_000], &long[..]].concat();
    after[60_001..60_006].copy_from_slice(b"later");
    let look = |served: &mut Served| {
        assert_eq!(served.at("/one", reply.stamp - 1).unwrap(), before);
        assert_eq!(served.at("/other", reply.stamp - 1).unwrap(), b"other");
        assert_eq!(served.at("/one", reply.stamp).unwrap(), after);
        assert_eq!(served.at("/other", reply.stamp).unwrap(), b"oTHer");
        assert_eq!(served.engine.check_up().found(), 0);
    };
    look(&mut served);
    // What comes later is written over it as over anything.
    served.write(&one, Some(60_000), b"!").unwrap();
    assert_eq!(served.read("/one", View::NOW).unwrap()[59_999..60_002], [before[59_999], b'!', b'l']);
    served.fsync();
    drop(served);
    machine.lose_power();
    machine.time.advance_us(1_000_000);
    look(&mut machine.serve());
}

#[test]
fn what_is_shown_together_is_shown_once_however_often_it_is_asked() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"0123456789").unwrap();
    let ask = served.wait_together(&[("/f", 2, b"ab"), ("/f", 6, b"cd")]).unwrap();
    let first = served.edit(ask.clone()).unwrap();
    let seq = served.seq;
    served.write(&file, Some(2), b"XY").unwrap();
    let again = |served: &mut Served| {
        let id = served.send(ask.clone(), &[], seq);
        let Ok(Reply::Edited(reply)) = served.answer(id).unwrap().0 else { panic!("refused") };
        assert_eq!((reply.stamp, reply.repeated), (first.stamp, true));
        assert_eq!(served.read("/f", View::NOW).unwrap(), b"01XY45cd89");
    };
    again(&mut served);
    let session = served.session;
    drop(served);
    let mut served = machine.serve();
    served.session = session;
    again(&mut served);
}

/// Waiting bytes are visible to no session, and a client that goes away leaves nothing but them.
#[test]
fn bytes_that_wait_are_nobodys_until_they_are_shown() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"before").unwrap();
    let ask = served.wait_together(&[("/f", 0, b"after!"), ("/f", 100_000, b"far")]).unwrap();
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"before");
    let list = List { target: Target::path("/"), count_max: 100, ..List::default() };
    let Ok(Reply::List(listed)) = served.ask(Request::List(list)) else { panic!("no listing") };
    assert_eq!(listed.entries.len(), 1);
    // Another session cannot show them.
    let session = std::mem::replace(&mut served.session, SessionId(0));
    assert!(served.edit(ask.clone()).is_err());
    served.session = session;
    served.txn(Op::CloseSession(CloseSession::default())).unwrap();
    assert!(served.edit(ask).is_err());
    served.session = SessionId(0);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"before");
    assert_eq!(served.engine.check_up().found(), 0);
}

#[test]
fn ranges_within_ranges_and_too_many_are_refused() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"bytes").unwrap();
    let range = CopyRange { source: file.clone(), target: file, len: 1, ..CopyRange::default() };
    let within = CopyRange { also: vec![CopyRange { also: vec![range.clone()], ..range.clone() }], ..range.clone() };
    assert_eq!(served.edit(Request::CopyRange(within)).unwrap_err().reason, Reason::BadFrame);
    let many = CopyRange { also: vec![range.clone(); 1024], ..range };
    assert_eq!(served.edit(Request::CopyRange(many)).unwrap_err().reason, Reason::TooLarge);
}

/// All or nothing is of the bytes too: a source that is shorter than was said shows nothing of any range.
#[test]
fn where_a_source_of_several_ranges_ends_early_nothing_is_shown() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    served.write(&file, Some(0), b"before").unwrap();
    let ask = served.wait_together(&[("/f", 0, b"after!"), ("/f", 100_000, b"far")]).unwrap();
    let Request::CopyRange(mut ask) = ask else { panic!("a copied range") };
    ask.also[0].len += 1;
    let refused = served.edit(Request::CopyRange(ask.clone())).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument);
    assert!(refused.to_string().contains("number 1 has 3 of its 4 bytes"), "{refused}");
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"before");
    ask.also[0].len -= 1;
    served.edit(Request::CopyRange(ask)).unwrap();
    assert_eq!(served.read("/f", View::NOW).unwrap().len(), 100_003);
}
