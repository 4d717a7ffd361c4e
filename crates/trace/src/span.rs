//! Spans of sampled requests: which part of a request took how long, in which process.
//!
//! A [`Tracer`] decides for each request without a parent whether it is sampled, and makes its spans. A span within
//! another of the same thread is its child; across processes the parent travels as a [`SpanContext`].
//!
//! Guarantees: making a span never waits; ended spans go into a bounded queue, and a span that finds it full is counted
//! and dropped. Where no request of a thread is sampled, [`child`] costs one load of a thread's own variable.
//! Leaves to others: sending them ([`SpanQueue`] has them, the crate `otlp` sends), and how contexts travel (`wire`).
//!
//! Source: W3C Trace Context, level 2 (`traceparent`); OpenTelemetry's data model of traces.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::recorder::wall_ns;

/// Spans that wait to be sent, at most: some 2 MiB.
pub const QUEUE_SPANS_MAX: usize = 8192;
/// Requests whose spans are remembered for their records.
const REQUESTS_MAX: usize = 256;

/// A span as others name it: the trace, and the span within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace, never 0.
    pub trace: u128,
    /// The span, never 0.
    pub span: u64,
}

/// What a span is to its parent, by OpenTelemetry's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// A part of the work.
    Internal = 1,
    /// A request that is answered.
    Server = 2,
    /// A request that is sent.
    Client = 3,
    /// A message without an answer that is handled.
    Consumer = 5,
}

/// A value beside a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanValue {
    /// A number.
    Number(u64),
    /// A word.
    Text(String),
}

/// A span that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its trace and its own number.
    pub context: SpanContext,
    /// The span that it is a part of; 0 for none.
    pub parent: u64,
    /// What it is to its parent.
    pub kind: SpanKind,
    /// What was done: few words, the same for all requests of a kind.
    pub name: String,
    /// Begin, ns since 1970.
    pub start_ns: u64,
    /// End, ns since 1970.
    pub end_ns: u64,
    /// Details.
    pub values: Vec<(&'static str, SpanValue)>,
    /// Number of the fault's `Reason`; 0: it went well.
    pub failed: u16,
}

/// Makes spans. Cheap to clone; all clones share a queue.
#[derive(Clone, Debug)]
pub struct Tracer(Arc<TracerState>);

#[derive(Debug)]
struct TracerState {
    /// A request without a parent is sampled if a random number is below it; of 2^64.
    threshold: u64,
    /// The parent of spans without one: that of a whole command.
    root: Option<SpanContext>,
    queue: SyncSender<Span>,
    counts: Arc<SpanCounts>,
}

