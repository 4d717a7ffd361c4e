//! The driver of a Raft member: three servers in one thread.

use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::{InodeId, NodeId, Reason, Seq, SessionId};
use frieze_metalog::MemberChange as Members;
use frieze_namespace::{KeyVersion, NoReadSet};
use frieze_wire::txn::{Caller, MakeKind};

use super::fixture::{Servers, make, open_session, run, target};
use crate::ChangeObserver;

/// Three voters, of which server 1 leads.
pub(super) fn three() -> Arc<Servers> {
    let servers = Servers::new(3);
    for id in [2, 3] {
        servers.node(1).change_members(Members::Add(NodeId(id))).expect("it is added");
        let has_caught_up = || {
            let status = servers.node(1).status().expect("a member");
            status.caught_up.contains(&NodeId(id))
        };
        servers.run_until("the transfer of the state", has_caught_up);
        servers.node(1).change_members(Members::Promote(NodeId(id))).expect("it votes");
    }
    servers.run_until("the last change of members", || are_equal(&servers, &[1, 2, 3]));
    servers
}

/// True if these servers have executed the same.
fn are_equal(servers: &Servers, ids: &[u32]) -> bool {
    let digests: Vec<_> = ids.iter().map(|id| servers.node(*id).digest().expect("the store reads")).collect();
    digests.windows(2).all(|pair| pair[0] == pair[1])
}

fn finds(servers: &Servers, id: u32, path: &str) -> bool {
    servers.node(id).resolve(&target(path), None, &Caller::root(), &NoReadSet).is_ok()
}

#[test]
fn a_server_that_bootstraps_leads_and_keeps_its_names() {
    let servers = Servers::new(1);
    let node = servers.node(1);
    assert!(node.is_member() && node.leads() && node.leader_terms() == 1);
    assert_eq!(node.leader(), Some(NodeId(1)));
    assert_eq!(node.current(InodeId::ROOT).map(|root| root.mode), Some(0o755));
    let status = node.status().expect("a member");
    assert_eq!((status.members.voters, status.failed), (vec![NodeId(1)], None));
    let again = node.bootstrap(&|| panic!("there is nothing to flush for"));
    assert_eq!(again.map_err(|fault| fault.reason), Ok(false));
}

#[test]
fn a_new_member_gets_the_state_and_then_every_entry() {
    let servers = three();
    assert!(!servers.node(2).leads() && servers.node(2).is_member());
    assert_eq!(servers.node(3).leader(), Some(NodeId(1)));
    let session = open_session(servers.node(1), 7, false);
    run(servers.node(1), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("a majority answers");
    servers.run_until("the entry at the followers", || finds(&servers, 2, "/a") && finds(&servers, 3, "/a"));
    assert!(are_equal(&servers, &[1, 2, 3]));
    assert_eq!(servers.node(2).session_user(session), Some(7), "sessions are part of it");
}

#[test]
fn a_follower_names_the_leader_instead_of_ordering() {
    let servers = three();
    let refused = run(servers.node(2), SessionId(0), Seq(0), make("/a", MakeKind::Directory(true)));
    assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::Elsewhere));
    assert!(servers.node(2).check_leads().is_err() && servers.node(1).check_leads().is_ok());
}

