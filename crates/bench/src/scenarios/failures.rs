//! Servers that are killed: the gaps of writers and readers, and the cost of a restart.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use frieze_base::ChunkId;
use frieze_client::{Client, ClusterReply, File};

use super::sequential::{make, write_all};
use super::{SMALL, progress, settle};
use crate::BenchOptions;
use crate::ceiling::{self, GIB};
use crate::fleet::Fleet;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;

const SERVERS: usize = 3;
/// As the goals have it.
const LEASE_S: f64 = 1.0;
const CONFIG: &str = "memory_bytes_max = 1073741824\nlease = \"1s\"\n";
/// So long a server is away that comes back, as the goals have it.
const AWAY_S: f64 = 60.0;
/// Files that are written and read, one after the other on every chain.
const FILES: u64 = 8;
/// The longest wait for an answer after a kill.
const GAP_MAX: Duration = Duration::from_secs(60);

/// A client that repeats one operation, and its longest gap between two answers.
#[derive(Default)]
struct Steady {
    /// Microseconds of the clock that all share.
    last_us: AtomicU64,
    longest_us: AtomicU64,
    done: AtomicU64,
}

impl Steady {
    /// Runs `one` until `over`; a failed operation is repeated: it has not been answered.
    fn go(&self, watch: &Stopwatch, over: &AtomicBool, mut one: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut failures = 0;
        let us = || (watch.seconds() * 1e6) as u64;
        self.last_us.store(us(), Ordering::Release);
        let mut number = 0;
        while !over.load(Ordering::Acquire) {
            match one(number) {
                Ok(()) => {
                    let now = us();
                    let before = self.last_us.swap(now, Ordering::AcqRel);
                    self.longest_us.fetch_max(now - before, Ordering::AcqRel);
                    self.done.fetch_add(1, Ordering::AcqRel);
                    (failures, number) = (0, number + 1);
                }
                Err(error) => {
                    failures += 1;
                    anyhow::ensure!(failures < 100, "it fails again and again: {error:#}");
                }
            }
        }
        Ok(())
    }

    /// Earlier gaps are dropped.
    fn begin(&self) {
        self.longest_us.store(0, Ordering::Release);
    }

    /// The longest gap since the last call, in milliseconds, the present one included.
    fn longest_ms(&self) -> f64 {
        self.longest_us.swap(0, Ordering::AcqRel) as f64 / 1e3
    }
}

