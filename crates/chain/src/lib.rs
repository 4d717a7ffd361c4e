//! One replica of a chain: it orders writes, stamps them, runs each once, promises instants and commits (CRAQ).
mod error;
mod message;
mod settings;

pub use error::Error;
pub use message::{AppendToken, Effect, Input, LogEnd, Moment, Replayed, RequestId, WriteDone, WriteRequest};
pub use settings::Settings;

// Public life of a replica, filled in next:
// impl Replica {
//     pub fn new(chain: ChainId, epoch: ChainEpoch, settings: Settings) -> Replica;
//     pub fn step(&mut self, at: Moment, input: Input, out: &mut Vec<Effect>);
//     pub fn replay(&mut self, record: &Replayed) -> Result<u64 /* records missing before it */, Error>;
//     pub fn remembered(&self, session: SessionId, seq: Seq) -> Option<Remembered { part, chunk, offset, stamp, answered: bool }>;
//     pub fn closed(&self) -> Hlc;
//     pub fn is_readable_at(&self, at: Hlc) -> bool; // closed, and every record <= at committed: no Close needed
//     pub fn now_cut(&self) -> Hlc;                  // a read of now is a read at this: MAX unless a record is dirty
//     pub fn epoch(&self) -> ChainEpoch; fn last(&self) -> (n, stamp); fn clean_n(&self) -> u64; fn in_flight(&self) -> usize;
//     pub fn sessions(&self) -> impl Iterator<Item = SessionId>;
// }
