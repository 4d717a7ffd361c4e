//! Payloads by one-sided transfers, beside the same by TCP and beside bare transfers of the same provider.
//!
//! Guarantees: every ratio is of figures of one run, which alternates between the ways and the ceiling; a figure is the
//! median of short loads. Both ways use the same servers: a client without a fabric is served by TCP.
//! Leaves to others: the rates of hardware. Servers, clients and bare ends share this machine.

mod sizes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use frieze_base::ByteRange;
use frieze_client::{Client, File, OpenFlags, Options as ClientOptions, Target as Path, fabric_named};
use frieze_fabric::FabricHost;

use super::sequential::{make, write_all};
use super::storm::{CLIENTS, Storm};
use super::{LARGE, SMALL, progress, settle};
use crate::BenchOptions;
use crate::ceiling::{self, BareDirection, BareTransfers, GIB, TransferRate};
use crate::fleet::Fleet;
use crate::report::BenchReport;
use crate::stopwatch::Stopwatch;

/// Threads of a load, each with one request under way.
const IN_FLIGHT: usize = 16;
/// Requests of 1 MiB in flight of one get or put: as many as a connection has slots.
const DEPTH: usize = 4;
/// Seconds of one load, and of one that is one of many.
const LOAD_S: f64 = 0.6;
const SHORT_S: f64 = 0.2;
/// Rounds of loads, and of those that are many.
const ROUNDS: u64 = 5;
const SHORT_ROUNDS: u64 = 3;
/// Gets and puts one at a time.
const SINGLES: u64 = 50;
/// Servers of a chain.
const CHAINED: usize = 3;
/// Bytes of memory that is touched before puts: a virtual machine gives back what is unused.
const WARM_BYTES: u64 = 512 << 20;
/// Memory of each server: several share the machine. What is put in one load waits for no disk.
const MEMORY: &str = "memory_bytes_max = 2147483648\ndirty_bytes_max = 1073741824\n";

const BARE_WRITE: &str = "bare fi_write, 1 MiB, 16 in flight";
const BARE_READ: &str = "bare fi_read, 1 MiB, 16 in flight";

/// What is measured, and with which ends.
struct FabricBench<'a> {
    options: &'a BenchOptions,
    provider: &'a str,
    address: Option<String>,
    fabric: Arc<FabricHost>,
    tcp: Arc<FabricHost>,
    bare: BareTransfers,
    data: Vec<u8>,
    /// Bytes of a get or put.
    bytes: u64,
    /// Number of the next file.
    next: AtomicU64,
}

