//! What thinning frees and costs: `cargo run --release -p frieze-node --example thinning_cost`.
//!
//! 100,000 writes of 4 KiB at random pages over a simulated hour, then a policy of one a minute: the bytes that the
//! device has afterwards beside those that the kept instants show, and the processor time for a record. Then the time
//! of a mark with a million files that have a policy, and the instants of a file that was only appended to.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::collections::BTreeMap;

use frieze_base::Rng;
use frieze_disk::Disk;
use frieze_testkit::server::SimMachine;

const WRITES: u64 = 100_000;
const PAGE: u64 = 4096;
const MINUTE_US: u64 = 60_000_000;
const FILES: u64 = 1_000_000;

fn main() {
    for (files, pages) in [(10, 16), (100, 16)] {
        random_writes(files, pages);
    }
    million_files();
}

fn random_writes(files: u64, pages: u64) {
    let machine = SimMachine::new(1);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 1min, 1/min 1d").expect("the simulated machine does not fail");
    let open: Vec<Vec<u8>> = (0..files).map(|file| client.make(&format!("/t/{file}"))).collect();
    let log = client.make("/t/log");
    client.fsync();
    let empty = machine.disk.space().expect("the simulated machine does not fail").free_bytes;
    let mut rng = Rng::new(1);
    let mut shown = BTreeMap::new();
    let mut appended = Vec::new();
    for number in 0..WRITES {
        machine.time.advance_us(60 * MINUTE_US / WRITES);
        let (file, page) = (rng.below(files), rng.below(pages));
        client
            .write(&open[file as usize], Some(page * PAGE), &vec![number as u8; PAGE as usize])
            .expect("the simulated machine does not fail");
        let minute = (client.server.newest().micros() - 1) / MINUTE_US;
        shown.insert((file, page, minute), number);
        if number % 1000 == 0 {
            appended
                .push(client.write(&log, Some(number / 1000), b"x").expect("the simulated machine does not fail").0);
        }
    }
    machine.time.advance_us(5 * MINUTE_US);
    client.fsync();
    client.server.close_segment();
    client.write(&open[0], Some(0), b"next").expect("the simulated machine does not fail");
    client.fsync();
    let before = empty - machine.disk.space().expect("the simulated machine does not fail").free_bytes;
    let begun = cpu_ns();
    client.server.thin().expect("the simulated machine does not fail");
    let each = (cpu_ns() - begun) as f64 / WRITES as f64;
    let after = empty - machine.disk.space().expect("the simulated machine does not fail").free_bytes;
    let oracle = shown.len() as u64 * PAGE;
    let exact = appended
        .iter()
        .filter(|at| {
            client
                .retention("/t/log", **at)
                .expect("the simulated machine does not fail")
                .instant
                .expect("the simulated machine does not fail")
                .is_exact
        })
        .count();
    println!(
        "{files} files of {pages} pages: {} of {WRITES} writes are shown, {:.1} MiB; the device had {:.1} and has \
         {:.1} MiB, {:.2} of it; {each:.0} ns a record; {exact} of {} instants of an append-only file are exact",
        shown.len(),
        mib(oracle),
        mib(before),
        mib(after),
        after as f64 / oracle as f64,
        appended.len()
    );
}

fn million_files() {
    let machine = SimMachine::new(1);
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 1min, 1/min 1d").expect("the simulated machine does not fail");
    for number in 0..FILES {
        if number % 1000 == 0 {
            // Its outcomes are acknowledged with its session.
            client.new_session();
            client.mkdir(&format!("/t/{}", number / 1000));
        }
        client.make(&format!("/t/{}/{number}", number / 1000));
    }
    machine.time.advance_us(5 * MINUTE_US);
    client.fsync();
    let begun = cpu_ns();
    client.server.thin().expect("the simulated machine does not fail");
    println!("{FILES} files: {:.2} ms for a mark and a pass", (cpu_ns() - begun) as f64 / 1e6);
    machine.time.advance_us(MINUTE_US);
    let begun = cpu_ns();
    client.server.thin().expect("the simulated machine does not fail");
    println!("{FILES} files: {:.2} ms for the next mark", (cpu_ns() - begun) as f64 / 1e6);
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Processor time of this thread: others may have the rest of the machine.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the simulated machine does not fail");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("the simulated machine does not fail")
}
