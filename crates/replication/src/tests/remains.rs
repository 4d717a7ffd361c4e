//! Detaching a chain that other members have: completely or not at all; the node can join again from nothing.

use frieze_base::{ChainId, Fault, crc32c};
use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::Durability;

use super::replica_cluster::{CHAINS, CHUNK_BYTES, LAYOUT, ReplicaCluster, outcome};

/// Three members with records of both chains, on stable storage, and the stamp of the last. The third is no member any
/// more.
fn left_by_the_third(seed: u64, shelved: bool) -> (ReplicaCluster, Hlc) {
    let mut cluster = ReplicaCluster::new(3, seed);
    cluster.configure_all(&[1]);
    for chain in 0..CHAINS {
        cluster.bring_in(chain, 2);
        cluster.bring_in(chain, 3);
    }
    let mut newest = Hlc::ZERO;
    for number in 0..60 {
        let (_, done) = cluster.write(1, number % 4 * CHUNK_BYTES + number * 100, 3000, Durability::Async);
        cluster.settle();
        newest = outcome(&done).unwrap().unwrap().stamp;
    }
    cluster.settle();
    if shelved {
        let plane = cluster.plane(3);
        plane.device().close_open();
        cluster.flush(3);
        let plane = cluster.plane(3);
        while plane.device().write_index_runs(&|tips| plane.encode_dedupe(tips, &|_| true)).unwrap() {}
        assert_eq!(plane.device().log().stats().run_records, 60);
    }
    // Closed there while it is a member.
    (0..CHAINS).for_each(|chain| drop(all(&mut cluster, 3, chain, Some(newest))));
    cluster.configure(0, &[1, 2], None, false);
    cluster.settle();
    (cluster, newest)
}

/// Detaches what the third node reports of chain 0 as records without membership.
fn take_out(cluster: &ReplicaCluster) -> Result<usize, Fault> {
    let remains = cluster.plane(3).detachable();
    cluster.plane(3).detach(&remains).map(|gone| gone.len())
}

/// Checksums of the chunks of a chain in reads at a node.
fn all(cluster: &mut ReplicaCluster, id: u32, chain: u32, at: Option<Hlc>) -> Vec<Result<u32, Fault>> {
    let of = (0..4).filter(|index| LAYOUT.chain(*index).0 == chain);
    of.map(|index| cluster.read(id, index, at).map(|bytes| crc32c(&bytes))).collect()
}

#[test]
fn a_member_or_a_syncing_node_detaches_nothing() {
    let (mut cluster, _) = left_by_the_third(11, false);
    assert_eq!(cluster.plane(1).detachable(), []);
    let remains = cluster.plane(3).detachable();
    assert_eq!(remains.iter().map(|(chain, _)| *chain).collect::<Vec<_>>(), [ChainId(0)]);
    // It is asked to join again before it has detached.
    cluster.configure(0, &[1, 2], Some(3), false);
    assert_eq!(cluster.plane(3).detach(&remains).map(|gone| gone.len()), Ok(0));
    cluster.configure(0, &[1, 2], None, false);
    assert_eq!(
        cluster.plane(3).detach(&remains).map(|gone| gone.len()),
        Ok(0),
        "what was looked at was another configuration"
    );
    assert_eq!(cluster.log(3, 0).len(), cluster.log(1, 0).len());
    assert_eq!(take_out(&cluster), Ok(1));
    assert_eq!((cluster.log(3, 0).len(), cluster.plane(3).detachable()), (0, vec![]));
}

#[test]
fn a_detached_chain_is_read_elsewhere_and_the_others_as_before() {
    for shelved in [false, true] {
        let (mut cluster, newest) = left_by_the_third(12, shelved);
        let before = [0, 1].map(|chain| all(&mut cluster, 1, chain, Some(newest)));
        assert_eq!([0, 1].map(|chain| all(&mut cluster, 3, chain, Some(newest))), before, "who left may tell of then");
        assert_eq!(take_out(&cluster), Ok(1));
        for restarted in [false, true] {
            assert!(all(&mut cluster, 3, 0, Some(newest)).iter().all(Result::is_err), "restarted: {restarted}");
            if !restarted {
                assert_eq!(all(&mut cluster, 3, 1, Some(newest)), before[1]);
                assert_eq!(all(&mut cluster, 3, 1, None), before[1]);
            }
            assert_eq!((cluster.log(3, 0).len(), cluster.log(3, 1)), (0, cluster.log(1, 1)));
            cluster.crash(3, CrashKind::Power);
            cluster.start(3);
        }
        // Its dedupe state of the chain is empty: catch-up records are no second runs.
        cluster.configure(1, &[1, 2], None, false);
        (0..CHAINS).for_each(|chain| cluster.bring_in(chain, 3));
        for at in [Some(newest), None] {
            assert_eq!([0, 1].map(|chain| all(&mut cluster, 3, chain, at)), before);
        }
        assert_eq!(cluster.log(3, 0), cluster.log(1, 0));
        cluster.crash(3, CrashKind::Process);
        cluster.start(3);
        assert_eq!(cluster.log(3, 0), cluster.log(1, 0), "a restart finds what came again");
    }
}

#[test]
fn a_crash_during_a_detach_leaves_the_chain_whole_or_none_of_it() {
    let (mut kept, mut taken) = (0, 0);
    for kind in [CrashKind::Process, CrashKind::Power] {
        for change in 1.. {
            let (mut cluster, newest) = left_by_the_third(13, change % 2 == 0);
            let before = [0, 1].map(|chain| all(&mut cluster, 1, chain, Some(newest)));
            cluster.nodes[2].disk.fail_after(change);
            let done = take_out(&cluster);
            let is_crashed = cluster.nodes[2].disk.is_crashed();
            cluster.crash(3, kind);
            cluster.start(3);
            let left = cluster.log(3, 0);
            assert!(left.is_empty() || left == cluster.log(1, 0), "after {change} changes: a part of it is left");
            assert!(done.is_err() || left.is_empty(), "after {change} changes: it comes back");
            assert_eq!(cluster.log(3, 1), cluster.log(1, 1));
            if left.is_empty() {
                taken += 1
            } else {
                kept += 1
            }
            cluster.configure(1, &[1, 2], None, false);
            (0..CHAINS).for_each(|chain| cluster.bring_in(chain, 3));
            assert_eq!([0, 1].map(|chain| all(&mut cluster, 3, chain, None)), before);
            if !is_crashed {
                break;
            }
        }
    }
    assert!(kept > 1 && taken > 1, "{kept} {taken}");
}

#[test]
fn a_detach_whose_record_cannot_be_written_keeps_the_chain() {
    let (mut cluster, newest) = left_by_the_third(14, false);
    let before = all(&mut cluster, 1, 0, Some(newest));
    cluster.nodes[2].disk.fail_writes(0, 8);
    assert!(take_out(&cluster).is_err());
    cluster.nodes[2].disk.fail_writes(0, 0);
    assert_eq!(all(&mut cluster, 3, 0, Some(newest)), before, "it is here as before");
    assert_eq!(take_out(&cluster), Ok(1));
}
