//! A record of the predecessor: appended, and kept for the successor until it is committed.
//!
//! Guarantees: the records of a chain are reported to its replica in the order of their numbers, for they are published
//! in the order in which the replica asked for them; after a refused append the replica is reported no later record.
//! Leaves to others: the decision to append (`frieze_chain`), the place and the copy (`append`).

use bytes::Bytes;
use frieze_base::{ChainId, Fault, Reason};
use frieze_chain::{AppendToken, ForwardedRecord, LogEnd, ReplicaInput};
use frieze_locks::MutexGuard;
use frieze_net::ReceivedPayload;
use frieze_wire::message::Durability;

use crate::append::RecordGroup;
use crate::appender::Appender;
use crate::chain_state::{DeferredWork, UncommittedRecord};
use crate::plane::DataPlane;
use crate::report::ChainEvent;

/// A received record with its payload, whose checksums are computed.
pub(crate) struct Incoming<'a> {
    pub(crate) payload: ReceivedPayload<'a>,
    pub(crate) block_crcs: Vec<u32>,
    pub(crate) crc: u32,
    /// The payload for the successor, if there is one.
    pub(crate) kept: Option<Bytes>,
}

impl DataPlane {
    /// Appends a received record, for which the replica has asked. The replica has hidden it: it becomes visible when
    /// it is committed.
    pub(crate) fn append_incoming(
        &self,
        mut appender: MutexGuard<'_, Appender>,
        chain: ChainId,
        (token, record): (AppendToken, &ForwardedRecord),
        incoming: Incoming<'_>,
        out: &mut DeferredWork,
    ) {
        let header = &record.header;
        if !self.device.log().accepts(header) {
            let words = format!("record {} of chain {chain} lies before what its chunk holds", header.n);
            let fault = Fault::new(Reason::Corrupt, words);
            return self.fail_incoming(&mut appender, chain, token, fault, out);
        }
        let group = RecordGroup {
            request: (header.session, header.seq),
            inode: header.chunk.inode,
            headers: std::slice::from_ref(header),
            payloads: &[incoming.payload.bytes()],
            block_crcs: std::slice::from_ref(&incoming.block_crcs),
        };
        // If the record before it was refused, the replica expects none any more.
        let is_expected = |appender: &Appender| appender.chains[chain.0 as usize].failure().is_none();
        let (appended, mut lock) = self.append(appender, &group, true, is_expected);
        match appended {
            Ok(end) => {
                let kept = UncommittedRecord::of(incoming.kept, incoming.payload.len(), incoming.crc);
                let kept = kept.behind(incoming.payload.ahead());
                self.keep_uncommitted(&mut lock.appender, chain, header.n, kept);
                if record.durability == Durability::Sync && lock.appender.chains[chain.0 as usize].is_whole() {
                    out.flush = Some((end, incoming.payload.len() as u64));
                }
                let end = LogEnd { segment: end.segment, offset: end.offset };
                self.step(&mut lock.appender, chain, ReplicaInput::Appended { token, end }, out);
            }
            Err(fault) => self.fail_incoming(&mut lock.appender, chain, token, fault, out),
        }
        self.end_append(lock);
    }

    fn fail_incoming(
        &self,
        appender: &mut Appender,
        chain: ChainId,
        token: AppendToken,
        fault: Fault,
        out: &mut DeferredWork,
    ) {
        let reason = fault.reason;
        out.reports.push(ChainEvent::Failed { chain, fault });
        self.step(appender, chain, ReplicaInput::AppendFailed { token, reason }, out);
    }
}
