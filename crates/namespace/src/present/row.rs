//! Rows: where the tables in memory have an inode number.
//!
//! The files of a slot have consecutive rows, and so have directories, whatever their slots.

use frieze_base::InodeId;

/// Rows of a slot, and of directories.
const ROWS: u64 = InodeId::COUNT_MAX + 1;
/// Rows end before it.
pub(super) const ROWS_END: u64 = ROWS * (InodeId::SLOTS as u64 + 1);

/// The row of a number.
pub(super) fn row_of(id: InodeId) -> u64 {
    if id.is_directory() { id.count() } else { (u64::from(id.slot()) + 1) * ROWS + id.count() }
}

/// The number at a row.
///
/// # Panics
/// If it is beyond [`ROWS_END`].
pub(super) fn id_at(row: u64) -> InodeId {
    match (row / ROWS).checked_sub(1) {
        None => InodeId::directory(row),
        Some(slot) => InodeId::file(u16::try_from(slot).expect("rows end with the last slot"), row % ROWS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_a_row_of_its_own() {
        let mut rows = std::collections::BTreeSet::new();
        for count in [1, 2, 1023, 1024, 1 << 20, InodeId::COUNT_MAX] {
            let files = [0, 1, 2048, 4095].map(|slot| InodeId::file(slot, count));
            for id in files.into_iter().chain([InodeId::directory(count)]) {
                assert_eq!(id_at(row_of(id)), id);
                assert!(row_of(id) < ROWS_END && rows.insert(row_of(id)), "{id}");
            }
        }
        assert_eq!(row_of(InodeId::directory(8)), row_of(InodeId::directory(7)) + 1);
        assert_eq!(row_of(InodeId::file(3, 8)), row_of(InodeId::file(3, 7)) + 1);
        assert_eq!(id_at(row_of(InodeId::ROOT)), InodeId::ROOT);
    }
}
