//! Sessions that changed nothing are erased a while after their end; others stay.

use super::*;
use frieze_wire::txn::EraseSessions;
use std::time::Duration;

const KEPT_US: u64 = 60_000_000;

fn machine() -> SimMachine {
    let mut machine = SimMachine::new(7);
    machine.settings.ended_sessions_kept = Duration::from_micros(KEPT_US);
    machine
}

/// Sessions as they are listed: number, command, whether they have ended.
fn listed(client: &mut TestConnection) -> Vec<(u64, String, bool)> {
    client.sessions(10_000, 0).sessions.into_iter().map(|one| (one.id, one.command, one.ended != 0)).collect()
}

#[test]
fn a_session_that_changed_nothing_goes_a_while_after_its_end_and_one_that_changed_something_stays() {
    let mut machine = machine();
    let mut client = machine.serve();
    let reader = client.run_session("ls --password=x", None);
    let writer = client.run_session("cp", Some("/f"));
    let then = client.server.newest().0;
    let both = [(reader, "ls --password=x".to_owned(), true), (writer, "cp".to_owned(), true)];
    client.tend_after(&machine, KEPT_US / 2);
    assert_eq!(listed(&mut client), both, "not before its time");
    // Across a restart in good order, and across a loss of power.
    client.server.flush().unwrap();
    client.server.stop().unwrap();
    drop(client);
    let mut client = machine.serve();
    assert_eq!(listed(&mut client), both);
    client.tend_after(&machine, KEPT_US);
    assert_eq!(listed(&mut client), both[1..]);
    client.server.flush().unwrap();
    drop(client);
    machine.lose_power();
    let mut client = machine.serve();
    assert_eq!(listed(&mut client), both[1..], "it does not come back");
    assert!(client.stat("/f", View { at: Some(then), user_at: None }).is_ok());
}

#[test]
fn a_session_that_is_open_stays_however_long_it_changes_nothing() {
    let machine = machine();
    let mut client = machine.serve();
    client.open_session();
    let open = client.session.0;
    client.ask(Request::Ping(frieze_wire::message::Ping {})).unwrap();
    client.tend_after(&machine, 10 * KEPT_US);
    assert_eq!(listed(&mut client), [(open, "test".to_owned(), false)]);
    client.make("/f");
    client.close_session();
    client.tend_after(&machine, 10 * KEPT_US);
    assert_eq!(listed(&mut client), [(open, "test".to_owned(), true)], "by now it has changed something");
}

#[test]
fn short_sessions_leave_a_bounded_table_in_the_store() {
    let mut machine = machine();
    machine.settings.ended_sessions_kept = Duration::from_secs(1);
    let mut client = machine.serve();
    client.run_session("cp", Some("/f"));
    for _ in 0..10 {
        for _ in 0..300 {
            client.run_session("ls", None);
        }
        client.tend_after(&machine, 2_000_000);
        client.server.flush().unwrap();
        assert_eq!(listed(&mut client).len(), 1);
        let kept = machine.store.items(b"S", &[&b"S"[..], &[0xff; 40]].concat()).count();
        assert!(kept <= 2, "{kept} versions of sessions");
    }
}

#[test]
fn no_client_erases_sessions() {
    let machine = machine();
    let mut client = machine.serve();
    let refused = client.txn(Op::EraseSessions(EraseSessions { before: 1 })).unwrap_err();
    assert_eq!(refused.reason, Reason::NotPermitted);
}
