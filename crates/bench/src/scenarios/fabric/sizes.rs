//! Requests of several sizes, beside bare transfers of as many bytes: figures 7b and 8b of FFFS as ratios to the
//! provider.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use frieze_client::File;

use super::{BARE_READ, BARE_WRITE, FabricBench, IN_FLIGHT, RoundFigures, SHORT_ROUNDS, SHORT_S, stream};
use crate::ceiling::BareDirection;
use crate::fleet::Fleet;
use crate::report::BenchReport;
use crate::scenarios::sequential::{make, write_all};
use crate::scenarios::{LARGE, settle};

/// Bytes that a thread of a load by size has to itself.
const SPAN_BYTES: u64 = 16 << 20;
/// Sizes of requests (FFFS, figures 7b and 8b), and the names of their figures.
const SIZES: [(usize, &str, &str); 6] = [
    (4 << 10, "of_4_kib", "of_4_kib_over_bare"),
    (16 << 10, "of_16_kib", "of_16_kib_over_bare"),
    (64 << 10, "of_64_kib", "of_64_kib_over_bare"),
    (256 << 10, "of_256_kib", "of_256_kib_over_bare"),
    (1 << 20, "of_1_mib", "of_1_mib_over_bare"),
    (4 << 20, "of_4_mib", "of_4_mib_over_bare"),
];

/// The largest of them.
const LAST: &str = SIZES[SIZES.len() - 1].1;
/// Servers side by side.
const BESIDE: usize = 4;

impl FabricBench<'_> {
    /// Requests of several sizes at four servers that know nothing of each other.
    pub(super) fn side_by_side(&mut self) -> Result<Vec<BenchReport>> {
        let fleets = (0..BESIDE).map(|_| self.start(1)).collect::<Result<Vec<_>>>()?;
        self.sizes(&fleets, ["fabric-read-sizes-4", "fabric-write-sizes-4"])
    }

    /// Requests of each size, from threads that are spread over the servers.
    pub(super) fn sizes(&mut self, fleets: &[Fleet], names: [&'static str; 2]) -> Result<Vec<BenchReport>> {
        let clients = fleets.iter().map(|fleet| self.client(fleet, &self.fabric)).collect::<Result<Vec<_>>>()?;
        let files = (0..IN_FLIGHT)
            .map(|thread| {
                let file = make(&clients[thread % clients.len()], &format!("/sized-{thread}"))?;
                write_all(&file, &self.data, SPAN_BYTES, "preparing")?;
                Ok(file)
            })
            .collect::<Result<Vec<File>>>()?;
        clients.iter().try_for_each(|client| settle(client).map(drop))?;
        let mut rows = Vec::new();
        for (scenario, kind) in names.into_iter().zip([BareDirection::Get, BareDirection::Put]) {
            let mut figures = RoundFigures::default();
            let rounds = 0..self.options.scaled(None, SHORT_ROUNDS);
            for (len, name, over_bare) in rounds.flat_map(|_| SIZES) {
                let at = Vec::from_iter((0..IN_FLIGHT).map(|_| AtomicU64::new(0)));
                let each = |thread: usize| -> Result<u64> {
                    let from = at[thread].fetch_add(len as u64, Ordering::Relaxed) % SPAN_BYTES;
                    match kind {
                        BareDirection::Get => stream(&files[thread], from, len as u64),
                        BareDirection::Put => {
                            files[thread].write_at(from, &self.data[from as usize..from as usize + len])?;
                            Ok(len as u64)
                        }
                    }
                };
                let rate = self.load(fleets, self.seconds(SHORT_S), each)?;
                clients.iter().try_for_each(|client| settle(client).map(drop))?;
                let bare = self.bare.rate(kind, len.min(LARGE))?.gib_per_s;
                figures.add(name, rate.gib_per_s);
                figures.add(over_bare, rate.gib_per_s / bare);
                // The last size is the paper's: its figures stand in the row itself.
                if name == LAST {
                    figures.add("bare", bare);
                    figures.add("client_s", rate.client_s);
                    figures.add("servers_s", rate.servers_s);
                }
            }
            let row = |(_, rate, ratio)| {
                [(rate, figures.median(rate), "GiB/s"), (ratio, figures.median(ratio), "of bare ones of this size")]
            };
            rows.push(BenchReport {
                scenario,
                value: figures.median(LAST),
                unit: "GiB/s",
                ceiling: figures.median("bare"),
                ceiling_name: if kind == BareDirection::Get { BARE_WRITE } else { BARE_READ },
                cpu_client_s: figures.median("client_s"),
                cpu_server_s: figures.median("servers_s"),
                cpu_per: "GiB of 4 MiB requests",
                server_peak_mib: fleets.iter().map(Fleet::peak_mib).fold(0.0, f64::max),
                more: SIZES.into_iter().flat_map(row).collect(),
            });
        }
        Ok(rows)
    }
}
