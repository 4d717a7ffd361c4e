//! Three of five servers are lost for good: both that are left are looked at, the better one goes on, and the other
//! joins anew. And a survivor that has no copy of some chains says so wherever it is asked.

use std::fs;

use super::survivor::{json, read_at, run};
use super::*;

#[test]
fn of_two_survivors_of_five_the_better_one_recovers_and_the_other_joins_anew() {
    let mut cluster = ServedCluster::of(5);
    let place = cluster.directory.path().to_owned();
    cluster.await_whole(0);
    let before = cluster.client(0);
    write(&before, "/old", &random_bytes(1, 1_500_000));
    let then = before.now().unwrap();
    // The fifth is away while a majority acknowledges more.
    cluster.kill(4);
    write(&before, "/old", &random_bytes(2, 1_500_000));
    write(&before, "/newer", &random_bytes(3, 700_000));
    before.fs().sync_all().unwrap();
    drop(before);
    (0..4).for_each(|number| cluster.kill(number));
    let look = |number: &str| {
        let (status, said, words) = run(&place, &["cluster", "recover", "--dir", number, "--json"]);
        assert_eq!((status, words.as_str()), (0, ""));
        json(&said)
    };
    let (better, worse) = (look("3"), look("4"));
    let of = |left: &serde_json::Value, what: &str| left[what].as_u64().unwrap();
    assert!(of(&better, "known_entry") > of(&worse, "known_entry"), "{better} {worse}");
    assert!(of(&better, "last_entry") > of(&worse, "last_entry"), "{better} {worse}");
    let yes = ["cluster", "recover", "--dir", "3", "--yes", "--accept-loss", "--json"];
    let (status, said, words) = run(&place, &yes);
    assert_eq!((status, words.as_str()), (0, ""));
    let stamp = |what: &str| json(&said)["went_on"][what].as_str().unwrap().parse::<frieze_client::Hlc>().unwrap();
    let (from, to) = (stamp("from"), stamp("to"));
    assert!(then <= from && from < to);
    cluster.start_again(3);
    let survivor = eventually("the better one serves", || {
        let survivor = cluster.client(3);
        survivor.fs().stat(&Target::path("/old")).is_ok().then_some(survivor)
    });
    // The other is refused with what it had, and joins with nothing.
    fs::remove_dir_all(place.join("4")).unwrap();
    let (server, address) = start(&place, 4, "127.0.0.1:0", Some(&cluster.addresses[3]));
    (cluster.servers[4], cluster.addresses[4]) = (Some(server), address);
    cluster.await_whole_of(3, 2);
    drop(survivor);
    for number in [3, 4] {
        let client = cluster.client(number);
        assert_eq!(read_at(&client, then, "/old"), random_bytes(1, 1_500_000), "the past");
        assert_eq!(read(&client, "/old"), random_bytes(2, 1_500_000), "what the majority acknowledged");
        assert_eq!(read(&client, "/newer"), random_bytes(3, 700_000));
        let is_incomplete = |at| client.fs().at(at).stat(&Target::path("/old")).unwrap().answered.incomplete;
        assert!(!is_incomplete(then) && is_incomplete(frieze_client::Hlc(from.0 + 1)));
        write(&client, "/after", &random_bytes(5, 100_000));
    }
}

#[test]
fn a_survivor_without_a_copy_of_some_chains_says_so_in_every_read_of_them_and_in_its_status() {
    let mut cluster = ServedCluster::with(4, "replicas = 2\n");
    let place = cluster.directory.path().to_owned();
    let mine = 1;
    let before = cluster.client(0);
    assert!(cluster.frieze(0, &["cluster", "balance", "on"]).status.success());
    let node = eventually("chains are on two servers each", || {
        let reply = before.cluster(None).ok()?;
        let spread = |chain: &frieze_client::ClusterChain| chain.targets.len() == 2 && chain.waits.is_empty();
        let node = reply.nodes.iter().find(|node| node.name == "db1")?.node;
        let has = |chain: &frieze_client::ClusterChain| chain.targets.iter().any(|target| target.node == node);
        let some = reply.chains.iter().filter(|chain| has(chain)).count();
        (reply.chains.iter().all(spread) && some > 0 && some < reply.chains.len()).then_some(node)
    });
    assert_eq!(node, mine);
    assert!(cluster.frieze(0, &["cluster", "balance", "off"]).status.success());
    eventually("no chain moves any more", || {
        let reply = before.cluster(None).ok()?;
        let rests = |chain: &frieze_client::ClusterChain| chain.targets.len() == 2 && chain.waits.is_empty();
        reply.chains.iter().all(rests).then_some(())
    });
    let files: Vec<String> = (0..24).map(|number| format!("/f{number}")).collect();
    files.iter().for_each(|path| write(&before, path, &random_bytes(7, 50_000)));
    before.fs().sync_all().unwrap();
    let reply = before.cluster(None).unwrap();
    let lacking = |chain: &&frieze_client::ClusterChain| chain.targets.iter().all(|target| target.node != mine);
    let lost: Vec<u64> = reply.chains.iter().filter(lacking).map(|chain| u64::from(chain.chain)).collect();
    drop(before);
    (0..4).for_each(|number| cluster.kill(number));
    let (status, said, words) = run(&place, &["cluster", "recover", "--dir", "0", "--json"]);
    assert_eq!((status, words.as_str()), (0, ""));
    let chains = json(&said)["chains"].as_array().unwrap().clone();
    let without = chains.iter().filter(|chain| chain["copy"] != "full").map(|chain| chain["chain"].as_u64().unwrap());
    assert_eq!(without.collect::<Vec<u64>>(), lost, "{chains:?}");
    assert_eq!(run(&place, &["cluster", "recover", "--dir", "0", "--yes", "--accept-loss"]).0, 0);
    cluster.start_again(0);
    eventually("it serves", || cluster.client(0).fs().stat(&Target::path("/f0")).ok());
    let status = cluster.frieze(0, &["cluster", "status", "--json"]);
    let told = json(&status.stdout);
    let chains = told["chains"].as_array().unwrap();
    assert!(chains.iter().all(|chain| !chain["lost"].is_null()), "all may lack something: {told}");
    let from =
        |chain: &serde_json::Value| chain["lost"]["from"].as_str().unwrap().parse::<frieze_client::Hlc>().unwrap();
    let all = chains
        .iter()
        .filter(|chain| from(chain) == frieze_client::Hlc::ZERO)
        .map(|chain| chain["chain"].as_u64().unwrap());
    assert_eq!(all.collect::<Vec<u64>>(), lost, "of these all of it: {told}");
    let server = format!("--server={}", cluster.addresses[0]);
    let (mut whole, mut zeros) = (0, 0);
    for path in &files {
        let (status, bytes, words) = run(&place, &[&server, "cat", path]);
        if status == 0 && bytes == random_bytes(7, 50_000) {
            whole += 1;
            continue;
        }
        zeros += 1;
        assert!(words.contains("may be missing"), "{path} {status}: {words}");
        assert!(bytes.iter().all(|byte| *byte == 0), "{path}: neither what it was nor zeros");
    }
    assert!(whole > 0 && zeros > 0, "{whole} {zeros}");
    let shown = cluster.frieze(0, &["cluster", "status"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("lost"), "{shown:?}");
}
