//! The levels of all locks of the server, in the one order in which a thread locks them.
//!
//! A row is a level: the name, its crate, and what the lock guards. While a thread holds a lock, it locks only levels
//! of rows further down. `ARCHITECTURE.md` repeats the table: `UPDATE_EXPECT=1 cargo test -p frieze-locks` writes it.
//!
//! A new lock gets a row of its own, as far down as the locks under it allow. `held in waits` in a row says that a
//! thread holds the lock while it waits for a signal or for other servers: no thread that answers needs it. `held in
//! signals` allows it to wait for a signal alone. `signalled from below` says that a wait for a signal under this lock
//! is as the wait for the lock itself: until the signal comes the thread that sends it locks nothing of the rows above,
//! which the waiting thread may hold.

/// A place in the order of locks. Only the table below makes levels.
pub trait Level: sealed::Sealed {
    /// The row of the table.
    const ROW: &'static LevelRow;
}

/// A row of the table.
#[derive(Debug)]
pub struct LevelRow {
    /// Place in the order, from 1.
    pub number: u16,
    /// Name of the level.
    pub name: &'static str,
    /// The crate whose lock it is, without `frieze-`.
    pub package: &'static str,
    /// What the lock guards.
    pub guards: &'static str,
    /// A thread may hold the lock while it waits for a signal or for other servers.
    pub is_held_in_waits: bool,
    /// A thread may hold the lock while it waits for a signal, and not while it waits for other servers.
    pub is_held_in_signals: bool,
    /// The thread that signals under the lock locks nothing above it on its way.
    pub is_signalled_from_below: bool,
}

mod sealed {
    pub trait Sealed {}
}

/// `==` of texts, for constants.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

macro_rules! levels {
    ($(
        $name:ident in $package:literal $(, held in $waits:ident)? $(, signalled from $below:ident)?: $guards:literal;
    )+) => {
        #[repr(u16)]
        enum Number { $($name),+ }

        $(
            #[doc = concat!("Level of a lock of `", $package, "`: ", $guards, ".")]
            #[derive(Debug)]
            pub enum $name {}

            impl sealed::Sealed for $name {}

            impl Level for $name {
                const ROW: &'static LevelRow = &LevelRow {
                    number: Number::$name as u16 + 1,
                    name: stringify!($name),
                    package: $package,
                    guards: $guards,
                    is_held_in_waits: is_same([$(stringify!($waits),)? ""][0], "waits"),
                    is_held_in_signals: is_same([$(stringify!($waits),)? ""][0], "signals"),
                    is_signalled_from_below: [$(stringify!($below),)? ""].len() > 1,
                };
            }
        )+

        /// The table in its order.
        pub const ROWS: &[&LevelRow] = &[$($name::ROW),+];
    };
}

