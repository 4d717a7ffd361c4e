//! The gateway for Prometheus: `GET /metrics` on an address of its own.
//!
//! Guarantees: a scrape costs clients of the file system nothing; at most [`CONNECTIONS_MAX`] connections are answered
//! at a time, and one user has at most as many of them as it leaves to others.
//! Leaves to others: the metrics (`frieze_metrics`, `crate::metrics`), HTTP (`frieze_httpd`), the format of the text
//! (`prometheus`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frieze_base::{Fault, MonoTime, Reason};
use frieze_httpd::{PageConnection, PageListener};
use frieze_metrics::{FIGURES, Figure, Kind, REQUEST_SECONDS, Values};
use frieze_net::{Admission, Origin, Seat, ServerAddr};
use frieze_service::{Responder, Steps, class_of};
use frieze_wire::FrameKind;
use frieze_wire::fabric::ConnectFabric;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, Request};
use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};

/// Path of the page.
pub(super) const PATH: &str = "/metrics";
/// Media type of the page (the format is of 2014, and every reader knows it).
pub(super) const TEXT_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections at a time.
pub(super) const CONNECTIONS_MAX: usize = 8;
/// Upper ends of the buckets of requests' durations, in seconds: from what one takes in memory to what a client waits
/// at most.
const BUCKETS: &[f64] = &[
    20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The gateway, and the metrics that exist only with it.
pub(super) struct MetricsPage {
    listener: PageListener,
    answering: AtomicUsize,
    admission: Admission,
    durations: HistogramVec,
    refused: IntCounterVec,
    received: IntCounterVec,
    sent: IntCounterVec,
}

impl MetricsPage {
    /// Listens at the address of the setting: `HOST:PORT`; a port alone is one of this machine. `None` without one.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address; the system's error if listening there fails.
    pub(super) fn open(setting: &str) -> Result<Option<MetricsPage>, Fault> {
        if setting.is_empty() {
            return Ok(None);
        }
        let listener = PageListener::bind(&address_of(setting)?)?;
        let histogram = HistogramOpts::new(REQUEST_SECONDS.name, REQUEST_SECONDS.help).buckets(BUCKETS.to_vec());
        let counter = |name| {
            let figure = figure_named(name);
            IntCounterVec::new(Opts::new(figure.name, figure.help), figure.labels).map_err(internal)
        };
        Ok(Some(MetricsPage {
            listener,
            answering: AtomicUsize::new(0),
            admission: Admission::unlogged(CONNECTIONS_MAX),
            durations: HistogramVec::new(histogram, REQUEST_SECONDS.labels).map_err(internal)?,
            refused: counter("frieze_requests_refused_total")?,
            received: counter("frieze_request_received_bytes_total")?,
            sent: counter("frieze_request_sent_bytes_total")?,
        }))
    }

    /// Address of the listener.
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// The next connection; `None` when the server stops.
    ///
    /// # Errors
    /// The system's: out of descriptors.
    pub(super) fn accept(&self) -> Result<Option<PageConnection>, frieze_net::Error> {
        self.listener.accept()
    }

    /// Counts a connection from `origin` as answered; `None` if there are as many as may be.
    pub(super) fn begin_scrape(self: &Arc<MetricsPage>, origin: Origin) -> Option<Scrape> {
        let seat = self.admission.enter(origin).ok()?;
        self.answering.fetch_add(1, Ordering::AcqRel);
        Some(Scrape { page: self.clone(), _seat: seat })
    }

    /// Accepts no more connections.
    pub(super) fn stop(&self) {
        self.listener.stop();
    }

    /// True while a scrape is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Acquire) > 0
    }

    /// Wraps the responder: it records the duration of the request from now on, and whether it is refused.
    pub(super) fn timed(
        self: &Arc<MetricsPage>,
        request: Option<&Request>,
        responder: &Arc<dyn Responder>,
    ) -> Arc<dyn Responder> {
        let Some(kind) = request.and_then(kind_of) else { return responder.clone() };
        Arc::new(TimedResponder { page: self.clone(), responder: responder.clone(), kind, since: frieze_net::mono() })
    }

    /// Records a request of this kind that began at `since` and was answered now.
    pub(super) fn took(&self, kind: &'static str, since: MonoTime) {
        let seconds = frieze_net::mono().since_ns(since) as f64 / 1e9;
        self.durations.with_label_values(&[kind]).observe(seconds);
    }

    /// All metrics as Prometheus reads them.
    pub(super) fn text(&self, values: Values) -> Result<String, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(self.durations.clone()))?;
        for counter in [&self.refused, &self.received, &self.sent] {
            registry.register(Box::new(counter.clone()))?;
        }
        for figure in FIGURES {
            let known: Vec<_> = values.0.iter().filter(|(of, _, _)| of.name == figure.name).collect();
            if known.is_empty() {
                continue;
            }
            let options = Opts::new(figure.name, figure.help);
            let collector: Box<dyn Collector> = match figure.kind {
                Kind::Counter => {
                    let counters = CounterVec::new(options, figure.labels)?;
                    for (_, labels, value) in known {
                        counters.get_metric_with_label_values(labels)?.inc_by(*value);
                    }
                    Box::new(counters)
                }
                Kind::Gauge | Kind::Histogram => {
                    let gauges = GaugeVec::new(options, figure.labels)?;
                    for (_, labels, value) in known {
                        gauges.get_metric_with_label_values(labels)?.set(*value);
                    }
                    Box::new(gauges)
                }
            };
            registry.register(collector)?;
        }
        TextEncoder::new().encode_to_string(&registry.gather())
    }
}

