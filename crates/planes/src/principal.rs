//! The users on whose behalf a request runs.

use frieze_wire::txn::Caller;

/// The users of a request.
pub struct Principal {
    /// The proven user.
    pub uid: u32,
    /// The user on whose behalf the request is made.
    pub caller: Caller,
    /// True: may name inodes directly and send requests for other users.
    pub privileged: bool,
}