/// The gaps of one kind of loss.
#[derive(Default)]
struct Gaps(BTreeMap<&'static str, Vec<f64>>);

impl Gaps {
    fn add(&mut self, of: &'static str, gap_ms: f64) {
        self.0.entry(of).or_default().push(gap_ms);
    }

    fn of(&mut self, of: &'static str) -> (f64, f64) {
        let gaps = self.0.entry(of).or_default();
        gaps.sort_by(f64::total_cmp);
        let at = |index: usize| gaps.get(index).copied().unwrap_or(f64::NAN);
        (at(gaps.len() / 2), at(gaps.len().saturating_sub(1)))
    }
}

/// Kills one server after the other while files on every chain are written and read.
pub(crate) fn failover(options: &BenchOptions) -> Result<BenchReport> {
    let kills = options.ops.unwrap_or(if options.quick { 1 } else { 6 });
    let mut fleet = Fleet::start(options, SERVERS, CONFIG)?;
    let client = fleet.client(0)?;
    let files = (0..FILES).map(|number| make(&client, &format!("/f{number}"))).collect::<Result<Vec<_>>>()?;
    for file in &files {
        file.write_at(0, &[1; SMALL])?;
    }
    settle(&client)?;
    let then = client.now()?;
    let chain_of = |file: &File, chains: usize| ChunkId { inode: file.inode(), index: 0 }.chain(chains as u32).0;
    let (over, watch) = (AtomicBool::new(false), Stopwatch::start());
    let writers: Vec<Steady> = (0..FILES).map(|_| Steady::default()).collect();
    let readers: Vec<Steady> = (0..FILES).map(|_| Steady::default()).collect();
    let past_readers: Vec<Steady> = (0..SERVERS).map(|_| Steady::default()).collect();
    let openers: Vec<Steady> = (0..SERVERS).map(|_| Steady::default()).collect();
    let gaps = Mutex::new(Gaps::default());
    let reading = (0..readers.len()).map(|number| fleet.client(number % SERVERS)).collect::<Result<Vec<_>>>()?;
    let looking_back = (0..SERVERS).map(|number| fleet.client(number)).collect::<Result<Vec<_>>>()?;
    let opening = (0..SERVERS).map(|number| fleet.client(number)).collect::<Result<Vec<_>>>()?;
    let bar = progress("failover", kills);
    std::thread::scope(|scope| -> Result<()> {
        let mut threads = Vec::new();
        for (file, steady) in files.iter().zip(&writers) {
            let (watch, over) = (&watch, &over);
            threads.push(scope.spawn(move || {
                steady.go(watch, over, |number| {
                    file.write_at(number % 64 * SMALL as u64, &[2; SMALL]).map(drop).map_err(Into::into)
                })
            }));
        }
        for (number, (steady, client)) in readers.iter().zip(&reading).enumerate() {
            let (watch, over) = (&watch, &over);
            threads.push(scope.spawn(move || read_on(client, None, number, steady, watch, over)));
        }
        for (number, (steady, client)) in past_readers.iter().zip(&looking_back).enumerate() {
            let (watch, over) = (&watch, &over);
            threads.push(scope.spawn(move || read_on(client, Some(then), number, steady, watch, over)));
        }
        for (number, (steady, client)) in openers.iter().zip(&opening).enumerate() {
            let (watch, over) = (&watch, &over);
            threads.push(scope.spawn(move || open_on(client, number, steady, watch, over)));
        }
        let killed = (|| {
            for kill in 0..kills {
                let (before, _) = fleet.await_whole()?;
                // The leader, then the others in turn: every role comes up, for each heads some chains.
                let leader = Fleet::number_of(&before, before.leader)?;
                let victim = (leader + kill as usize % SERVERS) % SERVERS;
                let everybody = || writers.iter().chain(&readers).chain(&past_readers).chain(&openers);
                everybody().for_each(Steady::begin);
                // As long as a kill is observed: the gaps of readers by the machine itself, while nothing is lost.
                std::thread::park_timeout(Duration::from_secs_f64(2.0 * LEASE_S));
                {
                    let mut gaps = gaps.lock().unwrap_or_else(PoisonError::into_inner);
                    readers.iter().for_each(|steady| gaps.add("quiet read", steady.longest_ms()));
                    past_readers.iter().for_each(|steady| gaps.add("quiet past", steady.longest_ms()));
                }
                everybody().for_each(Steady::begin);
                let lost = Stopwatch::start();
                fleet.kill(victim)?;
                fleet.await_leader()?;
                let election_ms = lost.seconds() * 1e3;
                await_all(&[&writers, &readers, &past_readers, &openers])?;
                let mut gaps = gaps.lock().unwrap_or_else(PoisonError::into_inner);
                for (file, steady) in files.iter().zip(&writers) {
                    let role = role_of(&before, chain_of(file, before.chains.len()), victim)?;
                    let gap = steady.longest_ms();
                    gaps.add(role, gap);
                    gaps.add("write", gap);
                    if victim == leader {
                        gaps.add("leader", gap);
                    }
                }
                for (file, steady) in files.iter().zip(&readers) {
                    let gap = steady.longest_ms();
                    let is_tail = role_of(&before, chain_of(file, before.chains.len()), victim)? == "tail";
                    gaps.add("read", gap);
                    // Only the tail knows what it has committed: writes under way wait for its lease to end.
                    gaps.add(if is_tail { "tail read" } else { "other read" }, gap);
                    if victim == leader && !is_tail {
                        gaps.add("leader read", gap);
                    }
                }
                if victim == leader {
                    gaps.add("election", election_ms);
                }
                let open = if victim == leader { "leader open" } else { "open" };
                openers.iter().for_each(|steady| gaps.add(open, steady.longest_ms()));
                past_readers.iter().for_each(|steady| gaps.add("past", steady.longest_ms()));
                drop(gaps);
                fleet.start_again(victim)?;
                bar.inc(1);
            }
            Ok(())
        })();
        over.store(true, Ordering::Release);
        let ended = threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| anyhow::bail!("a writer or reader panicked")));
        killed.and(ended)
    })?;
    bar.finish_and_clear();
    let mut gaps = gaps.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (write_ms, write_max_ms) = gaps.of("write");
    let mut more =
        vec![("kills", kills as f64, "kills (kill -9), the leader first"), ("write_max_s", write_max_ms / 1e3, "s")];
    for (role, median, max) in [
        ("head", "head_ms", "head_max_ms"),
        ("middle", "middle_ms", "middle_max_ms"),
        ("tail", "tail_ms", "tail_max_ms"),
        ("leader", "leader_ms", "leader_max_ms"),
        ("election", "election_ms", "election_max_ms"),
        ("leader open", "leader_open_ms", "leader_open_max_ms"),
        ("open", "open_ms", "open_max_ms"),
        ("read", "read_ms", "read_max_ms"),
        ("leader read", "leader_read_ms", "leader_read_max_ms"),
        ("tail read", "tail_read_ms", "tail_read_max_ms"),
        ("other read", "other_read_ms", "other_read_max_ms"),
        ("past", "past_read_ms", "past_read_max_ms"),
        ("quiet read", "quiet_read_ms", "quiet_read_max_ms"),
        ("quiet past", "quiet_past_read_ms", "quiet_past_read_max_ms"),
    ] {
        let (found, found_max) = gaps.of(role);
        let is_quiet = role.starts_with("quiet");
        if found.is_finite() {
            let words = if is_quiet { "ms (gap while nobody is killed, median)" } else { "ms (gap, median)" };
            more.extend([(median, found, words), (max, found_max, "ms")]);
        }
    }
    let operations: u64 = writers.iter().chain(&readers).map(|steady| steady.done.load(Ordering::Acquire)).sum();
    more.push(("operations", operations as f64, "writes and reads"));
    Ok(BenchReport {
        scenario: "failover",
        value: write_ms / 1e3,
        unit: "s",
        ceiling: LEASE_S,
        ceiling_name: "length of a lease",
        cpu_client_s: watch.cpu_seconds() * 1000.0 / operations.max(1) as f64,
        cpu_server_s: 0.0,
        cpu_per: "1,000 operations",
        server_peak_mib: fleet.peak_mib(),
        more,
    })
}

