//! What an answer about an interval costs: its changes, not the tree.

use frieze_client::{Client, CreateMode, HistoryInterval, Target};

use crate::support::client as connect;
use crate::support::served::Served;

fn make(client: &Client, directory: &str, count: u32) {
    let fs = client.fs();
    fs.mkdir(&Target::path(directory), 0o755).unwrap();
    for number in 0..count {
        let path = format!("{directory}/{number}");
        let file = fs.create(&Target::path(path), 0o644, CreateMode::Exclusive).unwrap();
        file.write_at(0, b"text").unwrap();
        file.close().unwrap();
    }
}

/// Entries read for ten changes beside `unchanged` files, before and after a restart.
fn entries_read(unchanged: u32) -> [u64; 2] {
    let mut server = Served::start();
    let mut client = connect(&server.address);
    make(&client, "/unchanged", unchanged);
    // Whatever was made so far is in the store, so that pages of the index begin anew.
    client.fs().sync_all().unwrap();
    let after = client.now().unwrap();
    make(&client, "/changed", 10);
    let interval = HistoryInterval { after, upto: client.now().unwrap() };
    let ask = |client: &Client| {
        let reply = client.fs().diff(&Target::path("/"), interval, 0, 0).unwrap();
        assert_eq!(reply.differences.len(), 11);
        reply.entries_read
    };
    let first = ask(&client);
    server.restart(nix::sys::signal::Signal::SIGTERM);
    client = connect(&server.address);
    [first, ask(&client)]
}

#[test]
fn entries_read_do_not_depend_on_files_that_did_not_change() {
    let few = entries_read(10);
    let many = entries_read(3000);
    // Runs of 256 records and pages of 256 changes at both edges of the interval may be read in vain; a walk would read
    // 12,000 entries.
    for (few, many) in few.into_iter().zip(many) {
        assert!(many <= few + 4 * 256, "{few} entries beside 10 files, {many} beside 3,000");
    }
}
