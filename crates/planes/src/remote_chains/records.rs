//! The records of files with a part on remote chains, without their bytes: when each was written, and by which user.

use std::collections::BTreeSet;

use frieze_base::{ChainId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_multilog::{MultiLog, NumberedRecord, RecordHeader};
use frieze_wire::peer::{ChainRecord, PeerRequestKind, PeerResponse, RecordAsk, RecordsAsk};

use super::bytes::another_may_have_it;
use super::client::Inquiry;
use crate::files::Files;
use crate::peer_rpc::PeerReply;

impl Files {
    /// Records of a file stamped in `(after, upto]`, oldest first, at most `max`, here and on remote chains. Not to be
    /// called with a lock held: it may send requests to other servers.
    ///
    /// # Errors
    /// Of the device, where the index of the file has to be fetched; `Unavailable` if no server with a part of it
    /// answers; `Overloaded` if other servers have more than 1,048,576.
    pub fn records(&self, id: InodeId, after: Hlc, upto: Hlc, max: usize) -> Result<Vec<RecordHeader>, Fault> {
        let away = self.remote_chains(Some(upto));
        if away.is_empty() {
            return Ok(self.planes.data.device().log_of([id])?.versions(id, after, upto, max));
        }
        // The number of chains is that at the file's birth.
        let chain_count = self.planes.meta.layout(id)?.chain_count;
        let ask = RecordsAsk { inode: id.0, chain_count, after: after.0, upto: upto.0 };
        let mut records = self.remote_records(&ask, away.clone())?;
        let here = self.planes.data.device().log_of([id])?.versions(id, after, upto, usize::MAX);
        records.extend(here.into_iter().filter(|record| !away.contains(&record.chain)));
        records.sort_by_key(|record| (record.stamp, record.chunk.index));
        records.truncate(max);
        Ok(records)
    }

    /// As [`Files::records`], without those that policies of retention let go, whether or not they are still there; and
    /// whether some were left out.
    ///
    /// # Errors
    /// As [`Files::records`].
    ///
    /// # Cost
    /// As [`Files::records`]; for a file with a policy, a pass over its records of the thinned part of the interval.
    pub fn kept_records(
        &self,
        id: InodeId,
        (after, upto): (Hlc, Hlc),
        max: usize,
    ) -> Result<(Vec<RecordHeader>, bool), Fault> {
        let Some(dead) = self.planes.dead_within(id, after, upto)? else {
            return Ok((self.records(id, after, upto, max)?, false));
        };
        // As many more as may be left out of them.
        let mut records = self.records(id, after, upto, max.saturating_add(dead.len()))?;
        records.retain(|record| !dead.contains(&(record.chunk.index, record.stamp, record.offset)));
        records.truncate(max);
        Ok((records, !dead.is_empty()))
    }

    /// Calls `look` with a log that has all records of a file and its user times, from here and from remote chains.
    ///
    /// # Errors
    /// As [`Files::records`].
    ///
    /// # Cost
    /// If a part may be on remote chains, that of an index of all its records.
    pub fn with_log_of<T>(&self, id: InodeId, look: impl FnOnce(&MultiLog) -> T) -> Result<T, Fault> {
        if self.remote_chains(None).is_empty() {
            let log = self.planes.data.device().log_of([id])?;
            return Ok(look(&log));
        }
        let records = self.records(id, Hlc::ZERO, Hlc::MAX, usize::MAX)?;
        let settings = self.planes.data.device().log().settings().clone();
        let mut log = MultiLog::new(settings);
        for record in &records {
            let alone = RecordHeader { part: 0, parts: 1, ..*record };
            let placed = log.reserve(std::slice::from_ref(&alone)).expect("nothing is reserved");
            if let [spot] = placed.spots.as_slice() {
                log.publish(&alone, spot);
            }
        }
        Ok(look(&log))
    }

    /// True if the space of records of a file in `(after, ..]` may have been freed, at a server that is not asked.
    pub fn may_be_forgotten_remotely(&self, id: InodeId, after: Hlc) -> bool {
        let forgot =
            self.planes.meta.newest_horizon([id].into_iter()).is_some_and(|forgotten| forgotten.before > after.0);
        forgot && !self.remote_chains(None).is_empty()
    }

    fn remote_records(&self, ask: &RecordsAsk, away: BTreeSet<ChainId>) -> Result<Vec<RecordHeader>, Fault> {
        let (id, at) = (InodeId(ask.inode), Some(Hlc(ask.upto)).filter(|upto| *upto != Hlc::MAX));
        let (mut todo, mut records) = (vec![(away, ask.after)], Vec::new());
        while let Some((chains, after)) = todo.pop() {
            let about = |_: &BTreeSet<ChainId>| PeerRequestKind::Records(RecordsAsk { after, ..ask.clone() });
            for reply in self.ask_members(chains, &Inquiry { at, about: &about })? {
                // The records of the other chains are in another server's answer.
                let told = reply.answer.records.into_iter().filter(|told| reply.chains.contains(&ChainId(told.chain)));
                for told in told {
                    records.push(told.header().ok_or_else(|| {
                        Fault::new(Reason::BadFrame, format!("a record of {id} that cannot be was told"))
                    })?);
                }
                if records.len() > RECORDS_MAX {
                    return Err(Fault::new(
                        Reason::Overloaded,
                        format!("others have more than {RECORDS_MAX} writes to inode {id}"),
                    ));
                }
                todo.extend(reply.answer.more_after.map(|after| (reply.chains, after)));
            }
        }
        Ok(records)
    }

    /// A record as it is stored here, with its payload, whether this server still is a member of the chain or not.
    ///
    /// # Errors
    /// `Unavailable` if it is not here, or damaged here as well.
    pub(super) fn one_record(&self, ask: RecordAsk, chains: &BTreeSet<ChainId>) -> Result<PeerReply, Fault> {
        let not_here = || Fault::new(Reason::Unavailable, "this server has no such record");
        let (Some(chain), Some(before)) = (chains.first(), ask.n.checked_sub(1)) else { return Err(not_here()) };
        let device = self.planes.data.device();
        let found = device.records_of(*chain, before, 1).map_err(another_may_have_it)?;
        let is_meant = |found: &&NumberedRecord| (found.header.n, found.header.stamp) == (ask.n, Hlc(ask.stamp));
        let found = found.first().filter(is_meant).ok_or_else(not_here)?;
        let (payload, _) = device.payload_of(found).map_err(another_may_have_it)?;
        let records = vec![ChainRecord::from(&found.header)];
        Ok((PeerResponse { records, ..PeerResponse::default() }, payload.to_vec()))
    }

    /// This server's part of the records, in pages.
    pub(super) fn records_of(
        &self,
        ask: &RecordsAsk,
        chains: &BTreeSet<ChainId>,
        answer: &mut PeerResponse,
    ) -> Result<(), Fault> {
        let (id, after, upto) = (InodeId(ask.inode), Hlc(ask.after), Hlc(ask.upto));
        let log = self.planes.data.device().log_of([id])?;
        let cuts = self.planes.data.cuts();
        let mut found = log.versions(id, after, upto, PAGE);
        if found.len() == PAGE
            && let Some(last) = found.last().map(|last| last.stamp)
        {
            // The parts of a write go together.
            let whole = found.partition_point(|record| record.stamp < last);
            found.truncate(if whole == 0 { PAGE } else { whole });
            answer.more_after = found.last().map(|last| last.stamp.0);
        }
        let is_theirs = |record: &&RecordHeader| {
            chains.contains(&record.chain) && (upto != Hlc::MAX || record.stamp <= cuts.of(record.chain))
        };
        answer.records = found.iter().filter(is_theirs).map(ChainRecord::from).collect();
        Ok(())
    }
}

/// Records in one answer: some 300 KB.
const PAGE: usize = 4096;
/// Records gathered from other servers, at most.
const RECORDS_MAX: usize = 1 << 20;
