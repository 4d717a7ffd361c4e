//! The history as it is read: versions, and the changes of an interval.

use frieze_base::Fault;
use frieze_hlc::Hlc;
use frieze_namespace::{VersionHistory, VisitChanged, VisitValue, VisitVersion};

use super::keys::{decode_value, parse_stored_key, prefix_end, split_stored_key, start, stored_key};
use super::name_versions::NameVersions;
use super::time_index;

/// Takes a stored key and value. False ends the visit.
type VisitWhile<'a> = dyn FnMut(&[u8], &[u8]) -> Result<bool, Fault> + 'a;

impl NameVersions {
    /// All versions with a stored key in `from..=to`, until `visit` answers false.
    pub(super) fn visit_while(&self, from: &[u8], to: &[u8], visit: &mut VisitWhile<'_>) -> Result<(), Fault> {
        for item in self.store.items(from, to) {
            let (key, value) = item?;
            if !visit(&key, &value)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

impl VersionHistory for NameVersions {
    fn newest(&self, key: &[u8], at: Hlc) -> Result<Option<(Hlc, Option<Vec<u8>>)>, Fault> {
        let (from, to) = (stored_key(key, Hlc::ZERO), stored_key(key, at));
        let Some((stored, value)) = self.store.last_in(&from, &to)? else {
            return Ok(None);
        };
        let (_, stamp) = split_stored_key(&stored)?;
        Ok(Some((stamp, decode_value(&value).map(<[u8]>::to_vec))))
    }

    fn scan(&self, prefix: &[u8], after: &[u8], at: Hlc, visit: &mut VisitValue<'_>) -> Result<(), Fault> {
        let from = start(prefix, after);
        let mut newest: Option<(Vec<u8>, Hlc, Vec<u8>)> = None;
        let mut stopped = false;
        self.visit_while(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = parse_stored_key(stored)?;
            if stamp > at {
                return Ok(true);
            }
            if let Some((last, last_stamp, last_value)) = newest.take_if(|(last, _, _)| *last != key)
                && let Some(present) = decode_value(&last_value)
                && !visit(&last, last_stamp, present)
            {
                stopped = true;
                return Ok(false);
            }
            newest = Some((key, stamp, value.to_vec()));
            Ok(true)
        })?;
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
        self.visit_while(&from, &prefix_end(prefix), &mut |stored, value| {
            let (key, stamp) = parse_stored_key(stored)?;
            Ok(stamp <= after || stamp > upto || visit(&key, stamp, decode_value(value)))
        })
    }

    fn versions_of(&self, key: &[u8], after: Hlc, upto: Hlc, visit: &mut VisitVersion<'_>) -> Result<(), Fault> {
        if after >= upto {
            return Ok(());
        }
        let (from, to) = (stored_key(key, after.next()), stored_key(key, upto));
        self.visit_while(&from, &to, &mut |stored, value| {
            let (key, stamp) = parse_stored_key(stored)?;
            Ok(visit(&key, stamp, decode_value(value)))
        })
    }

    fn changed(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // What no page names is taken first: a change that comes into a page meanwhile is found in both places, never
        // in none.
        let unpaged = self.unpaged_since(after);
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
        let paged = seen;
        for (stamp, key) in unpaged.iter().filter(|(stamp, _)| *stamp > paged) {
            if *stamp > upto {
                break;
            }
            read += 1;
            if !visit(*stamp, key) {
                break;
            }
        }
        Ok(read)
    }

    fn changed_back(&self, after: Hlc, upto: Hlc, visit: &mut VisitChanged<'_>) -> Result<u64, Fault> {
        if after >= upto {
            return Ok(0);
        }
        // As above.
        let unpaged = self.unpaged_since(after);
        let mut read = 0;
        for (stamp, key) in unpaged.iter().rev().filter(|(stamp, _)| *stamp <= upto) {
            read += 1;
            if !visit(*stamp, key) {
                return Ok(read);
            }
        }
        // The first may share its stamp with none before: a page ends with a transaction.
        let mut end = unpaged.first().map_or(upto, |(first, _)| upto.min(first.previous()));
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
