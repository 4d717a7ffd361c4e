//! The user of a call, and the addresses of its client.

use std::net::IpAddr;

use frieze_client::Caller;

use crate::accounts::Account;

/// The user of a connection.
#[derive(Clone, Debug)]
pub struct RemoteUser {
    /// The account that the connection acts for.
    pub account: Account,
    /// The address of this machine that the client reached.
    pub reached: IpAddr,
    /// The address of the client.
    pub peer: IpAddr,
}

/// The context of a call: its user and program; an empty program if it is unknown.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) user: &'a RemoteUser,
    pub(crate) program: &'a [u8],
}

impl CallContext<'_> {
    /// The holder of a lease that this program requests under the name it uses: other users may use the same name.
    pub(crate) fn holder(&self, client_name: &str) -> String {
        format!("{client_name} of {}", self.user.account.caller.uid)
    }

    pub(crate) fn reader(&self) -> BlockClient<'_> {
        BlockClient { caller: Some(&self.user.account.caller), reached: self.user.reached, peer: self.user.peer }
    }
}

/// The client that locations of blocks are made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockClient<'a> {
    /// The account of its tokens; `None` for tokens without a right.
    pub(crate) caller: Option<&'a Caller>,
    /// The address of this server that it reached.
    pub(crate) reached: IpAddr,
    /// Its address.
    pub(crate) peer: IpAddr,
}
