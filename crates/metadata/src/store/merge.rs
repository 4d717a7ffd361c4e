//! The history: versions of the overlay and of the store, merged.

use std::sync::Arc;

use frieze_base::{Fault, LogIndex};
use frieze_hlc::Hlc;
use frieze_namespace::{KeyVersion, VersionHistory, VisitChanged, VisitValue, VisitVersion, is_timed};

use super::keys::{decode_value, is_erasure, parse_stored_key, prefix_end, start, stored_key};
use super::overlay::NameVersions;
use super::time_index;
use super::version_store::StoreItem;

impl NameVersions {
    /// All versions with a stored key in `from..=to`, overlay and store merged.
    pub(super) fn merged(
        &self,
        from: &[u8],
        to: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), Fault> {
        // An item may be in both for a moment, or be written again: the younger counts. The store is opened second, so
        // nothing falls between the two.
        let overlay: Vec<StoreItem> = {
            let overlay = self.overlay.read();
            overlay.range(from.to_vec()..=to.to_vec()).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let mut young = overlay.into_iter().peekable();
        for item in self.store.items(from, to) {
            let (key, value) = item?;
            let mut is_old = false;
            while let Some((young_key, young_value)) = young.next_if(|(young_key, _)| *young_key <= key) {
                is_old |= young_key == key;
                if is_erasure(&young_key, &young_value)? {
                    continue;
                }
                if !visit(&young_key, &young_value) {
                    return Ok(());
                }
            }
            if !is_old && !visit(&key, &value) {
                return Ok(());
            }
        }
        for (key, value) in young {
            if !is_erasure(&key, &value)? && !visit(&key, &value) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Changes that wait in RAM, of the batches that have some later than `after`, in order of stamp.
    fn waiting_since(&self, after: Hlc) -> Vec<Arc<[KeyVersion]>> {
        let waiting = self.waiting.lock();
        let young =
            |(_, changes): &&(LogIndex, Arc<[KeyVersion]>)| changes.iter().rev().any(|change| change.stamp > after);
        waiting.batches.iter().filter(young).map(|(_, changes)| changes.clone()).collect()
    }
}

impl VersionHistory for NameVersions {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<Option<(Hlc, Option<Vec<u8>>)>, Fault> {
        let (from, to) = (stored_key(key, Hlc::ZERO), stored_key(key, at));
        let young = {
            let overlay = self.overlay.read();
            overlay.range(from.clone()..=to.clone()).next_back().map(|(key, value)| (key.clone(), value.clone()))
        };
        let old = self.store.last_in(&from, &to)?;
        let Some((stored, value)) = old.into_iter().chain(young).max_by(|a, b| a.0.cmp(&b.0)) else {
            return Ok(None);
        };
        if is_erasure(&stored, &value)? {
            // It was the only version.
            return Ok(None);
        }
        let (_, stamp) = parse_stored_key(&stored)?;
        Ok(Some((stamp, decode_value(&value).map(<[u8]>::to_vec))))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        let from = start(prefix, after);
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut stopped = false;
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = match parse_stored_key(stored) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    failed = Some(fault);
                    return false;
                }
            };
            if stamp > at {
                return true;
            }
            if let Some((last, last_stamp, last_value)) = newest.take_if(|(last, _, _)| *last != key)
                && let Some(present) = decode_value(&last_value)
                && !visit(&last, last_stamp, present)
            {
                stopped = true;
                return false;
            }
            newest = Some((key, stamp, value.to_vec()));
            true
        })?;
        if let Some(fault) = failed {
            return Err(fault);
        }
        if let Some((key, stamp, value)) = newest
            && !stopped
            && let Some(present) = decode_value(&value)
        {
            visit(&key, stamp, present);
        }
        Ok(())
    }

    fn versions(
        &self,
        prefix: &[u8],
        above: &[u8],
        after: Hlc,
        upto: Hlc,
        visit: &mut VisitVersion<'_>,
    ) -> Result<(), Fault> {
        let from = start(prefix, above);
        let mut failed = None;
        self.merged(&from, &prefix_end(prefix), &mut |stored, value| match parse_stored_key(stored) {
            Ok((key, stamp)) if stamp > after && stamp <= upto => visit(&key, stamp, decode_value(value)),
            Ok(_) => true,
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        if after >= upto {
            return Ok(());
        }
        let mut failed = None;
        let (from, to) = (stored_key(key, after.next()), stored_key(key, upto));
        self.merged(&from, &to, &mut |stored, value| match parse_stored_key(stored) {
            Ok((key, stamp)) => visit(&key, stamp, decode_value(value)),
            Err(fault) => {
                failed = Some(fault);
                false
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // What waits is taken first: a batch that is settled meanwhile is found in both places, never in none.
        let waiting = self.waiting_since(after);
        let mut read = 0;
        let mut seen = after;
        let mut stopped = false;
        let mut show = |stamp: Hlc, key: &[u8]| {
            if stamp <= after {
                return true;
            }
            seen = seen.max(stamp);
            stopped = stamp > upto || !visit(stamp, key);
            !stopped
        };
        // The page that begins at or before may reach into the interval.
        let first = self.store.last_in(&time_index::page_key(Hlc::ZERO), &time_index::page_key(after))?;
        let from = first.map_or_else(|| time_index::page_key(after), |(key, _)| key);
        for page in self.store.items(&from, &time_index::page_key(upto)) {
            let (goes_on, count) = time_index::read(&page?, &mut show)?;
            read += count;
            if !goes_on {
                return Ok(read);
            }
        }
        let settled = seen;
        for change in waiting.iter().flat_map(|changes| changes.iter()).filter(|change| change.stamp > settled) {
            if change.stamp > upto {
                break;
            }
            if is_timed(&change.key) {
                read += 1;
                if !visit(change.stamp, &change.key) {
                    break;
                }
            }
        }
        Ok(read)
    }

    fn changed_back(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // As above: what waits first.
        let waiting = self.waiting_since(after);
        let first_waiting = waiting.first().and_then(|changes| changes.first()).map(|change| change.stamp);
        let mut read = 0;
        for change in waiting.iter().rev().flat_map(|changes| changes.iter().rev()) {
            if change.stamp > after && change.stamp <= upto && is_timed(&change.key) {
                read += 1;
                if !visit(change.stamp, &change.key) {
                    return Ok(read);
                }
            }
        }
        let mut end = first_waiting.map_or(upto, |first| upto.min(first.previous()));
        while end > after {
            let Some(page) = self.store.last_in(&time_index::page_key(Hlc::ZERO), &time_index::page_key(end))? else {
                break;
            };
            let mut changes: Vec<(Hlc, Vec<u8>)> = Vec::new();
            let (_, count) = time_index::read(&page, &mut |stamp, key| {
                changes.push((stamp, key.to_vec()));
                true
            })?;
            read += count;
            let Some(first) = changes.first().map(|(stamp, _)| *stamp) else { break };
            for (stamp, key) in changes.iter().rev().filter(|(stamp, _)| *stamp <= end) {
                if *stamp <= after || !visit(*stamp, key) {
                    return Ok(read);
                }
            }
            end = first.previous();
        }
        Ok(read)
    }
}
