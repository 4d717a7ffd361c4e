//! The door for Prometheus: `GET /metrics` on an address of its own.
//!
//! Guarantees: a scrape costs no client of the file system anything; at most [`DOORS_MAX`] connections are answered at
//! a time, of which a user has no more than are left for others. Leaves to others: the figures (`crate::metrics`), HTTP
//! (`frieze_httpd`), the format of the text (`prometheus`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frieze_base::{Fault, MonoTime, Reason};
use frieze_httpd::{PageConnection, PageListener};
use frieze_net::{Admission, ServerAddr};
use frieze_wire::FrameKind;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::{Reply, Request};
use prometheus::core::Collector;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder};
use tracing::{debug, warn};

use super::{Shared, spawn};
use crate::engine::Responder;
use crate::engine::requests::class_of;
use crate::metrics::{FIGURES, Figure, Kind, REQUEST_SECONDS, Values};
use crate::steps::Steps;

/// The page.
const PATH: &str = "/metrics";
/// Of its text (the format is of 2014, and everything reads it).
const TEXT_KIND: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections at a time.
const DOORS_MAX: usize = 8;
/// Upper ends of the buckets of requests' durations, in seconds: from what one takes in memory to what a client waits
/// at most.
const BUCKETS: &[f64] = &[
    20e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The door, and what is counted because it is there.
pub(super) struct Door {
    listener: PageListener,
    answering: AtomicUsize,
    admission: Admission,
    durations: HistogramVec,
    refused: IntCounterVec,
}

impl Door {
    /// Opens it where the setting says: `HOST:PORT`; a port alone is one of this machine. `None` without one.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no such address; what the system says if nobody can listen there.
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

    /// Where it is.
    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Takes no more connections.
    pub(super) fn stop(&self) {
        self.listener.stop();
    }

    /// True while somebody is answered.
    pub(super) fn is_answering(&self) -> bool {
        self.answering.load(Ordering::Acquire) > 0
    }

    /// The same responder, which notes how long the request takes from now on and whether it is refused.
    pub(super) fn timed(
        self: &Arc<Door>,
        request: Option<&Request>,
        responder: &Arc<dyn Responder>,
    ) -> Arc<dyn Responder> {
        let Some(kind) = request.and_then(kind_of) else { return responder.clone() };
        Arc::new(Timed { door: self.clone(), responder: responder.clone(), kind, since: frieze_net::mono() })
    }

    /// A request of this kind was answered that began at `since`.
    pub(super) fn took(&self, kind: &'static str, since: MonoTime) {
        let seconds = frieze_net::mono().since_ns(since) as f64 / 1e9;
        self.durations.with_label_values(&[kind]).observe(seconds);
    }

    /// Everything as Prometheus reads it.
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

/// `HOST:PORT`, `:PORT` or `PORT`: without a host that of this machine, as it takes more to tell the rest of the world.
fn address_of(setting: &str) -> Result<ServerAddr, Fault> {
    let port = setting.strip_prefix(':').unwrap_or(setting);
    if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(format!("127.0.0.1:{port}").parse::<ServerAddr>()?);
    }
    Ok(setting.parse::<ServerAddr>()?)
}

/// Takes connections until the server stops.
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
    // Without a thread for it the connection ends, and comes again.
    let spawned = spawn("figures", move || {
        let text = || {
            let mut values = shared.engine.figures();
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

/// Counts who is answered, however that ends.
struct Place(Arc<Door>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.answering.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A responder that notes how long it took.
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
