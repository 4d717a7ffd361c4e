//! Whether an instant of a file is exact.

use frieze_base::InodeId;
use frieze_hlc::Hlc;

use crate::kept::RetentionEpoch;
use crate::pack::{LogPart, RecordExtent, TruncateList, dead_of_epoch};
use crate::table::RetentionTable;

/// What is answered for a file and an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstantAnswer {
    /// The state is that of all records.
    Exact,
    /// A record of this epoch has died: its ends are the exact neighbours. Final.
    Thinned(RetentionEpoch),
}

/// Says whether the state of a file at an instant is exact.
///
/// It is if the instant is kept, or if nothing died in its epoch. What died is a matter of the rule, not of what is
/// still on disk: records are asked by the rule, and runs by their deaths. So the answer is the same before and after
/// a pack, and for a file that is only appended to it is always `Exact`.
///
/// `parts` has at least every record and run of the chain with something of the epoch; `table` and `truncates` are as
/// of the caller's position of the log.
///
/// # Cost
/// O(records of the epoch) where the instant is not kept; nothing is read where it is.
pub fn answer_at(
    table: &RetentionTable,
    truncates: &TruncateList,
    inode: InodeId,
    at: Hlc,
    parts: &[LogPart],
) -> InstantAnswer {
    let kept = table.kept_set(inode);
    if kept.is_kept(at) {
        return InstantAnswer::Exact;
    }
    let epoch = kept.epoch_of(at);
    let is_within = |stamp: Hlc| epoch.after.is_none_or(|after| stamp > after) && stamp <= epoch.upto;
    let mut records: Vec<RecordExtent> = Vec::new();
    for part in parts {
        match part {
            LogPart::Record(record) if record.inode == inode && is_within(record.stamp) => records.push(*record),
            LogPart::Record(_) => {}
            LogPart::Dropped(run) => {
                if run.deaths.iter().any(|(dead, stamp)| *dead == inode && is_within(*stamp)) {
                    return InstantAnswer::Thinned(epoch);
                }
            }
        }
    }
    let truncates = truncates.get(&inode).map_or(&[][..], Vec::as_slice);
    let within = truncates.iter().filter(|(stamp, _)| is_within(*stamp));
    match dead_of_epoch(&records, within).is_empty() {
        true => InstantAnswer::Exact,
        false => InstantAnswer::Thinned(epoch),
    }
}
