//! Snapshots of several users, the expired bytes that they pin, and what one user may know of another's session.

use super::*;
use frieze_wire::edit::Restore;
use frieze_wire::forget::{Forget, ForgetReply};

fn somebody(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Vec::new() }
}

/// Effect on each snapshot that showed something: name, maker, holds, loses, bytes.
fn fates(reply: &ForgetReply) -> Vec<(&str, u32, bool, bool, u64)> {
    reply.shown_by.iter().map(|one| (one.name.as_str(), one.uid, one.holds, one.loses, one.held_bytes)).collect()
}

#[test]
fn a_snapshot_holds_back_what_its_maker_owns_and_the_way_to_it() {
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    for directory in ["/hr", "/shared", "/shared/deep"] {
        root.mkdir(directory);
    }
    root.make_with("/hr/gdpr", &pattern(50_000, 1));
    root.make_with("/shared/deep/own", &pattern(30_000, 2));
    root.chown("/shared/deep/own", 1000);
    let mut ann = machine.connect(root.server.clone(), somebody(1000));
    let pin = ann.make_snapshot("pin");
    assert_eq!(ann.at("/hr/gdpr", pin).unwrap(), pattern(50_000, 1));
    root.remove("/hr/gdpr", false).unwrap();
    root.remove("/shared/deep/own", false).unwrap();
    root.close_session();
    let before = root.server.newest().0 + 1;
    let reply = root.try_forget("/", before).unwrap();
    assert_eq!(fates(&reply), [("pin", 1000, true, true, 30_000)]);
    assert_eq!(reply.snapshots, ["pin"]);
    assert_eq!((reply.bytes, reply.held_bytes), (50_000, 30_000));
    let check = |client: &mut TestConnection, own: Result<Vec<u8>, Reason>| {
        for path in ["/hr/gdpr", "/hr"] {
            let refused = client.stat(path, View { at: Some(pin), user_at: None }).unwrap_err();
            assert_eq!(refused.reason, Reason::HistoryExpired, "{path}: {refused}");
        }
        assert_eq!(client.at("/shared/deep/own", pin).map_err(|fault| fault.reason), own);
        assert_eq!(client.at("/shared/deep/own", pin + 1).unwrap_err().reason, Reason::HistoryExpired);
    };
    check(&mut ann, Ok(pattern(30_000, 2)));
    root.server.stop().unwrap();
    drop((ann, root));
    let mut root = machine.serve();
    root.server.reclaim().unwrap();
    check(&mut root, Ok(pattern(30_000, 2)));

    // Through the snapshot, though it was forgotten before: now it shows nothing of it, and what it held is given back.
    let reply = root.forget_with_snapshots("/", before).unwrap();
    assert_eq!((fates(&reply), reply.bytes), (vec![("pin", 1000, false, true, 0)], 30_000));
    check(&mut root, Err(Reason::HistoryExpired));
    assert_eq!(root.forget_with_snapshots("/", before).unwrap().stamp, 0, "nothing is left to forget");
    root.server.stop().unwrap();
    drop(root);
    let mut root = machine.serve();
    root.server.reclaim().unwrap();
    check(&mut root, Err(Reason::HistoryExpired));
}

#[test]
fn an_owner_forgets_through_snapshots_what_is_his_and_they_go_on_showing_the_rest() {
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    root.mkdir("/ann");
    root.chown("/ann", 1000);
    root.make_with("/other", &pattern(10_000, 3));
    let mut ann = machine.connect(root.server.clone(), somebody(1000));
    ann.make_with("/ann/f", &pattern(20_000, 4));
    let kept = root.make_snapshot("kept");
    ann.remove("/ann/f", false).unwrap();
    ann.close_session();
    root.remove("/other", false).unwrap();
    let before = root.server.newest().0 + 1;
    let mut bob = machine.connect(root.server.clone(), somebody(1001));
    for with_snapshots in [false, true] {
        let refused = bob
            .forget_with(Forget { target: Target::path("/ann"), before, dry_run: false, with_snapshots })
            .unwrap_err();
        assert_eq!(refused.reason, Reason::NotPermitted, "{refused}");
    }
    let reply = ann.try_forget("/ann", before).unwrap();
    assert_eq!(fates(&reply), [("kept", 0, true, false, 20_000)]);
    assert_eq!(root.at("/ann/f", kept).unwrap(), pattern(20_000, 4), "root's snapshots hold everything back");
    ann.forget_with_snapshots("/ann", before).unwrap();
    assert_eq!(root.at("/ann/f", kept).unwrap_err().reason, Reason::HistoryExpired);
    assert_eq!(root.at("/other", kept).unwrap(), pattern(10_000, 3));
}

