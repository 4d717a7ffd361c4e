//! The trace that a request belongs to, across processes.

/// The span of the sender, within a sampled trace, as a `traceparent` of W3C Trace Context names it. A request that is
/// not sampled carries none.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TraceContext {
    /// First eight bytes of the trace, big-endian.
    #[prost(fixed64, tag = "1")]
    pub trace_high: u64,
    /// The other eight.
    #[prost(fixed64, tag = "2")]
    pub trace_low: u64,
    /// The span.
    #[prost(fixed64, tag = "3")]
    pub span: u64,
}

impl TraceContext {
    /// A span within a trace.
    pub fn of(trace: u128, span: u64) -> TraceContext {
        TraceContext { trace_high: (trace >> 64) as u64, trace_low: trace as u64, span }
    }

    /// The trace and the span; `None` if one of them is 0, which names none.
    pub fn ids(&self) -> Option<(u128, u64)> {
        let trace = u128::from(self.trace_high) << 64 | u128::from(self.trace_low);
        (trace != 0 && self.span != 0).then_some((trace, self.span))
    }
}
