//! Joining: a server with an empty directory asks a server of a cluster to become a node of it.
//!
//! Guarantees: a retry after any failure joins as the same node, because the token that names it is on disk before the
//! first request. Nothing else is in the directory before the cluster has accepted it.
//! Leaves to others: whether it may join, and its number (the cluster's leader); everything after that (`parts`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use frieze_base::{ClusterId, ErrorKind, Fault, NodeId, Reason};
use frieze_disk::FILE_MODE;
use frieze_net::{Key, Limits, ServerAddr, random_nonce};
use frieze_storage::Wake;
use frieze_wire::control::{DeviceProto, NodeInfoProto};
use frieze_wire::message::{ClusterMap, ClusterMapReply, Join, JoinReply, Reply, Request};
use tracing::info;

use crate::parts::Joining;
use frieze_net::PeerClient;

/// File with the token that names the server until it is a node.
const TOKEN_FILE: &str = "joining";
const TOKEN_BYTES: usize = 16;
/// Most requests, to all servers together, and the wait after each.
const ASKED_MAX: usize = 60;
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The leader may have to found the cluster first.
const ASKING: Limits = Limits { idle: Some(Duration::from_secs(30)), frame: Duration::from_secs(10) };

/// A joining server's description of itself.
pub(super) struct Applicant<'a> {
    pub(super) directory: &'a Path,
    pub(super) name: &'a str,
    pub(super) site: &'a str,
    pub(super) machine: &'a str,
    pub(super) address: &'a str,
    pub(super) capacity_bytes: u64,
    pub(super) wall_us: u64,
    pub(super) key: Option<&'a Key>,
}

/// Asks the servers at `addresses`, one after the other, to join their cluster; each may redirect to the leader.
///
/// # Errors
/// The leader's refusal, with what to do; `Unavailable` if no server answers, with the last error of each.
pub(super) fn ask_to_join(addresses: &[ServerAddr], applicant: &Applicant<'_>) -> Result<Joining, Fault> {
    let token = token(applicant.directory)?;
    let newcomer = NodeInfoProto {
        name: applicant.name.to_owned(),
        site: applicant.site.to_owned(),
        machine: applicant.machine.to_owned(),
        address: applicant.address.to_owned(),
        token,
        incarnation: 1,
        devices: vec![DeviceProto {
            device: 0,
            capacity_bytes: applicant.capacity_bytes,
            has_failed: false,
            is_full: false,
        }],
    };
    let mut all = addresses.iter().cycle();
    let mut next = || all.next().cloned().ok_or(Reason::InvalidArgument);
    let (mut at, mut left, mut said) = (next()?, ASKED_MAX, BTreeMap::new());
    loop {
        left -= 1;
        let fault = match ask_at(&at, &newcomer, applicant) {
            Ok(JoinAnswer::Joined(joining)) => return Ok(joining),
            Ok(JoinAnswer::GoTo(leader)) => {
                at = leader;
                continue;
            }
            Err(fault) if fault.kind() == ErrorKind::Unavailable => fault,
            Err(fault) => return Err(fault),
        };
        info!("{at} cannot take this server in yet: {fault}");
        said.insert(at.to_string(), fault.message);
        if left == 0 {
            let said: Vec<String> = said.iter().map(|(at, words)| format!("{at}: {words}")).collect();
            let words = format!("no server of the cluster takes this one in: {}", said.join("; "));
            return Err(Fault::new(Reason::Unavailable, words));
        }
        // A plain wait: no other thread wakes it.
        Arc::new(Wake::default()).wait(ASK_AGAIN);
        at = next()?;
    }
}

/// Result of a request to join.
enum JoinAnswer {
    Joined(Joining),
    GoTo(ServerAddr),
}

