//! How the server is.

/// Asks how the server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {}

/// How the server is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusReply {
    /// `healthy`, or the troubles as text.
    #[prost(string, tag = "1")]
    pub health: String,
    /// Clock-error bound, microseconds; `u64::MAX`: unknown.
    #[prost(uint64, tag = "2")]
    pub clock_error_us: u64,
    /// True if the node has fenced itself: read-only.
    #[prost(bool, tag = "3")]
    pub fenced: bool,
    /// Newest stamp given.
    #[prost(uint64, tag = "4")]
    pub newest: u64,
    /// Earliest readable instant.
    #[prost(uint64, tag = "5")]
    pub earliest: u64,
    /// Newest closed instant.
    #[prost(uint64, tag = "6")]
    pub stable: u64,
    /// Every record stamped up to it is on stable storage.
    #[prost(uint64, tag = "7")]
    pub durable: u64,
    /// Bytes acknowledged and not yet on stable storage.
    #[prost(uint64, tag = "8")]
    pub dirty_bytes: u64,
    /// Age of the oldest of them, milliseconds.
    #[prost(uint64, tag = "9")]
    pub dirty_age_ms: u64,
    /// Bytes of the device that frieze may use.
    #[prost(uint64, tag = "10")]
    pub capacity_bytes: u64,
    /// Bytes free for data, the reserve left out.
    #[prost(uint64, tag = "11")]
    pub free_bytes: u64,
    /// Bytes of records, history included.
    #[prost(uint64, tag = "12")]
    pub log_bytes: u64,
    /// Records.
    #[prost(uint64, tag = "13")]
    pub records: u64,
    /// Inodes alive.
    #[prost(uint64, tag = "14")]
    pub inodes: u64,
    /// Open sessions.
    #[prost(uint64, tag = "15")]
    pub sessions: u64,
    /// Open connections.
    #[prost(uint64, tag = "16")]
    pub connections: u64,
    /// Resident memory of the server now, bytes.
    #[prost(uint64, tag = "17")]
    pub resident_bytes: u64,
    /// Largest resident memory so far, bytes.
    #[prost(uint64, tag = "18")]
    pub resident_bytes_peak: u64,
    /// CPU time used by the server so far, nanoseconds.
    #[prost(uint64, tag = "19")]
    pub cpu_ns: u64,
    /// Lost intervals, oldest first.
    #[prost(message, repeated, tag = "20")]
    pub gaps: Vec<Gap>,
    /// Software and version.
    #[prost(string, tag = "21")]
    pub software: String,
    /// Cluster, 32 hex digits.
    #[prost(string, tag = "22")]
    pub cluster: String,
    /// Milliseconds since the server began to serve.
    #[prost(uint64, tag = "23")]
    pub uptime_ms: u64,
    /// Last position of the metalog.
    #[prost(uint64, tag = "24")]
    pub metalog_index: u64,
    /// Bytes of memory that the index of the device log holds.
    #[prost(uint64, tag = "25")]
    pub index_bytes: u64,
    /// Newest instant at which everything was whole at the last crash; 0 if none is known to have lost anything.
    #[prost(uint64, tag = "26")]
    pub last_whole: u64,
    /// Bytes of records that were forgotten since the server started, or found forgotten when it did.
    #[prost(uint64, tag = "27")]
    pub forgotten_bytes: u64,
    /// Bytes of those that are not given back yet.
    #[prost(uint64, tag = "28")]
    pub forgotten_waiting_bytes: u64,
    /// While a forgetting is planned: files and directories read so far, each up to three times.
    #[prost(uint64, tag = "29")]
    pub forgetting_looked_at: u64,
    /// How many there are to look at; 0 while they are still being found, or if nothing is being forgotten.
    #[prost(uint64, tag = "30")]
    pub forgetting_to_look_at: u64,
    /// Places of the stored data known to be damaged.
    #[prost(uint64, tag = "100")]
    pub damaged: u64,
    /// When everything stored was last scrubbed; 0 for never.
    #[prost(uint64, tag = "101")]
    pub scrubbed: u64,
    /// While a scrub is under way: bytes read, and to read.
    #[prost(uint64, tag = "102")]
    pub scrub_done_bytes: u64,
    /// See `scrub_done_bytes`; 0 if none is.
    #[prost(uint64, tag = "103")]
    pub scrub_all_bytes: u64,
    /// Reads refused because stored data is damaged, since the server started.
    #[prost(uint64, tag = "104")]
    pub corrupt_reads: u64,
    /// When the next scrub begins by itself; 0 if none does, or one is under way.
    #[prost(uint64, tag = "105")]
    pub scrub_due: u64,
    /// Thinned history; absent while no file has a policy of retention.
    #[prost(message, optional, boxed, tag = "170")]
    pub thinned: Option<Box<ThinnedStatus>>,
    /// Images: pages that are stored in one place.
    #[prost(message, optional, boxed, tag = "110")]
    pub images: Option<Box<ImageStatus>>,
    /// Most bytes of memory that the index may hold.
    #[prost(uint64, tag = "40")]
    pub index_bytes_max: u64,
    /// Records whose index is on disk too: their files need not be in memory.
    #[prost(uint64, tag = "41")]
    pub shelved_records: u64,
    /// Bytes that the index takes on disk.
    #[prost(uint64, tag = "42")]
    pub shelf_bytes: u64,
    /// Division of the memory, and its use.
    #[prost(message, optional, boxed, tag = "120")]
    pub memory: Option<Box<MemoryUse>>,
    /// Flushes of records to stable storage since the server started.
    #[prost(uint64, tag = "140")]
    pub flushes: u64,
    /// Median of the bytes that one of them brought there, to within an eighth; 0 if there was none.
    #[prost(uint64, tag = "141")]
    pub flush_bytes_median: u64,
    /// Troubles, the most urgent first; empty if `health` is `healthy`.
    #[prost(message, repeated, tag = "150")]
    pub troubles: Vec<Trouble>,
    /// One-sided transfers of payloads; absent if the settings exclude them.
    #[prost(message, optional, boxed, tag = "160")]
    pub fabric: Option<Box<FabricStatus>>,
}