/// Figures of rounds.
#[derive(Default)]
struct RoundFigures(BTreeMap<&'static str, Vec<f64>>);

impl RoundFigures {
    fn add(&mut self, name: &'static str, value: f64) {
        self.0.entry(name).or_default().push(value);
    }

    /// 0 for a figure that no round has.
    fn median(&self, name: &'static str) -> f64 {
        let mut values = self.0.get(name).cloned().unwrap_or_default();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }
}

/// A rate with what it took of the processor, in seconds a GiB.
struct LoadRate {
    gib_per_s: f64,
    client_s: f64,
    servers_s: f64,
}

/// Runs all of it. Each row has its own ceiling.
pub(crate) fn fabric(options: &BenchOptions) -> Result<Vec<BenchReport>> {
    let bench = &mut FabricBench::new(options)?;
    let mut rows = vec![bench.bare_row()?];
    rows.extend(bench.one_server()?);
    rows.extend(bench.chain()?);
    rows.extend(bench.side_by_side()?);
    Ok(rows)
}

impl<'a> FabricBench<'a> {
    fn new(options: &'a BenchOptions) -> Result<FabricBench<'a>> {
        let provider = options.provider.as_str();
        let of_sockets = matches!(provider.split(';').next(), Some("tcp" | "sockets"));
        let address = options.fabric_address.clone().or_else(|| of_sockets.then(|| "127.0.0.1".to_owned()));
        let bare = BareTransfers::open(provider, address.clone(), if options.quick { SHORT_S / 5.0 } else { SHORT_S })?;
        Ok(FabricBench {
            options,
            provider,
            fabric: Arc::new(fabric_named(provider, address.clone())),
            tcp: Arc::new(fabric_named("none", None)),
            address,
            bare,
            data: ceiling::cold_data(),
            bytes: options.mib.unwrap_or(10) << 20,
            next: AtomicU64::new(0),
        })
    }

    fn seconds(&self, usual: f64) -> f64 {
        if self.options.quick { usual / 5.0 } else { usual }
    }

    fn start(&self, servers: usize) -> Result<Fleet> {
        let address = self.address.as_ref().map_or(String::new(), |of| format!("fabric_address = \"{of}\"\n"));
        Fleet::start(self.options, servers, &format!("fabric = \"{}\"\n{address}{MEMORY}", self.provider))
    }

    fn client(&self, fleet: &Fleet, host: &Arc<FabricHost>) -> Result<Client> {
        fleet.client_with(0, ClientOptions { fabric: host.clone(), ..ClientOptions::default() })
    }

    /// A client for each way.
    fn both(&self, fleet: &Fleet) -> Result<(Client, Client)> {
        Ok((self.client(fleet, &self.fabric)?, self.client(fleet, &self.tcp)?))
    }

    /// True words only: a provider that no connection uses would be measured as TCP.
    fn check_in_use(&self) -> Result<()> {
        let report = self.fabric.report();
        let used = !report.provider.is_empty() && report.counts.registrations > 0;
        ensure!(used, "no connection uses provider {}: {}", self.provider, report.trouble);
        Ok(())
    }

    fn warm(&self) -> Result<()> {
        let directory = self.options.dir.clone().unwrap_or_else(std::env::temp_dir);
        ceiling::warm_memory(&directory, if self.options.quick { WARM_BYTES / 10 } else { WARM_BYTES })
    }

    /// Runs `each` on as many threads as are in flight, again and again for so long. It returns the bytes it moved.
    fn load(
        &self,
        fleets: &[Fleet],
        seconds: f64,
        each: impl Fn(usize) -> Result<u64> + Send + Sync,
    ) -> Result<LoadRate> {
        let cpu_s = || fleets.iter().map(Fleet::cpu_s).sum::<Result<f64>>();
        let (before, watch, each) = (cpu_s()?, Stopwatch::start(), &each);
        let bytes = std::thread::scope(|scope| -> Result<u64> {
            let again = |thread| -> Result<u64> {
                let mut bytes = 0;
                while watch.seconds() < seconds {
                    bytes += each(thread)?;
                }
                Ok(bytes)
            };
            let threads: Vec<_> = (0..IN_FLIGHT).map(|thread| scope.spawn(move || again(thread))).collect();
            threads.into_iter().map(|thread| thread.join().ok().context("a thread of a load panicked")?).sum()
        })?;
        let (seconds, client_s, gib) = (watch.seconds(), watch.cpu_seconds(), bytes as f64 / GIB);
        Ok(LoadRate { gib_per_s: gib / seconds, client_s: client_s / gib, servers_s: (cpu_s()? - before) / gib })
    }

    fn prepare(&self, client: &Client) -> Result<()> {
        for number in 0..IN_FLIGHT {
            let file = make(client, &format!("/got-{number}"))?;
            write_all(&file, &self.data, self.bytes, "preparing")?;
            file.close()?;
        }
        settle(client).map(drop)
    }

    fn get(&self, client: &Client, number: usize) -> Result<u64> {
        let file = client.fs().open(&Path::path(format!("/got-{number}")), READ)?;
        stream(&file, 0, self.bytes)
    }

    /// A new file, from another part of the data each time.
    fn put(&self, client: &Client) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let from = (number * self.bytes % (self.data.len() as u64 - self.bytes)) as usize;
        let file = make(client, &format!("/put-{number}"))?;
        file.write_at(0, &self.data[from..from + self.bytes as usize])?;
        file.close()?;
        Ok(self.bytes)
    }

    /// The provider and the memory of this machine.
    fn bare_row(&mut self) -> Result<BenchReport> {
        let sizes = [
            (SMALL, "write_4_kib", "read_4_kib"),
            (64 << 10, "write_64_kib", "read_64_kib"),
            (LARGE, "write_1_mib", "read_1_mib"),
        ];
        let mut figures = RoundFigures::default();
        for _ in 0..self.options.scaled(None, SHORT_ROUNDS) {
            for (len, write, read) in sizes {
                let (written, fetched) =
                    (self.bare.rate(BareDirection::Get, len)?, self.bare.rate(BareDirection::Put, len)?);
                figures.add(write, written.gib_per_s);
                figures.add(read, fetched.gib_per_s);
                if len == LARGE {
                    figures.add("write_active_s", written.cpu_active_s);
                    figures.add("write_passive_s", written.cpu_passive_s);
                    figures.add("read_active_s", fetched.cpu_active_s);
                    figures.add("read_passive_s", fetched.cpu_passive_s);
                }
            }
            let (copy, check) = ceiling::copy_and_check_cpu_s(&self.data);
            figures.add("memcpy_s", copy);
            figures.add("crc_s", check);
        }
        let mut more: Vec<_> = sizes
            .into_iter()
            .flat_map(|(_, write, read)| [(write, "GiB/s (fi_write)"), (read, "GiB/s (fi_read)")])
            .map(|(name, unit)| (name, figures.median(name), unit))
            .collect();
        let loopback = ceiling::loopback_unpaced(LARGE, self.options.scaled(None, 1 << 30))?;
        more.extend([
            ("read_cpu_active_s_per_gib", figures.median("read_active_s"), "s (fi_read: the end that reads)"),
            ("read_cpu_passive_s_per_gib", figures.median("read_passive_s"), "s (the end that is read)"),
            ("memcpy_cpu_s_per_gib", figures.median("memcpy_s"), "s"),
            ("crc32c_cpu_s_per_gib", figures.median("crc_s"), "s"),
        ]);
        Ok(BenchReport {
            scenario: "fabric-bare",
            value: figures.median("write_1_mib"),
            unit: "GiB/s",
            ceiling: loopback,
            ceiling_name: "loopback TCP, 1 MiB messages, not paced",
            cpu_client_s: figures.median("write_passive_s"),
            cpu_server_s: figures.median("write_active_s"),
            cpu_per: "GiB of fi_write (client: the end that is written to)",
            server_peak_mib: 0.0,
            more,
        })
    }

    /// Everything that one server is measured for.
    fn one_server(&mut self) -> Result<Vec<BenchReport>> {
        let fleets = [self.start(1)?];
        let (fabric, tcp) = self.both(&fleets[0])?;
        self.prepare(&fabric)?;
        let mut figures = RoundFigures::default();
        let (requests, registered) = self.rounds(&fleets, &fabric, &tcp, &mut figures)?;
        let peak_mib = fleets[0].peak_mib();
        let mut rows = vec![
            self.rate_row(&figures, "fabric-get", &GET_NAMES, (BARE_WRITE, 0.90), peak_mib),
            self.rate_row(&figures, "fabric-put", &PUT_NAMES, (BARE_READ, 0.85), peak_mib),
            self.processor_row(&figures, registered as f64 / requests as f64, peak_mib),
            self.latency(&fabric, &tcp, peak_mib)?,
        ];
        drop((fabric, tcp));
        rows.push(self.storm(&fleets, "fabric-storm")?);
        rows.extend(self.sizes(&fleets, ["fabric-read-sizes", "fabric-write-sizes"])?);
        Ok(rows)
    }

    /// Gets and puts by both ways and bare, in turn. Requests of a mebibyte after the first round, and registrations
    /// of this process meanwhile.
    fn rounds(
        &mut self,
        fleets: &[Fleet],
        fabric: &Client,
        tcp: &Client,
        figures: &mut RoundFigures,
    ) -> Result<(u64, u64)> {
        let (rounds, seconds) = (self.options.scaled(None, ROUNDS), self.seconds(LOAD_S));
        let bar = progress("fabric", rounds + 1);
        let (mut requests, mut registered) = (0.0, 0);
        for round in 0..=rounds {
            // The first makes connections, and their slots.
            let is_first = round == 0;
            let mut add = |names: &RateNames, way: usize, rate: &LoadRate| {
                if !is_first {
                    figures.add(names.gib_s[way], rate.gib_per_s);
                    figures.add(names.client_s[way], rate.client_s);
                    figures.add(names.servers_s[way], rate.servers_s);
                }
                requests += if is_first { 0.0 } else { rate.gib_per_s * seconds * 1024.0 };
            };
            for (way, client) in [fabric, tcp].into_iter().enumerate() {
                add(&GET_NAMES, way, &self.load(fleets, seconds, |thread| self.get(client, thread))?);
            }
            for (way, client) in [fabric, tcp].into_iter().enumerate() {
                self.warm()?;
                add(&PUT_NAMES, way, &self.load(fleets, seconds, |_| self.put(client))?);
                settle(client)?;
            }
            if is_first {
                self.check_in_use()?;
                registered = self.fabric.report().counts.registrations;
                continue;
            }
            for (names, kind) in [(&GET_NAMES, BareDirection::Get), (&PUT_NAMES, BareDirection::Put)] {
                let TransferRate { gib_per_s, cpu_active_s, .. } = self.bare.rate(kind, LARGE)?;
                figures.add(names.bare_gib_s, gib_per_s);
                figures.add(names.bare_active_s, cpu_active_s);
            }
            let (copy, check) = ceiling::copy_and_check_cpu_s(&self.data);
            figures.add("memcpy_s", copy);
            figures.add("crc_s", check);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok((requests as u64, self.fabric.report().counts.registrations - registered))
    }

    fn rate_row(
        &self,
        figures: &RoundFigures,
        scenario: &'static str,
        names: &RateNames,
        (ceiling_name, goal): (&'static str, f64),
        server_peak_mib: f64,
    ) -> BenchReport {
        let [fabric, tcp] = names.gib_s.map(|name| figures.median(name));
        let ceiling = figures.median(names.bare_gib_s);
        BenchReport {
            scenario,
            value: fabric,
            unit: "GiB/s",
            ceiling,
            ceiling_name,
            cpu_client_s: figures.median(names.client_s[0]),
            cpu_server_s: figures.median(names.servers_s[0]),
            cpu_per: "GiB",
            server_peak_mib,
            more: vec![
                ("goal", goal, "of the ceiling"),
                ("tcp_gib_s", tcp, "GiB/s (the same servers, a client without a fabric)"),
                ("tcp_over_bare", tcp / ceiling, ""),
                ("over_tcp", fabric / tcp, ""),
                ("tcp_cpu_client_s", figures.median(names.client_s[1]), "s per GiB"),
                ("tcp_cpu_server_s", figures.median(names.servers_s[1]), "s per GiB"),
                ("bare_cpu_active_s", figures.median(names.bare_active_s), "s per GiB (the end that transfers)"),
            ],
        }
    }

    fn processor_row(&self, figures: &RoundFigures, registrations: f64, server_peak_mib: f64) -> BenchReport {
        let [fabric, tcp] = GET_NAMES.servers_s.map(|name| figures.median(name));
        let (copy, check) = (figures.median("memcpy_s"), figures.median("crc_s"));
        let bare = figures.median(GET_NAMES.bare_active_s);
        BenchReport {
            scenario: "fabric-cpu",
            value: fabric,
            unit: "s/GiB",
            ceiling: copy + check,
            ceiling_name: "memcpy and CRC32C of a GiB",
            cpu_client_s: figures.median(GET_NAMES.client_s[0]),
            cpu_server_s: fabric,
            cpu_per: "GiB of gets",
            server_peak_mib,
            more: vec![
                ("goal", 1.3, "of the ceiling, at most"),
                ("memcpy_s", copy, "s"),
                ("crc32c_s", check, "s"),
                ("bare_s", bare, "s (the end that transfers)"),
                ("over_memcpy_and_bare", fabric / (copy + bare), ""),
                ("tcp_s", tcp, "s (by TCP)"),
                ("tcp_over_ceiling", tcp / (copy + check), ""),
                (
                    "registrations_per_request",
                    registrations,
                    "(of the client's endpoint, as servers report none; goal 0)",
                ),
            ],
        }
    }

    /// One get and one put at a time.
    fn latency(&mut self, fabric: &Client, tcp: &Client, server_peak_mib: f64) -> Result<BenchReport> {
        let singles = self.options.scaled(self.options.ops.map(|ops| ops.min(SINGLES)), SINGLES);
        let (mut figures, watch) = (RoundFigures::default(), Stopwatch::start());
        for number in 0..singles {
            for (name, kind) in [("bare_write", BareDirection::Get), ("bare_read", BareDirection::Put)] {
                figures.add(name, self.bare.ms(kind, self.bytes)?);
            }
            for (get, put, client) in [("get", "put", fabric), ("tcp_get", "tcp_put", tcp)] {
                let one = Stopwatch::start();
                self.get(client, number as usize % IN_FLIGHT)?;
                figures.add(get, one.seconds() * 1e3);
                let one = Stopwatch::start();
                self.put(client)?;
                figures.add(put, one.seconds() * 1e3);
            }
        }
        let gib = (6 * singles * self.bytes) as f64 / GIB;
        let [get, put, tcp_get, tcp_put] = ["get", "put", "tcp_get", "tcp_put"].map(|name| figures.median(name));
        let [write, read] = ["bare_write", "bare_read"].map(|name| figures.median(name));
        settle(fabric)?;
        Ok(BenchReport {
            scenario: "fabric-idle",
            value: get,
            unit: "ms",
            ceiling: write,
            ceiling_name: "bare fi_write of the same bytes; the value is one get of 10 MiB",
            cpu_client_s: watch.cpu_seconds() / gib,
            cpu_server_s: 0.0,
            cpu_per: "GiB (of all ways, bare ends included)",
            server_peak_mib,
            more: vec![
                ("put_ms", put, "ms"),
                ("bare_read_ms", read, "ms"),
                ("put_over_bare", put / read, ""),
                ("tcp_get_ms", tcp_get, "ms"),
                ("tcp_put_ms", tcp_put, "ms"),
                ("get_over_tcp", get / tcp_get, ""),
                ("put_over_tcp", put / tcp_put, ""),
            ],
        })
    }

    /// A thousand gets at once, twice by each way: the first makes the connections.
    fn storm(&mut self, fleets: &[Fleet; 1], scenario: &'static str) -> Result<BenchReport> {
        let storm = Storm::of(self.options);
        let [fleet] = fleets;
        storm.prepare(&self.client(fleet, &self.tcp)?, &self.data)?;
        let ways = [&self.fabric, &self.tcp]
            .map(|host| -> Result<Vec<Client>> { (0..CLIENTS).map(|_| self.client(fleet, host)).collect() });
        let [fabric, tcp] = ways;
        let (fabric, tcp) = (fabric?, tcp?);
        let mut bare = vec![self.bare.rate(BareDirection::Get, LARGE)?.gib_per_s];
        let mut run = |clients: &[Client]| -> Result<_> {
            let cpu = fleet.cpu_s()?;
            let ((seconds, client_s), taken) = storm.run(clients, |load| {
                let watch = Stopwatch::start();
                load()?;
                Ok((watch.seconds(), watch.cpu_seconds()))
            })?;
            bare.push(self.bare.rate(BareDirection::Get, LARGE)?.gib_per_s);
            Ok((seconds, client_s, fleet.cpu_s()? - cpu, taken))
        };
        let (first_s, tcp_first_s) = (run(&fabric)?.0, run(&tcp)?.0);
        let (seconds, client_s, servers_s, taken) = run(&fabric)?;
        let (tcp_s, _, tcp_servers_s, tcp_taken) = run(&tcp)?;
        self.check_in_use()?;
        bare.sort_by(f64::total_cmp);
        let (bare, gib) = (bare[bare.len() / 2], (storm.gets * storm.bytes) as f64 / GIB);
        Ok(BenchReport {
            scenario,
            value: gib / seconds,
            unit: "GiB/s",
            ceiling: bare,
            ceiling_name: BARE_WRITE,
            cpu_client_s: client_s / gib,
            cpu_server_s: servers_s / gib,
            cpu_per: "GiB",
            server_peak_mib: fleet.peak_mib(),
            more: vec![
                ("goal", 0.90, "of the ceiling"),
                ("storm_s", seconds, "s (all gets; connections are there)"),
                ("first_s", first_s, "s (with new connections and their slots)"),
                ("mean_ms", taken.mean(), "ms a get"),
                ("p99_ms", taken.at(0.99), "ms"),
                ("p99_over_mean", taken.at(0.99) / taken.mean(), "(goal: 3 at most)"),
                ("tcp_s", tcp_s, "s"),
                ("tcp_first_s", tcp_first_s, "s"),
                ("tcp_mean_ms", tcp_taken.mean(), "ms"),
                ("tcp_p99_ms", tcp_taken.at(0.99), "ms"),
                ("tcp_p99_over_mean", tcp_taken.at(0.99) / tcp_taken.mean(), ""),
                ("tcp_cpu_server_s", tcp_servers_s / gib, "s per GiB"),
                ("over_tcp", tcp_s / seconds, ""),
            ],
        })
    }

    /// The storm, and puts, with three servers that are replicas of each other.
    fn chain(&mut self) -> Result<Vec<BenchReport>> {
        let fleets = [self.start(CHAINED)?];
        let storm = self.storm(&fleets, "fabric-storm-3")?;
        let (fabric, tcp) = self.both(&fleets[0])?;
        let mut figures = RoundFigures::default();
        for round in 0..=self.options.scaled(None, SHORT_ROUNDS) {
            for (way, client) in [&fabric, &tcp].into_iter().enumerate() {
                self.warm()?;
                let rate = self.load(&fleets, self.seconds(LOAD_S), |_| self.put(client))?;
                settle(client)?;
                // The first makes connections, those between servers too.
                if round > 0 {
                    figures.add(PUT_NAMES.gib_s[way], rate.gib_per_s);
                    figures.add(PUT_NAMES.client_s[way], rate.client_s);
                    figures.add(PUT_NAMES.servers_s[way], rate.servers_s);
                }
            }
            let bare = self.bare.rate(BareDirection::Put, LARGE)?;
            figures.add(PUT_NAMES.bare_gib_s, bare.gib_per_s);
            figures.add(PUT_NAMES.bare_active_s, bare.cpu_active_s);
        }
        // The bytes are transferred once for each replica.
        let third = (BARE_READ, 0.85 / CHAINED as f64);
        Ok(vec![storm, self.rate_row(&figures, "fabric-put-3", &PUT_NAMES, third, fleets[0].peak_mib())])
    }
}

/// Names of the figures of a load: by the fabric and by TCP, and bare.
struct RateNames {
    gib_s: [&'static str; 2],
    client_s: [&'static str; 2],
    servers_s: [&'static str; 2],
    bare_gib_s: &'static str,
    bare_active_s: &'static str,
}

const GET_NAMES: RateNames = RateNames {
    gib_s: ["get", "get_tcp"],
    client_s: ["get_client_s", "get_tcp_client_s"],
    servers_s: ["get_servers_s", "get_tcp_servers_s"],
    bare_gib_s: "bare_write",
    bare_active_s: "bare_write_active_s",
};
const PUT_NAMES: RateNames = RateNames {
    gib_s: ["put", "put_tcp"],
    client_s: ["put_client_s", "put_tcp_client_s"],
    servers_s: ["put_servers_s", "put_tcp_servers_s"],
    bare_gib_s: "bare_read",
    bare_active_s: "bare_read_active_s",
};
const READ: OpenFlags = OpenFlags { read: true, write: false };

/// Reads a range, and checks that it is whole.
fn stream(file: &File, from: u64, len: u64) -> Result<u64> {
    let read = file.read_stream::<frieze_client::Error>(ByteRange::new(from, from + len), DEPTH, |_| Ok(()))?;
    ensure!(read == len, "read {read} of {len} bytes");
    Ok(read)
}