fn ask_at(at: &ServerAddr, newcomer: &NodeInfoProto, applicant: &Applicant<'_>) -> Result<JoinAnswer, Fault> {
    let mut client = PeerClient::connect(at, ASKING, ASKING)?;
    client.greet(applicant.key)?;
    let join = Join { newcomer: Some(newcomer.clone()), cluster: String::new(), wall_us: applicant.wall_us };
    match client.ask(Request::Join(join)) {
        Ok(Reply::Join(reply)) => Ok(JoinAnswer::Joined(joining(reply)?)),
        Ok(_) => Err(Fault::new(Reason::BadFrame, "malformed frame: not an answer to joining")),
        Err(fault) if fault.reason == Reason::Elsewhere => match client.ask(Request::ClusterMap(ClusterMap {}))? {
            Reply::ClusterMap(map) => leader_of(&map).map(JoinAnswer::GoTo).ok_or(fault),
            _ => Err(Fault::new(Reason::BadFrame, "malformed frame: not a map of the cluster")),
        },
        Err(fault) => Err(fault),
    }
}

fn leader_of(map: &ClusterMapReply) -> Option<ServerAddr> {
    map.nodes.iter().find(|node| node.node == map.leader)?.address.parse().ok()
}

fn joining(reply: JoinReply) -> Result<Joining, Fault> {
    let malformed = || Fault::new(Reason::BadFrame, "malformed frame: what the cluster tells a new node is not whole");
    Ok(Joining {
        cluster: ClusterId(u128::from_str_radix(&reply.cluster, 16).map_err(|_| malformed())?),
        node: NodeId(Some(reply.node).filter(|node| *node > 0).ok_or_else(malformed)?),
        secret: reply.secret.try_into().map_err(|_| malformed())?,
        chain_count: Some(reply.chain_count).filter(|count| *count > 0).ok_or_else(malformed)?,
        known: reply.nodes.iter().map(|known| format!("{}@{}", known.node, known.address)).collect(),
    })
}

/// Token that names this server until it is a node, drawn once.
fn token(directory: &Path) -> Result<Vec<u8>, Fault> {
    let failed = |doing: &str, error: &std::io::Error| {
        Fault::new(Reason::InputOutput, format!("cannot {doing} {}: {error}", directory.join(TOKEN_FILE).display()))
    };
    match fs::read(directory.join(TOKEN_FILE)) {
        // If power failed while a token was being written, no server has received it.
        Ok(token) if token.len() == TOKEN_BYTES => return Ok(token),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("read", &error)),
    }
    let token = random_nonce()?[..TOKEN_BYTES].to_vec();
    let written = || -> std::io::Result<()> {
        let mut file =
            File::options().write(true).create(true).truncate(true).mode(FILE_MODE).open(directory.join(TOKEN_FILE))?;
        file.write_all(&token)?;
        file.sync_all()?;
        File::open(directory)?.sync_all()
    };
    written().map_err(|error| failed("write", &error))?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_server_is_drawn_once_and_never_from_half_a_file() {
        let directory = tempfile::tempdir().unwrap();
        let first = token(directory.path()).unwrap();
        assert_eq!(token(directory.path()).unwrap(), first);
        fs::write(directory.path().join(TOKEN_FILE), &first[..7]).unwrap();
        let other = token(directory.path()).unwrap();
        assert!(other != first && other.len() == TOKEN_BYTES);
        assert_eq!(token(directory.path()).unwrap(), other);
    }

    #[test]
    fn what_a_cluster_tells_is_taken_whole_or_not_at_all() {
        let good =
            JoinReply { node: 2, cluster: "00ff".to_owned(), secret: vec![7; 32], chain_count: 8, nodes: Vec::new() };
        assert_eq!(
            joining(good.clone()).map(|joining| (joining.node, joining.cluster)),
            Ok((NodeId(2), ClusterId(255)))
        );
        for bad in [
            JoinReply { node: 0, ..good.clone() },
            JoinReply { cluster: "x".to_owned(), ..good.clone() },
            JoinReply { secret: vec![7; 31], ..good.clone() },
            JoinReply { chain_count: 0, ..good.clone() },
        ] {
            assert_eq!(joining(bad).map(drop).unwrap_err().reason, Reason::BadFrame);
        }
    }
}
