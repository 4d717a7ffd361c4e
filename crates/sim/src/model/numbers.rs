//! Which numbers new inodes get, in the model.

use std::collections::BTreeMap;

use frieze_base::InodeId;
use frieze_wire::edit::{Edit, NEW};
use frieze_wire::message::FileKind;

/// Counts given so far, of files by slot, and of directories (`None`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers {
    last: BTreeMap<Option<u16>, u64>,
    /// Counts up to it are left out.
    floor: u64,
}

impl Numbers {
    /// The next file in the slot of a directory, but `ahead`.
    fn file(&self, directory: u64, ahead: u64) -> u64 {
        let slot = InodeId(directory).slot();
        InodeId::file(slot, self.last_of(Some(slot)) + 1 + ahead).0
    }

    fn directory(&self, ahead: u64) -> u64 {
        InodeId::directory(self.last_of(None) + 1 + ahead).0
    }

    /// The number of what is made in a directory next.
    pub(crate) fn next(&self, directory: u64, is_directory: bool) -> u64 {
        if is_directory { self.directory(0) } else { self.file(directory, 0) }
    }

    /// The numbers of the inodes that an edit makes.
    pub(crate) fn of_edit(&self, edit: &Edit) -> Vec<u64> {
        let mut ids = vec![0; edit.new.len()];
        let is_directory = |index: usize| edit.new[index].kind == FileKind::Directory as i32;
        let directories = (0..ids.len()).filter(|index| is_directory(*index));
        directories.zip(0..).for_each(|(index, ahead)| ids[index] = self.directory(ahead));
        let mut ahead: BTreeMap<u16, u64> = BTreeMap::new();
        for set in edit.names.iter().filter(|set| set.inode & NEW != 0) {
            let index = (set.inode & !NEW) as usize;
            if ids[index] == 0 {
                let of = if set.directory & NEW == 0 { set.directory } else { ids[(set.directory & !NEW) as usize] };
                let ahead = ahead.entry(InodeId(of).slot()).or_default();
                ids[index] = self.file(of, *ahead);
                *ahead += 1;
            }
        }
        ids
    }

    /// Notes that an inode has this number.
    pub(crate) fn note(&mut self, id: u64) {
        let last = self.last.entry(class(id)).or_default();
        *last = InodeId(id).count().max(*last);
    }

    /// What was to have the number `expected` has `id`: counts were left out, if that is a later number of its kind.
    /// Returns up to which count; `None` if it is another number.
    pub(crate) fn left_out(&self, expected: u64, id: u64) -> Option<u64> {
        let more = InodeId(id).count().checked_sub(InodeId(expected).count())?;
        (class(id) == class(expected)).then(|| if more == 0 { self.floor } else { self.last_of(class(id)) + more })
    }

    /// Leaves out counts up to `floor`.
    pub(crate) fn leave_out(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
    }

    /// The largest count given or left out.
    pub(crate) fn newest(&self) -> u64 {
        self.last.values().copied().fold(self.floor, u64::max)
    }

    fn last_of(&self, class: Option<u16>) -> u64 {
        self.last.get(&class).copied().unwrap_or(0).max(self.floor)
    }
}

fn class(id: u64) -> Option<u16> {
    let id = InodeId(id);
    (!id.is_directory()).then(|| id.slot())
}
