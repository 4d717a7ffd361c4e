//! Rows: where the tables in memory have an inode number.
//!
//! The row of a file is its number, so that files of a slot are neighbours in the order in which they were made.
//! Directories have rows by their count alone, though consecutive ones lie in different slots.

use frieze_base::InodeId;

/// The first row of directories. No number that is valid is between it and their end.
const DIRECTORIES: u64 = InodeId::COUNT_MAX + 1;
/// Rows end before it.
pub(super) const ROWS_END: u64 = InodeId::MAX.0 + 1;

/// The row of a valid number.
pub(super) fn row_of(id: InodeId) -> u64 {
    if id.is_counted_directory() { DIRECTORIES | id.count() } else { id.0 }
}

/// The number at a row.
pub(super) fn id_at(row: u64) -> InodeId {
    match row.checked_sub(DIRECTORIES) {
        Some(count @ 1..=InodeId::COUNT_MAX) => InodeId::directory(count),
        _ => InodeId(row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_valid_number_has_a_row_of_its_own() {
        let mut rows = std::collections::BTreeSet::new();
        for count in [1, 2, 1023, 1024, 1 << 20, InodeId::COUNT_MAX] {
            let files = [0, 1, 2048, 4095].map(|slot| InodeId::file(slot, count));
            for id in files.into_iter().chain([InodeId::directory(count), InodeId(count)]) {
                assert!(id.is_valid() && id <= InodeId::MAX, "{id}");
                assert_eq!(id_at(row_of(id)), id);
                assert!(row_of(id) < ROWS_END && rows.insert(row_of(id)), "{id}");
            }
        }
        assert_eq!(row_of(InodeId::directory(8)), row_of(InodeId::directory(7)) + 1);
    }
}
