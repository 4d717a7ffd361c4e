//! Streams of small writes on one connection: each has the effect of any other write, and a change between two of them
//! is checked before the second.

use frieze_wire::txn::Grant;

use super::*;

#[test]
fn a_stream_is_the_same_file_at_every_instant() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let mut scratch = client.begin_stream(&file, 0, b"0");
    let mut stamps = vec![client.server.newest().0];
    let (mut all, mut ends) = (b"0".to_vec(), vec![1]);
    for number in 1..60_u8 {
        let piece = pattern(usize::from(number) * 13 % 700 + 1, number);
        let at = all.len() as u64;
        stamps.push(client.continue_stream(&mut scratch, &file, at, &piece).expect("it writes"));
        all.extend_from_slice(&piece);
        assert_eq!(client.stat("/f", View::NOW).unwrap().attr.size, all.len() as u64, "seen as soon as it is written");
        let before = usize::from(number) - 1;
        assert_eq!(client.at("/f", stamps[before]).unwrap(), all[..ends[before]]);
        ends.push(all.len());
        if number % 20 == 0 {
            scratch = client.begin_stream(&file, all.len() as u64, b"-");
            all.push(b'-');
        }
    }
    assert!(stamps.is_sorted_by(|one, next| one < next));
    let looks: Vec<Vec<u8>> = stamps.iter().map(|stamp| client.at("/f", *stamp).unwrap()).collect();
    let log = |client: &mut TestConnection| {
        let log =
            Log { target: Target::path("/f"), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        let Ok(Reply::Log(log)) = client.ask(Request::Log(log)) else { panic!("no log") };
        log.versions
    };
    let versions = log(&mut client);
    assert_eq!(versions.len(), 63, "each is a version: the making, 60 and 2 writes");
    // What its process leaves behind is all there, and after the power went, what was flushed.
    let again = |client: &mut TestConnection| {
        assert_eq!(client.read("/f", View::NOW).unwrap(), all);
        assert!(stamps.iter().zip(&looks).all(|(stamp, look)| client.at("/f", *stamp).unwrap() == *look));
        assert_eq!(log(client), versions);
        assert_eq!(client.server.check_up().found(), 0);
    };
    again(&mut client);
    machine.disk.crash(CrashKind::Process);
    machine.disk.restart();
    let mut client = machine.serve();
    again(&mut client);
    client.open_session();
    client.fsync();
    machine.lose_power();
    again(&mut machine.serve());
}

#[test]
fn what_is_wrong_in_the_middle_of_a_stream_is_refused() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let mut scratch = client.begin_stream(&file, 0, b"one");
    let refused = |written: Result<u64, Fault>| written.expect_err("it is refused").reason;
    assert_eq!(refused(client.continue_stream(&mut scratch, &file[1..], 3, b"x")), Reason::StaleHandle);
    assert_eq!(refused(client.continue_stream(&mut scratch, &file, 3, b"")), Reason::InvalidArgument);
    let session = std::mem::replace(&mut client.session, SessionId(77));
    assert_eq!(refused(client.continue_stream(&mut scratch, &file, 3, b"x")), Reason::UnknownSession);
    client.session = session;
    let stamp = client.continue_stream(&mut scratch, &file, 3, b"two").expect("it writes");
    client.seq -= 1;
    assert_eq!(client.continue_stream(&mut scratch, &file, 3, b"two").expect("a retry"), stamp, "and has run once");
    // Over the end of its chunk, of 64 KiB.
    let long = pattern(65_531, 3);
    assert_eq!(
        refused(client.continue_stream(&mut scratch, &file, 6, &long)),
        Reason::Busy,
        "into a chunk that was not granted"
    );
    client.continue_stream(&mut scratch, &file, 6, &long[..65_530]).expect("up to its end");
    assert_eq!(client.read("/f", View::NOW).unwrap(), [b"onetwo", &long[..65_530]].concat());
}

#[test]
fn a_capability_that_was_shown_for_another_file_writes_to_that_file() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let (file, _) = (client.make("/f"), client.make("/g"));
    // The right to read and write the other.
    let other = client.open("/g").unwrap();
    let mut scratch = client.begin_stream(&file, 0, b"one");
    let read = Read { capability: other.clone(), offset: 0, len: 10, in_steps: false, ..Read::default() };
    let id = client.send_frame(Request::Read(read), &[], &mut scratch, |_| {});
    client.answer(id).expect("answered at once").0.expect("reads");
    client
        .continue_stream(&mut scratch, &other, 3, b"x")
        .expect("the right of the second file writes to the second file");
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"one");
    assert_eq!(client.read("/g", View::NOW).unwrap(), b"\0\0\0x");
}

