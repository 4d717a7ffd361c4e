//! What thinning frees and costs: `cargo run --release -p frieze-node --example thinning_cost`.
//!
//! 100,000 writes of 4 KiB at random pages over a simulated hour, then a policy of one a minute: the bytes that the
//! device has afterwards beside those that the kept instants show, before and after packing, and the processor time for
//! a record; packing beside a bare program that sorts, compresses and copies the same bytes; states out of packs beside
//! those of files that were written at once; the index beside that of a server that only got the survivors. Then the
//! time of a mark with a million files that have a policy, the instants of a file that was only appended to, and the
//! bytes of small files.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::collections::BTreeMap;

use frieze_base::Rng;
use frieze_disk::Disk;
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::server::{SimMachine, TestConnection};
use frieze_wire::message::{Reply, Request, Status, View};

const WRITES: u64 = 100_000;
const PAGE: u64 = 4096;
const MINUTE_US: u64 = 60_000_000;
const FILES: u64 = 1_000_000;
const SMALL_FILES: u64 = 20_000;

fn main() {
    for (files, pages, is_text) in [(10, 16, false), (100, 16, false), (100, 16, true)] {
        random_writes(files, pages, is_text);
    }
    small_files();
    million_files();
}

/// A page of the write with a number: random bytes, or words that zstd makes a third of.
fn page(number: u64, is_text: bool) -> Vec<u8> {
    let mut rng = Rng::new(number);
    if !is_text {
        return random_bytes(number, PAGE as usize);
    }
    let words = ["reading", "sensor", "ok", "late", "1.25", "temperature", "site-7", "0.003", "pump"];
    let mut page = Vec::with_capacity(PAGE as usize + 16);
    while page.len() < PAGE as usize {
        page.extend_from_slice(rng.choose(&words).as_bytes());
        page.extend_from_slice(format!(" {} ", rng.below(10_000)).as_bytes());
    }
    page.truncate(PAGE as usize);
    page
}

fn served() -> SimMachine {
    let mut machine = SimMachine::new(1);
    machine.settings.shelve_segments = 1;
    machine
}

/// Bytes of the index in memory, once all files were read after a start.
fn index_bytes(machine: &SimMachine, files: u64) -> u64 {
    let mut client = machine.serve();
    for file in 0..files {
        client.read(&format!("/t/{file}"), View::NOW).expect("the simulated machine does not fail");
    }
    match client.ask(Request::Status(Status {})).expect("the simulated machine does not fail") {
        Reply::Status(status) => status.index_bytes,
        other => panic!("{other:?}"),
    }
}

/// A server that only ever got these writes.
fn with_survivors(shown: &BTreeMap<(u64, u64, u64), u64>, files: u64, is_text: bool) -> SimMachine {
    let machine = served();
    let mut client = machine.serve();
    client.mkdir("/t");
    let open: Vec<Vec<u8>> = (0..files).map(|file| client.make(&format!("/t/{file}"))).collect();
    let mut writes: Vec<_> = shown.iter().map(|((file, at, _), number)| (*number, *file, *at)).collect();
    writes.sort_unstable();
    for (number, file, at) in writes {
        machine.time.advance_us(1000);
        let written = client.write(&open[file as usize], Some(at * PAGE), &page(number, is_text));
        written.expect("the simulated machine does not fail");
    }
    client.server.close_segment();
    client.fsync();
    client.fsync();
    client.server.shelve_all();
    client.server.stop().expect("the simulated machine does not fail");
    machine
}

/// Processor time of sorting, compressing and copying the survivors, ns.
fn bare(shown: &BTreeMap<(u64, u64, u64), u64>, is_text: bool) -> u64 {
    let mut pages: Vec<_> = shown.iter().map(|(key, number)| (*key, page(*number, is_text))).collect();
    pages.sort_by_key(|(_, page)| page[0]);
    let begun = cpu_ns();
    pages.sort_by_key(|(key, _)| *key);
    let (mut out, mut block) = (Vec::<u8>::new(), Vec::new());
    for (_, page) in &pages {
        block.extend_from_slice(page);
        if block.len() >= 16 * PAGE as usize {
            match is_text {
                true => out.extend(zstd::bulk::compress(&block, 1).expect("zstd has memory")),
                false => out.extend_from_slice(&block),
            }
            block.clear();
        }
    }
    let checked = frieze_base::crc32c(&out);
    let ns = cpu_ns() - begun;
    assert!(checked != 1, "the sum is used");
    ns
}

