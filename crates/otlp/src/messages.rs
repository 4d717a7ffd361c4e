//! The messages of OTLP that spans need, by hand: `opentelemetry-proto` brings the SDK with it. Field numbers are those
//! of `opentelemetry/proto`, which is stable; fields that we do not send are left out.

use frieze_trace::{Span, SpanValue};

/// `ExportTraceServiceRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) resource_spans: Vec<ResourceSpans>,
}

/// `ResourceSpans`: spans of one process.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) scope_spans: Vec<ScopeSpans>,
}

/// `Resource`: the process.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub(crate) attributes: Vec<KeyValue>,
}

/// `ScopeSpans`: spans of one library.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub(crate) scope: Option<SpanLibrary>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) spans: Vec<SpanMessage>,
}

/// `InstrumentationScope`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SpanLibrary {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

/// `Span`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SpanMessage {
    /// 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) trace_id: Vec<u8>,
    /// 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) span_id: Vec<u8>,
    /// 8 bytes; none for a root.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(crate) name: String,
    #[prost(int32, tag = "6")]
    pub(crate) kind: i32,
    #[prost(fixed64, tag = "7")]
    pub(crate) start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub(crate) end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub(crate) status: Option<SpanStatus>,
    #[prost(fixed32, tag = "16")]
    pub(crate) flags: u32,
}

/// `Status`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct SpanStatus {
    #[prost(string, tag = "2")]
    pub(crate) message: String,
    /// 0 for unset, 2 for an error.
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
}

/// `KeyValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<AnyValue>,
}

/// `AnyValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    pub(crate) value: Option<AnyValueKind>,
}

/// The kinds of `AnyValue` that are sent.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub(crate) enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}

/// Bit of `flags`: the trace is sampled, as the flags of a `traceparent` have it.
const SAMPLED: u32 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// A text attribute.
pub(crate) fn text(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(AnyValueKind::Text(value.to_owned())) });
    KeyValue { key: key.to_owned(), value }
}

impl From<Span> for SpanMessage {
    fn from(span: Span) -> SpanMessage {
        let attribute = |(key, value): (&'static str, SpanValue)| match value {
            SpanValue::Text(value) => text(key, &value),
            SpanValue::Number(value) => {
                let value = AnyValueKind::Number(i64::try_from(value).unwrap_or(i64::MAX));
                KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
            }
        };
        SpanMessage {
            trace_id: span.context.trace.to_be_bytes().to_vec(),
            span_id: span.context.span.to_be_bytes().to_vec(),
            parent_span_id: if span.parent == 0 { Vec::new() } else { span.parent.to_be_bytes().to_vec() },
            name: span.name,
            kind: span.kind as i32,
            start_time_unix_nano: span.start_ns,
            end_time_unix_nano: span.end_ns,
            attributes: span.values.into_iter().map(attribute).collect(),
            status: (span.failed != 0).then(|| SpanStatus { message: format!("reason {}", span.failed), code: ERROR }),
            flags: SAMPLED,
        }
    }
}