#[test]
fn a_stream_checks_every_event_between_its_writes() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let (file, other) = (client.make("/f"), client.make("/g"));
    let mut at = 0;
    let mut stream = |client: &mut TestConnection,
                      what: &str,
                      between: &mut dyn FnMut(&mut TestConnection),
                      refused: Option<Reason>| {
        let mut scratch = client.begin_stream(&file, at, b"abc");
        client.continue_stream(&mut scratch, &file, at + 3, b"def").expect(what);
        between(client);
        let written = client.continue_stream(&mut scratch, &file, at + 6, b"ghi");
        assert_eq!(written.err().map(|fault| fault.reason), refused, "after {what}");
        at += 9;
    };
    stream(&mut client, "nothing", &mut |_| {}, None);
    stream(&mut client, "a read", &mut |client| drop(client.read("/f", View::NOW).unwrap()), None);
    stream(&mut client, "a transaction", &mut |client| client.mkdir("/d"), None);
    let write = &mut |client: &mut TestConnection| assert!(client.write(&other, Some(0), b"x").is_ok());
    stream(&mut client, "a write to another file", write, None);
    stream(&mut client, "a flush", &mut |client| client.server.flush().unwrap(), None);
    let close = &mut |client: &mut TestConnection| drop(client.at("/f", client.server.newest().0).unwrap());
    stream(&mut client, "an instant that was closed", close, None);
    let cut = &mut |client: &mut TestConnection| {
        let cut = SetAttr { target: Target::path("/f"), size: Some(2), ..SetAttr::default() };
        client.txn(Op::SetAttr(cut)).unwrap();
    };
    stream(&mut client, "a truncate", cut, None);
    let inode = client.stat("/f", View::NOW).unwrap().attr.inode;
    client.txn(Op::Grant(Grant { inode, first: 0, count: 1 })).unwrap();
    let remove = Remove { target: Target::path("/f"), directory: false };
    let remove = &mut |client: &mut TestConnection| drop(client.txn(Op::Remove(remove.clone())).unwrap());
    stream(&mut client, "its removal, while it is open", remove, None);
    assert_eq!(client.server.check_up().found(), 0);
}

#[test]
fn streams_go_on_side_by_side_also_in_one_chunk() {
    let mut machine = SimMachine::new(7);
    let mut client = machine.serve();
    let (file, other) = (client.make("/f"), client.make("/g"));
    let streams = [(&file, 0, b'a'), (&other, 0, b'b'), (&file, 500, b'z')];
    let mut scratches = streams.map(|(capability, at, byte)| client.begin_stream(capability, at, &[byte]));
    for round in 1..41 {
        for ((capability, at, byte), scratch) in streams.iter().zip(&mut scratches) {
            client.continue_stream(scratch, capability, at + round, &[*byte]).expect("it writes");
        }
        if round % 7 == 0 {
            client.write(&file, Some(300), b"not a stream").unwrap();
        }
    }
    let look = |client: &mut TestConnection| {
        let (one, two) = (client.read("/f", View::NOW).unwrap(), client.read("/g", View::NOW).unwrap());
        assert_eq!((&one[..41], &one[500..], &two[..]), (&[b'a'; 41][..], &[b'z'; 41][..], &[b'b'; 41][..]));
        assert_eq!(&one[300..312], b"not a stream");
        assert_eq!(client.server.check_up().found(), 0);
    };
    look(&mut client);
    client.fsync();
    machine.lose_power();
    look(&mut machine.serve());
}

#[test]
fn a_device_that_failed_takes_nothing_more_of_a_stream() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    client.server.flush().unwrap();
    let mut scratch = client.begin_stream(&file, 0, b"one");
    machine.disk.fail_syncs(1);
    client.server.flush().unwrap_err();
    assert_eq!(client.continue_stream(&mut scratch, &file, 3, b"x").unwrap_err().reason, Reason::InputOutput);
}

#[test]
fn a_write_behind_one_that_waits_for_the_disk_waits_for_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let mut scratch = Scratch::default();
    let first = client.send_write(&mut scratch, &file, Some(0), Durability::Sync, b"one");
    let second = client.send_write(&mut scratch, &file, Some(3), Durability::Async, b"two");
    assert!(client.answer(first).is_none());
    client.server.flush().unwrap();
    client.answer(first).expect("it is durable").0.expect("writes");
    client.answer(second).expect("it is durable").0.expect("writes");
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"onetwo");
}
