//! Traces: one record of 64 bytes for each call as its user made it, in a mapped ring of a file.
//!
//! [`Recorder`] writes: a gateway or the client library opens a [`CallScope`] around a call, and the scope writes one
//! [`Event`] when it ends. Scopes within it, on the same thread, add to it. [`read_ring`] reads the file, while the
//! process runs or after it was killed, and [`RingFollower`] piece by piece. [`Summary`] counts. What a server does at
//! its device is recorded beside the calls ([`DeviceFile`]). Spans of sampled requests ([`Tracer`]) are made at the
//! same places, and follow a request through other processes.
//!
//! Guarantees: a call never waits for its record, allocates nothing for it, and never fails because of it; a record
//! that was being written when the process ended is skipped; records that the ring has written over are counted.
//! Content is never recorded, and names only beside the events, by keyed hashes ([`words`]).
//! Leaves to others: which calls there are (`client`, the gateways), columnar files and foreign formats.

mod device;
mod error;
mod event;
mod follower;
mod hasher;
mod key;
mod kinds;
mod mapped;
mod reader;
mod recorder;
mod ring;
mod scope;
mod span;
mod summary;
pub mod words;

pub use device::{DeviceFile, EventStart};
pub use error::{RING_BYTES_MAX, RING_BYTES_MIN, TraceError};
pub use event::{Event, EventFlags, SLOT_BYTES};
pub use follower::{RingFollower, RingPlace, read_ring};
pub use hasher::PathHasher;
pub use kinds::{CallKind, Gateway};
pub use reader::{PathIndex, RingContent};
pub use recorder::{Program, Recorder, RingSettings};
pub use scope::CallScope;
pub use span::{
    EnteredSpan, NotSampled, OpenSpan, QUEUE_SPANS_MAX, Span, SpanContext, SpanKind, SpanQueue, SpanValue,
    SpansOfRequests, Tracer, child,
};
pub use summary::{CallSummary, FileTraffic, Summary};

#[cfg(test)]
frieze_harness::count_allocations!();
#[cfg(test)]
mod tests;
