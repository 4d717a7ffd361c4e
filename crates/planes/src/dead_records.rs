//! Which records of inodes with expired history no read needs any more.
//!
//! Guarantees: a function of what is stored (horizons, snapshots, shared ranges).
//! Leaves to others: records that policies thin (`thinning`), freeing them (`reclaim`).

use std::collections::{BTreeMap, BTreeSet};

use frieze_base::{Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::DeadRecord;
use frieze_namespace::{Expiries, SharedState};

use crate::file_version::FileVersion;
use crate::files::Files;
use crate::gc_state::{DeadRecords, Needs, RecordPlace};
use crate::remote_reach::RemoteReach;

impl Files {
    /// Older states of inodes with expired history, or that policies may thin, that readable states share.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A pass over all versions of all inodes.
    pub fn needs(&self, horizons: &Expiries) -> Result<Needs, Fault> {
        let states = self.planes.meta.history().shared_states()?;
        let has_policies = self.planes.meta.has_policies();
        let mut needs = Needs::new();
        let mut seen: BTreeSet<(InodeId, Hlc)> = BTreeSet::new();
        let mut todo: Vec<&SharedState> = Vec::new();
        for (&holder, states) in &states {
            let horizon = horizons.of(holder).map(|forgotten| Hlc(forgotten.before));
            let gone = horizons.is_wholly_expired(holder) || horizons.is_removal_expired(holder);
            let pins = horizons.pins(holder);
            for state in states {
                let shown = (!gone && horizon.is_none_or(|before| state.until > before))
                    || pins.range(state.from..state.until).next().is_some();
                if shown && seen.insert((holder, state.from)) {
                    todo.push(state);
                }
            }
        }
        while let Some(state) = todo.pop() {
            for &(source, at, start, end) in &state.sources {
                if has_policies || horizons.of(source).is_some() {
                    needs.entry(source).or_default().entry(at).or_default().push((start, end));
                }
                let below = states.get(&source).into_iter().flatten();
                for below in below.filter(|below| below.from <= at && at < below.until) {
                    if seen.insert((source, below.from)) {
                        todo.push(below);
                    }
                }
            }
        }
        Ok(needs)
    }

    /// The records of an inode that no read needs any more, given the horizons. None for an inode without expired
    /// history.
    ///
    /// # Errors
    /// Those of the store.
    ///
    /// # Cost
    /// A plan of the whole file for each readable instant.
    pub fn dead_of(&self, horizons: &Expiries, needs: &Needs, id: InodeId) -> Result<DeadRecords, Fault> {
        let gone = horizons.is_wholly_expired(id) || horizons.is_removal_expired(id);
        let upto = match horizons.of(id) {
            _ if gone => Hlc::MAX,
            None => return Ok(DeadRecords::default()),
            Some(forgotten) => Hlc(forgotten.before),
        };
        if gone && self.planes.data.device().log().is_wholly_dead(id) {
            return Ok(DeadRecords::default());
        }
        let pins = horizons.pins(id);
        let is_all = gone && pins.is_empty() && !needs.contains_key(&id);
        let none = BTreeSet::new();
        if self.planes.data.device().log_of([id])?.dead_records(id, upto, &none).is_empty() {
            return Ok(DeadRecords { is_all, ..DeadRecords::default() });
        }
        let mut live = BTreeSet::new();
        if !gone {
            self.add_places(id, Some(upto), &[(0, u64::MAX)], &mut live)?;
            self.add_places(id, None, &[(0, u64::MAX)], &mut live)?;
        }
        let free = self.planes.data.device().log_of([id])?.dead_records(id, upto, &live);
        let mut held_by_pin = BTreeMap::new();
        let bytes =
            |graves: &mut dyn Iterator<Item = &DeadRecord>| graves.map(|grave| u64::from(grave.bytes)).sum::<u64>();
        for &pin in &pins {
            let mut places = BTreeSet::new();
            self.add_places(id, Some(pin), &[(0, u64::MAX)], &mut places)?;
            let held = bytes(&mut free.iter().filter(|grave| places.contains(&(grave.segment, grave.place))));
            if held > 0 {
                held_by_pin.insert(pin, held);
            }
            live.append(&mut places);
        }
        for (at, ranges) in needs.get(&id).into_iter().flatten() {
            self.add_places(id, Some(*at), ranges, &mut live)?;
        }
        let graves: Vec<DeadRecord> =
            free.iter().filter(|grave| !live.contains(&(grave.segment, grave.place))).copied().collect();
        let held_bytes = bytes(&mut free.iter()) - bytes(&mut graves.iter());
        let mut kept = BTreeSet::new();
        if !gone {
            let shared = needs.get(&id).into_iter().flat_map(|needs| needs.keys().copied());
            kept.extend(shared.chain(pins).filter(|at| *at < upto));
            kept.insert(upto);
        }
        Ok(DeadRecords { graves, upto, held_bytes, held_by_pin, is_all, kept: kept.into_iter().collect() })
    }

    /// Adds the places of the records that ranges of a file show at an instant (`None`: now).
    fn add_places(
        &self,
        id: InodeId,
        at: Option<Hlc>,
        ranges: &[(u64, u64)],
        places: &mut BTreeSet<RecordPlace>,
    ) -> Result<(), Fault> {
        let inode = match self.planes.meta.inode(id, at) {
            Err(fault) if fault.reason == Reason::NotFound => return Ok(()),
            inode => inode?,
        };
        // Each server frees its own records. The length of the file does not matter.
        let look = self.look_with(&[&FileVersion::at(id, inode.clone(), at)], &[], RemoteReach::default())?;
        for &(start, end) in ranges {
            look.own_places(id, &inode, at.unwrap_or(Hlc::MAX), (start, end), places);
        }
        Ok(())
    }
}
