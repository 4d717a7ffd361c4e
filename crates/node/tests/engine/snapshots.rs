//! Snapshots of several users, the expired bytes that they pin, and what one user may know of another's session.

use super::*;
use frieze_wire::edit::Restore;
use frieze_wire::forget::{Forget, ForgetReply};
use frieze_wire::timeline::{Sessions, SessionsReply};
use frieze_wire::txn::MakeSnapshot;

fn somebody(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new() }
}

impl Served {
    fn forgets(&mut self, path: &str, before: u64, with_snapshots: bool) -> Result<ForgetReply, Fault> {
        self.open_session();
        self.seq += 1;
        let ask = Forget { target: Target::path(path), before, dry_run: false, with_snapshots };
        let id = self.send(Request::Forget(ask), &[], self.seq);
        match self.answer(id).expect("answered at once").0? {
            Reply::Forgot(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    fn names(&mut self, name: &str) -> u64 {
        self.txn(Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: 0, count_max: 0 })).expect("names").stamp
    }

    fn writes(&mut self, path: &str, bytes: &[u8]) {
        let file = self.make(path);
        self.write(&file, Some(0), bytes).expect("writes");
    }

    fn gives(&mut self, path: &str, uid: u32) {
        let set = SetAttr { target: Target::path(path), uid: Some(uid), ..SetAttr::default() };
        self.txn(Op::SetAttr(set)).expect("gives");
    }

    fn lists_sessions(&mut self, count_max: u32, after: u64) -> SessionsReply {
        match self.ask(Request::Sessions(Sessions { since: 0, after, count_max })) {
            Ok(Reply::Sessions(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }
}

/// Effect on each snapshot that showed something: name, maker, holds, loses, bytes.
fn fates(reply: &ForgetReply) -> Vec<(&str, u32, bool, bool, u64)> {
    reply.shown_by.iter().map(|one| (one.name.as_str(), one.uid, one.holds, one.loses, one.held_bytes)).collect()
}

#[test]
fn a_snapshot_holds_back_what_its_maker_owns_and_the_way_to_it() {
    let machine = Machine::new();
    let mut root = machine.serve();
    for directory in ["/hr", "/shared", "/shared/deep"] {
        root.mkdir(directory);
    }
    root.writes("/hr/gdpr", &pattern(50_000, 1));
    root.writes("/shared/deep/own", &pattern(30_000, 2));
    root.gives("/shared/deep/own", 1000);
    let mut ann = machine.connect(root.engine.clone(), somebody(1000));
    let pin = ann.names("pin");
    assert_eq!(ann.at("/hr/gdpr", pin).unwrap(), pattern(50_000, 1));
    root.remove("/hr/gdpr", false).unwrap();
    root.remove("/shared/deep/own", false).unwrap();
    root.close();
    let before = root.engine.planes.newest().0 + 1;
    let reply = root.forgets("/", before, false).unwrap();
    assert_eq!(fates(&reply), [("pin", 1000, true, true, 30_000)]);
    assert_eq!(reply.snapshots, ["pin"]);
    assert_eq!((reply.bytes, reply.held_bytes), (50_000, 30_000));
    let check = |served: &mut Served, own: Result<Vec<u8>, Reason>| {
        for path in ["/hr/gdpr", "/hr"] {
            let refused = served.stat(path, View { at: Some(pin), user_at: None }).unwrap_err();
            assert_eq!(refused.reason, Reason::HistoryExpired, "{path}: {refused}");
        }
        assert_eq!(served.at("/shared/deep/own", pin).map_err(|fault| fault.reason), own);
        assert_eq!(served.at("/shared/deep/own", pin + 1).unwrap_err().reason, Reason::HistoryExpired);
    };
    check(&mut ann, Ok(pattern(30_000, 2)));
    root.engine.stop().unwrap();
    drop((ann, root));
    let mut root = machine.serve();
    root.engine.service.upkeep.reclaim().unwrap();
    check(&mut root, Ok(pattern(30_000, 2)));

    // Through the snapshot, though it was forgotten before: now it shows nothing of it, and what it held is given back.
    let reply = root.forgets("/", before, true).unwrap();
    assert_eq!((fates(&reply), reply.bytes), (vec![("pin", 1000, false, true, 0)], 30_000));
    check(&mut root, Err(Reason::HistoryExpired));
    assert_eq!(root.forgets("/", before, true).unwrap().stamp, 0, "nothing is left to forget");
    root.engine.stop().unwrap();
    drop(root);
    let mut root = machine.serve();
    root.engine.service.upkeep.reclaim().unwrap();
    check(&mut root, Err(Reason::HistoryExpired));
}

#[test]
fn an_owner_forgets_through_snapshots_what_is_his_and_they_go_on_showing_the_rest() {
    let machine = Machine::new();
    let mut root = machine.serve();
    root.mkdir("/ann");
    root.gives("/ann", 1000);
    root.writes("/other", &pattern(10_000, 3));
    let mut ann = machine.connect(root.engine.clone(), somebody(1000));
    ann.writes("/ann/f", &pattern(20_000, 4));
    let kept = root.names("kept");
    ann.remove("/ann/f", false).unwrap();
    ann.close();
    root.remove("/other", false).unwrap();
    let before = root.engine.planes.newest().0 + 1;
    let mut bob = machine.connect(root.engine.clone(), somebody(1001));
    for with_snapshots in [false, true] {
        let refused = bob.forgets("/ann", before, with_snapshots).unwrap_err();
        assert_eq!(refused.reason, Reason::NotPermitted, "{refused}");
    }
    let reply = ann.forgets("/ann", before, false).unwrap();
    assert_eq!(fates(&reply), [("kept", 0, true, false, 20_000)]);
    assert_eq!(root.at("/ann/f", kept).unwrap(), pattern(20_000, 4), "root's snapshots hold everything back");
    ann.forgets("/ann", before, true).unwrap();
    assert_eq!(root.at("/ann/f", kept).unwrap_err().reason, Reason::HistoryExpired);
    assert_eq!(root.at("/other", kept).unwrap(), pattern(10_000, 3));
}

#[test]
fn a_dry_run_says_why_the_real_one_would_be_refused() {
    let machine = Machine::new();
    let mut root = machine.serve();
    root.mkdir("/hr");
    root.writes("/hr/f", &pattern(1000, 5));
    let then = root.engine.planes.newest().0;
    root.remove("/hr/f", false).unwrap();
    let mut ann = machine.connect(root.engine.clone(), somebody(1000));
    let restores = |served: &mut Served, dry_run: bool| {
        served.open_session();
        served.seq += 1;
        let ask = Restore { target: Target::path("/hr"), at: then, delete: false, dry_run };
        let id = served.send(Request::Restore(ask), &[], served.seq);
        match served.answer(id).expect("answered at once").0 {
            Ok(Reply::Edited(reply)) => Ok((reply.count, reply.refused)),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => Err(fault.reason),
        }
    };
    assert_eq!(restores(&mut ann, true), Ok((1, Reason::AccessDenied as u32)));
    assert_eq!(restores(&mut ann, false), Err(Reason::AccessDenied));
    assert_eq!(restores(&mut root, true), Ok((1, 0)));
}

#[test]
fn what_a_session_calls_itself_is_its_own_user_s_and_administrators_to_know() {
    let machine = Machine::new();
    let mut root = machine.serve();
    root.writes("/f", &pattern(10, 6));
    let mut ann = machine.connect(root.engine.clone(), somebody(1000));
    ann.open_session();
    let known = |served: &mut Served| -> Vec<(u32, String, bool)> {
        let reply = served.lists_sessions(0, 0);
        reply.sessions.into_iter().map(|one| (one.uid, one.command + &one.host, one.hidden)).collect()
    };
    let shown = "testhere".to_owned();
    assert_eq!(known(&mut root), [(0, shown.clone(), false), (1000, shown.clone(), false)]);
    assert_eq!(known(&mut ann), [(0, String::new(), true), (1000, shown, false)]);
    let log = |served: &mut Served| {
        let ask =
            Log { target: Target::path("/f"), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        match served.ask(Request::Log(ask)) {
            Ok(Reply::Log(reply)) => reply.sessions.into_iter().map(|one| one.command).collect::<Vec<String>>(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((log(&mut root), log(&mut ann)), (vec!["test".to_owned()], vec![String::new()]));
    let xattr = GetXattr { target: Target::path("/f"), view: View::NOW, name: b"user.frieze.writers".to_vec() };
    let Ok(Reply::Bytes(told)) = ann.ask(Request::GetXattr(xattr)) else { panic!("no writers") };
    let writers = frieze_wire::writers::parse_writers(&told.value).expect("reads");
    assert_eq!(
        writers.iter().map(|one| (one.uid, one.command.as_str(), one.host.as_str())).collect::<Vec<_>>(),
        [(0, "", "")]
    );
    // A page at a time.
    let page = root.lists_sessions(1, 0);
    assert_eq!((page.sessions.len(), page.more), (1, true));
    let rest = root.lists_sessions(1, page.sessions[0].id);
    assert_eq!((rest.sessions.len(), rest.more), (1, false));
}

#[test]
fn a_forgetting_of_all_that_a_session_changed_takes_its_command_line_with_it() {
    let machine = Machine::new();
    let mut root = machine.serve();
    root.mkdir("/d");
    root.mkdir("/other");
    root.writes("/kept", &pattern(10, 1));
    root.close();
    let begin = |served: &mut Served, command: &str| {
        let open = OpenSession { command: command.to_owned(), host: "h".to_owned(), uid: 0, keeps: false };
        let id = served.send(Request::Txn(Txn { durability: 0, op: Some(Op::OpenSession(open)) }), &[], 0);
        let Some((Ok(Reply::Txn(reply)), _)) = served.answer(id) else { panic!("no session") };
        served.session = SessionId(reply.id);
        reply.id
    };
    let commands = |served: &mut Served| -> BTreeMap<u64, String> {
        served.lists_sessions(0, 0).sessions.into_iter().map(|one| (one.id, one.command + &one.host)).collect()
    };
    let within = begin(&mut root, "sh -c TOKEN=hunter2");
    root.writes("/d/f", &pattern(1000, 2));
    root.remove("/d/f", false).unwrap();
    root.close();
    let both = begin(&mut root, "cp /d/g /other");
    root.writes("/d/g", &pattern(1000, 3));
    root.writes("/other/g", &pattern(1000, 3));
    root.close();
    let nothing = begin(&mut root, "true --password=x");
    root.close();
    let pinned = begin(&mut root, "mysql -psecret");
    root.writes("/d/pinned", &pattern(1000, 4));
    root.names("pin");
    root.remove("/d/pinned", false).unwrap();
    root.close();
    let before = root.engine.planes.newest().0 + 1;
    let own = begin(&mut root, "frieze forget");
    let reply = root.forgets("/d", before, false).unwrap();
    assert_eq!(reply.sessions, 1);
    let known = commands(&mut root);
    let of = |id: u64| known[&id].as_str();
    assert_eq!([of(within), of(nothing), of(own)], ["", "true --password=xh", "frieze forgeth"]);
    assert_eq!([of(both), of(pinned)], ["cp /d/g /otherh", "mysql -psecreth"], "something of it can be read");
    // All of the tree, and through the snapshot.
    assert_eq!(
        root.forgets("/", before, true).unwrap().sessions,
        4,
        "the first one, too, of which the test has no number"
    );
    let check = |served: &mut Served| {
        let known = commands(served);
        assert_eq!([within, both, nothing, pinned].map(|id| known[&id].as_str()), [""; 4]);
        assert_eq!(known[&own], "frieze forgeth");
        let all = served.lists_sessions(0, 0).sessions;
        assert!(all.iter().all(|one| one.uid == 0), "whose they were stays known");
        assert!(all.iter().all(|one| (one.ended == 0) == (one.id == own)), "and which have ended");
    };
    check(&mut root);
    root.engine.stop().unwrap();
    drop(root);
    // What the log says again after a loss of power ends in the same.
    check(&mut machine.serve());
}
