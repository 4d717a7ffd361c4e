//! A server in a cluster: joining, connections to the other servers, its lease.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_base::{Fault, NodeId};
use frieze_net::{Key, Listener, ServerAddr};
use frieze_planes::{KeySettings, Settings};
use frieze_storage::Identity;
use tracing::{info, warn};

use super::join::{Applicant, ask_to_join};
use super::join_check;
use super::links::{Links, Notices};
use super::shared::{Shared, TEND_EVERY_NS};
use super::threads::spawn;
use crate::parts::{Joining, Seams, ServerParts};
use crate::removal::check_may_start;

/// Opens the data directory; an empty one as that of a new node of the cluster that the settings name. `listening`:
/// address of this server, which a joining server sends before it has opened anything.
///
/// # Errors
/// Those of [`ServerParts::open`], and the cluster's refusal.
pub(super) fn open(settings: Settings, seams: Seams, listening: Option<&Listener>) -> Result<ServerParts, Fault> {
    let known = Identity::load(&*seams.disk)?;
    if let Some((identity, _)) = &known {
        check_may_start(&settings.dir, identity)?;
        join_check::check(&settings, identity)?;
    }
    if settings.join.is_empty() || known.is_some() {
        drop(known);
        let parts = ServerParts::open(settings, seams)?;
        return parts.planes.meta.check_takes_part().map(|()| parts);
    }
    let joining = join(&settings, &seams, listening)?;
    info!("this server is node {} of cluster {}", joining.node, joining.cluster);
    ServerParts::join(settings, seams, &joining)
}

fn join(settings: &Settings, seams: &Seams, listening: Option<&Listener>) -> Result<Joining, Fault> {
    let addresses = ServerAddr::parse_list(&settings.join)?;
    let key = settings.join_key.as_ref().map(key_of).transpose()?;
    let listens_at = listening.map(|listener| listener.addr().to_string());
    let applicant = Applicant {
        directory: &settings.dir,
        name: &settings.node_name(),
        site: &settings.site,
        machine: &settings.machine_name(),
        address: &settings.reached_at(listens_at.as_deref())?,
        capacity_bytes: seams.disk.space()?.capacity_bytes,
        wall_us: seams.time.reading().wall_us,
        key: key.as_ref(),
    };
    ask_to_join(&addresses, &applicant)
}

fn key_of(settings: &KeySettings) -> Result<Key, Fault> {
    Ok(Key::new(settings.name.clone(), settings.secret.clone().into_bytes())?)
}

/// Makes the connections to the other servers, and their threads.
///
/// # Errors
/// If the system refuses another thread.
pub(super) fn begin(shared: &Arc<Shared>) -> Result<Vec<JoinHandle<()>>, Fault> {
    let parts = &shared.parts;
    let noticing: Weak<Shared> = Arc::downgrade(shared);
    let noticed = Box::new(move |node: NodeId, stands: bool| {
        if let Some(shared) = noticing.upgrade() {
            shared.parts.link_changed(node, stands);
        }
    });
    let removed: Weak<Shared> = Arc::downgrade(shared);
    let removed = Box::new(move |fault| {
        if let Some(shared) = removed.upgrade() {
            shared.parts.removed(fault);
        }
    });
    let ended: Weak<Shared> = Arc::downgrade(shared);
    let went_on = Box::new(move |successor| {
        if let Some(shared) = ended.upgrade() {
            shared.parts.went_on(successor);
        }
    });
    let links = Links::new(
        parts.planes.node(),
        parts.planes.cluster(),
        parts.node_keys(),
        parts.planes.clock.clone(),
        Notices { link: noticed, removed, went_on },
        (shared.traffic.clone(), parts.fabric.get().cloned(), shared.spans.clone()),
    );
    parts.connect(links.clone());
    // Called once, at the start.
    let _ = shared.links.set(links);
    parts.begin_node()?;
    let leases = spawn("leases", {
        let shared = shared.clone();
        move || lease_loop(&shared)
    })?;
    let decisions = spawn("decisions", {
        let shared = shared.clone();
        move || {
            while !shared.stopping.load(Ordering::Acquire) {
                // Returns at once on a single server.
                shared.parts.control_jobs();
                shared.wakes.decisions.wait(Duration::from_nanos(TEND_EVERY_NS));
            }
        }
    })?;
    let mut threads = vec![leases, decisions];
    for number in 0..ANSWERING {
        let shared = shared.clone();
        threads.push(spawn(&format!("answers-{number}"), move || shared.parts.service.files.answer_questions())?);
    }
    Ok(threads)
}

/// Threads that answer requests of other servers: some wait for a flush, or for the head of a chain.
const ANSWERING: usize = 4;

/// Renews this server's lease and, on the leader, looks after the other servers; keeps a connection to each of them.
fn lease_loop(shared: &Shared) {
    let mut connected = None;
    let mut logged = None;
    while !shared.stopping.load(Ordering::Acquire) {
        let next = shared.parts.beat_control();
        shared.parts.end_if_succeeded();
        let others = shared.parts.others();
        if connected.as_ref() != Some(&others)
            && let Some(links) = shared.links.get()
        {
            match links.set(&others) {
                Ok(()) => connected = Some(others),
                Err(fault) if logged.as_ref() != Some(&fault) => {
                    warn!("other servers cannot be connected to: {fault}");
                    logged = Some(fault);
                }
                Err(_) => {}
            }
        }
        shared.wakes.lease.wait(next.unwrap_or(Duration::from_nanos(TEND_EVERY_NS)));
    }
}
