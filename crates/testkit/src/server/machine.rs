//! A machine: what outlives its server.

use std::collections::BTreeMap;
use std::sync::Arc;

use frieze_base::Fault;
use frieze_disk::{CrashKind, Disk, SimDisk, SimTime};
use frieze_node::{MemoryStore, ProcessStats, Seams, Settings, VersionStore, no_wake};
use frieze_wire::txn::Caller;

use super::TestServer;
use super::connection::TestConnection;

/// Disk, store and clock of one machine, all simulated.
pub struct SimMachine {
    /// Segments, identity and everything else in files.
    pub disk: SimDisk,
    /// The machine's clocks, moved by hand.
    pub time: SimTime,
    /// The store of metadata.
    pub store: MemoryStore,
    /// Number of the boot: while it is the same, the page cache has survived.
    pub boot: u32,
    /// Settings of the next server.
    pub settings: Settings,
}

/// Settings of servers in tests: small segments and chunks, three chains.
pub fn test_settings() -> Settings {
    Settings {
        dir: "simulated".into(),
        segment_bytes: 8 << 20,
        chunk_bytes: 64 << 10,
        chain_count: 3,
        reserve_bytes: 1 << 20,
        root_mode: Some(0o1777),
        ..Settings::default()
    }
}

impl SimMachine {
    /// An empty machine whose disk fails and tears under this seed.
    pub fn new(seed: u64) -> SimMachine {
        let time = SimTime::new(1_700_000_000_000_000);
        SimMachine { disk: SimDisk::new(seed), time, store: MemoryStore::default(), boot: 1, settings: test_settings() }
    }

    /// The parts of a server on this machine. `entropy` is 64 bytes that no other start draws.
    pub fn seams(&self, disk: Arc<dyn Disk>, store: Box<dyn VersionStore>, entropy: [u8; 64]) -> Seams {
        Seams {
            disk,
            time: Arc::new(self.time.clone()),
            store,
            boot: format!("boot {}", self.boot),
            entropy,
            wake: no_wake(),
            process: Box::new(ProcessStats::default),
            keys: BTreeMap::new(),
            owner: Caller::root(),
        }
    }

    /// Starts a server.
    ///
    /// # Errors
    /// The directory is refused, or the disk fails.
    pub fn try_serve(&self) -> Result<TestServer, Fault> {
        self.open(Box::new(self.store.clone()))
    }

    /// Starts a server whose metadata is in `store`.
    ///
    /// # Errors
    /// As for `try_serve`.
    pub fn open(&self, store: Box<dyn VersionStore>) -> Result<TestServer, Fault> {
        self.open_on(Arc::new(self.disk.clone()), store)
    }

    /// Starts a server whose files are on `disk` and whose metadata is in `store`.
    ///
    /// # Errors
    /// As for `try_serve`.
    pub fn open_on(&self, disk: Arc<dyn Disk>, store: Box<dyn VersionStore>) -> Result<TestServer, Fault> {
        TestServer::open(self.settings.clone(), self.seams(disk, store, [9; 64]))
    }

    /// Starts a server and connects to it as root.
    pub fn serve(&self) -> TestConnection {
        self.serve_as(Caller::root())
    }

    /// Starts a server and connects to it.
    pub fn serve_as(&self, caller: Caller) -> TestConnection {
        self.connect(self.try_serve().expect("opens"), caller)
    }

    /// Connects to a server of this machine, as soon as it may stamp changes.
    pub fn connect(&self, server: TestServer, caller: Caller) -> TestConnection {
        self.time.advance_us(server.restart_wait_us());
        TestConnection::new(server, caller)
    }

    /// The page cache is lost, and everything that was not flushed.
    pub fn lose_power(&mut self) {
        self.crash(CrashKind::Power);
    }

    /// The server is gone; after a loss of power, the page cache too.
    pub fn crash(&mut self, kind: CrashKind) {
        self.disk.crash(kind);
        self.disk.restart();
        self.store.lose_memory();
        if kind == CrashKind::Power {
            self.boot += 1;
        }
    }

    /// File and offset of these bytes in a segment.
    pub fn find(&self, needle: &[u8]) -> (String, u64) {
        for name in self.disk.list().unwrap().into_iter().filter(|name| name.starts_with("seg-")) {
            let file = self.disk.open(&name).unwrap();
            let mut bytes = vec![0; file.len().unwrap() as usize];
            file.read_at(0, &mut bytes).unwrap();
            if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
                return (name, at as u64);
            }
        }
        panic!("no segment contains these {} bytes", needle.len());
    }

    /// Flips a bit in the record of `bytes`, in its byte number `at`.
    pub fn rot(&self, bytes: &[u8], at: usize) {
        let (name, start) = self.find(&bytes[..64]);
        self.disk.flip_bit(&name, start + at as u64, 3).unwrap();
    }
}
