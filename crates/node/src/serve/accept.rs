//! Listeners: each accepts connections on a thread of its own and gives each connection a thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_httpd::PageConnection;
use frieze_net::{Listener, Origin, Proof, Stream, kernel_proof, random_nonce, user_of};
use frieze_service::Conn;
use tracing::{debug, warn};

use super::connection::serve;
use super::metrics::{CONNECTIONS_MAX, MetricsPage, PATH, TEXT_KIND};
use super::replies::refuse;
use super::shared::{OpenConnection, Shared};
use super::threads::spawn;

/// Accepts connections of clients and servers until the server stops.
pub(super) fn accept_clients(shared: &Arc<Shared>, listener: &Listener) {
    accept_each(shared, "a connection", || listener.accept(), |stream| admit(shared, stream));
}

/// Accepts connections to the page of metrics until the server stops.
pub(super) fn accept_scrapes(shared: &Arc<Shared>, page: &Arc<MetricsPage>) {
    accept_each(shared, "a connection for metrics", || page.accept(), |connection| answer(shared, page, connection));
}

fn accept_each<C, E: std::fmt::Display>(
    shared: &Shared,
    what: &str,
    accept: impl Fn() -> Result<Option<C>, E>,
    admit: impl Fn(C),
) {
    loop {
        match accept() {
            Ok(Some(connection)) => admit(connection),
            Ok(None) => return,
            Err(fault) => {
                if let Some(count) = shared.missed.happened() {
                    warn!(count, "cannot take {what}: {fault}");
                }
                // Out of descriptors: some are closed when connections end, which takes at least this long.
                shared.wakes.flush.wait(Duration::from_millis(10));
            }
        }
    }
}

/// Answers a scrape on a thread of its own.
fn answer(shared: &Arc<Shared>, page: &Arc<MetricsPage>, connection: PageConnection) {
    let Some(scrape) = page.begin_scrape(connection.origin()) else {
        let refused = connection.refuse(&format!("{CONNECTIONS_MAX} others ask for figures just now: ask again"));
        return refused.unwrap_or_else(|error| debug!("a connection that is refused ended early: {error}"));
    };
    let shared = shared.clone();
    // If no thread can be spawned the connection is closed; the scraper connects again.
    let spawned = spawn("figures", move || {
        let text = || {
            let mut values = shared.parts.figures();
            shared.traffic.export(&mut values);
            shared.spans.iter().for_each(|spans| spans.export(&mut values));
            scrape.page.text(values).map(|text| (TEXT_KIND, text)).map_err(|error| error.to_string())
        };
        if let Err(error) = connection.serve(PATH, &shared.stopping, text) {
            debug!("metrics were not delivered: {error}");
        }
    });
    if let Err(fault) = spawned {
        warn!("metrics are not delivered: {fault}");
    }
}

fn admit(shared: &Arc<Shared>, stream: Stream) {
    let proof = kernel_proof(&stream).unwrap_or_else(|fault| {
        debug!("cannot ask the kernel who {} is: {fault}", stream.peer());
        Proof::Unproven
    });
    let seat = match shared.admission.enter(Origin::of(proof, stream.peer_ip())) {
        Ok(seat) => seat,
        Err(refused) => return refuse(&stream, Fault::new(Reason::Overloaded, refused.to_string())),
    };
    let proven = match proof {
        Proof::User(uid) => user_of(uid).ok(),
        Proof::Unproven => None,
    };
    let conn = match random_nonce() {
        Ok(challenge) => Arc::new(Conn::new(proven, challenge)),
        Err(fault) => return refuse(&stream, fault.into()),
    };
    shared.connections.fetch_add(1, Ordering::AcqRel);
    let id = shared.next_connection.fetch_add(1, Ordering::Relaxed);
    let open = OpenConnection { stream: stream.clone(), conn: conn.clone() };
    shared.open.lock().insert(id, open);
    let for_thread = shared.clone();
    let served = stream.clone();
    let spawned = spawn("conn", move || {
        let registration = Registration { shared: for_thread, id };
        serve(&registration.shared, &served, &conn, seat);
    });
    if let Err(fault) = spawned {
        drop(Registration { shared: shared.clone(), id });
        refuse(&stream, fault);
    }
}

/// A connection in the list of open ones, until its thread ends, however it ends.
struct Registration {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.shared.open.lock().remove(&self.id);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
    }
}
