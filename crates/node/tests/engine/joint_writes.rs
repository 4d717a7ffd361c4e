//! Bytes written to several places at one stamp: they wait in a file without a name until one change of metadata shows
//! them.

use frieze_wire::edit::CopyRange;
use frieze_wire::txn::CloseSession;

use super::*;

#[test]
fn parts_written_together_show_together_at_every_instant() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let (one, other) = (client.make("/one"), client.make("/other"));
    client.write(&one, Some(0), &pattern(100_000, 1)[..65_536]).unwrap();
    client.write(&other, Some(0), b"other").unwrap();
    let (before, long) = (client.at("/one", client.server.newest().0).unwrap(), pattern(70_000, 7));
    // Over the boundary of two chunks, beyond the end of the file, into another file, and twice in one place.
    let parts = [("/one", 60_000, &long[..]), ("/other", 1, b"TH"), ("/one", 60_001, b"later")];
    let reply = client.write_together(&parts).unwrap();
    assert_eq!(reply.len, 70_007);
    let mut after = [&before[..60_000], &long[..]].concat();
    after[60_001..60_006].copy_from_slice(b"later");
    let look = |client: &mut TestConnection| {
        assert_eq!(client.at("/one", reply.stamp - 1).unwrap(), before);
        assert_eq!(client.at("/other", reply.stamp - 1).unwrap(), b"other");
        assert_eq!(client.at("/one", reply.stamp).unwrap(), after);
        assert_eq!(client.at("/other", reply.stamp).unwrap(), b"oTHer");
        assert_eq!(client.server.check_up().found(), 0);
    };
    look(&mut client);
    // What comes later is written over it as over anything.
    client.write(&one, Some(60_000), b"!").unwrap();
    assert_eq!(client.read("/one", View::NOW).unwrap()[59_999..60_002], [before[59_999], b'!', b'l']);
    client.fsync();
    drop(client);
    machine.lose_power();
    machine.time.advance_us(1_000_000);
    look(&mut machine.serve());
}

#[test]
fn what_is_shown_together_is_shown_once_however_often_it_is_asked() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"0123456789").unwrap();
    let ask = client.stage_together(&[("/f", 2, b"ab"), ("/f", 6, b"cd")]).unwrap();
    let first = client.edit(ask.clone()).unwrap();
    let seq = client.seq;
    client.write(&file, Some(2), b"XY").unwrap();
    let again = |client: &mut TestConnection| {
        let id = client.send(ask.clone(), &[], seq);
        let Ok(Reply::Edited(reply)) = client.answer(id).unwrap().0 else { panic!("refused") };
        assert_eq!((reply.stamp, reply.repeated), (first.stamp, true));
        assert_eq!(client.read("/f", View::NOW).unwrap(), b"01XY45cd89");
    };
    again(&mut client);
    let session = client.session;
    drop(client);
    let mut client = machine.serve();
    client.session = session;
    again(&mut client);
}

/// Waiting bytes are visible to no session, and a client that goes away leaves nothing but them.
#[test]
fn bytes_that_wait_are_nobodys_until_they_are_shown() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"before").unwrap();
    let ask = client.stage_together(&[("/f", 0, b"after!"), ("/f", 100_000, b"far")]).unwrap();
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"before");
    let list = List { target: Target::path("/"), count_max: 100, ..List::default() };
    let Ok(Reply::List(listed)) = client.ask(Request::List(list)) else { panic!("no listing") };
    assert_eq!(listed.entries.len(), 1);
    // Another session cannot show them.
    let session = std::mem::replace(&mut client.session, SessionId(0));
    assert!(client.edit(ask.clone()).is_err());
    client.session = session;
    client.txn(Op::CloseSession(CloseSession::default())).unwrap();
    assert!(client.edit(ask).is_err());
    client.session = SessionId(0);
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"before");
    assert_eq!(client.server.check_up().found(), 0);
}

#[test]
fn ranges_within_ranges_and_too_many_are_refused() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"bytes").unwrap();
    let range = CopyRange { source: file.clone(), target: file, len: 1, ..CopyRange::default() };
    let within = CopyRange { also: vec![CopyRange { also: vec![range.clone()], ..range.clone() }], ..range.clone() };
    assert_eq!(client.edit(Request::CopyRange(within)).unwrap_err().reason, Reason::BadFrame);
    let many = CopyRange { also: vec![range.clone(); 1024], ..range };
    assert_eq!(client.edit(Request::CopyRange(many)).unwrap_err().reason, Reason::TooLarge);
}

/// All or nothing is of the bytes too: a source that is shorter than was said shows nothing of any range.
#[test]
fn where_a_source_of_several_ranges_ends_early_nothing_is_shown() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.write(&file, Some(0), b"before").unwrap();
    let ask = client.stage_together(&[("/f", 0, b"after!"), ("/f", 100_000, b"far")]).unwrap();
    let Request::CopyRange(mut ask) = ask else { panic!("a copied range") };
    ask.also[0].len += 1;
    let refused = client.edit(Request::CopyRange(ask.clone())).unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument);
    assert!(refused.to_string().contains("number 1 has 3 of its 4 bytes"), "{refused}");
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"before");
    ask.also[0].len -= 1;
    client.edit(Request::CopyRange(ask)).unwrap();
    assert_eq!(client.read("/f", View::NOW).unwrap().len(), 100_003);
}
