//! The edges of interval queries: expired history, and the time before the first change.

use super::*;
use frieze_wire::timeline::{Diff, DiffReply, Difference};

impl Served {
    pub(crate) fn diff(&mut self, path: &str, from: u64, to: u64) -> Result<DiffReply, Fault> {
        let ask = Diff { target: Target::path(path), from, to, skip: 0, count_max: 0 };
        match self.ask(Request::Diff(ask))? {
            Reply::Diff(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }
}

/// `/a` and `/b`, each with a file.
fn two_directories(served: &mut Served) {
    for directory in ["/a", "/b"] {
        served.mkdir(directory);
        served.make(&format!("{directory}/f"));
    }
}

fn added(reply: &DiffReply) -> Vec<String> {
    let path = |difference: &Difference| {
        assert!(difference.before.is_none(), "{difference:?}");
        String::from_utf8(difference.after.clone().unwrap().path).unwrap()
    };
    reply.differences.iter().map(path).collect()
}

#[test]
fn a_log_says_that_it_leaves_out_a_rename_whose_other_directory_has_forgotten() {
    let machine = Machine::new();
    let mut served = machine.serve();
    two_directories(&mut served);
    let renamed = served.rename("/a/f", "/b/g").unwrap();
    served.chmod("/a", 0o700).unwrap();
    let now = served.engine.planes.newest().0;
    let story = served.story("/a", 0, now, 0);
    assert!(story.events.iter().any(|event| event.stamp == renamed) && !story.left_out, "{story:?}");

    served.forget("/b", now);
    let story = served.story("/a", 0, now, 0);
    assert!(!story.events.is_empty() && story.events.iter().all(|event| event.stamp != renamed), "{story:?}");
    assert!(story.left_out && !story.hidden, "that there is more is said, and why");
}

#[test]
fn a_log_tells_of_a_write_to_a_file_that_was_there_between_two_renames_that_are_left_out() {
    let machine = Machine::new();
    let mut served = machine.serve();
    two_directories(&mut served);
    let began = served.engine.planes.newest().0;
    served.rename("/b/f", "/a/g").unwrap();
    let file = served.open("/a/g").unwrap();
    let (written, _) = served.write(&file, Some(0), b"bytes").unwrap();
    let ended = served.rename("/a/g", "/b/f").unwrap();
    // Moved out of the part whose history expires.
    served.rename("/b/f", "/f").unwrap();
    let told = |served: &mut Served| {
        let story = served.story("/a", began, ended, 0);
        (story.events.iter().any(|event| event.stamp == written), story.left_out)
    };
    assert_eq!(told(&mut served), (true, false));
    let now = served.engine.planes.newest().0;
    served.forget("/b", now);
    assert_eq!(told(&mut served), (true, true));
}

#[test]
fn a_refusal_names_what_has_forgotten_to_whoever_may_know_it() {
    let machine = Machine::new();
    let mut served = machine.serve();
    two_directories(&mut served);
    served.mkdir("/b/inner");
    served.make("/b/inner/g");
    let old = served.engine.planes.newest().0;
    let file = served.open("/b/inner/g").unwrap();
    served.write(&file, Some(0), b"bytes").unwrap();
    served.rename("/b/inner/g", "/b/inner/h").unwrap();
    let now = served.engine.planes.newest().0;
    served.forget("/b/inner", now);

    let me = [served.session.0];
    let refusals = [
        served.at("/b/inner/g", old).unwrap_err(),
        served.diff("/", old, now).unwrap_err(),
        served.restore("/", old, false).unwrap_err(),
        served.undo(&me).unwrap_err(),
    ];
    for refusal in &refusals {
        assert_eq!(refusal.reason, Reason::HistoryExpired);
        assert!(refusal.message.starts_with("history of /b/inner"), "{}", refusal.message);
    }
    // A user that may not list `/b` gets the same words without the name.
    served.chmod("/b", 0o711).unwrap();
    let someone = Caller { uid: 1000, gid: 1000, groups: Vec::new() };
    let mut other = machine.connect(served.engine.clone(), someone);
    let refusal = other.diff("/", old, now).unwrap_err();
    assert!(refusal.message.starts_with("history is not kept at "), "{}", refusal.message);
}

#[test]
fn an_interval_that_begins_before_the_file_system_begins_with_nothing() {
    let machine = Machine::new();
    let mut served = machine.serve();
    two_directories(&mut served);
    let now = served.engine.planes.newest().0;
    for from in [0, 1, 1 << 40] {
        assert_eq!(added(&served.diff("/", from, now).unwrap()), ["/a", "/a/f", "/b", "/b/f"]);
        assert_eq!(added(&served.diff("/b", from, now).unwrap()), ["/b", "/b/f"]);
        assert_eq!(served.diff("/none", from, now).unwrap_err().reason, Reason::NotFound);
    }
    assert_eq!(served.diff("/", 0, 1).unwrap_err().reason, Reason::HistoryExpired, "then there was no file system");
}
