//! `--join` names servers of another cluster than the one that the data directory belongs to.
//!
//! Guarantees: a start is refused only if every server that `--join` names answers and belongs to another cluster. If
//! one belongs to this cluster or does not answer, the start continues, with a warning that names the servers of
//! another cluster. So a stale name in a service unit stops no cluster.
//! Leaves to others: a later identity of this cluster ([`crate::successor`]), which the links detect.

use std::sync::mpsc;
use std::time::Duration;

use frieze_base::{ClusterId, Fault, Reason};
use frieze_net::{Limits, ServerAddr};
use frieze_planes::Settings;
use frieze_storage::{Identity, MetalogRole};
use frieze_wire::message::HelloReply;
use tracing::warn;

use super::threads::spawn;
use frieze_net::PeerClient;

/// Time to connect and to answer: a start waits no longer for all of them together.
const ANSWERING: Duration = Duration::from_secs(1);
const ASKING: Limits = Limits { idle: Some(ANSWERING), frame: ANSWERING };

/// Relation of a server that `--join` names to the cluster of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NamedCluster {
    /// A member of it, or of its later identity.
    Same,
    /// A member of this other cluster.
    Another(String),
    /// No answer in time.
    Silent,
}

/// Compares the cluster of the directory with those of the servers that `--join` names.
///
/// # Errors
/// `WrongCluster` if all of them are of another cluster; it says what to do.
pub(super) fn check(settings: &Settings, identity: &Identity) -> Result<(), Fault> {
    if settings.join.is_empty() {
        return Ok(());
    }
    let own: Vec<&str> = settings.listen.iter().map(String::as_str).chain([settings.advertise.as_str()]).collect();
    let mut named = ServerAddr::parse_list(&settings.join)?;
    named.retain(|address| !own.contains(&address.to_string().as_str()));
    let (send, answers) = mpsc::channel();
    for (place, address) in named.iter().cloned().enumerate() {
        let (send, me, cluster) = (send.clone(), identity.node_id(), identity.cluster_id());
        // The thread ends within the limits, whether the start still waits or not.
        spawn("join-check", move || {
            let identified = PeerClient::connect(&address, ASKING, ASKING).and_then(|mut client| client.identify(me));
            let found = identified.map_or(NamedCluster::Silent, |(reply, _)| found(&reply, cluster));
            drop(send.send((place, found)));
        })?;
    }
    drop(send);
    let mut found = vec![NamedCluster::Silent; named.len()];
    answers.iter().for_each(|(place, what): (usize, NamedCluster)| found[place] = what);
    judge(&settings.dir.display().to_string(), identity, &named, &found)
}

fn found(reply: &HelloReply, cluster: ClusterId) -> NamedCluster {
    let is_own = |text: &str| text.parse() == Ok(cluster);
    match is_own(&reply.cluster) || reply.former.iter().any(|former| is_own(&former.cluster)) {
        true => NamedCluster::Same,
        false => NamedCluster::Another(reply.cluster.clone()),
    }
}

fn judge(directory: &str, identity: &Identity, named: &[ServerAddr], found: &[NamedCluster]) -> Result<(), Fault> {
    let others: Vec<String> = named
        .iter()
        .zip(found)
        .filter_map(|(address, found)| match found {
            NamedCluster::Another(cluster) => Some(format!("{address} is of cluster {cluster}")),
            _ => None,
        })
        .collect();
    if others.is_empty() {
        return Ok(());
    }
    let whose = match identity.standing() {
        MetalogRole::Alone => format!("is of a server that is alone (cluster {})", identity.cluster_id()),
        _ => format!("is of server {} of cluster {}", identity.node, identity.cluster_id()),
    };
    let words = format!("--join names servers of another cluster: {directory} {whose}, and {}", others.join(", "));
    if found.iter().any(|found| !matches!(found, NamedCluster::Another(_))) {
        warn!("{words}; the server goes on as what its directory says: correct --join");
        return Ok(());
    }
    Err(Fault::new(
        Reason::WrongCluster,
        format!(
            "{words}; to join that cluster, start on an empty directory; to go on with this one, leave --join out or \
             name its servers"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use frieze_wire::message::FormerCluster;

    use super::*;

    fn refusal(found: &[NamedCluster]) -> Option<String> {
        let named: Vec<ServerAddr> = (1..=found.len()).map(|n| format!("db{n}:7470").parse().unwrap()).collect();
        let identity = Identity { cluster: vec![7; 16], node: 2, ..Identity::default() };
        judge("/srv/f", &identity, &named, found).err().map(|fault| fault.message)
    }

    #[test]
    fn a_start_is_refused_only_if_every_named_server_is_of_another_cluster() {
        let another = || NamedCluster::Another("00ff".to_owned());
        assert_eq!(refusal(&[NamedCluster::Silent, NamedCluster::Silent]), None);
        assert_eq!(refusal(&[another(), NamedCluster::Silent]), None);
        assert_eq!(refusal(&[another(), NamedCluster::Same]), None);
        let words = refusal(&[another(), another()]).unwrap();
        assert!(
            words.contains("db1:7470 is of cluster 00ff, db2:7470") && words.contains("empty directory"),
            "{words}"
        );
    }

    #[test]
    fn a_later_identity_of_the_same_cluster_is_no_other_one() {
        let cluster = ClusterId(7);
        let reply = |cluster: u128, former: &[u128]| HelloReply {
            cluster: ClusterId(cluster).to_string(),
            former: former
                .iter()
                .map(|id| FormerCluster { cluster: ClusterId(*id).to_string(), ..FormerCluster::default() })
                .collect(),
            ..HelloReply::default()
        };
        assert_eq!(found(&reply(7, &[]), cluster), NamedCluster::Same);
        assert_eq!(found(&reply(8, &[7]), cluster), NamedCluster::Same);
        assert_eq!(found(&reply(8, &[6]), cluster), NamedCluster::Another(ClusterId(8).to_string()));
    }
}