/// One-sided transfers since their endpoints were opened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FabricStatus {
    /// Name of the provider; empty: payloads go by TCP.
    #[prost(string, tag = "1")]
    pub provider: String,
    /// Why there is none.
    #[prost(string, tag = "2")]
    pub trouble: String,
    /// Transfers into memory of clients.
    #[prost(uint64, tag = "3")]
    pub writes: u64,
    /// Transfers from memory of clients.
    #[prost(uint64, tag = "4")]
    pub reads: u64,
    /// Transfers from memory of other servers.
    #[prost(uint64, tag = "5")]
    pub server_reads: u64,
    /// Bytes of all.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// Transfers that failed, or did not end in time: their payloads went by TCP.
    #[prost(uint64, tag = "7")]
    pub failures: u64,
    /// Bytes of memory that are registered for payloads.
    #[prost(uint64, tag = "8")]
    pub registered_bytes: u64,
    /// Registrations of memory.
    #[prost(uint64, tag = "9")]
    pub registrations: u64,
}

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Trouble {
    /// The trouble, on which server or chains, and since when, as text.
    #[prost(string, tag = "1")]
    pub what: String,
    /// What an operator does about it, as text.
    #[prost(string, tag = "2")]
    pub remedy: String,
}

/// How a chain is, as one of its nodes sees it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReplicaStatus {
    /// The chain.
    #[prost(uint32, tag = "1")]
    pub chain: u32,
    /// Its configuration.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// Its members, head first.
    #[prost(uint32, repeated, tag = "3")]
    pub members: Vec<u32>,
    /// The syncing node; 0: none.
    #[prost(uint32, tag = "4")]
    pub syncing: u32,
    /// The tail is new and answers no read of now yet.
    #[prost(bool, tag = "5")]
    pub joining: bool,
    /// Number of the last record here.
    #[prost(uint64, tag = "6")]
    pub last: u64,
    /// Number of the last one that is committed, as far as is known here.
    #[prost(uint64, tag = "7")]
    pub clean: u64,
    /// Bytes that are here and not committed.
    #[prost(uint64, tag = "8")]
    pub in_flight_bytes: u64,
    /// The closed timestamp.
    #[prost(uint64, tag = "9")]
    pub closed: u64,
    /// Records that the syncing node still lacks, as far as it is known here.
    #[prost(uint64, tag = "10")]
    pub behind: u64,
    /// Why this node takes part no more, in words; empty: it does.
    #[prost(string, tag = "11")]
    pub failed: String,
}

