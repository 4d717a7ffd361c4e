//! What a start reads of the settings and of the machine: listeners, keys, random bytes; and what the process uses.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use frieze_base::{Fault, Reason};
use frieze_fabric::{FabricChoice, FabricHost, HostOptions};
use frieze_net::{Key, Listener, ServerAddr, random_nonce, user_of};
use frieze_planes::{KeySettings, Settings};
use frieze_service::KeyRight;
use tracing::{debug, info, warn};

use crate::parts::{ProcessStats, ServerParts};

/// Socket within the data directory.
const SOCKET: &str = "socket";

/// A socket in the data directory, for clients on this machine that connected over TCP. If it cannot be made (a
/// directory with a long name, a file system without sockets), clients stay on TCP and the server serves.
pub(super) fn listen_nearby(parts: &ServerParts, directory: &Path) -> Option<Arc<Listener>> {
    let path = std::path::absolute(directory).ok()?.join(SOCKET);
    match Listener::bind(&ServerAddr::Unix(path.clone())) {
        Ok(listener) => {
            // Called once, at the start.
            let _ = parts.socket.set(path.to_str()?.to_owned());
            Some(Arc::new(listener))
        }
        Err(fault) => {
            info!("clients on this machine go on over TCP: {fault}");
            None
        }
    }
}

pub(super) fn listen(addresses: &[ServerAddr]) -> Result<Vec<Arc<Listener>>, Fault> {
    addresses.iter().map(|address| Ok(Arc::new(Listener::bind(address)?))).collect()
}

/// The fabric for payloads of clients, opened if there is one; none if the settings exclude it.
pub(super) fn fabric(settings: &Settings) -> Option<Arc<FabricHost>> {
    let choice = FabricChoice::of(&settings.fabric);
    let is_named = matches!(choice, FabricChoice::Provider(_));
    let address = Some(settings.fabric_address.clone()).filter(|address| !address.is_empty());
    let host = FabricHost::new(HostOptions { choice, address, rooms_max: ROOMS_MAX, for_servers: true });
    if host.is_off() {
        return None;
    }
    match host.get() {
        Ok(fabric) => info!("large payloads go by {} where clients have it", fabric.endpoint().provider()),
        // It is tried again: a card may come up after the server.
        Err(error) if is_named => warn!("all payloads go by TCP: {error}"),
        Err(error) => debug!("all payloads go by TCP: {error}"),
    }
    Some(Arc::new(host))
}

/// Rooms of a mebibyte for payloads on their way: four times those that large replies and writes of a few clients have
/// under way at once.
const ROOMS_MAX: usize = 64;

pub(super) fn addresses(settings: &Settings) -> Result<Vec<ServerAddr>, Fault> {
    settings.listen.iter().map(|text| text.parse::<ServerAddr>().map_err(Fault::from)).collect()
}

pub(super) fn keys(settings: &[KeySettings]) -> Result<BTreeMap<String, KeyRight>, Fault> {
    let mut keys = BTreeMap::new();
    for entry in settings {
        let key = Key::new(entry.name.clone(), entry.secret.clone().into_bytes())?;
        let uid = match entry.user.parse() {
            Ok(uid) => uid,
            Err(_) => uid_of(&entry.user)?,
        };
        let right = KeyRight { key, caller: user_of(uid)?, may_impersonate: entry.may_impersonate };
        if keys.insert(entry.name.clone(), right).is_some() {
            return Err(Fault::new(Reason::InvalidArgument, format!("two keys are named {}", entry.name)));
        }
    }
    Ok(keys)
}

fn uid_of(name: &str) -> Result<u32, Fault> {
    let wrong = |why: String| Fault::new(Reason::InvalidArgument, format!("a key belongs to user {name:?}: {why}"));
    match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(wrong("this machine has no such user".to_owned())),
        Err(error) => Err(wrong(format!("the user database cannot be read: {error}"))),
    }
}

pub(super) fn entropy() -> Result<[u8; 64], Fault> {
    let mut bytes = [0u8; 64];
    bytes[..32].copy_from_slice(&random_nonce()?);
    bytes[32..].copy_from_slice(&random_nonce()?);
    Ok(bytes)
}

/// Resource usage of this process as the kernel reports it.
pub(super) fn process_stats(connections: u64) -> ProcessStats {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |field: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.trim().trim_end_matches(" kB").parse::<u64>().ok())
            .unwrap_or(0)
    };
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    ProcessStats {
        resident_bytes: kib("VmRSS:") << 10,
        resident_bytes_peak: kib("VmHWM:") << 10,
        cpu_ns: cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64,
        connections,
    }
}
