//! A call's user, and what a call needs to know of its client.

use std::net::IpAddr;

use frieze_client::Caller;

use crate::accounts::Account;

/// Who calls.
#[derive(Clone, Debug)]
pub struct RemoteUser {
    /// Whom the connection speaks for.
    pub account: Account,
    /// Which address of this machine it reached.
    pub reached: IpAddr,
    /// From which it came.
    pub peer: IpAddr,
}

/// A call under way: who asks, and from which program; no program if that is not known.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) user: &'a RemoteUser,
    pub(crate) program: &'a [u8],
}

impl CallContext<'_> {
    /// Who holds a lease that this program asks for by the name it calls itself: others may say that name, but not as this user.
    pub(crate) fn holder(&self, client_name: &str) -> String {
        format!("{client_name} of {}", self.user.account.caller.uid)
    }

    pub(crate) fn reader(&self) -> BlockClient<'_> {
        BlockClient { caller: Some(&self.user.account.caller), reached: self.user.reached, peer: self.user.peer }
    }
}

/// For whom something is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockClient<'a> {
    /// On whose behalf blocks will be read or written; `None` gives no right to.
    pub(crate) caller: Option<&'a Caller>,
    /// By which of its addresses it reached this server.
    pub(crate) reached: IpAddr,
    /// From which it came.
    pub(crate) peer: IpAddr,
}
