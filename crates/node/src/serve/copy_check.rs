//! A copy of the directory of a member of a cluster does not pass for the member.
//!
//! Each of two servers with one identity would treat the other as an earlier process of itself, and a copy that is
//! older than its original lacks its latest promises. So a member's directory records the file that holds its identity,
//! and a server does not start on another one. A snapshot of the whole device cannot be detected this way:
//! docs/backup.md describes how to treat one.

use std::path::Path;

use frieze_base::{Fault, Reason};
use frieze_disk::FileDisk;
use frieze_storage::{Identity, MetalogRole, STATE_FILE};

use crate::parts::ServerParts;

/// Refuses a directory that was copied.
///
/// # Errors
/// `WrongCluster` with what to do; `Corrupt` and the disk's, as of the start that follows.
pub(super) fn check(disk: &FileDisk, dir: &Path) -> Result<(), Fault> {
    let Some((identity, _)) = Identity::load(disk)? else { return Ok(()) };
    if identity.standing() == MetalogRole::Alone || is_same(&identity.place, &disk.place(STATE_FILE)?) {
        return Ok(());
    }
    let dir = dir.display();
    let words = format!(
        "{dir} is a copy of the directory of server {} of a cluster, and two servers must never be one. If it was \
         moved here and the original is not used any more: 'frieze cluster moved --dir {dir} --yes'. To go on from the \
         copy as another cluster: 'frieze cluster recover --dir {dir}'. To read its files: 'frieze export {dir}'. An \
         older copy must not go on as the member: let that join anew with an empty directory",
        identity.node
    );
    Err(Fault::new(Reason::WrongCluster, words))
}

/// Records the place of the directory.
///
/// # Errors
/// The disk's.
pub(super) fn note(disk: &FileDisk, parts: &ServerParts) -> Result<(), Fault> {
    let place = disk.place(STATE_FILE)?;
    if parts.planes.keeper.with(|identity| identity.place == place) {
        return Ok(());
    }
    parts.planes.keeper.update(|identity| identity.place = place)
}

/// True if both are the same, or one is empty; the time may be missing where the system does not report it.
fn is_same(before: &str, now: &str) -> bool {
    let (Some((number, born)), Some((number_now, born_now))) = (before.split_once('@'), now.split_once('@')) else {
        return true;
    };
    number == number_now && (born == born_now || born.is_empty() || born_now.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_another_number_or_was_made_at_another_time() {
        assert!(is_same("", "7@1.5") && is_same("7@1.5", "7@1.5") && is_same("7@1.5", "7@") && is_same("7@", "7@1.5"));
        assert!(!is_same("7@1.5", "8@1.5") && !is_same("7@1.5", "7@1.6") && !is_same("7@", "8@"));
    }
}