#[derive(Debug, Default)]
struct SpanCounts {
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// The ended spans of a tracer, in order.
#[derive(Debug)]
pub struct SpanQueue {
    spans: Receiver<Span>,
    counts: Arc<SpanCounts>,
}

/// A span that has begun; it ends when it is dropped.
#[derive(Debug)]
pub struct OpenSpan {
    tracer: Tracer,
    span: Span,
    /// Set where it ends before it is dropped.
    end_ns: AtomicU64,
    failed: AtomicU16,
}

/// While it lives, spans of its thread are children of a span.
#[derive(Debug)]
pub struct EnteredSpan {
    former: Option<(Tracer, SpanContext)>,
    /// It belongs to its thread.
    _not_send: std::marker::PhantomData<*const ()>,
}

/// The spans of the newest sampled requests that change something, by session and number: records carry both, down a
/// whole chain.
#[derive(Debug, Default)]
pub struct SpansOfRequests(Mutex<VecDeque<((u64, u64), SpanContext)>>);

static INSTALLED: OnceLock<Tracer> = OnceLock::new();

thread_local! {
    static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
    static WITHIN: RefCell<Option<(Tracer, SpanContext)>> = const { RefCell::new(None) };
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// A span within the one that this thread is in; `None` if it is in none.
pub fn child(kind: SpanKind, name: &str) -> Option<OpenSpan> {
    if !IS_WITHIN.get() {
        return None;
    }
    let (tracer, parent) = WITHIN.with_borrow(Clone::clone)?;
    Some(tracer.child_of(parent, kind, name))
}

impl Tracer {
    /// A tracer that samples this share of the requests without a parent, 0 to 1, and its queue.
    ///
    /// `root` is the parent of spans that have none: with one, all of them are sampled.
    pub fn new(share: f64, root: Option<SpanContext>) -> (Tracer, SpanQueue) {
        let (queue, spans) = sync_channel(QUEUE_SPANS_MAX);
        let counts = Arc::new(SpanCounts::default());
        // The conversion saturates: all of them for 1 and above, none for 0 and below.
        let threshold = (share * 2f64.powi(64)) as u64;
        let tracer = Tracer(Arc::new(TracerState { threshold, root, queue, counts: counts.clone() }));
        (tracer, SpanQueue { spans, counts })
    }

    /// A tracer of a whole command, whose spans are all within one: sampled by `share`, or for certain if the program
    /// that started it has passed a parent. The span of the command is `None` if it is not sampled; then there are no
    /// spans.
    pub fn of_command(share: f64, parent: Option<SpanContext>, name: &str) -> (Tracer, SpanQueue, Option<OpenSpan>) {
        let (drawn, queue) = Tracer::new(share, parent);
        let Some(command) = drawn.begin(SpanKind::Internal, name) else {
            let (none, queue) = Tracer::new(0.0, None);
            return (none, queue, None);
        };
        let state = TracerState {
            threshold: 0,
            root: Some(command.context()),
            queue: drawn.0.queue.clone(),
            counts: drawn.0.counts.clone(),
        };
        (Tracer(Arc::new(state)), queue, Some(command))
    }

    /// Makes this the tracer of the process: that of every client and server that begins in it from now on. Later calls
    /// change nothing.
    pub fn install(self) {
        let _ = INSTALLED.set(self);
    }

    /// The tracer of the process, if it has one.
    pub fn installed() -> Option<Tracer> {
        INSTALLED.get().cloned()
    }

    /// Begins a span: within that of this thread, else within the root, else a trace of its own if it is sampled.
    pub fn begin(&self, kind: SpanKind, name: &str) -> Option<OpenSpan> {
        if let Some(within) = child(kind, name) {
            return Some(within);
        }
        if let Some(root) = self.0.root {
            return Some(self.child_of(root, kind, name));
        }
        if self.0.threshold == 0 || (self.0.threshold != u64::MAX && random() >= self.0.threshold) {
            return None;
        }
        let trace = u128::from(random()) << 64 | u128::from(random());
        Some(self.open(SpanContext { trace: trace.max(1), span: random().max(1) }, 0, kind, name))
    }

    /// Begins a span within another, which may be of another process.
    pub fn child_of(&self, parent: SpanContext, kind: SpanKind, name: &str) -> OpenSpan {
        self.open(SpanContext { span: random().max(1), ..parent }, parent.span, kind, name)
    }

    fn open(&self, context: SpanContext, parent: u64, kind: SpanKind, name: &str) -> OpenSpan {
        let start_ns = wall_ns().max(0) as u64;
        let name = name.to_owned();
        let span = Span { context, parent, kind, name, start_ns, end_ns: 0, values: Vec::new(), failed: 0 };
        OpenSpan { tracer: self.clone(), span, end_ns: AtomicU64::new(0), failed: AtomicU16::new(0) }
    }

    /// Spans that a collector has accepted.
    pub fn sent(&self) -> u64 {
        self.0.counts.sent.load(Ordering::Relaxed)
    }

    /// Spans that were dropped: the queue was full, or no collector accepted them.
    pub fn dropped(&self) -> u64 {
        self.0.counts.dropped.load(Ordering::Relaxed)
    }
}

impl OpenSpan {
    /// Its name for parts of the work in other processes.
    pub fn context(&self) -> SpanContext {
        self.span.context
    }

    /// Adds a number.
    #[must_use]
    pub fn with_number(mut self, key: &'static str, value: u64) -> OpenSpan {
        self.span.values.push((key, SpanValue::Number(value)));
        self
    }

    /// Adds a word.
    #[must_use]
    pub fn with_text(mut self, key: &'static str, value: &str) -> OpenSpan {
        self.span.values.push((key, SpanValue::Text(value.to_owned())));
        self
    }

    /// The work has ended now; `reason` is the number of the fault's `Reason`, 0 if it went well. Later ends count for
    /// nothing.
    pub fn end(&self, reason: u16) {
        let now = wall_ns().max(1) as u64;
        if self.end_ns.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.failed.store(reason, Ordering::Relaxed);
        }
    }

    /// Spans of this thread are within it until the guard is dropped.
    pub fn enter(&self) -> EnteredSpan {
        IS_WITHIN.set(true);
        let former = WITHIN.replace(Some((self.tracer.clone(), self.context())));
        EnteredSpan { former, _not_send: std::marker::PhantomData }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.end(0);
        let open = &mut self.span;
        let span = Span {
            name: std::mem::take(&mut open.name),
            values: std::mem::take(&mut open.values),
            // A clock that was set back shows no negative time.
            end_ns: self.end_ns.load(Ordering::Relaxed).max(open.start_ns),
            failed: self.failed.load(Ordering::Relaxed),
            ..*open
        };
        if self.tracer.0.queue.try_send(span).is_err() {
            self.tracer.0.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for EnteredSpan {
    fn drop(&mut self) {
        let former = self.former.take();
        IS_WITHIN.set(former.is_some());
        WITHIN.set(former);
    }
}

impl SpansOfRequests {
    /// The request with this session and number has this span here.
    pub fn put(&self, request: (u64, u64), span: SpanContext) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.truncate(REQUESTS_MAX - 1);
        newest.push_front((request, span));
    }

    /// The span of a request, if it is one of the newest that are sampled.
    pub fn get(&self, request: (u64, u64)) -> Option<SpanContext> {
        let newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().find(|(of, _)| *of == request).map(|(_, span)| *span)
    }
}

impl SpanQueue {
    /// The next span.
    ///
    /// # Errors
    /// `Timeout` if none ends within this time; `Disconnected` if there is no tracer any more, and so none will.
    pub fn next(&self, wait: Duration) -> Result<Span, RecvTimeoutError> {
        self.spans.recv_timeout(wait)
    }

    /// A collector has accepted so many.
    pub fn count_sent(&self, spans: u64) {
        self.counts.sent.fetch_add(spans, Ordering::Relaxed);
    }

    /// So many were dropped.
    pub fn count_dropped(&self, spans: u64) {
        self.counts.dropped.fetch_add(spans, Ordering::Relaxed);
    }
}

impl fmt::Display for SpanContext {
    /// As a `traceparent` of a sampled request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

/// A `traceparent` that is none, or one of a request that is not sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotSampled;

impl FromStr for SpanContext {
    type Err = NotSampled;

    /// Reads a `traceparent`; a later version may have more fields behind the four of version 0.
    fn from_str(text: &str) -> Result<SpanContext, NotSampled> {
        let mut fields = text.trim().split('-');
        let mut field = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits).ok_or(NotSampled)?;
            let is_hex = field.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
            if is_hex { u128::from_str_radix(field, 16).map_err(|_| NotSampled) } else { Err(NotSampled) }
        };
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let is_valid = version != 0xff && trace != 0 && span != 0 && (version != 0 || fields.next().is_none());
        match is_valid && flags & 1 == 1 {
            true => Ok(SpanContext { trace, span: span as u64 }),
            false => Err(NotSampled),
        }
    }
}

/// A random number of this thread, by SplitMix64; its seed is of the system. Nothing depends on the numbers but that
/// they differ.
fn random() -> u64 {
    let mut state = RANDOM.get();
    if state == 0 {
        let mut seed = [0; 8];
        // Without random numbers of the system those of the clock still differ between threads.
        if rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty()).is_err() {
            seed = (wall_ns() as u64 ^ std::ptr::from_ref(&seed) as u64).to_le_bytes();
        }
        state = u64::from_le_bytes(seed);
    }
    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(state);
    let mut mixed = state;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests;