#[test]
fn a_dry_run_says_why_the_real_one_would_be_refused() {
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    root.mkdir("/hr");
    root.make_with("/hr/f", &pattern(1000, 5));
    let then = root.server.newest().0;
    root.remove("/hr/f", false).unwrap();
    let mut ann = machine.connect(root.server.clone(), somebody(1000));
    let restores = |client: &mut TestConnection, dry_run: bool| {
        client.open_session();
        client.seq += 1;
        let ask = Restore { target: Target::path("/hr"), at: then, delete: false, dry_run };
        let id = client.send(Request::Restore(ask), &[], client.seq);
        match client.answer(id).expect("answered at once").0 {
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
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    root.make_with("/f", &pattern(10, 6));
    let mut ann = machine.connect(root.server.clone(), somebody(1000));
    ann.open_session();
    let known = |client: &mut TestConnection| -> Vec<(u32, String, bool)> {
        let reply = client.sessions(0, 0);
        reply.sessions.into_iter().map(|one| (one.uid, one.command + &one.host, one.hidden)).collect()
    };
    let shown = "testhere".to_owned();
    assert_eq!(known(&mut root), [(0, shown.clone(), false), (1000, shown.clone(), false)]);
    assert_eq!(known(&mut ann), [(0, String::new(), true), (1000, shown, false)]);
    let log = |client: &mut TestConnection| {
        let ask =
            Log { target: Target::path("/f"), view: View::NOW, after: 0, count_max: 0, upto: 0, ..Log::default() };
        match client.ask(Request::Log(ask)) {
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
    let page = root.sessions(1, 0);
    assert_eq!((page.sessions.len(), page.more), (1, true));
    let rest = root.sessions(1, page.sessions[0].id);
    assert_eq!((rest.sessions.len(), rest.more), (1, false));
}

#[test]
fn a_forgetting_of_all_that_a_session_changed_takes_its_command_line_with_it() {
    let machine = SimMachine::new(7);
    let mut root = machine.serve();
    root.mkdir("/d");
    root.mkdir("/other");
    root.make_with("/kept", &pattern(10, 1));
    root.close_session();
    let begin = |client: &mut TestConnection, command: &str| {
        let open = OpenSession { command: command.to_owned(), host: "h".to_owned(), uid: 0, keeps: false };
        let id = client.send(Request::Txn(Txn { durability: 0, op: Some(Op::OpenSession(open)) }), &[], 0);
        let Some((Ok(Reply::Txn(reply)), _)) = client.answer(id) else { panic!("no session") };
        client.session = SessionId(reply.id);
        reply.id
    };
    let commands = |client: &mut TestConnection| -> BTreeMap<u64, String> {
        client.sessions(0, 0).sessions.into_iter().map(|one| (one.id, one.command + &one.host)).collect()
    };
    let within = begin(&mut root, "sh -c TOKEN=hunter2");
    root.make_with("/d/f", &pattern(1000, 2));
    root.remove("/d/f", false).unwrap();
    root.close_session();
    let both = begin(&mut root, "cp /d/g /other");
    root.make_with("/d/g", &pattern(1000, 3));
    root.make_with("/other/g", &pattern(1000, 3));
    root.close_session();
    let nothing = begin(&mut root, "true --password=x");
    root.close_session();
    let pinned = begin(&mut root, "mysql -psecret");
    root.make_with("/d/pinned", &pattern(1000, 4));
    root.make_snapshot("pin");
    root.remove("/d/pinned", false).unwrap();
    root.close_session();
    let before = root.server.newest().0 + 1;
    let own = begin(&mut root, "frieze forget");
    let reply = root.try_forget("/d", before).unwrap();
    assert_eq!(reply.sessions, 1);
    let known = commands(&mut root);
    let of = |id: u64| known[&id].as_str();
    assert_eq!([of(within), of(nothing), of(own)], ["", "true --password=xh", "frieze forgeth"]);
    assert_eq!([of(both), of(pinned)], ["cp /d/g /otherh", "mysql -psecreth"], "something of it can be read");
    // All of the tree, and through the snapshot.
    assert_eq!(
        root.forget_with_snapshots("/", before).unwrap().sessions,
        4,
        "the first one, too, of which the test has no number"
    );
    let check = |client: &mut TestConnection| {
        let known = commands(client);
        assert_eq!([within, both, nothing, pinned].map(|id| known[&id].as_str()), [""; 4]);
        assert_eq!(known[&own], "frieze forgeth");
        let all = client.sessions(0, 0).sessions;
        assert!(all.iter().all(|one| one.uid == 0), "whose they were stays known");
        assert!(all.iter().all(|one| (one.ended == 0) == (one.id == own)), "and which have ended");
    };
    check(&mut root);
    root.server.stop().unwrap();
    drop(root);
    // What the log says again after a loss of power ends in the same.
    check(&mut machine.serve());
}