fn read_on(
    client: &Client,
    at: Option<frieze_client::Hlc>,
    number: usize,
    steady: &Steady,
    watch: &Stopwatch,
    over: &AtomicBool,
) -> Result<()> {
    let fs = at.map_or(client.fs(), |at| client.fs().at(at));
    let flags = frieze_client::OpenFlags { read: true, write: false };
    let path = frieze_client::Target::path(format!("/f{}", number as u64 % FILES));
    let file = fs.open(&path, flags)?;
    let mut buffer = [0; SMALL];
    steady.go(watch, over, |_| {
        file.read_at(0, &mut buffer)?;
        // Not as fast as it goes: writers are to have the machine.
        std::thread::park_timeout(Duration::from_millis(1));
        Ok(())
    })
}

/// Opens a file by its name, again and again.
fn open_on(client: &Client, number: usize, steady: &Steady, watch: &Stopwatch, over: &AtomicBool) -> Result<()> {
    let flags = frieze_client::OpenFlags { read: true, write: false };
    let path = frieze_client::Target::path(format!("/f{}", number as u64 % FILES));
    steady.go(watch, over, |_| {
        client.fs().open(&path, flags)?.close()?;
        std::thread::park_timeout(Duration::from_millis(1));
        Ok(())
    })
}

/// Waits until every client has completed an operation again, twice: the first may have been under way before.
fn await_all(kinds: &[&Vec<Steady>]) -> Result<()> {
    let all = || kinds.iter().copied().flatten();
    let before: Vec<u64> = all().map(|steady| steady.done.load(Ordering::Acquire)).collect();
    let watch = Stopwatch::start();
    // A lease has to end before the last of them notices.
    std::thread::park_timeout(Duration::from_secs_f64(2.0 * LEASE_S));
    while all().zip(&before).any(|(steady, before)| steady.done.load(Ordering::Acquire) < before + 2) {
        anyhow::ensure!(watch.seconds() < GAP_MAX.as_secs_f64(), "somebody was not answered for {GAP_MAX:?}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
    Ok(())
}

fn role_of(reply: &ClusterReply, chain: u32, server: usize) -> Result<&'static str> {
    let chain = reply.chains.iter().find(|found| found.chain == chain).context("a chain is not told of")?;
    let serving: Vec<usize> = chain
        .targets
        .iter()
        .filter(|target| target.state == "serving")
        .map(|target| Fleet::number_of(reply, target.node))
        .collect::<Result<_>>()?;
    Ok(match serving.iter().position(|member| *member == server) {
        Some(0) => "head",
        Some(at) if at + 1 == serving.len() => "tail",
        Some(_) => "middle",
        None => "none",
    })
}

/// Kills a server, writes, and starts it again: the bytes sent to it until it serves.
pub(crate) fn rejoin(options: &BenchOptions) -> Result<BenchReport> {
    let missed = options.scaled(options.mib, 64) << 20;
    let before = options.held_mib.map_or(4 * missed, |mib| mib << 20);
    let mut fleet = Fleet::start(options, SERVERS, CONFIG)?;
    let client = fleet.client(0)?;
    let data = ceiling::cold_data();
    let file = make(&client, "/before")?;
    write_all(&file, &data, before, "preparing")?;
    settle(&client)?;
    let (reply, _) = fleet.await_whole()?;
    // The leader stays, so that an election is not measured with it.
    let leader = Fleet::number_of(&reply, reply.leader)?;
    let victim = (leader + 1) % SERVERS;
    fleet.kill(victim)?;
    let away = Stopwatch::start();
    fleet.await_whole()?;
    let client = fleet.client(leader)?;
    let file = make(&client, "/missed")?;
    write_all(&file, &data, missed, "while it is away")?;
    settle(&client)?;
    if !options.quick {
        std::thread::park_timeout(Duration::from_secs_f64((AWAY_S - away.seconds()).max(0.0)));
    }
    let away_s = away.seconds();
    let cpu = fleet.cpu_s()?;
    fleet.start_again(victim)?;
    let (_, seconds) = fleet.await_whole()?;
    // Its process is new: all that it has received was sent to sync it.
    let figures = fleet.figures(victim)?;
    let records = figures.of("frieze_peer_received_bytes_total", "kind=\"record\"");
    let all = figures.sum("frieze_peer_received_bytes_total");
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Ok(BenchReport {
        scenario: "rejoin",
        value: mib(all),
        unit: "MiB",
        ceiling: mib(missed as f64),
        ceiling_name: "bytes written while it was away",
        cpu_client_s: 0.0,
        cpu_server_s: (fleet.cpu_s()? - cpu) / (missed as f64 / GIB),
        cpu_per: "GiB missed (all servers)",
        server_peak_mib: fleet.peak_mib(),
        more: vec![
            ("records_mib", mib(records), "MiB of records, the rest is the metalog and leases"),
            ("held_before_mib", mib(before as f64), "MiB that it had already"),
            ("away_s", away_s, "s away"),
            ("whole_after_s", seconds, "s until it serves again, from when it listens"),
            ("rate_mib_s", mib(missed as f64) / seconds, "MiB/s"),
        ],
    })
}
