//! Dedupe state of the chains, stored beside an index run: a restart does not read the records that index runs cover,
//! and a retry of one of their requests must still be answered with its first run.

use frieze_base::{ChainEpoch, ChunkId, Fault, InodeId, Reason, Seq, SessionId};
use frieze_chain::{Replica, ResumePoint, SessionMemory, WriteDone};
use frieze_hlc::Hlc;
use frieze_multilog::ChainTip;
use prost::Message;

/// Dedupe state of all chains.
#[derive(Clone, PartialEq, Message)]
struct StoredDedupe {
    #[prost(message, repeated, tag = "1")]
    sessions: Vec<StoredChainSession>,
    #[prost(message, repeated, tag = "2")]
    epochs: Vec<StoredEpochs>,
}

/// Epochs under which the records of a chain were stamped.
#[derive(Clone, PartialEq, Message)]
struct StoredEpochs {
    #[prost(uint32, tag = "1")]
    chain: u32,
    /// For each epoch: its number, and the number of its last record.
    #[prost(uint64, repeated, tag = "2")]
    epochs: Vec<u64>,
}

/// State of one session on one chain.
#[derive(Clone, PartialEq, Message)]
struct StoredChainSession {
    #[prost(uint32, tag = "1")]
    chain: u32,
    #[prost(uint64, tag = "2")]
    session: u64,
    #[prost(uint64, tag = "3")]
    floor: u64,
    /// For each request: number, part, stamp, inode, index of the chunk, offset in it.
    #[prost(uint64, repeated, tag = "4")]
    done: Vec<u64>,
}

/// Integers per request.
const REQUEST: usize = 6;

/// Encodes the dedupe state for records up to `tips`, of live sessions. `None` while one of those records is not
/// committed.
/// committed.
pub(crate) fn keep(chains: &[Replica], tips: &[ChainTip], lives: &dyn Fn(SessionId) -> bool) -> Option<Vec<u8>> {
    let mut kept = StoredDedupe::default();
    for replica in chains {
        let tip = tips.iter().find(|tip| tip.chain == replica.chain());
        let (upto, n) = tip.map_or((Hlc::ZERO, 0), |tip| (tip.stamp, tip.n));
        let epochs: Vec<u64> = replica.epochs(n).iter().flat_map(|(epoch, last)| [epoch.0, *last]).collect();
        // If there is one epoch, the tip itself names it.
        if epochs.len() > 2 {
            kept.epochs.push(StoredEpochs { chain: replica.chain().0, epochs });
        }
        for (session, memory) in replica.session_memories(upto)? {
            if !lives(session) {
                continue;
            }
            let request = |(seq, part, done): &(Seq, u8, WriteDone)| {
                [seq.0, u64::from(*part), done.stamp.0, done.chunk.inode.0, done.chunk.index.into(), done.offset.into()]
            };
            kept.sessions.push(StoredChainSession {
                chain: replica.chain().0,
                session: session.0,
                floor: memory.floor.0,
                done: memory.done.iter().flat_map(request).collect(),
            });
        }
    }
    Some(kept.encode_to_vec())
}

/// Restores fresh chains from the records in index runs: the last record of each chain, and the output of [`keep`].
///
/// # Errors
/// `Corrupt` if the input is no output of `keep`, or names a chain that this directory does not have.
pub fn resume(chains: &mut [Replica], tips: &[ChainTip], kept: &[u8]) -> Result<(), Fault> {
    let corrupt = |what: String| Fault::new(Reason::Corrupt, format!("the index of the device log is corrupt: {what}"));
    let count = chains.len();
    let unknown = |chain: u32| corrupt(format!("it tells of chain {chain}, and there are {count}"));
    for tip in tips {
        let ChainTip { chain, epoch, n, stamp, session, seq } = *tip;
        let replica = chains.get_mut(chain.0 as usize).ok_or_else(|| unknown(chain.0))?;
        replica.resume(&ResumePoint { epoch, n, stamp, session, seq });
    }
    let kept = StoredDedupe::decode(kept).map_err(|error| corrupt(error.to_string()))?;
    for StoredEpochs { chain, epochs } in &kept.epochs {
        let replica = chains.get_mut(*chain as usize).ok_or_else(|| unknown(*chain))?;
        let epochs: Vec<_> = epochs.as_chunks().0.iter().map(|&[epoch, last]| (ChainEpoch(epoch), last)).collect();
        replica.restore_epochs(&epochs);
    }
    for session in &kept.sessions {
        let replica = chains.get_mut(session.chain as usize).ok_or_else(|| unknown(session.chain))?;
        // A chain that was detached since: if its records return, they are no second runs.
        let is_gone = replica.last() == 0;
        let (requests, rest) = session.done.as_chunks::<REQUEST>();
        if !rest.is_empty() {
            return Err(corrupt("a remembered request is cut short".to_owned()));
        }
        let done = requests.iter().map(|&[seq, part, stamp, inode, index, offset]| {
            let chunk = ChunkId { inode: InodeId(inode), index: index as u32 };
            (Seq(seq), part as u8, WriteDone { stamp: Hlc(stamp), chunk, offset: offset as u32 })
        });
        let memory = SessionMemory { floor: Seq(session.floor), done: done.filter(|_| !is_gone).collect() };
        replica.restore_session(SessionId(session.session), &memory);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use frieze_base::ChainId;
    use frieze_chain::Settings;

    fn chains() -> Vec<Replica> {
        (0..3).map(|chain| Replica::new(ChainId(chain), ChainEpoch(1), Settings::default())).collect()
    }

    fn tips() -> Vec<ChainTip> {
        let tip = |chain| ChainTip {
            chain: ChainId(chain),
            epoch: ChainEpoch(1),
            n: 9,
            stamp: Hlc(900),
            session: SessionId(7),
            seq: Seq(5),
        };
        (0..2).map(tip).collect()
    }

    #[test]
    fn any_bytes_are_dedupe_state_that_restores_or_corrupt() {
        let session = StoredChainSession { chain: 1, session: 7, floor: 3, done: vec![4, 0, 800, 77, 0, 4096] };
        let epochs = StoredEpochs { chain: 0, epochs: vec![1, 5, 2, 9] };
        let kept = StoredDedupe { sessions: vec![session], epochs: vec![epochs] };
        frieze_harness::fuzz!([kept.encode_to_vec()], |bytes: &[u8]| {
            frieze_harness::check_stable(bytes, |bytes| StoredDedupe::decode(bytes).ok(), StoredDedupe::encode_to_vec);
            let mut chains = self::chains();
            match resume(&mut chains, &tips(), bytes) {
                Ok(()) => {
                    // What was restored is stored again, and restores.
                    let again = keep(&chains, &tips(), &|_| true).expect("every record is committed");
                    assert_eq!(resume(&mut self::chains(), &tips(), &again), Ok(()));
                }
                Err(fault) => assert_eq!(fault.reason, Reason::Corrupt),
            }
        });
    }
}
