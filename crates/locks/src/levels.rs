//! The levels of all locks of the server, in the one order in which a thread locks them.
//!
//! A row is a level: the name, its crate, and what the lock guards. While a thread holds a lock, it locks only levels
//! of rows further down. `ARCHITECTURE.md` repeats the table: `UPDATE_EXPECT=1 cargo test -p frieze-locks` writes it.
//!
//! A new lock gets a row of its own, as far down as the locks under it allow. `held in waits` in a row says that a
//! thread holds the lock while it waits for a signal or for other servers: no thread that answers needs it.

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
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! levels {
    ($($name:ident in $package:literal $(, $waits:ident in waits)?: $guards:literal;)+) => {
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
                    is_held_in_waits: [$(stringify!($waits),)? ""].len() > 1,
                };
            }
        )+

        /// The table in its order.
        pub const ROWS: &[&LevelRow] = &[$($name::ROW),+];
    };
}

levels! {
    SingleCore in "metadata": "the metalog of a lone server and its journal";
    RaftFlush in "metadata": "one flush of the metalog's member at a time";
    IncomingSnapshot in "metadata": "the snapshot that another member sends";
    RaftTick in "metadata": "time of the last tick of the metalog's member";
    RaftCore in "metadata": "the member of the metalog and its journal";
    TransferNames in "metadata": "random numbers that name snapshots";
    OutgoingSnapshots in "metadata": "snapshots that are sent to other members";
    OutgoingSnapshot in "metadata": "one of them: what was sent of it";
    TxnQueue in "metadata": "transactions that wait for the metalog";
    PendingTxn in "metadata": "one of them, and its result";
    Namespace in "metadata": "names and inodes in memory";
    ClusterState in "metadata": "the control plane as the metalog decided it";
    ClusterChanges in "metadata": "decisions that the server has not acted on";
    SettlingTurn in "metadata": "one write of settled versions to the store at a time";
    StoreCommit in "metadata": "whether the store takes no commits any more";
    NextVersionTable in "metadata": "the table of the store that replaces the one in use";
    VersionTable in "metadata": "the table of the store in use";
    VersionOverlay in "metadata": "versions that are not in the store yet";
    UnsettledChanges in "metadata": "the same in the order of the log";
    MemoryStore in "metadata": "the store of the simulator and of tests";
    ApplyGeneration in "metadata": "count of applied batches, for threads that wait for one";
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
    Admission in "net": "places of open connections";
    SendTurn in "net": "one sender on a socket at a time";
    PostedFrames in "net": "frames that the socket did not take at once";
    Inbox in "net": "replies of a connection within the process";
    BufferPool in "net": "free buffers for payloads";
    LogThrottle in "net": "time and count of a log line that peers can cause";
}
