//! Sends spans to a collector: OTLP over HTTP, in protobuf, from a thread of its own.
//!
//! Guarantees: no request ever waits for it. A collector that is away, slow or overloaded is tried again at growing
//! intervals; meanwhile spans wait in the tracer's queue, and those that find it full are counted as dropped, as are
//! those that a collector refuses. Without spans nothing is sent.
//! Leaves to others: making spans and sampling (`frieze_trace::Tracer`).
//!
//! Source: the OpenTelemetry Protocol 1.x (stable): `/v1/traces`, the messages of `trace.proto`, retries by status.

mod exporter;
mod messages;

pub use exporter::{OtlpError, OtlpExporter, OtlpSettings};
