use frieze_metrics::Figure;

use super::*;

fn chain(members: &[u32], syncing: u32, joining: bool) -> ReplicaStatus {
    ReplicaStatus { members: members.to_vec(), syncing, joining, ..ReplicaStatus::default() }
}

#[test]
fn a_server_has_one_role_in_a_chain() {
    let role = |members: &[u32], syncing, joining| role_of(NodeId(2), &chain(members, syncing, joining));
    assert_eq!(role(&[2], 0, false), "only");
    assert_eq!(role(&[2, 1], 0, false), "head");
    assert_eq!(role(&[1, 2, 3], 0, false), "middle");
    assert_eq!(role(&[1, 2], 3, false), "tail");
    assert_eq!(role(&[1, 2], 0, true), "joining");
    assert_eq!(role(&[1, 3], 2, false), "syncing");
    assert_eq!(role(&[1, 3], 0, false), "none");
}

#[test]
fn chains_are_told_one_by_one_unless_there_are_too_many() {
    let told = |count: usize| {
        let chains: Vec<ReplicaStatus> = (0..count)
            .map(|number| ReplicaStatus {
                chain: number as u32,
                last: 7,
                clean: 5,
                behind: 3,
                failed: if number == 0 { "its device".to_owned() } else { String::new() },
                ..chain(&[1, 2], 0, false)
            })
            .collect();
        let mut values = Values::default();
        of_chains(NodeId(1), &chains, &mut values);
        values.0
    };
    let find = |told: &[(&Figure, Vec<String>, f64)], name: &str, labels: &[&str]| {
        told.iter().find(|(figure, found, _)| figure.name == name && found == labels).map(|(_, _, value)| *value)
    };
    let two = told(2);
    assert_eq!(find(&two, "frieze_chain_dirty_records", &["1"]), Some(2.0));
    assert_eq!(find(&two, "frieze_chain_failed", &["0"]), Some(1.0));
    assert_eq!(find(&two, "frieze_chain_role", &["1", "head"]), Some(1.0));
    assert_eq!(find(&two, "frieze_sync_left_records", &[]), Some(6.0));
    let many = told(CHAINS_EXPORTED_MAX + 1);
    assert_eq!(find(&many, "frieze_chain_epoch", &["0"]), None);
    assert_eq!(find(&many, "frieze_chains", &["head"]), Some(CHAINS_EXPORTED_MAX as f64 + 1.0));
}
