//! Sessions that changed nothing are erased a while after their end; others stay.

use super::*;
use frieze_wire::timeline::Sessions;
use frieze_wire::txn::EraseSessions;
use std::time::Duration;

const KEPT_US: u64 = 60_000_000;

impl Served {
    /// Runs a session to its end. Returns its number.
    fn visits(&mut self, command: &str, makes: Option<&str>) -> u64 {
        let open = OpenSession { command: command.to_owned(), host: "h".to_owned(), uid: 0, keeps: false };
        let id = self.send(Request::Txn(Txn { durability: 0, op: Some(Op::OpenSession(open)) }), &[], 0);
        let Some((Ok(Reply::Txn(reply)), _)) = self.answer(id) else { panic!("no session") };
        self.session = SessionId(reply.id);
        if let Some(path) = makes {
            self.make(path);
        }
        self.close();
        reply.id
    }

    /// Sessions as they are listed: number, command, whether they have ended.
    fn listed(&mut self) -> Vec<(u64, String, bool)> {
        match self.ask(Request::Sessions(Sessions { since: 0, after: 0, count_max: 10_000 })) {
            Ok(Reply::Sessions(reply)) => {
                reply.sessions.into_iter().map(|one| (one.id, one.command, one.ended != 0)).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Advances the time, and runs the upkeep of sessions.
    fn waits(&self, machine: &Machine, us: u64) {
        machine.time.advance_us(us);
        for _ in 0..16 {
            self.engine.tend().expect("tends");
            machine.time.advance_us(500_000);
        }
    }
}

fn machine() -> Machine {
    let mut machine = Machine::new();
    machine.settings.ended_sessions_kept = Duration::from_micros(KEPT_US);
    machine
}

#[test]
fn a_session_that_changed_nothing_goes_a_while_after_its_end_and_one_that_changed_something_stays() {
    let mut machine = machine();
    let mut served = machine.serve();
    let reader = served.visits("ls --password=x", None);
    let writer = served.visits("cp", Some("/f"));
    let then = served.engine.planes.newest().0;
    let both = [(reader, "ls --password=x".to_owned(), true), (writer, "cp".to_owned(), true)];
    served.waits(&machine, KEPT_US / 2);
    assert_eq!(served.listed(), both, "not before its time");
    // Across a restart in good order, and across a loss of power.
    served.engine.planes.flush().unwrap();
    served.engine.stop().unwrap();
    drop(served);
    let mut served = machine.serve();
    assert_eq!(served.listed(), both);
    served.waits(&machine, KEPT_US);
    assert_eq!(served.listed(), both[1..]);
    served.engine.planes.flush().unwrap();
    drop(served);
    machine.lose_power();
    let mut served = machine.serve();
    assert_eq!(served.listed(), both[1..], "it does not come back");
    assert!(served.stat("/f", View { at: Some(then), user_at: None }).is_ok());
}

#[test]
fn a_session_that_is_open_stays_however_long_it_changes_nothing() {
    let machine = machine();
    let mut served = machine.serve();
    served.open_session();
    let open = served.session.0;
    served.ask(Request::Ping(frieze_wire::message::Ping {})).unwrap();
    served.waits(&machine, 10 * KEPT_US);
    assert_eq!(served.listed(), [(open, "test".to_owned(), false)]);
    served.make("/f");
    served.close();
    served.waits(&machine, 10 * KEPT_US);
    assert_eq!(served.listed(), [(open, "test".to_owned(), true)], "by now it has changed something");
}

#[test]
fn short_sessions_leave_a_bounded_table_in_the_store() {
    let mut machine = machine();
    machine.settings.ended_sessions_kept = Duration::from_secs(1);
    let mut served = machine.serve();
    served.visits("cp", Some("/f"));
    for _ in 0..10 {
        for _ in 0..300 {
            served.visits("ls", None);
        }
        served.waits(&machine, 2_000_000);
        served.engine.planes.flush().unwrap();
        assert_eq!(served.listed().len(), 1);
        let kept = machine.store.items(b"S", &[&b"S"[..], &[0xff; 40]].concat()).count();
        assert!(kept <= 2, "{kept} versions of sessions");
    }
}

#[test]
fn no_client_erases_sessions() {
    let machine = machine();
    let mut served = machine.serve();
    let refused = served.txn(Op::EraseSessions(EraseSessions { before: 1 })).unwrap_err();
    assert_eq!(refused.reason, Reason::NotPermitted);
}
