//! The client of one connection, as the server that transfers its payloads sees it.
//!
//! Guarantees: no transfer is made before transfers in both directions have worked; after a failure none is made until
//! the client asks for a new test.

use std::sync::Arc;

use bytes::Bytes;
use frieze_base::{Fault, Reason};
use frieze_locks::{Mutex, levels};
use frieze_wire::RemoteMemory;
use frieze_wire::fabric::{ConnectFabric, FabricOffer, PROBE_BYTES};

use crate::host::Fabric;
use crate::{FabricError, FabricHost, FabricPeer};

/// The client's end of a connection.
#[derive(Debug)]
pub struct ServedClient {
    host: Arc<FabricHost>,
    peer: Mutex<levels::ServedPeer, Option<Arc<FabricPeer>>>,
}

impl ServedClient {
    /// A client that has not asked for transfers yet.
    pub fn new(host: Arc<FabricHost>) -> ServedClient {
        ServedClient { host, peer: Mutex::default() }
    }

    /// This server's endpoint, for the greeting.
    pub fn offer(&self) -> Option<FabricOffer> {
        self.host.offer()
    }

    /// Tests transfers in both directions, and uses the client's memory from then on.
    ///
    /// # Errors
    /// `FabricFailed`: payloads go by TCP.
    pub fn connect(&self, ask: &ConnectFabric) -> Result<(), Fault> {
        *self.peer.lock() = None;
        let tested = self.test(ask);
        let peer = tested.map_err(|error| Fault::new(Reason::FabricFailed, error.to_string()))?;
        *self.peer.lock() = Some(Arc::new(peer));
        Ok(())
    }

    fn test(&self, ask: &ConnectFabric) -> Result<FabricPeer, FabricError> {
        let fabric = self.host.current().ok_or(FabricError::Closed)?;
        let failed_before = fabric.endpoint().core().has_failed(&ask.offer.address);
        test(&fabric, ask).inspect_err(|error| {
            if failed_before && error.is_of_transfer() {
                // The client asks for another test in a moment.
                self.host.give_up(&fabric);
            }
        })
    }

    /// The client, if transfers with it work.
    pub fn peer(&self) -> Option<Arc<FabricPeer>> {
        self.peer.lock().clone().filter(|peer| peer.is_up())
    }

    /// Fetches the payload of a write.
    ///
    /// # Errors
    /// `FabricFailed`: the client sends it again by TCP.
    pub fn fetch(&self, from: &RemoteMemory) -> Result<Bytes, Fault> {
        let failed = |words: String| Fault::new(Reason::FabricFailed, words);
        let peer = self.peer().ok_or_else(|| failed("transfers with this client are not in use".to_owned()))?;
        peer.fetch(from, from.len as usize).map_err(|error| failed(error.to_string()))
    }
}

/// Reads the pattern, and writes its complement behind it.
fn test(fabric: &Arc<Fabric>, ask: &ConnectFabric) -> Result<FabricPeer, FabricError> {
    let (own, theirs) = (fabric.endpoint().protocol(), ask.offer.protocol);
    if own != theirs {
        return Err(FabricError::Address(format!("the endpoints have the protocols {own} and {theirs}")));
    }
    let peer = FabricPeer::new(fabric, &ask.offer.address)?;
    let pattern = peer.fetch(&ask.memory, PROBE_BYTES)?;
    let behind = RemoteMemory {
        address: ask.memory.address.wrapping_add(PROBE_BYTES as u64),
        len: ask.memory.len.saturating_sub(PROBE_BYTES as u32),
        ..ask.memory
    };
    let mut writer = peer.write_into(behind, PROBE_BYTES)?;
    writer.next(PROBE_BYTES).iter_mut().zip(&pattern).for_each(|(to, from)| *to = !from);
    writer.send(PROBE_BYTES)?;
    writer.finish()?;
    Ok(peer)
}
