//! Shared by scenarios.

use frieze_disk::CrashKind;
use frieze_hlc::Hlc;

use crate::stage::{Stage, make_directory, rename, stamp_of, txn, unlink};
use crate::violation::Verdict;

pub(super) const BOTH: [CrashKind; 2] = [CrashKind::Process, CrashKind::Power];

/// A directory with files as they were at an instant, which is returned, and otherwise since.
pub(super) fn tree_of_two_times(stage: &mut Stage) -> Verdict<Hlc> {
    stage.expect(0, txn(make_directory("/d")), None)?;
    let (one, two) = (stage.make(0, "/d/f")?, stage.make(0, "/d/g")?);
    let step = stage.write(&one, Some(0), 50_000, false);
    stage.expect(0, step, None)?;
    let step = stage.write(&two, None, 100_000, false);
    let at = stamp_of(stage.ask(0, step)?);
    let step = stage.write(&one, Some(10_000), 55_000, false);
    stage.expect(0, step, None)?;
    stage.expect(0, txn(unlink("/d/g")), None)?;
    stage.expect(0, txn(rename("/d/f", "/f")), None)?;
    stage.expect(0, txn(rename("/f", "/d/f")), None)?;
    stage.make(0, "/d/h")?;
    stage.barrier()?;
    Ok(at)
}