/// Division of a server's memory, and its use. All but the counts are bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MemoryUse {
    /// Everything: the process, and copies of its files that the kernel keeps.
    #[prost(uint64, tag = "1")]
    pub bytes_max: u64,
    /// Code, threads, buffers of connections.
    #[prost(uint64, tag = "2")]
    pub program_bytes_max: u64,
    /// The store of the namespace's history.
    #[prost(uint64, tag = "3")]
    pub store_bytes_max: u64,
    /// Copies of files that are neither segments nor shelves.
    #[prost(uint64, tag = "4")]
    pub files_bytes_max: u64,
    /// Those there are.
    #[prost(uint64, tag = "5")]
    pub files_bytes: u64,
    /// Acknowledged and not yet on stable storage.
    #[prost(uint64, tag = "6")]
    pub dirty_bytes_max: u64,
    /// The youngest records.
    #[prost(uint64, tag = "7")]
    pub young_bytes_max: u64,
    /// Those there are.
    #[prost(uint64, tag = "8")]
    pub young_bytes: u64,
    /// Older records that are in use.
    #[prost(uint64, tag = "9")]
    pub old_bytes_max: u64,
    /// Those there are.
    #[prost(uint64, tag = "10")]
    pub old_bytes: u64,
    /// Older records that were read at random, and were in memory.
    #[prost(uint64, tag = "11")]
    pub wanted_hit_bytes: u64,
    /// Those that had to be read.
    #[prost(uint64, tag = "12")]
    pub wanted_missed_bytes: u64,
    /// Older records that were read sequentially, or ahead of a sequential reader, and were in memory.
    #[prost(uint64, tag = "13")]
    pub scanned_hit_bytes: u64,
    /// Those that had to be read.
    #[prost(uint64, tag = "14")]
    pub scanned_missed_bytes: u64,
    /// Bytes of files that were read ahead of their readers.
    #[prost(uint64, tag = "15")]
    pub ahead_bytes: u64,
    /// Parts of older records that came into memory.
    #[prost(uint64, tag = "16")]
    pub admitted: u64,
    /// Those that were evicted for others.
    #[prost(uint64, tag = "17")]
    pub evicted: u64,
    /// Those that could not stay, as there is too little room.
    #[prost(uint64, tag = "18")]
    pub refused: u64,
    /// Copies in memory that failed their checksum and were whole on the disk.
    #[prost(uint64, tag = "19")]
    pub healed: u64,
    /// The system keeps copies of files as it likes: more may be in memory than `bytes_max`.
    #[prost(bool, tag = "20")]
    pub unbounded: bool,
    /// Most bytes of names and inodes that are packed.
    #[prost(uint64, tag = "21")]
    pub names_bytes_max: u64,
    /// Bytes of them in memory.
    #[prost(uint64, tag = "22")]
    pub names_bytes: u64,
    /// Bytes that the others would take, which are in a checkpoint alone.
    #[prost(uint64, tag = "23")]
    pub names_cold_bytes: u64,
    /// Pages and blocks of those that were read again, since the server started.
    #[prost(uint64, tag = "24")]
    pub names_loads: u64,
}

/// History that policies of retention thin: what is packed, and what is still to be done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ThinnedStatus {
    /// Packs.
    #[prost(uint64, tag = "1")]
    pub packs: u64,
    /// Bytes of payload of the records in them, as they were written.
    #[prost(uint64, tag = "2")]
    pub packed_bytes: u64,
    /// Bytes of records outside of packs that died since records were packed last.
    #[prost(uint64, tag = "3")]
    pub unpacked_dead_bytes: u64,
    /// Files that the pass has still to look at.
    #[prost(uint64, tag = "4")]
    pub files_left: u64,
}

impl ThinnedStatus {
    /// The figures with the names of their metrics.
    pub fn figures(&self) -> [(&'static str, u64); 4] {
        [
            ("frieze_packs", self.packs),
            ("frieze_packed_bytes", self.packed_bytes),
            ("frieze_unpacked_dead_bytes", self.unpacked_dead_bytes),
            ("frieze_thinning_files_left", self.files_left),
        ]
    }
}

/// Images: pages of 64 KiB, as they were at some instant, that are stored in one place.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ImageStatus {
    /// How many there are.
    #[prost(uint64, tag = "1")]
    pub count: u64,
    /// Bytes that they take on the device.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Most bytes that they may take.
    #[prost(uint64, tag = "3")]
    pub bytes_max: u64,
    /// Of how many places of the device a page is to consist, at most, at any instant.
    #[prost(uint64, tag = "4")]
    pub pieces_max: u64,
    /// Of how many it does at most, at the instants up to `looked_upto`: more than are wanted where there was no space
    /// for images.
    #[prost(uint64, tag = "5")]
    pub pieces_most: u64,
    /// Every state up to this stamp has been examined; 0 for none.
    #[prost(uint64, tag = "6")]
    pub looked_upto: u64,
    /// Images that were found damaged since the server started: the records said the same.
    #[prost(uint64, tag = "7")]
    pub lost: u64,
    /// Pages that readers found in too many places, and that will get an image.
    #[prost(uint64, tag = "8")]
    pub wishes: u64,
}

/// An interval whose unflushed records a crash lost.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Gap {
    /// Everything up to it survived.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// New stamps lie above it.
    #[prost(uint64, tag = "2")]
    pub to: u64,
}
