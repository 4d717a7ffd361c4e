//! Numbers of policies.

use std::fmt;

/// The number of a policy, as an inode has it. 0 is the policy of files without one: everything, for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyNumber(pub u32);

impl fmt::Display for PolicyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