fn random_writes(files: u64, pages: u64, is_text: bool) {
    let machine = served();
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 1min, 1/min 1d").expect("the simulated machine does not fail");
    let open: Vec<Vec<u8>> = (0..files).map(|file| client.make(&format!("/t/{file}"))).collect();
    let log = client.make("/t/log");
    // The first segment of the log is there.
    client.write(&log, Some(1000), b"x").expect("the simulated machine does not fail");
    client.fsync();
    let empty = free_bytes(&machine);
    let mut rng = Rng::new(1);
    let mut shown = BTreeMap::new();
    let mut appended = Vec::new();
    for number in 0..WRITES {
        machine.time.advance_us(60 * MINUTE_US / WRITES);
        let (file, at) = (rng.below(files), rng.below(pages));
        client
            .write(&open[file as usize], Some(at * PAGE), &page(number, is_text))
            .expect("the simulated machine does not fail");
        let minute = (client.server.newest().micros() - 1) / MINUTE_US;
        shown.insert((file, at, minute), number);
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
    let before = empty - free_bytes(&machine);
    let begun = cpu_ns();
    client.server.thin().expect("the simulated machine does not fail");
    let each = (cpu_ns() - begun) as f64 / WRITES as f64;
    let after = empty - free_bytes(&machine);
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
    pack(&machine, client, &shown, files, (empty, is_text));
}

/// Packs what died, and prints what that costs and gains.
fn pack(
    machine: &SimMachine,
    mut client: TestConnection,
    shown: &BTreeMap<(u64, u64, u64), u64>,
    files: u64,
    (empty, is_text): (u64, bool),
) {
    client.server.shelve_all();
    client.server.reclaim().expect("the simulated machine does not fail");
    let begun = cpu_ns();
    client.server.pack().expect("the simulated machine does not fail");
    let packing = cpu_ns() - begun;
    client.server.pack().expect("the simulated machine does not fail");
    let oracle = shown.len() as u64 * PAGE;
    let after = empty - free_bytes(machine);
    let minute = shown.keys().map(|(.., minute)| *minute).max().unwrap_or(0) - 20;
    let at = frieze_hlc::Hlc::last_of_micros(minute * MINUTE_US).0;
    let mut states = Vec::new();
    for _ in 0..5 {
        let begun = cpu_ns();
        for file in (0..files).cycle().take(1000) {
            client.at(&format!("/t/{file}"), at).expect("the simulated machine does not fail");
        }
        states.push(cpu_ns() - begun);
    }
    for file in 0..files {
        let bytes = client.at(&format!("/t/{file}"), at).expect("the simulated machine does not fail");
        let whole = client.make(&format!("/t/whole{file}"));
        client.write(&whole, Some(0), &bytes).expect("the simulated machine does not fail");
    }
    let mut wholes = Vec::new();
    for _ in 0..5 {
        let begun = cpu_ns();
        for file in (0..files).cycle().take(1000) {
            client.read(&format!("/t/whole{file}"), View::NOW).expect("the simulated machine does not fail");
        }
        wholes.push(cpu_ns() - begun);
    }
    states.sort_unstable();
    wholes.sort_unstable();
    client.server.stop().expect("the simulated machine does not fail");
    drop(client);
    let index = index_bytes(machine, files);
    let of_survivors = index_bytes(&with_survivors(shown, files, is_text), files);
    println!(
        "  packed: {:.1} MiB, {:.2} of what is shown; {:.0} MiB/s of it, {:.2} of a bare sort, copy and check; a \
         state of all files at {:.2} of the speed of files written at once; the index has {:.2} MiB, {:.2} of the \
         survivors' alone",
        mib(after),
        after as f64 / oracle as f64,
        mib(oracle) / (packing as f64 / 1e9),
        bare(shown, is_text) as f64 / packing as f64,
        wholes[2] as f64 / states[2] as f64,
        mib(index),
        index as f64 / of_survivors as f64,
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

/// Bytes that are free, or kept for the next segments.
fn free_bytes(machine: &SimMachine) -> u64 {
    let names = machine.disk.list().expect("the simulated machine does not fail");
    let spares = names.iter().filter(|name| name.starts_with("spare-segment")).count() as u64;
    let free = machine.disk.space().expect("the simulated machine does not fail").free_bytes;
    free + spares * machine.settings.segment_bytes
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Processor time of this thread: others may have the rest of the machine.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the simulated machine does not fail");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("the simulated machine does not fail")
}

/// 20,000 files of 1 KiB of words beside one that is overwritten: the bytes of a file after packing.
fn small_files() {
    let machine = served();
    let mut client = machine.serve();
    client.mkdir("/t");
    client.set_retention("/t", "all 1min, 1/min 1d").expect("the simulated machine does not fail");
    let busy = client.make("/t/busy");
    client.write(&busy, Some(0), b"x").expect("the simulated machine does not fail");
    client.fsync();
    let empty = free_bytes(&machine);
    for number in 0..SMALL_FILES {
        if number % 1000 == 0 {
            client.new_session();
        }
        let file = client.make(&format!("/t/{number}"));
        client.write(&file, Some(0), &page(number, true)[..1024]).expect("the simulated machine does not fail");
        machine.time.advance_us(MINUTE_US / 100);
    }
    let busy = client.open("/t/busy").expect("the simulated machine does not fail");
    for number in 0..2000 {
        client.write(&busy, Some(0), &page(number, false)).expect("the simulated machine does not fail");
    }
    machine.time.advance_us(5 * MINUTE_US);
    client.fsync();
    client.server.thin().expect("the simulated machine does not fail");
    client.server.close_segment();
    client.fsync();
    client.fsync();
    client.server.shelve_all();
    client.server.reclaim().expect("the simulated machine does not fail");
    client.server.pack().expect("the simulated machine does not fail");
    client.server.pack().expect("the simulated machine does not fail");
    let after = empty - free_bytes(&machine);
    println!("a file of 1 KiB: {} bytes once packed, footers and indexes included", after / SMALL_FILES);
}
