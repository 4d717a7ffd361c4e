//! Questions about intervals, and edits that came after edits: what the simulator found once.

use super::sharing::told;
use super::*;
use frieze_wire::edit::{ActionKind, Undo};
use frieze_wire::timeline::CONTENT;

fn undo_since(client: &mut TestConnection, after: u64) -> u64 {
    let undo = Undo { target: Target::path("/"), after, ..Undo::default() };
    let reply = client.edit(Request::Undo(undo)).unwrap();
    assert!(told(&reply, ActionKind::Left).is_empty(), "{reply:?}");
    reply.stamp
}

#[test]
fn a_story_with_pages_shorter_than_one_transaction_reaches_its_end() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let before = client.rename("/d", "/e").unwrap();
    for number in 0..12 {
        client.make(&format!("/e/{number}"));
    }
    let removed = undo_since(&mut client, before);
    let (mut after, mut stamps) = (before, Vec::new());
    while after < removed {
        let page = client.story("/e", after, removed, 2);
        assert!(page.upto > after, "it goes on");
        stamps.extend(page.events.iter().map(|event| event.stamp));
        after = page.upto;
    }
    assert_eq!(stamps.len(), 24, "twelve made, twelve removed");
    assert_eq!(stamps.iter().filter(|stamp| **stamp == removed).count(), 12);
    assert!(stamps.is_sorted());
}

#[test]
fn a_story_shows_writes_to_a_file_that_was_made_and_removed() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    let start = client.rename("/d", "/e").unwrap();
    let file = client.make("/e/f");
    let (first, _) = client.write(&file, Some(0), b"there ").unwrap();
    let moved = client.rename("/e/f", "/f").unwrap();
    let (elsewhere, _) = client.write(&file, Some(6), b"and elsewhere").unwrap();
    let end = client.remove("/f", false).unwrap();
    let page = client.story("/e", start, end, 0);
    let written: Vec<u64> = page.events.iter().filter(|one| one.flags & CONTENT != 0).map(|one| one.stamp).collect();
    assert_eq!(written, [first], "of the run that went on elsewhere, what was written here: not {elsewhere}");
    assert_eq!(page.events.last().map(|event| event.stamp), Some(moved));
}

#[test]
fn an_undone_undo_brings_back_the_time_with_the_bytes() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    let file = client.make("/f");
    let (before, _) = client.write(&file, Some(0), b"as it was").unwrap();
    machine.time.advance_us(1_000_000);
    client.write(&file, Some(0), b"something longer").unwrap();
    undo_since(&mut client, before);
    machine.time.advance_us(1_000_000);
    let then = client.stat("/f", View { at: Some(before), user_at: None }).unwrap().attr;
    assert_eq!(client.stat("/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
    undo_since(&mut client, before);
    assert_eq!(client.read("/f", View::NOW).unwrap(), b"as it was");
    assert_eq!(client.stat("/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
}

#[test]
fn a_file_of_the_same_bytes_and_another_time_is_not_taken_for_what_was_there() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/d");
    client.make("/d/f");
    let at = client.chmod("/d", 0o711).unwrap();
    client.rename("/d/f", "/f").unwrap();
    machine.time.advance_us(1_000_000);
    client.make("/d/f");
    let reply = client.restore("/d", at, false).unwrap();
    assert_eq!(told(&reply, ActionKind::Make).len(), 1, "{reply:?}");
    let then = client.stat("/d/f", View { at: Some(at), user_at: None }).unwrap().attr;
    assert_eq!(client.stat("/d/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
    assert_eq!(client.restore("/d", at, false).unwrap().stamp, 0, "a second restore finds nothing to do");
}

#[test]
fn a_copy_that_gets_no_name_is_not_made_and_the_rest_is_restored() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.mkdir("/t/d");
    client.make("/t/d/inside");
    client.make("/t/f");
    let at = client.chmod("/t", 0o711).unwrap();
    client.rename("/t/d", "/elsewhere").unwrap();
    client.remove("/t/f", false).unwrap();
    client.mkdir("/t/d");
    client.make("/t/d/new");
    let reply = client.restore("/t", at, false).unwrap();
    let left: Vec<_> = told(&reply, ActionKind::Left).iter().map(|action| action.path.clone()).collect();
    assert_eq!(left, [b"/t/d".to_vec()], "{reply:?}");
    assert!(told(&reply, ActionKind::Make).is_empty(), "what is not made is not told as made: {reply:?}");
    assert!(client.inode("/t/f", View::NOW).is_some() && client.inode("/t/d/new", View::NOW).is_some());
}

#[test]
fn a_path_that_leads_through_what_it_named_is_restored_by_a_copy() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.mkdir("/t/c");
    client.make("/t/c/f");
    let at = client.chmod("/t", 0o711).unwrap();
    client.rename("/t/c", "/b").unwrap();
    let exchange = Rename { from: Target::path("/t"), to: Target::path("/b"), flags: 2 };
    client.txn(Op::Rename(exchange)).unwrap();
    client.restore("/t/c", at, false).unwrap();
    assert!(client.inode("/t/c/f", View::NOW).is_some());
    assert!(client.inode("/t/f", View::NOW).is_some(), "and what is there stays");
}
