//! Memory of clients, and the keys that reach it.

use std::collections::BTreeMap;

use frieze_wire::RemoteMemory;

use super::breakage::FabricBreak;
use super::kit::{FabricKit, SLOT_BYTES};
use crate::violation::{Rule, Verdict, broken};

/// What memory is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotUse {
    /// A slot that no request has.
    Free,
    /// A slot of this request.
    Lent(u64),
    /// A slot with the payload of this request.
    Landed(u64),
    /// It was freed, and is no slot any more.
    Other,
}

struct SlotMemory {
    bytes: Vec<u8>,
    used: SlotUse,
}

/// Memory of all clients that is, or was, registered; a slot's address is its key's, for keys are never used again.
#[derive(Default)]
pub(super) struct ClientMemory {
    slots: BTreeMap<u64, SlotMemory>,
    /// Whether each key is open.
    keys: BTreeMap<u64, bool>,
}

impl ClientMemory {
    /// Registers a slot with what was in that memory before. Returns its key.
    pub(super) fn register(&mut self, kit: &mut FabricKit) -> u64 {
        let key = kit.number();
        let mut bytes = vec![0; SLOT_BYTES];
        kit.rng.fill(&mut bytes);
        self.slots.insert(key, SlotMemory { bytes, used: SlotUse::Free });
        self.keys.insert(key, true);
        key
    }

    pub(super) fn close_key(&mut self, key: u64) {
        self.keys.insert(key, false);
    }

    pub(super) fn remote(key: u64, len: usize) -> RemoteMemory {
        RemoteMemory { address: key << 16, key, len: len as u32 }
    }

    pub(super) fn set_use(&mut self, key: u64, used: SlotUse) {
        self.slot(key).used = used;
    }

    pub(super) fn used(&self, key: u64) -> SlotUse {
        self.slots[&key].used
    }

    pub(super) fn bytes(&self, key: u64, len: usize) -> &[u8] {
        &self.slots[&key].bytes[..len]
    }

    /// The client writes into its own memory.
    pub(super) fn fill(&mut self, key: u64, bytes: &[u8]) {
        self.slot(key).bytes[..bytes.len()].copy_from_slice(bytes);
    }

    fn slot(&mut self, key: u64) -> &mut SlotMemory {
        self.slots.get_mut(&key).expect("it was registered")
    }

    fn is_open(&self, key: u64, kit: &FabricKit) -> bool {
        self.keys.get(&key).is_some_and(|open| *open || kit.is_broken(FabricBreak::ClosedKeyAccepted))
    }

    fn span(remote: &RemoteMemory, at: usize, len: usize) -> std::ops::Range<usize> {
        let start = (remote.address - (remote.key << 16)) as usize + at;
        start..start + len
    }

    /// The server reads; none if the key is of no use.
    pub(super) fn read(&self, kit: &FabricKit, remote: &RemoteMemory, at: usize, len: usize) -> Option<Vec<u8>> {
        let span = ClientMemory::span(remote, at, len);
        self.is_open(remote.key, kit).then(|| self.slots[&remote.key].bytes[span].to_vec())
    }

    /// True if these bytes are there already.
    pub(super) fn has(&self, remote: &RemoteMemory, at: usize, bytes: &[u8]) -> bool {
        let span = ClientMemory::span(remote, at, bytes.len());
        self.slots.get(&remote.key).is_some_and(|slot| slot.bytes[span] == *bytes)
    }

    /// The server writes for a request; false if the key is of no use.
    pub(super) fn write(
        &mut self,
        kit: &FabricKit,
        (remote, at): (&RemoteMemory, usize),
        bytes: &[u8],
        request: u64,
    ) -> Verdict<bool> {
        if !self.is_open(remote.key, kit) {
            return Ok(false);
        }
        let slot = self.slot(remote.key);
        if ![SlotUse::Lent(request), SlotUse::Landed(request)].contains(&slot.used) {
            let what = format!("bytes of request {request} land in memory {} that is {:?}", remote.key, slot.used);
            return broken(Rule::Memory, what);
        }
        slot.bytes[ClientMemory::span(remote, at, bytes.len())].copy_from_slice(bytes);
        Ok(true)
    }
}
