//! Names of users and groups, and the account that a connection acts for.
//!
//! Guarantees: a claimed name is believed only if the kernel reports that the connection belongs to that user or to
//! root, or, with [`Trust::Names`], if it is any name but root's. An unknown name is refused.
//! Leaves to others: the rights of a user (the server).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use frieze_base::MonoTime;
use frieze_client::{Caller, Proof, mono, user_of};
use nix::unistd::{Gid, Group, Uid, User};

use crate::exception::Exception;

/// Whose word is taken for a user's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The kernel's: a local connection belongs to the user that opened it, and root's may act for others. The gateway
    /// listens on loopback only, so there are no other connections.
    #[default]
    Kernel,
    /// A connection from another machine is believed what it claims, as in HDFS without Kerberos, but never root.
    Names,
}

/// The account that a connection acts for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name, as the client spells it.
    pub name: String,
    /// User id and group ids.
    pub caller: Caller,
}

/// A cache of looked-up names.
#[derive(Debug, Default)]
pub(crate) struct AccountNames {
    users: Mutex<BTreeMap<u32, (MonoTime, String)>>,
    groups: Mutex<BTreeMap<u32, (MonoTime, String)>>,
}

impl AccountNames {
    /// The name of a user; the number if it has none.
    pub(crate) fn user(&self, uid: u32) -> String {
        known(&self.users, uid, || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name))
    }

    /// The name of a group; the number if it has none.
    pub(crate) fn group(&self, gid: u32) -> String {
        known(&self.groups, gid, || Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name))
    }
}

fn known(table: &Mutex<BTreeMap<u32, (MonoTime, String)>>, id: u32, ask: impl FnOnce() -> Option<String>) -> String {
    let now = mono();
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((asked, name)) = table.get(&id)
        && now.0.saturating_sub(asked.0) < CACHED_NS
    {
        return name.clone();
    }
    let name = ask().unwrap_or_else(|| id.to_string());
    if table.len() >= CACHED_MAX {
        table.clear();
    }
    table.insert(id, (now, name.clone()));
    name
}

/// The id of a user that a call names; `None` if there is none.
pub(crate) fn uid_of(name: &str) -> Option<u32> {
    let found = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    found.or_else(|| name.parse().ok())
}

/// The id of a group that a call names; `None` if there is none.
pub(crate) fn gid_of(name: &str) -> Option<u32> {
    let found = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    found.or_else(|| name.parse().ok())
}

/// The account for a connection with the kernel's `proof` and the name `claimed`.
///
/// # Errors
/// `AuthorizationException`, which says what to do.
pub fn account(proof: Proof, claimed: Option<&str>, trust: Trust) -> Result<Account, Exception> {
    let claimed = claimed.filter(|name| !name.is_empty());
    let proven = match proof {
        Proof::User(uid) => Some(uid),
        Proof::Unproven => None,
    };
    let uid = match (claimed, proven) {
        (Some(name), _) => uid_of(name).ok_or_else(|| {
            Exception::authorization(format!(
                "User {name} is not known on the frieze server: add it to its user database"
            ))
        })?,
        (None, Some(uid)) => uid,
        (None, None) => return Err(Exception::authorization("the connection does not say whose it is")),
    };
    let name = claimed.map_or_else(|| uid.to_string(), str::to_owned);
    let may = match (proven, trust) {
        (Some(proven), _) => proven == uid || proven == ROOT,
        (None, Trust::Names) => uid != ROOT,
        (None, Trust::Kernel) => false,
    };
    if !may {
        let whose = proven.map_or("of another machine".to_owned(), |proven| format!("of user {proven}"));
        return Err(Exception::authorization(format!(
            "User: a connection {whose} is not allowed to impersonate {name}"
        )));
    }
    let caller = user_of(uid).map_err(|error| Exception::io(error.to_string()))?;
    Ok(Account { name, caller })
}

const ROOT: u32 = 0;
/// How long a cached name is valid.
const CACHED_NS: u64 = 60_000_000_000;
/// Cached names at most.
const CACHED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(proof: Proof, claimed: &str, trust: Trust) -> Option<u32> {
        account(proof, Some(claimed), trust).ok().map(|account| account.caller.uid)
    }

    #[test]
    fn a_name_is_believed_if_the_kernel_says_the_same_or_root_asks() {
        assert_eq!(uid(Proof::User(0), "root", Trust::Kernel), Some(0));
        assert_eq!(uid(Proof::User(0), "4711", Trust::Kernel), Some(4711), "root may speak for others");
        assert_eq!(uid(Proof::User(4711), "4711", Trust::Kernel), Some(4711));
        assert_eq!(uid(Proof::User(4711), "4712", Trust::Kernel), None);
        assert_eq!(uid(Proof::User(4711), "root", Trust::Names), None, "the kernel knows better");
        assert_eq!(uid(Proof::User(4711), "", Trust::Kernel), Some(4711), "who says nothing is who it is");
    }

    #[test]
    fn without_a_proof_names_are_believed_only_where_that_is_wanted_and_never_roots() {
        assert_eq!(uid(Proof::Unproven, "4711", Trust::Kernel), None);
        assert_eq!(uid(Proof::Unproven, "4711", Trust::Names), Some(4711));
        assert_eq!(uid(Proof::Unproven, "root", Trust::Names), None);
        assert_eq!(uid(Proof::Unproven, "0", Trust::Names), None);
        assert_eq!(uid(Proof::Unproven, "", Trust::Names), None);
        assert_eq!(uid(Proof::User(0), "no such user", Trust::Kernel), None);
    }
}
