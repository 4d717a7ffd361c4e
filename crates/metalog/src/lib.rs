//! The ordered log of metadata batches.
mod message;
mod settings;

pub use message::{DataEnd, Effect, Entry, Input, NewSegment};
pub use settings::Settings;

// Public life of the log, filled in next:
// impl Metalog {
//     pub fn new(settings: Settings) -> Metalog;                        // an empty directory; term 1
//     pub fn step(&mut self, at: Hlc, input: Input, out: &mut Vec<Effect>);
//     pub fn recover(settings, from: RecoverFrom { applied: LogIndex, data_end: DataEnd }, source: &mut dyn SegmentSource,
//                    visit: &mut dyn FnMut(Entry)) -> Result<Recovered, Error>;   // entries after `applied`, in order
//     pub fn last(&self) -> LogIndex;  committed() durable() -> LogIndex;  newest() -> Hlc;  closed() -> Hlc;  term() -> u64
//     pub fn is_readable_at(&self, at: Hlc) -> bool;
// }
// pub trait SegmentSource { fn segments(&mut self) -> Result<Vec<(SegmentId, u64 /* file bytes */)>, Fault>;
//                           fn read(&mut self, segment, offset: u64, into: &mut [u8]) -> Result<usize, Fault>; }
// pub struct Recovered { pub log: Metalog, pub report: Report, pub mend: Vec<Mend> }
// pub enum Mend { Erase { segment, offset, len }, Remove { segment } }  // done and synced before the log is used
// pub struct Report { pub entries: u64, pub first: LogIndex, pub last: LogIndex, pub cut: Option<Cut { segment, offset, index, why: CutReason }> }
