//! Spans of sampled requests, and of the records that they write down a chain.
//!
//! Guarantees: without a tracer of the process there is nothing here; a request that is not sampled costs a comparison.
//! Leaves to others: sampling and sending (`frieze_trace`, the exporter of the command).

use std::sync::Arc;

use frieze_base::Fault;
use frieze_metrics::Values;
use frieze_service::{Responder, Steps, class_of};
use frieze_trace::{OpenSpan, SpanContext, SpanKind, SpansOfRequests, Tracer};
use frieze_wire::fabric::ConnectFabric;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, RequestBody};
use frieze_wire::peer::ServerMessage;
use frieze_wire::trace::TraceContext;

/// The tracer of a server.
pub(super) struct RequestSpans {
    tracer: Tracer,
    requests: SpansOfRequests,
}

impl RequestSpans {
    /// Spans by the tracer of the process, if it has one.
    pub(super) fn of_process() -> Option<Arc<RequestSpans>> {
        Some(Arc::new(RequestSpans { tracer: Tracer::installed()?, requests: SpansOfRequests::default() }))
    }

    /// Adds the counts of its spans.
    pub(super) fn export(&self, values: &mut Values) {
        values.count("frieze_spans_sent_total", self.tracer.sent());
        values.count("frieze_spans_dropped_total", self.tracer.dropped());
    }

    /// The span of a request, which ends with its answer. `None` if it is not sampled.
    pub(super) fn begin(
        &self,
        header: &FrameHeader,
        body: &RequestBody,
        responder: &Arc<dyn Responder>,
    ) -> Option<Arc<SpanResponder>> {
        let kind = class_of(header, body.request.as_ref()?).metric?;
        let span = match body.trace.and_then(context_of) {
            Some(parent) => self.tracer.child_of(parent, SpanKind::Server, kind),
            None => self.tracer.begin(SpanKind::Server, kind)?,
        };
        if header.seq.0 != 0 {
            self.requests.put((header.session.0, header.seq.0), span.context());
        }
        let span = span.with_number("frieze.session", header.session.0);
        Some(Arc::new(SpanResponder { responder: responder.clone(), span }))
    }

    /// The span of a record of the predecessor, if its request is sampled.
    pub(super) fn begin_record(&self, message: &ServerMessage) -> Option<OpenSpan> {
        let ServerMessage::ChainRecord(record) = message else { return None };
        let parent = record.trace.and_then(context_of)?;
        let span = self.tracer.child_of(parent, SpanKind::Consumer, "chain record");
        self.requests.put((record.session, record.seq), span.context());
        Some(span.with_number("frieze.chain", record.chain.into()).with_number("frieze.record", record.n))
    }

    /// Names the span of this server in a record for the successor.
    pub(super) fn mark(&self, message: &mut ServerMessage) {
        if let ServerMessage::ChainRecord(record) = message {
            let span = self.requests.get((record.session, record.seq));
            record.trace = span.map(|SpanContext { trace, span }| TraceContext::of(trace, span));
        }
    }
}

fn context_of(trace: TraceContext) -> Option<SpanContext> {
    trace.ids().map(|(trace, span)| SpanContext { trace, span })
}

/// A responder that ends the span of its request.
pub(super) struct SpanResponder {
    responder: Arc<dyn Responder>,
    pub(super) span: OpenSpan,
}

impl SpanResponder {
    fn end(&self, result: &Result<Reply, Fault>) {
        self.span.end(result.as_ref().err().map_or(0, |fault| fault.reason as u32 as u16));
    }
}

impl Responder for SpanResponder {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        self.end(&result);
        self.responder.respond(request, result, payload, payload_crc);
    }

    fn respond_with(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &mut Vec<u8>, crc: u32) {
        self.end(&result);
        self.responder.respond_with(request, result, payload, crc);
    }

    fn connect_fabric(&self, ask: &ConnectFabric) -> Result<(), Fault> {
        self.responder.connect_fabric(ask)
    }

    fn respond_in_steps(&self, request: &FrameHeader, reply: Reply, steps: &mut Steps<'_>) {
        self.responder.respond_in_steps(request, reply, steps);
    }
}
