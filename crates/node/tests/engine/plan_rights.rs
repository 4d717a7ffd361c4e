//! What the plan of a restore or an undo may name: only what its caller may list.

use super::*;
use frieze_wire::edit::{Restore, Undo};
use frieze_wire::txn::Link;

#[test]
fn a_restore_names_nothing_in_a_directory_that_its_caller_may_not_list() {
    // Mode of the directory at the instant to restore, and now.
    for (then_mode, now_mode) in [(0o700, 0o700), (0o733, 0o733), (0o777, 0o733), (0o733, 0o777), (0o700, 0o777)] {
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        client.mkdir("/open");
        client.chmod("/open", 0o777).unwrap();
        client.mkdir("/open/shut");
        client.chmod("/open/shut", then_mode).unwrap();
        for name in ["removed", "changed", "moved"] {
            client.make(&format!("/open/shut/secret-{name}"));
            client.chmod(&format!("/open/shut/secret-{name}"), 0o666).unwrap();
        }
        let then = client.server.newest().0;
        client.remove("/open/shut/secret-removed", false).unwrap();
        client.rename("/open/shut/secret-moved", "/open/shut/secret-moved-to").unwrap();
        let changed = client.open("/open/shut/secret-changed").unwrap();
        client.write(&changed, Some(0), b"since").unwrap();
        client.make("/open/shut/secret-made");
        client.chmod("/open/shut", now_mode).unwrap();
        drop(client);
        let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
        for (path, delete, dry_run) in [
            ("/open", false, true),
            ("/open", true, true),
            ("/open/shut", false, true),
            ("/open/shut", true, true),
            ("/open/shut", true, false),
            ("/open", true, false),
            ("/open/shut", false, false),
        ] {
            let ask = Restore { target: Target::path(path), at: then, delete, dry_run };
            let case = format!("{then_mode:o} {now_mode:o} {path} {delete} {dry_run}");
            let fault = match client.edit(Request::Restore(ask)) {
                Ok(planned) => {
                    assert!(planned.actions.is_empty(), "{case}: {planned:?}");
                    assert_eq!(planned.refused, Reason::AccessDenied as u32, "{case}: {planned:?}");
                    planned.refused_words
                }
                Err(fault) => {
                    assert_eq!(fault.kind(), frieze_base::ErrorKind::Denied, "{case}: {fault}");
                    fault.to_string()
                }
            };
            assert!(!fault.contains("secret"), "{case}: {fault}");
        }
    }
}

#[test]
fn a_restore_that_deletes_names_nothing_in_a_directory_made_since_that_its_caller_may_not_list() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    client.mkdir("/open");
    client.chmod("/open", 0o777).unwrap();
    let then = client.server.newest().0;
    client.mkdir("/open/since");
    client.chmod("/open/since", 0o733).unwrap();
    client.make("/open/since/secret");
    drop(client);
    let mut client = machine.serve_as(Caller { uid: 1000, gid: 1000, groups: Vec::new() });
    for (path, dry_run) in [("/open", true), ("/open/since", true), ("/open", false), ("/open/since", false)] {
        let ask = Restore { target: Target::path(path), at: then, delete: true, dry_run };
        let fault = client.edit(Request::Restore(ask)).unwrap_err();
        assert_eq!(fault.reason, Reason::AccessDenied, "{path}");
        assert!(!fault.to_string().contains("secret"), "{path}: {fault}");
    }
}

#[test]
fn a_plan_calls_a_file_by_a_name_that_its_caller_may_list() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    // The names of a file are in the order of their directories' numbers: the closed one comes first.
    for (path, mode) in [("/shut", 0o700), ("/open", 0o777)] {
        client.mkdir(path);
        client.chmod(path, mode).unwrap();
    }
    let user = Caller { uid: 1000, gid: 1000, groups: Vec::new() };
    drop(client);
    let mut client = machine.serve_as(user.clone());
    let file = client.make("/open/mine");
    client.write(&file, Some(0), b"then").unwrap();
    drop(client);
    let mut client = machine.serve();
    client.txn(Op::Link(Link { file: Target::path("/open/mine"), name: Target::path("/shut/secret") })).unwrap();
    let then = client.server.newest().0;
    drop(client);
    let mut client = machine.serve_as(user);
    let file = client.open("/open/mine").unwrap();
    client.write(&file, Some(0), b"since").unwrap();
    client.chmod("/open/mine", 0o600).unwrap();
    let restore = |path: &str| Restore { target: Target::path(path), at: then, delete: false, dry_run: true };
    let undo = Undo { target: Target::path("/"), uid: Some(1000), after: then, dry_run: true, ..Undo::default() };
    for ask in [
        Request::Restore(restore("/open")),
        Request::Restore(restore("/open/mine")),
        Request::Restore(restore("/")),
        Request::Undo(undo),
    ] {
        let planned = client.edit(ask).unwrap();
        let paths: Vec<_> = planned.actions.iter().map(|action| String::from_utf8_lossy(&action.path)).collect();
        assert!(!paths.is_empty() && paths.iter().all(|path| path == "/open/mine"), "{planned:?}");
    }
}