fn figure_named(name: &str) -> &'static Figure {
    FIGURES.iter().find(|figure| figure.name == name).expect("it is in the table")
}

fn internal(error: prometheus::Error) -> Fault {
    Fault::new(Reason::Internal, format!("figures cannot be counted: {error}"))
}

/// Parses `HOST:PORT`, `:PORT` or `PORT`. Without a host the address is one of this machine: serving the whole world
/// has to be asked for.
fn address_of(setting: &str) -> Result<ServerAddr, Fault> {
    let port = setting.strip_prefix(':').unwrap_or(setting);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(format!("127.0.0.1:{port}").parse::<ServerAddr>()?);
    }
    Ok(setting.parse::<ServerAddr>()?)
}

/// A scrape that is answered, however it ends.
pub(super) struct Scrape {
    pub(super) page: Arc<MetricsPage>,
    _seat: Seat,
}

impl Drop for Scrape {
    fn drop(&mut self) {
        self.page.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A responder that records the duration.
struct TimedResponder {
    page: Arc<MetricsPage>,
    responder: Arc<dyn Responder>,
    kind: &'static str,
    since: MonoTime,
}

impl TimedResponder {
    /// Counts the request, whose answer had `sent` bytes of payload.
    fn note(&self, request: &FrameHeader, is_refused: bool, sent: usize) {
        self.page.took(self.kind, self.since);
        let counts = [
            (&self.page.refused, u64::from(is_refused)),
            (&self.page.received, request.payload_len.into()),
            (&self.page.sent, sent as u64),
        ];
        for (counter, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
            counter.with_label_values(&[self.kind]).inc_by(count);
        }
    }
}

impl Responder for TimedResponder {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        let is_refused = result.is_err();
        self.responder.respond(request, result, payload, payload_crc);
        self.note(request, is_refused, payload.len());
    }

    fn respond_with(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &mut Vec<u8>, crc: u32) {
        let (is_refused, sent) = (result.is_err(), payload.len());
        self.responder.respond_with(request, result, payload, crc);
        self.note(request, is_refused, sent);
    }

    fn connect_fabric(&self, ask: &ConnectFabric) -> Result<(), Fault> {
        self.responder.connect_fabric(ask)
    }

    fn respond_in_steps(&self, request: &FrameHeader, reply: Reply, steps: &mut Steps<'_>) {
        let sent = steps.len;
        self.responder.respond_in_steps(request, reply, steps);
        self.note(request, false, sent);
    }
}

/// Name of a request in metrics; `None`: it waits for an event, however long.
fn kind_of(request: &Request) -> Option<&'static str> {
    class_of(&FrameHeader::of(FrameKind::Request), request).metric
}

#[cfg(test)]
mod tests;
