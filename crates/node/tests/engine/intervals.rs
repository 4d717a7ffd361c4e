//! Questions about intervals, and edits that came after edits: what the simulator found once.

use super::sharing::told;
use super::*;
use frieze_wire::edit::{ActionKind, Undo};
use frieze_wire::timeline::{CONTENT, Story, StoryReply};

impl Served {
    pub(crate) fn story(&mut self, path: &str, after: u64, upto: u64, count_max: u32) -> StoryReply {
        let view = View { at: Some(upto), user_at: None };
        let ask =
            Story { target: Target::path(path), view, after, upto, recursive: false, count_max, ..Story::default() };
        match self.ask(Request::Story(ask)) {
            Ok(Reply::Story(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn undo_since(&mut self, after: u64) -> u64 {
        let undo = Undo { target: Target::path("/"), after, ..Undo::default() };
        let reply = self.edit(Request::Undo(undo)).unwrap();
        assert!(told(&reply, ActionKind::Left).is_empty(), "{reply:?}");
        reply.stamp
    }
}

#[test]
fn a_story_whose_page_is_shorter_than_what_one_transaction_did_is_told_to_its_end() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let before = served.rename("/d", "/e").unwrap();
    for number in 0..12 {
        served.make(&format!("/e/{number}"));
    }
    let removed = served.undo_since(before);
    let (mut after, mut stamps) = (before, Vec::new());
    while after < removed {
        let page = served.story("/e", after, removed, 2);
        assert!(page.upto > after, "it goes on");
        stamps.extend(page.events.iter().map(|event| event.stamp));
        after = page.upto;
    }
    assert_eq!(stamps.len(), 24, "twelve made, twelve removed");
    assert_eq!(stamps.iter().filter(|stamp| **stamp == removed).count(), 12);
    assert!(stamps.is_sorted());
}

#[test]
fn what_was_written_to_a_file_that_came_and_went_is_told() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    let start = served.rename("/d", "/e").unwrap();
    let file = served.make("/e/f");
    let (first, _) = served.write(&file, Some(0), b"there ").unwrap();
    let moved = served.rename("/e/f", "/f").unwrap();
    let (elsewhere, _) = served.write(&file, Some(6), b"and elsewhere").unwrap();
    let end = served.remove("/f", false).unwrap();
    let page = served.story("/e", start, end, 0);
    let written: Vec<u64> = page.events.iter().filter(|one| one.flags & CONTENT != 0).map(|one| one.stamp).collect();
    assert_eq!(written, [first], "of the run that went on elsewhere, what was written here: not {elsewhere}");
    assert_eq!(page.events.last().map(|event| event.stamp), Some(moved));
}

#[test]
fn an_undone_undo_brings_back_the_time_with_the_bytes() {
    let machine = Machine::new();
    let mut served = machine.serve();
    let file = served.make("/f");
    let (before, _) = served.write(&file, Some(0), b"as it was").unwrap();
    machine.time.advance_us(1_000_000);
    served.write(&file, Some(0), b"something longer").unwrap();
    served.undo_since(before);
    machine.time.advance_us(1_000_000);
    let then = served.stat("/f", View { at: Some(before), user_at: None }).unwrap().attr;
    assert_eq!(served.stat("/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
    served.undo_since(before);
    assert_eq!(served.read("/f", View::NOW).unwrap(), b"as it was");
    assert_eq!(served.stat("/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
}

#[test]
fn a_file_of_the_same_bytes_and_another_time_is_not_taken_for_what_was_there() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/d");
    served.make("/d/f");
    let at = served.chmod("/d", 0o711).unwrap();
    served.rename("/d/f", "/f").unwrap();
    machine.time.advance_us(1_000_000);
    served.make("/d/f");
    let reply = served.restore("/d", at, false).unwrap();
    assert_eq!(told(&reply, ActionKind::Make).len(), 1, "{reply:?}");
    let then = served.stat("/d/f", View { at: Some(at), user_at: None }).unwrap().attr;
    assert_eq!(served.stat("/d/f", View::NOW).unwrap().attr.mtime_ns, then.mtime_ns);
    assert_eq!(served.restore("/d", at, false).unwrap().stamp, 0, "a second restore finds nothing to do");
}

#[test]
fn a_copy_that_gets_no_name_is_not_made_and_the_rest_is_restored() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/t");
    served.mkdir("/t/d");
    served.make("/t/d/inside");
    served.make("/t/f");
    let at = served.chmod("/t", 0o711).unwrap();
    served.rename("/t/d", "/elsewhere").unwrap();
    served.remove("/t/f", false).unwrap();
    served.mkdir("/t/d");
    served.make("/t/d/new");
    let reply = served.restore("/t", at, false).unwrap();
    let left: Vec<_> = told(&reply, ActionKind::Left).iter().map(|action| action.path.clone()).collect();
    assert_eq!(left, [b"/t/d".to_vec()], "{reply:?}");
    assert!(told(&reply, ActionKind::Make).is_empty(), "what is not made is not told as made: {reply:?}");
    assert!(served.inode("/t/f", View::NOW).is_some() && served.inode("/t/d/new", View::NOW).is_some());
}

#[test]
fn a_path_that_leads_through_what_it_named_is_restored_by_a_copy() {
    let machine = Machine::new();
    let mut served = machine.serve();
    served.mkdir("/t");
    served.mkdir("/t/c");
    served.make("/t/c/f");
    let at = served.chmod("/t", 0o711).unwrap();
    served.rename("/t/c", "/b").unwrap();
    let exchange = Rename { from: Target::path("/t"), to: Target::path("/b"), flags: 2 };
    served.txn(Op::Rename(exchange)).unwrap();
    served.restore("/t/c", at, false).unwrap();
    assert!(served.inode("/t/c/f", View::NOW).is_some());
    assert!(served.inode("/t/f", View::NOW).is_some(), "and what is there stays");
}
