//! Calls about policies of retention.

use frieze_base::Fault;
use frieze_wire::edit::{ChangeTree, EditReply};
use frieze_wire::message::{Reply, Request};
use frieze_wire::retention::{Retention, RetentionReply};
use frieze_wire::txn::Target;

use super::connection::TestConnection;

impl TestConnection {
    /// Gives a tree a policy of retention.
    ///
    /// # Errors
    /// As the request fails.
    pub fn set_retention(&mut self, path: &str, policy: &str) -> Result<EditReply, Fault> {
        let (target, policy) = (Target::path(path), Some(policy.to_owned()));
        self.change_tree(ChangeTree { target, policy, ..ChangeTree::default() })
    }

    /// The policy of a path, and whether an instant of it is kept; 0: no instant.
    ///
    /// # Errors
    /// As the request fails.
    pub fn retention(&mut self, path: &str, at: u64) -> Result<RetentionReply, Fault> {
        match self.ask(Request::Retention(Retention { target: Target::path(path), at, preview: String::new() }))? {
            Reply::Retention(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }
}