#[test]
fn a_read_of_now_at_a_follower_sees_what_was_acknowledged() {
    let servers = three();
    let session = open_session(servers.node(1), 7, false);
    run(servers.node(1), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("a majority answers");
    servers.node(2).linearizable().expect("a majority answers");
    assert!(finds(&servers, 2, "/a"));
}

#[test]
fn a_follower_closes_an_instant_through_the_leader() {
    let servers = three();
    let session = open_session(servers.node(1), 7, false);
    let made =
        run(servers.node(1), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("a majority answers");
    let at = frieze_hlc::Hlc(made.stamp);
    servers.run_until("the clocks", || servers.node(2).closed() >= at || servers.node(2).close(at).is_ok());
    assert!(servers.node(2).closed() >= at && servers.node(2).executed() >= at);
    assert_eq!(servers.node(2).close(at), Ok(true), "it is closed already");
}

#[test]
fn a_leader_that_is_cut_off_answers_nothing_and_the_next_one_remembers() {
    let servers = three();
    let session = open_session(servers.node(1), 7, false);
    let made =
        run(servers.node(1), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("a majority answers");
    servers.cut_off(1, true);
    let lost = run(servers.node(1), session, Seq(2), make("/b", MakeKind::Directory(true)));
    assert!(lost.is_err_and(|fault| [Reason::Elsewhere, Reason::Unavailable].contains(&fault.reason)));
    assert!(!servers.node(1).leads(), "without a majority it resigns");
    let leader = || [2, 3].into_iter().find(|id| servers.node(*id).leads());
    servers.run_until("an election", || leader().is_some());
    let next = leader().expect("there is one");
    let again = run(servers.node(next), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("it is known");
    assert_eq!((again.id, again.stamp), (made.id, made.stamp), "the first answer, and nothing new");
    run(servers.node(next), session, Seq(2), make("/b", MakeKind::Directory(true))).expect("a majority answers");
    servers.cut_off(1, false);
    servers.run_until("the old leader", || are_equal(&servers, &[1, 2, 3]));
    assert!(finds(&servers, 1, "/b"));
}

#[test]
fn without_a_majority_no_read_of_now_is_answered() {
    let servers = three();
    servers.cut_off(2, true);
    servers.cut_off(3, true);
    let read = servers.node(1).linearizable();
    assert!(read.is_err_and(|fault| [Reason::Elsewhere, Reason::Unavailable].contains(&fault.reason)));
}

#[test]
fn leadership_is_transferred_to_the_member_that_is_named() {
    let servers = three();
    assert!(servers.node(2).transfer_leadership(NodeId(3)).is_err(), "only the leader can");
    servers.node(1).transfer_leadership(NodeId(3)).expect("it leads");
    servers.run_until("the transfer", || servers.node(3).leads());
    assert!(!servers.node(1).leads());
    servers.node(3).resign();
    servers.run_until("the next one", || [1, 2].iter().any(|id| servers.node(*id).leads()));
}

#[test]
fn a_member_whose_device_failed_resigns_and_answers_with_the_fault() {
    let servers = three();
    servers.node(1).device_failed(Reason::InputOutput);
    assert!(!servers.node(1).leads());
    assert!(servers.node(1).status().expect("a member").failed.is_some());
    assert!(run(servers.node(1), SessionId(0), Seq(0), make("/a", MakeKind::Directory(true))).is_err());
    servers.run_until("an election", || [2, 3].iter().any(|id| servers.node(*id).leads()));
}

#[test]
fn a_server_that_stops_answers_every_wait() {
    let servers = three();
    servers.node(1).stop_waits();
    let refused = run(servers.node(1), SessionId(0), Seq(0), make("/a", MakeKind::Directory(true)));
    assert_eq!(refused.map_err(|fault| fault.reason), Err(Reason::Unavailable));
}

/// What an observer was called with.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn note(&self, words: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ChangeObserver for Calls {
    fn changed(&self, by: (SessionId, Seq), changes: &[KeyVersion]) {
        if !changes.is_empty() {
            self.note(format!("changed by {}", by.1.0));
        }
    }

    fn begin_to_lead(&self, sessions: Vec<SessionId>) {
        self.note(format!("leads, {} sessions keep something", sessions.len()));
    }

    fn resign(&self) {
        self.note("resigns".to_owned());
    }
}

#[test]
fn the_observer_is_called_before_a_change_is_answered_and_when_the_leader_changes() {
    let servers = three();
    let (old, new) = (Arc::<Calls>::default(), Arc::<Calls>::default());
    let session = open_session(servers.node(1), 7, true);
    servers.node(1).observe_by(old.clone());
    servers.node(2).observe_by(new.clone());
    run(servers.node(1), session, Seq(1), make("/a", MakeKind::Directory(true))).expect("a majority answers");
    assert_eq!(old.all(), ["changed by 1"]);
    servers.node(1).transfer_leadership(NodeId(2)).expect("it leads");
    servers.run_until("the transfer", || servers.node(2).leads());
    assert!(old.all().contains(&"resigns".to_owned()));
    assert!(new.all().contains(&"leads, 1 sessions keep something".to_owned()), "{:?}", new.all());
}
