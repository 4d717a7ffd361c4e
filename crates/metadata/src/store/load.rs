//! What a start reads of the store, and what it adds to a store from before something was kept.

use frieze_base::Fault;
use frieze_hlc::Hlc;
use frieze_namespace::{ENTRIES, INODES, LINKS, inode_between};

use super::keys::{decode_item, parse_stored_key, split_stored_key, start, unescape_into};
use super::name_versions::NameVersions;
use super::time_index::TIMES;
use super::version_store::{LoadVersion, StoreItem, VisitItem};

/// The keys that a restart reads, in three parts, of which the first two are about as large and can be read at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadPart {
    /// Directory entries, and the inodes from this key on.
    Apart(Vec<u8>),
    /// The inodes before that key, and all else up to them.
    First(Vec<u8>),
    /// What goes with inodes, and what has nothing to do with them.
    Last,
}

impl LoadPart {
    /// From where to where its keys lie, both beside every key as it is stored. Names by inode and the index of time
    /// stay where they are.
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let after = |letter: u8| vec![letter + 1];
        match self {
            LoadPart::Apart(inode) => vec![(vec![ENTRIES], after(ENTRIES)), (start(inode, &[]), after(INODES))],
            LoadPart::First(inode) => vec![(vec![], vec![ENTRIES]), (after(ENTRIES), start(inode, &[]))],
            LoadPart::Last => {
                vec![(after(INODES), vec![LINKS]), (after(LINKS), vec![TIMES]), (after(TIMES), vec![0xff; 320])]
            }
        }
    }
}

impl NameVersions {
    /// The key of an inode between two parts of those that a restart reads.
    pub(crate) fn inode_between(&self) -> Result<Vec<u8>, Fault> {
        inode_between_of(self.store.last_in(&[INODES], &[INODES + 1])?)
    }

    /// Calls `load` with the newest version of every key of a part that is present: what a restart begins with.
    pub(crate) fn load(&self, part: &LoadPart, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
        load_newest(part, &|from, to, visit| self.store.visit(from, to, visit), load)
    }
}

/// As [`NameVersions::inode_between`], where the last inode is in this item.
fn inode_between_of(last: Option<StoreItem>) -> Result<Vec<u8>, Fault> {
    let key = last.map(|(stored, _)| parse_stored_key(&stored)).transpose()?.map(|(key, _)| key);
    Ok(inode_between(&key.unwrap_or_default()))
}

/// Visits the items of a range.
type VisitRange<'a> = dyn Fn(&[u8], &[u8], &mut VisitItem<'_>) -> Result<(), Fault> + 'a;

/// Calls `load` with the newest version of every key of a part that is present.
pub(super) fn load_newest(part: &LoadPart, range: &VisitRange<'_>, load: &mut LoadVersion<'_>) -> Result<(), Fault> {
    // Of the key that is looked at: as it is stored, the stamp of its newest version so far, and that. Nothing before
    // the first.
    let (mut escaped, mut stamp, mut newest) = (Vec::new(), Hlc::ZERO, Vec::new());
    let mut key = Vec::new();
    let mut hand_over = |escaped: &[u8], stamp: Hlc, newest: &[u8]| {
        let Some((stamp, value)) = decode_item(stamp, newest) else { return Ok(()) };
        key.clear();
        unescape_into(escaped, &mut key)?;
        load(&key, stamp, value);
        Ok(())
    };
    for (from, to) in part.ranges() {
        range(&from, &to, &mut |stored, value| {
            let (next, its_stamp) = split_stored_key(stored)?;
            if next != escaped {
                hand_over(&escaped, stamp, &newest)?;
                escaped.clear();
                escaped.extend_from_slice(next);
            }
            stamp = its_stamp;
            newest.clear();
            newest.extend_from_slice(value);
            Ok(())
        })?;
    }
    hand_over(&escaped, stamp, &newest)
}
