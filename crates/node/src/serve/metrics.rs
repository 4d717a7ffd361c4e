//! The gateway for Prometheus: `GET /metrics` on an address of its own.
//!
//! Guarantees: a scrape costs clients of the file system nothing; at most [`DOORS_MAX`] connections are answered at a
//! time, and one user has at most as many of them as it leaves to others.
//! Leaves to others: the metrics (`crate::metrics`), HTTP (`frieze_httpd`), the format of the text (`prometheus`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason};
use frieze_httpd::{PageConnection, PageListener};
use frieze_net::{Admission, ServerAddr};
use frieze_service::{Responder, Steps, class_of};
use frieze_wire::FrameKind;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, Request};
use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use tracing::{debug, warn};

use super::{Shared, spawn};
use crate::metrics::{FIGURES, Figure, Kind, REQUEST_SECONDS, Values};

/// Path of the page.
const PATH: &str = "/metrics";
/// Media type of the page (the format is of 2014, and every reader knows it).
const TEXT_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections at a time.
const DOORS_MAX: usize = 8;
/// Upper ends of the buckets of requests' durations, in seconds: from what one takes in memory to what a client waits
/// at most.
const BUCKETS: &[f64] = &[
    20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The gateway, and the metrics that exist only with it.
pub(super) struct Door {
    listener: PageListener,
    answering: AtomicUsize,
    admission: Admission,
    durations: HistogramVec,
    refused: IntCounterVec,
}

impl Door {
    /// Listens at the address of the setting: `HOST:PORT`; a port alone is one of this machine. `None` without one.
    ///
    /// # Errors
    /// `InvalidArgument` for a malformed address; the system's error if listening there fails.
    pub(super) fn open(setting: &str) -> Result<Option<Door>, Fault> {
        if setting.is_empty() {
            return Ok(None);
        }
        let listener = PageListener::bind(&address_of(setting)?)?;
        let histogram = HistogramOpts::new(REQUEST_SECONDS.name, REQUEST_SECONDS.help).buckets(BUCKETS.to_vec());
        let refused = figure_named("frieze_requests_refused_total");
        Ok(Some(Door {
            listener,
            answering: AtomicUsize::new(0),
            admission: Admission::unlogged(DOORS_MAX),
            durations: HistogramVec::new(histogram, REQUEST_SECONDS.labels).map_err(internal)?,
            refused: IntCounterVec::new(Opts::new(refused.name, refused.help), refused.labels).map_err(internal)?,
        }))
    }

    /// Address of the listener.
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address()
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
        self: &Arc<Door>,
        request: Option<&Request>,
        responder: &Arc<dyn Responder>,
    ) -> Arc<dyn Responder> {
        let Some(kind) = request.and_then(kind_of) else { return responder.clone() };
        Arc::new(Timed { door: self.clone(), responder: responder.clone(), kind, since: frieze_net::mono() })
    }

    /// Records a request of this kind that began at `since` and was answered now.
    pub(super) fn took(&self, kind: &'static str, since: MonoTime) {
        let seconds = frieze_net::mono().since_ns(since) as f64 / 1e9;
        self.durations.with_label_values(&[kind]).observe(seconds);
    }

    /// All metrics as Prometheus reads them.
    fn text(&self, values: Values) -> Result<String, prometheus::Error> {
        let registry = Registry::new();
        registry.register(Box::new(self.durations.clone()))?;
        registry.register(Box::new(self.refused.clone()))?;
        for figure in FIGURES {
            let told: Vec<_> = values.0.iter().filter(|(of, _, _)| of.name == figure.name).collect();
            if told.is_empty() {
                continue;
            }
            let options = Opts::new(figure.name, figure.help);
            let collector: Box<dyn Collector> = match figure.kind {
                Kind::Counter => {
                    let counters = CounterVec::new(options, figure.labels)?;
                    for (_, labels, value) in told {
                        counters.get_metric_with_label_values(labels)?.inc_by(*value);
                    }
                    Box::new(counters)
                }
                Kind::Gauge | Kind::Histogram => {
                    let gauges = GaugeVec::new(options, figure.labels)?;
                    for (_, labels, value) in told {
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

/// Accepts connections until the server stops.
pub(super) fn open_loop(shared: &Arc<Shared>, door: &Arc<Door>) {
    loop {
        match door.listener.accept() {
            Ok(Some(connection)) => admit(shared, door, connection),
            Ok(None) => return,
            Err(fault) => {
                if let Some(count) = shared.missed.happened() {
                    warn!(count, "cannot take a connection for figures: {fault}");
                }
                // Out of descriptors: as for clients.
                shared.wake.wait(Duration::from_millis(10));
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, door: &Arc<Door>, connection: PageConnection) {
    door.answering.fetch_add(1, Ordering::AcqRel);
    let place = Place(door.clone());
    let Ok(seat) = door.admission.enter(connection.origin()) else {
        let turned_away = connection.refuse(&format!("{DOORS_MAX} others ask for figures just now: ask again"));
        return turned_away.unwrap_or_else(|error| debug!("a connection that is refused ended early: {error}"));
    };
    let shared = shared.clone();
    // If no thread can be spawned the connection is closed; the scraper connects again.
    let spawned = spawn("figures", move || {
        let text = || {
            let mut values = shared.parts.figures();
            shared.traffic.tell(&mut values);
            place.0.text(values).map(|text| (TEXT_KIND, text)).map_err(|error| error.to_string())
        };
        if let Err(error) = connection.serve(PATH, &shared.stopping, text) {
            debug!("figures were not delivered: {error}");
        }
        drop(seat);
    });
    if let Err(fault) = spawned {
        warn!("nobody can be told figures: {fault}");
    }
}

/// Counts a connection that is answered, however it ends.
struct Place(Arc<Door>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A responder that records the duration.
struct Timed {
    door: Arc<Door>,
    responder: Arc<dyn Responder>,
    kind: &'static str,
    since: MonoTime,
}

impl Timed {
    fn note(&self, is_refused: bool) {
        self.door.took(self.kind, self.since);
        if is_refused {
            self.door.refused.with_label_values(&[self.kind]).inc();
        }
    }
}

impl Responder for Timed {
    fn respond(&self, request: &FrameHeader, result: Result<Reply, Fault>, payload: &[u8], payload_crc: u32) {
        let is_refused = result.is_err();
        self.responder.respond(request, result, payload, payload_crc);
        self.note(is_refused);
    }

    fn respond_with(
        &self,
        request: &FrameHeader,
        result: Result<Reply, Fault>,
        payload: &mut Vec<u8>,
        payload_crc: u32,
    ) {
        let is_refused = result.is_err();
        self.responder.respond_with(request, result, payload, payload_crc);
        self.note(is_refused);
    }

    fn respond_in_steps(&self, request: &FrameHeader, reply: Reply, steps: &mut Steps<'_>) {
        self.responder.respond_in_steps(request, reply, steps);
        self.note(false);
    }
}

/// Name of a request in metrics; `None`: it waits for an event, however long.
fn kind_of(request: &Request) -> Option<&'static str> {
    class_of(&FrameHeader::of(FrameKind::Request), request).metric
}

#[cfg(test)]
mod tests;
