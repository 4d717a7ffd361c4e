//! Payloads of records on their way down a chain: the successor fetches them from rooms of its predecessor.
//!
//! Guarantees: a room whose payload was named stays as it is until [`KEPT_MAX`] others were named or the connection has
//! ended; what was overwritten before it was fetched fails the checksum of its record, and the record is sent again, as
//! any that was lost. After a failure payloads go by TCP until the successor has tested another room.
//! Leaves to others: records, their checksums and their repetition (`replication`, `node`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use frieze_base::{MonoTime, crc32c};
use frieze_locks::{Mutex, levels};
use frieze_wire::RemoteMemory;
use frieze_wire::peer::{HopAnswer, HopOffer};

use crate::host::Fabric;
use crate::rooms::ROOM_BYTES;
use crate::{FabricError, FabricHost, FabricPeer};

/// Payloads that stay in their rooms after they were named.
const KEPT_MAX: usize = 32;
/// Least bytes of a payload that is fetched.
const HOP_BYTES_MIN: usize = 64 << 10;
/// Bytes that a test transfers.
const TEST_BYTES: usize = 4096;
/// Wait before another test after a failure.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// The predecessor's end of a connection.
#[derive(Debug)]
pub struct HopSender {
    host: Option<Arc<FabricHost>>,
    state: Mutex<levels::HopState, HopState>,
}

#[derive(Debug)]
struct HopState {
    /// Number of the connection; 0 without one.
    connection: u64,
    fabric: Option<Arc<Fabric>>,
    /// The successor has fetched a test.
    works: bool,
    /// When the next test is due, and the wait after the one before.
    next_test: MonoTime,
    wait: Duration,
    kept: VecDeque<Bytes>,
}

impl HopSender {
    /// The end of a connection that is still to be opened.
    pub fn new(host: Option<Arc<FabricHost>>) -> HopSender {
        let state = HopState {
            connection: 0,
            fabric: None,
            works: false,
            next_test: MonoTime(0),
            wait: WAIT_MIN,
            kept: VecDeque::new(),
        };
        HopSender { host, state: Mutex::new(state) }
    }

    /// A connection with this number is open, or, with 0, has ended.
    pub fn open(&self, connection: u64) {
        let mut state = self.state.lock();
        (state.connection, state.works, state.next_test) = (connection, false, MonoTime(0));
        let kept = std::mem::take(&mut state.kept);
        let fabric = state.fabric.take();
        drop(state);
        drop((kept, fabric));
    }

    /// A test for the successor, if one is due.
    pub fn offer(&self, now: MonoTime) -> Option<HopOffer> {
        let host = self.host.as_ref().filter(|host| !host.is_off())?;
        let is_due = {
            let state = self.state.lock();
            state.connection != 0 && !state.works && now >= state.next_test
        };
        if !is_due {
            return None;
        }
        let made = host.current().ok_or(FabricError::Closed).and_then(|fabric| {
            let pattern: Vec<u8> =
                (0..TEST_BYTES as u64).map(|at| (now.0 ^ at.wrapping_mul(0x9e37_79b9)) as u8).collect();
            Ok((fabric.rooms().take()?.share(&pattern), fabric))
        });
        let mut state = self.state.lock();
        let state = &mut *state;
        state.next_test = MonoTime(now.0.saturating_add(state.wait.as_nanos() as u64));
        state.wait = (state.wait * 2).min(WAIT_MAX);
        let (test, fabric) = made.ok()?;
        let (memory, offer) = (fabric.rooms().find(&test)?, fabric.for_servers()?.offer());
        let offer = HopOffer { connection: state.connection, offer, memory, crc: crc32c(&test) };
        state.fabric = Some(fabric);
        state.keep(test);
        Some(offer)
    }

    /// The successor says whether it can fetch.
    pub fn on_answer(&self, answer: &HopAnswer) {
        let mut state = self.state.lock();
        if state.connection == answer.connection {
            state.works = answer.works;
            if answer.works {
                state.wait = WAIT_MIN;
            }
        }
    }

    /// Where the successor fetches this payload; none: it goes by TCP. Copies bytes that lie in no room.
    pub fn lend(&self, bytes: &Bytes) -> Option<RemoteMemory> {
        if !(HOP_BYTES_MIN..=ROOM_BYTES).contains(&bytes.len()) {
            return None;
        }
        let mut state = self.state.lock();
        let fabric = state.fabric.clone().filter(|_| state.works)?;
        let lent = match fabric.rooms().find(bytes) {
            Some(memory) => Some((memory, bytes.clone())),
            None => fabric.rooms().take().ok().and_then(|room| {
                let copy = room.share(bytes);
                Some((fabric.rooms().find(&copy)?, copy))
            }),
        };
        let (memory, kept) = lent?;
        let oldest = state.keep(kept);
        drop(state);
        drop(oldest);
        Some(memory)
    }
}

impl HopState {
    /// Keeps a payload, and returns the one that is kept no longer.
    fn keep(&mut self, bytes: Bytes) -> Option<Bytes> {
        self.kept.push_back(bytes);
        if self.kept.len() > KEPT_MAX { self.kept.pop_front() } else { None }
    }
}

/// The successor's end of a connection.
#[derive(Debug, Default)]
pub struct HopReceiver {
    peer: Option<FabricPeer>,
    connection: u64,
}

impl HopReceiver {
    /// Fetches the test of an offer, and says whether that worked.
    pub fn accept(&mut self, host: Option<&FabricHost>, offer: &HopOffer) -> HopAnswer {
        self.connection = offer.connection;
        self.peer = host.and_then(|host| test(host, offer).ok());
        HopAnswer { connection: offer.connection, works: self.peer.is_some() }
    }

    /// Fetches a payload.
    ///
    /// # Errors
    /// Those of [`FabricPeer::fetch`]: the record is lost, and the answer says that payloads have to go by TCP.
    pub fn fetch(&mut self, memory: &RemoteMemory) -> Result<Bytes, (FabricError, HopAnswer)> {
        let fetched = match &self.peer {
            Some(peer) => peer.fetch(memory, memory.len as usize),
            None => Err(FabricError::Closed),
        };
        fetched.map_err(|error| {
            self.peer = None;
            (error, HopAnswer { connection: self.connection, works: false })
        })
    }
}

/// Fetches the test. If the endpoint does not reach the sender, it is opened again before the next.
fn test(host: &FabricHost, offer: &HopOffer) -> Result<FabricPeer, FabricError> {
    let fabric = host.current().ok_or(FabricError::Closed)?;
    let failed_before = fabric.for_servers().is_some_and(|servers| servers.core().has_failed(&offer.offer.address));
    fetch_test(&fabric, offer).inspect_err(|error| {
        if failed_before && error.is_of_transfer() {
            host.replace(&fabric);
        }
    })
}

fn fetch_test(fabric: &Arc<Fabric>, offer: &HopOffer) -> Result<FabricPeer, FabricError> {
    let own = fabric.for_servers().map(crate::Endpoint::protocol);
    if own != Some(offer.offer.protocol) {
        return Err(FabricError::Address(format!("its protocol is {}, not {own:?}", offer.offer.protocol)));
    }
    let peer = FabricPeer::of_server(fabric, &offer.offer.address)?;
    let fetched = peer.fetch(&offer.memory, offer.memory.len as usize)?;
    let is_intact = crc32c(&fetched) == offer.crc;
    if is_intact { Ok(peer) } else { Err(FabricError::Transfer("what was fetched is not what was sent".to_owned())) }
}
