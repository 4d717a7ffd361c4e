//! The meaning of moving names, decided once for each process.
//!
//! `cp -r .at/5m-ago/tree .` looks the name up many times; every time it must be the same instant. The first lookup of
//! a process decides, and the table remembers it by (process, name). Bounded: the oldest decisions are forgotten first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use frieze_hlc::Hlc;

use crate::process::ProcessId;

/// Decisions remembered at one time.
const DECIDED_MAX: usize = 16_384;

type MovingNameKey = (ProcessId, Box<str>);

/// The table.
#[derive(Default)]
pub(crate) struct MovingNames {
    decided: Mutex<ResolvedName>,
}

#[derive(Default)]
struct ResolvedName {
    instants: BTreeMap<MovingNameKey, Hlc>,
    oldest_first: VecDeque<MovingNameKey>,
}

impl MovingNames {
    /// The meaning of `name` for `process`: the former one, or else the result of `ask`. A process that cannot be
    /// identified gets a new one every time.
    pub(crate) fn resolve<E>(
        &self,
        process: Option<ProcessId>,
        name: &str,
        ask: impl FnOnce() -> Result<Hlc, E>,
    ) -> Result<Hlc, E> {
        let Some(process) = process else { return ask() };
        let key: MovingNameKey = (process, name.into());
        if let Some(&at) = self.lock().instants.get(&key) {
            return Ok(at);
        }
        let asked = ask()?;
        // Another thread of the process may have decided meanwhile: then its answer counts for both.
        let mut decided = self.lock();
        if let Some(&at) = decided.instants.get(&key) {
            return Ok(at);
        }
        if decided.oldest_first.len() == DECIDED_MAX
            && let Some(oldest) = decided.oldest_first.pop_front()
        {
            decided.instants.remove(&oldest);
        }
        decided.oldest_first.push_back(key.clone());
        decided.instants.insert(key, asked);
        Ok(asked)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ResolvedName> {
        self.decided.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(moving: &MovingNames, process: Option<u32>, name: &str, now: u64) -> u64 {
        moving.resolve(process.map(ProcessId::made_up), name, || Ok::<_, ()>(Hlc(now))).unwrap().0
    }

    #[test]
    fn a_name_means_one_instant_to_one_process() {
        let moving = MovingNames::default();
        assert_eq!(ask(&moving, Some(1), "5m-ago", 100), 100);
        assert_eq!(ask(&moving, Some(1), "5m-ago", 200), 100);
        assert_eq!(ask(&moving, Some(1), "yesterday", 200), 200);
        assert_eq!(ask(&moving, Some(2), "5m-ago", 300), 300);
    }

    #[test]
    fn an_unknown_process_is_answered_anew() {
        let moving = MovingNames::default();
        assert_eq!(ask(&moving, None, "5m-ago", 100), 100);
        assert_eq!(ask(&moving, None, "5m-ago", 200), 200);
    }

    #[test]
    fn a_failed_answer_is_not_remembered() {
        let moving = MovingNames::default();
        assert!(moving.resolve(Some(ProcessId::made_up(1)), "last-whole", || Err::<Hlc, _>("away")).is_err());
        assert_eq!(ask(&moving, Some(1), "last-whole", 7), 7);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_the_oldest() {
        let moving = MovingNames::default();
        for process in 0..=DECIDED_MAX as u32 {
            ask(&moving, Some(process), "yesterday", 1);
        }
        assert_eq!(moving.lock().instants.len(), DECIDED_MAX);
        assert_eq!(ask(&moving, Some(1), "yesterday", 2), 1);
        assert_eq!(ask(&moving, Some(0), "yesterday", 2), 2);
    }
}