levels! {
    ReadPlace in "node": "the place of a connection among large reads";
    Founding in "node", held in waits: "one founding of a cluster at a time";
    RemainingSpace in "service": "space of chains that moved away, as far as it is counted";
    Thinning in "planes", held in waits: "how far policies of retention were applied to what is stored";
    KeptTrees in "planes": "bytes that are stored of the trees with a quota of them";
    DeadRecords in "planes", held in signals: "dead records, and space of them that is not freed yet";
    HistoryExpiry in "service", held in waits: "readers are edits under way, the writer is an expiry of history";
    FlushState in "planes", held in waits: "the flush under way: one at a time";
    ControlState in "node": "this server's part in the control plane";
    FileLocks in "service": "locks that clients have on files";
    OpenConnections in "node": "open connections";
    IncomingSnapshot in "metadata": "the snapshot that another member sends";
    IndexRunWrites in "storage": "one write or replacement of index runs at a time";
    ScrubState in "service": "known damage, and the scrub under way";
    Appender in "replication", signalled from below: "one append to the device at a time, and the chains' state";
    ChainDecisions in "planes": "the configuration of each chain whose earlier decisions were executed";
    ConnectionState in "service": "the state of one connection";
    RaftFlush in "metadata": "one flush of the metalog's member at a time";
    RaftCore in "metadata": "the member of the metalog and its journal";
    TransferNames in "metadata": "random numbers that name snapshots";
    OutgoingSnapshots in "metadata": "snapshots that are sent to other members";
    OutgoingSnapshot in "metadata": "one of them: what was sent of it";
    TxnQueue in "metadata": "transactions that wait for the metalog";
    PendingTxn in "metadata": "one of them, and its result";
    Namespace in "metadata": "names and inodes in memory";
    CacheLeases in "service": "cache leases of all clients";
    AnswerKeys in "service": "what a request has read so far";
    ClusterState in "metadata": "the control plane as the metalog decided it";
    ClusterChanges in "metadata": "decisions that the server has not acted on";
    CheckpointFiles in "metadata": "which checkpoints of the names there are";
    YoungVersions in "metadata": "changes of names that the store does not have, and the order in which it gets them";
    EntryStamps in "metadata": "stamps of directories' entries that the store does not have";
    NextVersionTable in "metadata": "the tree of the store that replaces the one in use";
    VersionTable in "metadata": "the tree of the store in use";
    StateName in "metadata": "the name of the state that was received last";
    TableWork in "metadata": "memtables that wait to become tables";
    OpenMemtable in "metadata": "one batch at a time into the open memtable";
    TreeSnapshots in "metadata": "readers that take a list of memtables and tables, or one that forgets former lists";
    TreeViews in "metadata": "views of the store";
    MemoryStore in "metadata": "the store of the simulator and of tests";
    PeerLinks in "node": "connections to other servers";
    ByteLinks in "node": "those of them that carry bytes";
    RecordProgress in "node": "how much of a record was sent to another server";
    LinkQueue in "node": "messages that wait on a connection to another server";
    SendTurn in "net": "one sender on a socket at a time";
    ImageSlots in "storage": "one writer or evictor of images at a time, and free slots";
    IndexEviction in "storage": "one eviction of index memory at a time, or a reader that prevents it";
    ConfigStore in "replication": "the configuration of each chain, and its file";
    ClosedRecord in "replication": "closed instants of chains that moved away, and their file";
    SpareCreation in "storage": "one creation of a spare segment at a time";
    PublishTurn in "storage": "a signal: an append was published or failed";
    DeviceIndex in "storage": "the index of the device";
    ReadCuts in "replication": "the instant at which a read of now reads, for each chain";
    IndexRunFiles in "storage": "open files of index runs";
    PackList in "storage": "the packs in use, and those that wait for their readers";
    ImageSet in "storage": "which pages have images, and where";
    ImageFiles in "storage": "open files of images";
    ChainTips in "storage": "the last record of each chain in the index runs";
    UnerasedGroups in "storage": "places of failed groups that could not be erased";
    DirtyFiles in "storage": "files that were written since their last sync";
    DedupeImage in "storage": "the dedupe image stored last";
    FlushSizes in "storage": "bytes of each flush";
    DeviceRepairs in "storage": "damage of index runs that was repaired, in words";
    ImageRequests in "storage": "pages that need images";
    LostImages in "storage": "images that readers could not use";
    ImageDamage in "storage": "damage of images, in words";
    ImagesToForget in "storage": "files with expired bytes that images may hold";
    ImageCursor in "storage": "how far history was searched for pages that need images, and its file";
    SpareSegments in "storage": "names of spare segments";
    RecentWindow in "storage": "recent bytes in memory";
    SegmentFiles in "storage": "open files of segments";
    MendedBlocks in "storage": "damaged blocks of a pack, as far as copies of their records came";
    PackBlocks in "storage": "blocks of a pack that were decompressed last";
    OldPages in "storage": "older bytes in memory";
    ReaderStreams in "storage": "sequential readers, for reading ahead";
    SpanChecksums in "storage": "verified checksums of spans";
    SpaceAdvice in "storage": "what would free how much of a full disk, in words";
    ReadErrors in "storage": "segments with reads that failed";
    ChangeWaits in "planes": "clients that wait for a change";
    NodeClock in "storage": "the clock";
    IdentityRecord in "storage": "the identity of the directory, and its file";
    DurableEnd in "planes": "the end of what is durable";
    Wake in "storage": "a signal for one thread";
    ControlJobs in "node": "work that the control plane has for this server";
    DroppedReplicas in "service": "how often the replica of each chain was dropped";
    ReplicaEvents in "node": "events of replicas that the control plane has not seen";
    Contacts in "node": "time of the last message of each other node";
    ServerTrouble in "node": "trouble of this server, in words";
    NodeAddresses in "node": "last known addresses of the other nodes";
    Removal in "node": "whether this server ends";
    SuccessorProof in "node": "proofs of a later identity";
    StoppedSessions in "service": "sessions that were stopped from writing";
    SessionTimes in "service": "sessions with connections, and how long others have none";
    OpenRequests in "planes": "requests of this server that wait for a response, each kind apart";
    ReceivedRequests in "planes": "requests of other servers that wait for a thread";
    AnswerRests in "service": "rests of answers that clients may continue";
    ReadTurns in "net": "large reads under way";
    FlushWaiters in "planes": "replies that wait for a flush";
    FlushFailure in "planes": "the fault of a flush that failed";
    StoreTrouble in "planes": "the fault of the store of names";
    RepairQueue in "service": "records that wait for repair";
    ChainRoom in "replication": "a signal: a chain has more room";
    GatheredResults in "replication": "results that a reply waits for";
    RaftTick in "metadata": "time of the last tick of the metalog's member";
    ApplyGeneration in "metadata": "count of applied batches, for threads that wait for one";
    CatchUpCredit in "replication": "bytes that may be sent to members that catch up";
    OpenFiles in "coherence": "files that clients have open";
    StateFile in "disk": "a small durable record";
    FileCreation in "disk": "one creation of a file at a time";
    DiskSpace in "disk": "bytes of all files of the directory";
    WriteWindow in "disk": "the mapped pages of a file that small writes go to";
    FailedFiles in "disk": "files whose sync has failed";
    ViewNames in "disk": "names of a view of a stopped server's directory";
    ViewPages in "disk": "written pages of a file of a view";
    SimDisk in "disk": "the simulated disk";
    SimTime in "disk": "the simulated clock";
    GatewayConnections in "net": "open connections of a gateway";
    Admission in "net": "places of open connections";
    PostedFrames in "net": "frames that the socket did not take at once";
    Inbox in "net": "replies of a connection within the process";
    BufferPool in "net": "free buffers for payloads";
    ServedPeer in "fabric": "the client of a connection as the fabric knows it";
    HopState in "fabric": "payloads that a successor may fetch";
    FabricHost in "fabric", held in signals: "the open endpoint of the process";
    FabricRooms in "fabric": "free rooms of registered memory";
    FabricThread in "fabric": "the thread of an endpoint";
    FabricObjects in "fabric": "the open objects of libfabric";
    FabricRegistrations in "fabric": "registrations of an endpoint";
    FailedAddresses in "fabric": "peers with which a transfer has failed";
    FabricOperations in "fabric": "transfers under way";
    LogThrottle in "net": "time and count of a log line that peers can cause";
}
