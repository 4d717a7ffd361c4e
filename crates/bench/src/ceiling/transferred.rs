//! Bare transfers of a provider: what a server's transfers of payloads are set beside.

use anyhow::{Context, Result};
use frieze_fabric::{BareLoop, EndpointOptions};

use super::GIB;
use crate::stopwatch::{Stopwatch, thread_cpu_s};

/// What a transfer does, as the client of a server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BareDirection {
    /// The server writes into memory of its client.
    Get,
    /// The server reads from memory of its client.
    Put,
}

/// Both ends of a provider in this process, and what they moved.
pub(crate) struct BareTransfers {
    bare: BareLoop,
    /// For how long a rate is measured.
    seconds: f64,
}

/// A rate with what it took of the processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferRate {
    pub(crate) gib_per_s: f64,
    /// CPU seconds a GiB of the end that transfers: it stands for the server.
    pub(crate) cpu_active_s: f64,
    /// Of the other end.
    pub(crate) cpu_passive_s: f64,
}

impl BareTransfers {
    /// Opens the two ends. A rate is measured for `seconds`.
    pub(crate) fn open(provider: &str, address: Option<String>, seconds: f64) -> Result<BareTransfers> {
        let options = EndpointOptions { provider: provider.to_owned(), address };
        let bare = BareLoop::open(&options).with_context(|| format!("no bare transfers by provider {provider}"))?;
        Ok(BareTransfers { bare, seconds })
    }

    fn transfer(&mut self, kind: BareDirection, len: usize, count: u64) -> Result<f64> {
        let watch = Stopwatch::start();
        match kind {
            BareDirection::Get => self.bare.write(len, count)?,
            BareDirection::Put => self.bare.read(len, count)?,
        }
        Ok(watch.seconds())
    }

    /// Transfers of `len` bytes, as many in flight as the loop has.
    pub(crate) fn rate(&mut self, kind: BareDirection, len: usize) -> Result<TransferRate> {
        let tried = 8 * BareLoop::DEPTH as u64;
        let seconds = self.transfer(kind, len, tried)?;
        let count = (tried as f64 * self.seconds / seconds) as u64 + tried;
        let (watch, active) = (Stopwatch::start(), thread_cpu_s());
        let seconds = self.transfer(kind, len, count)?;
        let (all, active) = (watch.cpu_seconds(), thread_cpu_s() - active);
        let gib = count as f64 * len as f64 / GIB;
        Ok(TransferRate { gib_per_s: gib / seconds, cpu_active_s: active / gib, cpu_passive_s: (all - active) / gib })
    }

    /// Milliseconds until `bytes` have been moved, in transfers of 1 MiB that begin together.
    pub(crate) fn ms(&mut self, kind: BareDirection, bytes: u64) -> Result<f64> {
        let count = bytes.div_ceil(BareLoop::TRANSFER_BYTES_MAX as u64);
        Ok(self.transfer(kind, BareLoop::TRANSFER_BYTES_MAX, count)? * 1e3)
    }
}
