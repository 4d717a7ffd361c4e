//! Quotas of what is kept, history and deleted files included.

use frieze_wire::quota::{QUOTA_XATTR, QuotaUse, USAGE_XATTR, parse_quota};

use super::*;

fn set_quota(client: &mut TestConnection, path: &str, text: &str) {
    let set = SetXattr { target: Target::path(path), name: QUOTA_XATTR.to_vec(), value: text.into(), flags: 0 };
    client.txn(Op::SetXattr(set)).unwrap();
}

fn usage(client: &mut TestConnection, path: &str) -> QuotaUse {
    let ask =
        frieze_wire::message::GetXattr { target: Target::path(path), view: View::NOW, name: USAGE_XATTR.to_vec() };
    let Reply::Bytes(reply) = client.ask(Request::GetXattr(ask)).unwrap() else { panic!("no attribute") };
    parse_quota(&reply.value).unwrap()
}

/// Counts until nothing is left to count.
fn count(machine: &SimMachine, client: &TestConnection) {
    for _ in 0..10 {
        machine.time.advance_us(6_000_000);
        client.server.count_kept().unwrap();
    }
}

#[test]
fn a_user_that_writes_the_same_bytes_again_and_again_is_stopped_and_goes_on_once_history_is_free() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/u");
    client.mkdir("/u/deep");
    client.mkdir("/v");
    set_quota(&mut client, "/u", "kept=1000000");
    let full = vec![7; 100_000];
    client.make("/u/deep/a");
    let file = client.open("/u/deep/a").unwrap();
    for round in 0..10 {
        client.write(&file, Some(0), &full).unwrap_or_else(|fault| panic!("round {round}: {fault}"));
    }
    let fault = client.write(&file, Some(0), &[1]).unwrap_err();
    assert_eq!(fault.reason, Reason::BytesQuota);
    for words in ["/u ", "1000000", "frieze forget", "frieze retention"] {
        assert!(fault.message.contains(words), "{fault}");
    }
    client.write_file("/v/b", &full);
    count(&machine, &client);
    assert_eq!(usage(&mut client, "/u").kept, Some(1_000_000));
    client.write(&file, Some(0), &[1]).unwrap_err();
    let before = client.server.newest().0;
    client.forget("/u", before);
    count(&machine, &client);
    assert_eq!(usage(&mut client, "/u").kept, Some(100_000));
    for _ in 0..9 {
        client.write(&file, Some(0), &full).unwrap();
    }
    client.write(&file, Some(0), &[1]).unwrap_err();
    // A larger bound holds from the next write on; without one nothing is counted.
    set_quota(&mut client, "/u", "kept=2000000");
    client.write(&file, Some(0), &full).unwrap();
    set_quota(&mut client, "/u", "files=100");
    client.write(&file, Some(0), &full).unwrap();
    count(&machine, &client);
    assert_eq!(usage(&mut client, "/u").kept, None);
}

#[test]
fn what_was_removed_or_moved_counts_where_it_was_last() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    for path in ["/u", "/u/in", "/u/in/tree", "/v"] {
        client.mkdir(path);
    }
    for path in ["/u/in/tree/a", "/u/b", "/v/c"] {
        client.write_file(path, &[7; 10_000]);
    }
    set_quota(&mut client, "/u", "kept=1000000");
    set_quota(&mut client, "/u/in", "kept=1000000");
    set_quota(&mut client, "/v", "kept=1000000 bytes=500000");
    let kept = |client: &mut TestConnection, when: &str, expected: [u64; 3]| {
        count(&machine, client);
        let found = ["/u", "/u/in", "/v"].map(|path| usage(client, path).kept.unwrap());
        assert_eq!(found, expected, "{when}");
    };
    kept(&mut client, "at first", [20_000, 10_000, 10_000]);
    client.remove("/u/in/tree/a", false).unwrap();
    client.remove("/u/in/tree", true).unwrap();
    client.remove("/v/c", false).unwrap();
    kept(&mut client, "removed, with its directory", [20_000, 10_000, 10_000]);
    client.rename("/u/b", "/v/b").unwrap();
    kept(&mut client, "a file moved", [10_000, 10_000, 20_000]);
    client.rename("/u/in", "/v/in").unwrap();
    count(&machine, &client);
    let found = ["/u", "/v/in", "/v"].map(|path| usage(&mut client, path).kept.unwrap());
    assert_eq!(found, [0, 10_000, 30_000], "a directory moved");
    client.close_session();
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    count(&machine, &client);
    let found = ["/u", "/v/in", "/v"].map(|path| usage(&mut client, path).kept.unwrap());
    assert_eq!(found, [0, 10_000, 30_000], "after a start");
}

#[test]
fn a_write_that_was_done_is_answered_again_over_the_bound() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/u");
    set_quota(&mut client, "/u", "kept=1000");
    client.make("/u/a");
    let file = client.open("/u/a").unwrap();
    let done = client.write(&file, Some(0), &[7; 900]).unwrap();
    client.seq -= 1;
    assert_eq!(client.write(&file, Some(0), &[7; 900]).unwrap(), done, "the answer may have been lost");
    client.write(&file, Some(0), &[7; 900]).unwrap_err();
}
