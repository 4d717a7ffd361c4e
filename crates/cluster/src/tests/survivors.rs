//! A cluster goes on from one node: what the decision makes of the state.

use frieze_base::{ChainEpoch, ChainId, ClusterId, NodeId};

use super::states::{add_target, founded, newcomer, node_step};
use crate::{
    ChainStep, ClusterChange, ClusterRecovery, ClusterState, Decision, Error, FORMER_MAX, LostInterval, NodeState,
    NodeStep, TargetRole,
};

fn recovered(cluster: u128, node: u32, whole: &[u64]) -> ClusterRecovery {
    let info = newcomer(node);
    ClusterRecovery {
        cluster: ClusterId(cluster),
        node: NodeId(node),
        info,
        epoch: ChainEpoch(40),
        whole: whole.to_vec(),
    }
}

/// Three nodes and two chains: the second node has a full copy of one.
fn three() -> ClusterState {
    let mut state = founded(3, 2, 3);
    add_target(&mut state, ChainId(0), 2, TargetRole::Serving);
    state
}

#[test]
fn the_node_is_the_only_one_and_has_every_chain_with_a_gap() {
    let mut state = three();
    node_step(&mut state, 2, NodeStep::Offline).unwrap();
    let changes = state.apply(&Decision::Recover(recovered(8, 2, &[700, 0])), 1000);
    assert_eq!(changes[0], ClusterChange::Recovered(NodeId(2)));
    assert!(
        changes.contains(&ClusterChange::Removed(NodeId(1))) && changes.contains(&ClusterChange::Removed(NodeId(3)))
    );
    assert_eq!(state.cluster(), ClusterId(8));
    assert_eq!(state.nodes().map(|node| node.id).collect::<Vec<_>>(), [NodeId(2)]);
    assert_eq!(state.node_state(NodeId(2)), Some(NodeState::Up));
    for (chain, from) in [(ChainId(0), 700), (ChainId(1), 0)] {
        let chain = state.chain(chain).unwrap();
        assert_eq!(chain.configuration().members, [NodeId(2)]);
        assert_eq!(chain.epoch, ChainEpoch(40));
        assert_eq!(chain.gaps.last(), Some(&LostInterval { from, to: 1000 }));
        assert_eq!(chain.behind, Some(LostInterval { from, to: 1000 }));
    }
    assert!(state.is_behind());
    // Numbers of before are not given again, and they are known to be none of it any more.
    assert_eq!(state.node_state(NodeId(1)), Some(NodeState::Removed));
    assert_eq!(state.apply(&Decision::Join(newcomer(7)), 1001), [ClusterChange::Joined(NodeId(4))]);
    assert_eq!(state.former(ClusterId(7)).map(|former| (former.node, former.at)), Some((NodeId(2), 1000)));
    assert_eq!(state.former(ClusterId(9)), None);
    assert_eq!(ClusterState::decode(&state.encode()), Ok(state));
}

#[test]
fn a_former_member_resumes_the_chain_and_epochs_only_rise() {
    let mut state = three();
    let revision = state.node(NodeId(3)).unwrap().revision;
    state.apply(&Decision::Node { node: NodeId(3), revision, step: NodeStep::Remove }, 10);
    assert!(state.node(NodeId(3)).is_err());
    let before = state.chain(ChainId(0)).unwrap().epoch;
    let low = ClusterRecovery { epoch: ChainEpoch(0), ..recovered(8, 3, &[0, 0]) };
    state.apply(&Decision::Recover(low), 1000);
    assert_eq!(state.nodes().map(|node| node.id).collect::<Vec<_>>(), [NodeId(3)]);
    assert!(state.chain(ChainId(0)).unwrap().epoch > before);
    assert_eq!(state.chain(ChainId(1)).unwrap().behind, Some(LostInterval { from: 0, to: 1000 }), "it had nothing");
}

#[test]
fn another_identity_is_needed_and_as_many_as_are_remembered_are_known() {
    let mut state = three();
    let same = state.apply(&Decision::Recover(recovered(7, 2, &[])), 1000);
    assert!(matches!(same[..], [ClusterChange::NoEffect(Error::SameCluster { .. })]));
    assert_eq!(state, three(), "nothing has changed");
    for number in 0..FORMER_MAX as u128 + 3 {
        state.apply(&Decision::Recover(recovered(100 + number, 2, &[500, 500])), 1000 + number as u64);
    }
    assert_eq!(state.formers().len(), FORMER_MAX);
    assert_eq!(state.former(ClusterId(7)), None, "the oldest is forgotten");
    assert!(state.former(ClusterId(100 + FORMER_MAX as u128)).is_some());
}

#[test]
fn its_next_process_resumes_from_its_log_as_after_any_restart() {
    let mut state = three();
    state.apply(&Decision::Recover(recovered(8, 2, &[700, 700])), 1000);
    let info = newcomer(2);
    node_step(&mut state, 2, NodeStep::Return { incarnation: 2, address: info.address, devices: info.devices })
        .unwrap();
    let resume = ChainStep::Resume { node: NodeId(2), incarnation: 2, is_missing: false, lost: None };
    super::states::chain_step(&mut state, ChainId(0), resume).unwrap();
    assert_eq!(state.chain(ChainId(0)).unwrap().gaps.len(), 1, "nothing more is lost");
}
