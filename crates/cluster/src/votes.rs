//! The votes of the metalog as one server counts them: whether a majority of the voters is there, and what an operator
//! does without a leader.

use frieze_base::NodeId;

use crate::controller::ClusterTrouble;
use crate::error::Error;

/// A declaration without a leader counts when there was none for so long, in nanoseconds: several elections.
const LEADERLESS_MIN_NS: u64 = 3_000_000_000;

/// The voters of the metalog, as one server knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachableVotes {
    /// Voters that sent a message within a lease; this server counts as one.
    pub reachable: usize,
    /// All voters.
    pub voters: usize,
    /// For how long this server has followed no leader, in nanoseconds; `None` while it follows one.
    pub leaderless_ns: Option<u64>,
}

impl ReachableVotes {
    /// True if a majority of the voters is there.
    pub fn is_majority(&self) -> bool {
        self.reachable > self.voters / 2
    }

    /// Why nothing can be decided, if the majority is missing.
    pub fn missing(&self) -> Option<String> {
        let ReachableVotes { reachable, voters, .. } = self;
        (self.leaderless_ns.is_some() && !self.is_majority()).then(|| {
            format!(
                "no majority of the cluster's servers answers: {reachable} of {voters} that vote were heard from lately"
            )
        })
    }

    /// Trouble: a voter is offline, and the loss of one more stops the cluster.
    pub fn trouble(&self) -> Option<ClusterTrouble> {
        let ReachableVotes { reachable, voters, .. } = self;
        (self.leaderless_ns.is_none() && self.is_last_majority()).then(|| {
            ClusterTrouble::new(
                format!("{reachable} of {voters} servers that vote are there: the loss of one more stops the cluster"),
                "start the others again ('frieze cluster nodes' names those that vote)",
            )
        })
    }

    /// A voter is offline, and the others are just enough.
    fn is_last_majority(&self) -> bool {
        self.reachable < self.voters && self.reachable == self.voters / 2 + 1
    }

    /// True if a majority of the voters is there and elects no leader: too many of them lost their memory, and they
    /// wait for the voters that are away.
    fn waits_for_all(&self) -> bool {
        self.is_majority() && self.leaderless_ns.is_some_and(|waited| waited >= LEADERLESS_MIN_NS)
    }

    /// Checks whether an operator may declare `node` dead without a leader. `None`: a declaration is for a leader,
    /// because the servers that are there do not wait for `node`.
    ///
    /// # Errors
    /// [`Error::StillOnline`]: it is there. [`Error::NamesAlone`]: the loss is not confirmed.
    pub fn check_declaration(&self, node: NodeId, is_reachable: bool, with_loss: bool) -> Option<Result<(), Error>> {
        let answer = match with_loss {
            _ if is_reachable => Err(Error::StillOnline { node }),
            false => Err(Error::NamesAlone { node }),
            true => Ok(()),
        };
        self.waits_for_all().then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_majority_is_that_which_bears_no_further_loss() {
        let is_last = |reachable, voters| ReachableVotes { reachable, voters, leaderless_ns: None }.trouble().is_some();
        let last = |voters: usize| (0..=voters).filter(|heard| is_last(*heard, voters)).collect::<Vec<_>>();
        assert_eq!(last(5), [3]);
        assert_eq!(last(4), [3]);
        assert_eq!(last(3), [2]);
        // Two servers never survive a loss, and no voter is missing.
        assert!(last(2).is_empty() && last(1).is_empty());
    }

    #[test]
    fn a_voter_is_declared_dead_without_a_leader_if_it_is_away_and_the_loss_is_confirmed() {
        let votes = |reachable, leaderless_ns| ReachableVotes { reachable, voters: 3, leaderless_ns };
        let waiting = votes(2, Some(LEADERLESS_MIN_NS));
        let node = NodeId(3);
        for (others, why) in [
            (votes(2, Some(LEADERLESS_MIN_NS - 1)), "an election may be under way"),
            (votes(2, None), "there is a leader"),
            (votes(1, Some(LEADERLESS_MIN_NS)), "there is no majority"),
        ] {
            assert_eq!(others.check_declaration(node, false, true), None, "{why}");
        }
        assert_eq!(waiting.check_declaration(node, true, true), Some(Err(Error::StillOnline { node })));
        assert_eq!(waiting.check_declaration(node, false, false), Some(Err(Error::NamesAlone { node })));
        assert_eq!(waiting.check_declaration(node, false, true), Some(Ok(())));
    }
}
