//! The power goes, as far as a server can tell: another boot, and what was not synced is gone. Every door tells of the
//! gap and knows `last-whole`.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use frieze_base::crc32c;
use frieze_client::{OpenFlags, Target};
use nix::sys::signal::Signal;

use super::server;
use crate::support::served::{Served, frieze};
use crate::support::{Mount, client};

/// Nothing is flushed without a request.
const SETTINGS: &str = "flush_delay = \"10s\"\n";
const SLOT: usize = 4096;
const LOST: &[u8] = b"written, acknowledged, and not synced";

/// Kills the server and lets the next one believe that the machine was started anew; the write of [`LOST`] never
/// reached the disk.
fn lose_power(server: &mut Served) {
    assert_eq!(server.end(Signal::SIGKILL), None);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let boot = boot.trim().as_bytes();
    let state = server.data().join("state");
    let mut bytes = fs::read(&state).unwrap();
    let mut changed = 0;
    for slot in bytes.chunks_mut(SLOT) {
        let len = u32::from_le_bytes(slot[4..8].try_into().unwrap()) as usize;
        let Some(at) = slot.windows(boot.len()).position(|window| window == boot) else { continue };
        slot[at] = b'x';
        let crc = crc32c(&[&slot[..16], &slot[20..20 + len]].concat());
        slot[16..20].copy_from_slice(&crc.to_le_bytes());
        changed += 1;
    }
    assert!(changed > 0, "the state names the boot");
    fs::write(&state, bytes).unwrap();
    for entry in fs::read_dir(server.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("seg-") {
            let bytes = fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(LOST.len()).position(|window| window == LOST) {
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.write_all_at(&vec![0; LOST.len()], at as u64).unwrap();
                return;
            }
        }
    }
    panic!("what is to be lost was never written");
}

#[test]
fn after_a_power_loss_every_gateway_reports_the_gap_and_the_last_whole_instant() {
    let mut server = server(SETTINGS, "127.0.0.1:0");
    server.put("/doc", "whole");
    assert_eq!(server.run(&["mkdir", "/d"]).status, 0);
    assert_eq!(server.run(&["sync"]).status, 0);
    let synced = server.now();
    // It is neither closed nor synced: it is in memory only when the power goes.
    let writer = client(&server.address);
    let file = writer.fs().open(&Target::path("/doc"), OpenFlags::WRITE).unwrap();
    file.write_at(0, LOST).unwrap();
    let inside = writer.now().unwrap().to_string();
    lose_power(&mut server);
    drop((file, writer));
    server.start_again();

    let status = server.json(&["status", "--json"]).remove(0);
    let gap = &status["gaps"][0];
    assert_eq!((status["gaps"].as_array().unwrap().len(), &gap["from"]), (1, &status["last_whole"]), "{status}");
    let whole = status["last_whole"].as_str().unwrap().to_owned();
    // Stamps are written so that they sort.
    assert!(whole < inside && inside.as_str() < gap["to"].as_str().unwrap(), "{whole} {inside} {gap}");
    let words = server.run(&["status"]).out();
    assert!(words.contains("last whole") && words.contains("gap"), "{words}");

    // What was synced is there, what was not is not, and both are told.
    assert_eq!(server.run(&["cat", "/doc", "--at", "last-whole"]).ok(), "whole");
    let at_synced = server.run(&["cat", "/doc", "--at", &synced]);
    assert_eq!(at_synced.out(), "whole");
    let at_inside = server.run(&["cat", "/doc", "--at", &inside]);
    assert_eq!((at_inside.status, at_inside.out().contains("not synced")), (0, false));
    let warning = "lies inside a gap: some of what was acknowledged around then may be missing";
    assert!(at_inside.err.contains(warning), "{}", at_inside.err);
    assert!(!server.run(&["cat", "/doc", "--at", "last-whole"]).err.contains("gap"));
    let said = server.run(&["stat", "/doc", "--json", "--at", &inside]);
    let listed: serde_json::Value = serde_json::from_str(&said.out()).unwrap();
    assert_eq!(listed["answered"]["incomplete"], true, "{listed}");

    // Life goes on; the last whole instant is compared with, mounted, copied and put back.
    server.put("/doc", "after");
    server.put("/new", "new");
    let diff = server.run(&["diff", "/", "--from", "last-whole"]).out();
    assert!(diff.contains("/doc") && diff.contains("/new"), "{diff}");
    let diff = server.run(&["diff", "/", "--from", &inside]);
    assert!(diff.err.contains("an end of the interval lies inside a gap"), "{}", diff.err);
    assert!(!server.run(&["log", "/doc"]).out().is_empty());
    if let Some(mount) = Mount::of(&server) {
        assert_eq!(fs::read_to_string(mount.path(".at/last-whole/doc")).unwrap(), "whole");
        let target = fs::read_link(mount.path(".at/last-whole")).unwrap();
        assert!(target.to_str().unwrap().ends_with(&whole), "{target:?} {whole}");
        assert!(!mount.path(".at/last-whole/new").exists());
        assert_eq!(fs::read_to_string(mount.path("doc")).unwrap(), "after");
    }
    assert_eq!(server.run(&["clone", "/doc", "/doc-whole", "--at", "last-whole"]).status, 0);
    assert_eq!(server.run(&["cat", "/doc-whole"]).ok(), "whole");
    assert_eq!(server.run(&["snapshot", "create", "before-the-power-went", "--at", "last-whole"]).status, 0);
    assert_eq!(server.run(&["cat", "/doc", "--at", "before-the-power-went"]).ok(), "whole");
    assert_eq!(server.run(&["restore", "/doc", "--to", "last-whole"]).status, 0);
    assert_eq!(server.run(&["cat", "/doc"]).ok(), "whole");

    // It is remembered, and a directory with a gap is in order.
    assert_eq!(server.end(Signal::SIGTERM), Some(0));
    let fsck = frieze(&["fsck".as_ref(), server.data().as_os_str()]).output().unwrap();
    assert_eq!(fsck.status.code(), Some(0), "{}", String::from_utf8_lossy(&fsck.stdout));
    server.start_again();
    let again = server.json(&["status", "--json"]).remove(0);
    assert_eq!((&again["last_whole"], &again["gaps"]), (&status["last_whole"], &status["gaps"]));
    assert_eq!(server.run(&["cat", "/doc", "--at", "last-whole"]).ok(), "whole");
}
