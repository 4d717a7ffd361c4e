//! What an operator can set, with defaults that fit one machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use frieze_base::{Fault, Reason};
use frieze_cluster::REPLICAS_MAX;
use frieze_net::{PrivateFile, PrivateFileError};
use frieze_tier::{MemoryDemand, Shares, TooLittle};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// A key that proves a caller where the kernel cannot.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySettings {
    /// Name the client gives.
    pub name: String,
    /// At least 16 characters, shared with the client. Never printed.
    #[serde(skip_serializing)]
    pub secret: String,
    /// User whose rights the bearer has, by name or number.
    pub user: String,
    /// True: the bearer may speak for other users (mounts and gateways). Default false.
    #[serde(default)]
    pub may_impersonate: bool,
}

impl std::fmt::Debug for KeySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "key {} for user {}", self.name, self.user)
    }
}

/// Settings of a server. Durations are texts with a unit (`"50ms"`); sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    // Titles of this form divide docs/settings.md, which a test makes of this struct.
    // # Directory and addresses
    /// Data directory. Made if it does not exist.
    pub dir: PathBuf,
    /// Addresses to listen on: `host:port` or `unix:/path`. Default `127.0.0.1:7470`. Anything beyond loopback needs a
    /// key in `keys`.
    pub listen: Vec<String>,
    /// Address at which Prometheus reads metrics, as `HOST:PORT`; a port alone is a port of this machine. Default:
    /// none. The page is not authenticated: its metrics describe the server, not the stored data.
    pub metrics: String,
    /// Address of the name service for Hadoop clients, as `HOST:PORT`, for `fs.defaultFS`. Default: none. Read
    /// by `frieze serve`, which opens that gateway.
    pub hdfs: String,
    /// Address at which Hadoop clients read and write, as `HOST:PORT`. Default: port 9866 of the same host.
    pub hdfs_data: String,
    /// Address for clients of Hadoop's WebHDFS, as `HOST:PORT`. Default: none. Read by `frieze serve`, which opens that
    /// gateway.
    pub webhdfs: String,
    /// True: a Hadoop client on another machine gets the rights of the user that it names, except root's. Default
    /// false: the gateway listens on loopback only, where the kernel proves the user.
    pub hdfs_trust_names: bool,
    /// Address of the web page, as `HOST:PORT`. Default: none. Read by `frieze serve`, which opens it.
    pub console: String,
    /// True: browsers of other machines may reach the web page, unencrypted. Default false: it listens on loopback
    /// only.
    pub console_public: bool,
    // # One-sided transfers
    /// Fabric for payloads of large reads and writes in place of TCP: `auto` (the default) takes the first provider of
    /// libfabric with hardware (`cxi`, `efa`, `verbs;ofi_rxm`) that passes a test of its memory protection; `none`
    /// takes none; any other word names the provider. Clients and servers that have the same one use it, all others
    /// TCP, and so do those for which it fails. Payloads are not encrypted: for a network that is trusted.
    pub fabric: String,
    /// Address of this machine on the fabric's network, as IP address. Default: the provider's choice.
    pub fabric_address: String,
    // # Keys
    /// Keys that prove callers from other machines.
    pub keys: Vec<KeySettings>,
    // # Cluster
    /// Server of the cluster to join, as `host:port`, if the data directory is empty; several, separated by commas, are
    /// tried in turn. Default: none: the server is alone, and becomes the first of a cluster when another joins it.
    pub join: String,
    /// Key that proves this server to the server named in `join`, where the kernel cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_key: Option<KeySettings>,
    /// Name of the server in its cluster; empty, the default, is the name of the machine. Fixed when it joins.
    pub name: String,
    /// Site of the server: replicas of a chain are spread over sites. Default: none: there is one site. Fixed when it
    /// joins.
    pub site: String,
    /// Machine of the server: two copies of the same bytes are on one machine only if there is no other. Default: the
    /// system's name for it. Servers of one machine, a server for each disk, set the same. Fixed when it joins.
    pub machine: String,
    /// Address for the other servers and the clients; empty, the default, is the first address of `listen`.
    pub advertise: String,
    /// Replicas of each chain, once the cluster has as many servers. Default 5. Used by the server that founds a
    /// cluster.
    pub replicas: u32,
    /// How long a server of a cluster may answer without a message from its leader. Default 2 s. More: chains wait
    /// longer for a lost server; less: a short pause costs a server its chains.
    #[serde(with = "duration_text")]
    pub lease: Duration,
    /// Most bytes a second that this server sends for catch-up, to all servers together. 0, the default: no limit.
    /// More: copies are missing for a shorter time; less: clients notice less of it. Below the rate of writes, catch-up
    /// never ends.
    #[serde(deserialize_with = "toml_integer")]
    pub sync_bytes_per_s: u64,
    // # Log and chunks
    /// Size of a segment of the device log. Default 64 MiB. More: fewer files and syncs of the directory; less:
    /// recovery scans less, and space comes back in smaller pieces. Segments of the metalog are a quarter of it, up to
    /// 16 MiB.
    #[serde(deserialize_with = "toml_integer")]
    pub segment_bytes: u64,
    /// Size of a chunk of new files. Default 64 MiB. Fixed when the data directory is made.
    #[serde(deserialize_with = "toml_integer")]
    pub chunk_bytes: u64,
    /// Chains that chunks are spread over. Default 8. Fixed when the data directory is made.
    pub chain_count: u32,
    // # Memory and flushes
    /// Most bytes of memory for everything: of the process, and of copies of its files that the kernel keeps. 0, the
    /// default, is half of what the machine (or the control group) has, or as much as the settings below need. More:
    /// more reads find their bytes in memory. `frieze status` shows how it is divided.
    #[serde(deserialize_with = "toml_integer")]
    pub memory_bytes_max: u64,
    /// Part of `memory_bytes_max` for the youngest records, which stay until as many bytes were written after them. 0,
    /// the default, is seven tenths of the rest (ADR 72). More: readers of recent bytes never wait for the disk; less:
    /// more of older history is in memory.
    #[serde(deserialize_with = "toml_integer")]
    pub young_bytes_max: u64,
    /// Part of `memory_bytes_max` for older records that are in use. 0, the default, is the other three tenths, 8 MiB
    /// at least.
    #[serde(deserialize_with = "toml_integer")]
    pub old_bytes_max: u64,
    /// Part of `memory_bytes_max` for records that are acknowledged and not yet on stable storage. 0, the default, is
    /// an eighth, 1 GiB at most. More: longer bursts at memory speed; less: less to lose in a power loss.
    #[serde(deserialize_with = "toml_integer")]
    pub dirty_bytes_max: u64,
    /// Greatest age of a record that is not yet on stable storage; an older one makes writers wait. Default 5 s.
    #[serde(with = "duration_text")]
    pub dirty_age_max: Duration,
    /// How long after a write its flush begins. Default 50 ms. Less: smaller flushes, less to lose.
    #[serde(with = "duration_text")]
    pub flush_delay: Duration,
    // # Disk
    /// Most bytes of the device that frieze uses; 0 is all of it. Default 0.
    #[serde(deserialize_with = "toml_integer")]
    pub capacity_bytes_max: u64,
    /// True: serve a data directory whose logs are damaged; the server reports the damage at its start, and lost bytes
    /// read as zeros or as older bytes. Default false: refuse, so that no read returns bytes that were never written.
    /// Of a damaged log of names (the metalog, `raft-*`) the server has the state of its store of names and the changes
    /// behind it that can be read. If changes may be missing, it says from which instant on, and that interval is a
    /// gap. The damaged files are kept as `lost-raft-*`. A member of a cluster is refused all the same: it may have
    /// voted by what it lost, so let it join anew with an empty directory.
    pub serve_damaged: bool,
    /// Bytes kept back from data, and three quarters of them from more names, so that removing, truncating and
    /// restarting work on a full disk. Default 128 MiB.
    #[serde(deserialize_with = "toml_integer")]
    pub reserve_bytes: u64,
    // # Scrubs
    /// Bytes a second that `frieze scrub` reads at most, unless the command names another rate. Default 64 MiB. More:
    /// it ends sooner; less: clients notice less of it. While the device serves requests it takes a quarter of its time
    /// at most.
    #[serde(deserialize_with = "toml_integer")]
    pub scrub_bytes_per_s: u64,
    /// How often everything stored is scrubbed without a command: so long after the last scrub ended, at a rate at
    /// which it takes an eighth of this time, 1 MiB/s at least. Default `"7d"`; `"0s"` for never. More: damage is found
    /// later; less: the disk reads more.
    #[serde(with = "duration_text")]
    pub scrub_every: Duration,
    // # Index and images
    /// Part of the memory for the index of the device log. 0, the default, is a quarter, 1 GiB at most: the index of
    /// about 40 million writes. The rest is on disk; a query that needs it reads the disk once or twice. The index of
    /// files being written, expired history, and a few bytes a thousand records stay in memory whatever the value.
    #[serde(deserialize_with = "toml_integer")]
    pub index_bytes_max: u64,
    /// Part of the memory for names and inodes, packed, 30 to 60 bytes a file. 0, the default, is an eighth, or less if
    /// little would be left for data. Those that nothing used for long are on disk beyond it, in the newest checkpoint:
    /// the first look at them reads the disk once or twice. Directories themselves and files that are open stay in
    /// memory whatever the value. More: fewer such looks; less: more memory for data.
    #[serde(deserialize_with = "toml_integer")]
    pub names_bytes_max: u64,
    /// Full segments whose index is written to the disk together. Default 4. More: fewer merges later; less: less of
    /// the index has to be in memory, and a restart reads less.
    pub shelve_segments: u32,
    /// Space for images, in hundredths of the bytes of the log, at most 10,000. Default 10; 0 for none. An image is a
    /// page of 64 KiB in one place, as of an instant at which the page consisted of many small writes: one read returns
    /// it. More: more old states are read quickly; less: images take less of the device.
    pub image_percent: u32,
    /// Most places of the device that a page of 64 KiB consists of, at any instant, before it gets an image. Default
    /// 16, at least 2. More: fewer images; less: reads of pages that were written in small pieces go to fewer places.
    pub image_pieces_max: u32,
    /// Age at which written pages get images; a page that is read in too many pieces gets one sooner. Default 10 s.
    /// More: pages that are overwritten soon cost less; less: old states are read quickly sooner.
    #[serde(with = "duration_text")]
    pub image_delay: Duration,
    // # Connections, sessions, users
    /// Most open connections, of all gateways together; the server refuses one more. A user other than root has at most
    /// as many as are left for all other users, and a sixteenth is reserved for root and other servers. 0, the default,
    /// is what a sixteenth of the memory allows, 4,096 at most. More: 40 KiB of `memory_bytes_max` for each.
    pub connections_max: u32,
    /// How long a session lives without a connection. Default 60 s.
    #[serde(with = "duration_text")]
    pub session_timeout: Duration,
    /// How long a session that changed nothing is listed after its end, at least 1 s. Default 1 d. More: readers are
    /// listed for longer, with command lines, which may hold secrets; 16,384 such sessions at most. Less: `frieze
    /// sessions` shows less. In a cluster the leader's setting counts. A session that changed something is listed as
    /// long as the cluster lives.
    #[serde(with = "duration_text")]
    pub ended_sessions_kept: Duration,
    /// Most snapshots of one user other than the superuser, whose only bound is the one of the whole file system.
    /// Default 1,000; 0 for no bound of its own. More: a user's snapshots can keep more of the space that the user
    /// overwrites and removes; less: the user has to delete snapshots sooner. In a cluster the leader's setting counts.
    pub snapshots_per_user_max: u32,
    /// Largest difference of a remote stamp from the local clock, and largest error bound of the clock before the node
    /// fences itself. Default 500 ms.
    #[serde(with = "duration_text")]
    pub max_clock_offset: Duration,
    /// Permission bits of the root directory when the data directory is made. Default 0755, as of any new file system:
    /// its owner, the user of the server process, makes directories for other users.
    pub root_mode: Option<u32>,
    /// Changes in the whole tree up to which a query about a part of it reads all of them. Not for operators: tests set
    /// 0, and get the same answers.
    #[serde(skip, default = "few_changes")]
    pub few_changes: usize,
    /// Bytes of a change of many names that go into the log of names together; a longer one is staged in parts. Not for
    /// operators: tests set less, and get the same answers.
    #[serde(skip, default = "edit_part_bytes")]
    pub edit_part_bytes: usize,
}

/// Other transactions wait for less than a millisecond while a part is written.
fn edit_part_bytes() -> usize {
    64 << 10
}

/// About the cost of finding that a part of the tree is not small.
fn few_changes() -> usize {
    1 << 10
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            dir: PathBuf::new(),
            listen: vec!["127.0.0.1:7470".to_owned()],
            metrics: String::new(),
            hdfs: String::new(),
            hdfs_data: String::new(),
            webhdfs: String::new(),
            hdfs_trust_names: false,
            console: String::new(),
            console_public: false,
            fabric: "auto".to_owned(),
            fabric_address: String::new(),
            keys: Vec::new(),
            join: String::new(),
            join_key: None,
            name: String::new(),
            site: String::new(),
            machine: String::new(),
            advertise: String::new(),
            replicas: 5,
            lease: Duration::from_secs(2),
            sync_bytes_per_s: 0,
            segment_bytes: 64 << 20,
            chunk_bytes: 64 << 20,
            chain_count: 8,
            memory_bytes_max: 0,
            young_bytes_max: 0,
            old_bytes_max: 0,
            dirty_bytes_max: 0,
            dirty_age_max: Duration::from_secs(5),
            flush_delay: Duration::from_millis(50),
            capacity_bytes_max: 0,
            serve_damaged: false,
            reserve_bytes: 128 << 20,
            scrub_bytes_per_s: 64 << 20,
            scrub_every: Duration::from_secs(7 * 86_400),
            index_bytes_max: 0,
            names_bytes_max: 0,
            shelve_segments: 4,
            image_percent: 10,
            image_pieces_max: 16,
            image_delay: Duration::from_secs(10),
            connections_max: 0,
            session_timeout: Duration::from_secs(60),
            ended_sessions_kept: Duration::from_secs(86_400),
            snapshots_per_user_max: 1000,
            max_clock_offset: Duration::from_millis(500),
            root_mode: None,
            few_changes: few_changes(),
            edit_part_bytes: edit_part_bytes(),
        }
    }
}

/// Smallest memory for names: below it each look at one reads the disk.
const NAMES_BYTES_MIN: u64 = 64 << 10;
/// Smallest memory for the index: below it little is left but fetching.
const INDEX_BYTES_MIN: u64 = 64 << 10;
/// Smallest memory for records, young or old: a page or a few. Little of it makes reads slow and nothing else.
const RECORDS_BYTES_MIN: u64 = 4096;
/// Smallest chunk: a payload of 4 MiB then never spans more parts than a group can count.
const CHUNK_BYTES_MIN: u64 = 64 << 10;
/// Largest chunk: offsets in a chunk are 32 bits.
const CHUNK_BYTES_MAX: u64 = 2 << 30;
/// Smallest segment: holds the largest group of records with its headers.
const SEGMENT_BYTES_MIN: u64 = 8 << 20;
const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// Memory that a connection counts: its thread, and the buffers of one with small requests.
const CONNECTION_BYTES: u64 = 40 << 10;
/// Most connections by default.
const CONNECTIONS_MAX: u64 = 4096;
const SECRET_CHARS_MIN: usize = 16;

impl Settings {
    /// Reads a TOML file, or the defaults without one.
    ///
    /// # Errors
    /// `InvalidArgument` naming the file, the line and what is wrong: also that others can write it, or read it if it
    /// holds a secret.
    pub fn load(config: Option<&Path>) -> Result<Settings, Fault> {
        let Some(path) = config else { return Ok(Settings::default()) };
        let wrong = |words: String| Fault::new(Reason::InvalidArgument, words);
        let cannot = |error: PrivateFileError| match error {
            PrivateFileError::Io(error) => wrong(format!("cannot read the configuration {}: {error}", path.display())),
            refused @ PrivateFileError::Open { .. } => wrong(format!("the configuration {refused}")),
        };
        let file = PrivateFile::read(path).map_err(cannot)?;
        let settings: Settings = toml::from_str(&file.text).map_err(|error| {
            wrong(format!("the configuration {} is wrong: {}", path.display(), words_of(&file.text, &error)))
        })?;
        if !settings.keys.is_empty() || settings.join_key.is_some() {
            file.keeps_secret().map_err(cannot)?;
        }
        Ok(settings)
    }

    /// Where the other servers reach this one, which listens at `listens_at` first.
    ///
    /// # Errors
    /// `InvalidArgument` if that is a socket of this machine.
    pub fn reached_at(&self, listens_at: Option<&str>) -> Result<String, Fault> {
        let address = if self.advertise.is_empty() { listens_at.unwrap_or_default() } else { &self.advertise };
        if address.is_empty() || address.starts_with("unix:") {
            return Err(Fault::new(
                Reason::InvalidArgument,
                "other servers cannot reach this one: let it listen on host:port, or say where it is reached \
                 (--advertise HOST:PORT)",
            ));
        }
        Ok(address.to_owned())
    }

    /// What the server is called.
    pub fn node_name(&self) -> String {
        if self.name.is_empty() { frieze_net::host_name() } else { self.name.clone() }
    }

    /// What the machine is called that it runs on.
    pub fn machine_name(&self) -> String {
        if self.machine.is_empty() { frieze_net::host_name() } else { self.machine.clone() }
    }

    /// Divides the memory of the server. `machine_bytes`: memory of the machine, 0 if unknown.
    ///
    /// # Errors
    /// `InvalidArgument` if it is not enough, with the least that would do.
    pub fn memory(&self, machine_bytes: u64) -> Result<Shares, Fault> {
        let wish = |bytes: u64| (bytes > 0).then_some(bytes);
        let wishes = MemoryDemand {
            total: wish(self.memory_bytes_max),
            machine: machine_bytes,
            index: wish(self.index_bytes_max),
            names: wish(self.names_bytes_max),
            dirty: wish(self.dirty_bytes_max),
            young: wish(self.young_bytes_max),
            old: wish(self.old_bytes_max),
            connections: wish(u64::from(self.connections_max) * CONNECTION_BYTES),
        };
        wishes.divide().map_err(|TooLittle { total, needed }| {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            Fault::new(
                Reason::InvalidArgument,
                format!(
                    "{} MiB of memory are too little for a server with these settings: give at least {} MiB (--memory \
                     {}, or memory_bytes_max = {needed}), or less to index_bytes_max, names_bytes_max, \
                     dirty_bytes_max, young_bytes_max, old_bytes_max or connections_max, where they are set",
                    mib(total),
                    mib(needed),
                    mib(needed)
                ),
            )
        })
    }

    /// The same settings with every share of the memory named.
    ///
    /// # Errors
    /// As [`Settings::memory`].
    pub fn with_memory_divided(self, machine_bytes: u64) -> Result<Settings, Fault> {
        let shares = self.memory(machine_bytes)?;
        Ok(Settings {
            memory_bytes_max: shares.total,
            index_bytes_max: shares.index,
            names_bytes_max: shares.names,
            dirty_bytes_max: shares.dirty,
            young_bytes_max: shares.young,
            old_bytes_max: shares.old,
            connections_max: match self.connections_max {
                0 => (shares.connections / CONNECTION_BYTES).min(CONNECTIONS_MAX) as u32,
                wished => wished,
            },
            ..self
        })
    }

    /// Checks every value.
    ///
    /// # Errors
    /// `InvalidArgument` naming the setting, its value and what is allowed.
    pub fn validate(&self) -> Result<(), Fault> {
        let wrong = |words: String| Err(Fault::new(Reason::InvalidArgument, words));
        let within = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(Fault::new(
                Reason::InvalidArgument,
                format!("setting {name} = {value}: must be between {low} and {high}"),
            ))
        };
        if self.dir.as_os_str().is_empty() {
            return wrong("no data directory: give one with --dir DIR".to_owned());
        }
        within("segment_bytes", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)?;
        within("chunk_bytes", self.chunk_bytes, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX)?;
        if !self.chunk_bytes.is_power_of_two() {
            return wrong(format!("setting chunk_bytes = {}: must be a power of two", self.chunk_bytes));
        }
        within("chain_count", self.chain_count.into(), 1, 65_536)?;
        within("shelve_segments", self.shelve_segments.into(), 1, 1024)?;
        let automatic_or_within = |name: &str, value: u64, low: u64, high: u64| match value {
            0 => Ok(()),
            _ => within(name, value, low, high),
        };
        automatic_or_within("memory_bytes_max", self.memory_bytes_max, 1, 1 << 50)?;
        automatic_or_within("young_bytes_max", self.young_bytes_max, RECORDS_BYTES_MIN, 1 << 50)?;
        automatic_or_within("old_bytes_max", self.old_bytes_max, RECORDS_BYTES_MIN, 1 << 50)?;
        automatic_or_within("index_bytes_max", self.index_bytes_max, INDEX_BYTES_MIN, 1 << 44)?;
        automatic_or_within("names_bytes_max", self.names_bytes_max, NAMES_BYTES_MIN, 1 << 50)?;
        automatic_or_within("dirty_bytes_max", self.dirty_bytes_max, 8 << 20, 1 << 40)?;
        automatic_or_within("sync_bytes_per_s", self.sync_bytes_per_s, 64 << 10, 1 << 40)?;
        within("image_percent", self.image_percent.into(), 0, 10_000)?;
        within("image_pieces_max", self.image_pieces_max.into(), 2, 16_384)?;
        within("scrub_bytes_per_s", self.scrub_bytes_per_s, 64 << 10, 1 << 40)?;
        automatic_or_within("connections_max", self.connections_max.into(), 1, 100_000)?;
        within("capacity_bytes_max", self.capacity_bytes_max, 0, 1 << 60)?;
        within("reserve_bytes", self.reserve_bytes, 0, 1 << 50)?;
        within("replicas", self.replicas.into(), 1, REPLICAS_MAX.into())?;
        within("lease (ms)", self.lease.as_millis() as u64, 10, 3_600_000)?;
        within("session_timeout (ms)", self.session_timeout.as_millis() as u64, 10, 10 * 365 * 86_400_000)?;
        within("image_delay (ms)", self.image_delay.as_millis() as u64, 0, 10 * 365 * 86_400_000)?;
        within("flush_delay (ms)", self.flush_delay.as_millis() as u64, 1, 10_000)?;
        within("dirty_age_max (ms)", self.dirty_age_max.as_millis() as u64, 10, 600_000)?;
        if !self.scrub_every.is_zero() {
            within("scrub_every (s)", self.scrub_every.as_secs(), 60, 10 * 365 * 86_400)?;
        }
        within("ended_sessions_kept (s)", self.ended_sessions_kept.as_secs(), 1, 10 * 365 * 86_400)?;
        within("max_clock_offset (ms)", self.max_clock_offset.as_millis() as u64, 1, 60_000)?;
        if self.listen.is_empty() {
            return wrong("setting listen is empty: name at least one address such as 127.0.0.1:7470".to_owned());
        }
        for key in &self.keys {
            if key.secret.chars().count() < SECRET_CHARS_MIN {
                return wrong(format!("key {}: its secret is shorter than {SECRET_CHARS_MIN} characters", key.name));
            }
        }
        Ok(())
    }
}

/// A number that TOML has: its integers end at 2^63 - 1, and a larger one could not be printed again.
fn toml_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(deserializer)?;
    if number > i64::MAX as u64 {
        return Err(D::Error::custom(format!("{number} is too large: at most {}", i64::MAX)));
    }
    Ok(number)
}

mod duration_text {
    //! Durations as texts with a unit.

    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    const UNITS: [(&str, u64); 6] =
        [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000), ("d", 86_400_000_000)];

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = duration.as_micros() as u64;
        let fits = |unit: &&(&str, u64)| micros >= unit.1 && micros.is_multiple_of(unit.1);
        let (unit, scale) = UNITS.iter().rev().find(fits).unwrap_or(&UNITS[2]);
        serializer.serialize_str(&format!("{}{unit}", micros / scale))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = UNITS.iter().find(|unit| unit.0 == &text[digits.len()..]);
        match (digits.parse::<u64>(), unit) {
            (Ok(count), Some((_, micros))) => Ok(Duration::from_micros(count.saturating_mul(*micros))),
            _ => Err(D::Error::custom(format!(
                "{text:?} is not a duration: write for instance \"50ms\", \"5s\", \"1m\" or \"7d\""
            ))),
        }
    }
}

/// The error in a text of settings. Values beside keys are left out: such messages end in logs.
fn words_of(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else { return error.to_string() };
    let before = text.get(..span.start).unwrap_or(text);
    let line = text.lines().nth(before.matches('\n').count()).unwrap_or_default();
    let table = before.lines().rev().find(|line| line.trim_start().starts_with('[')).unwrap_or_default();
    if ![line, table].iter().any(|place| place.contains("key") || place.contains("secret")) {
        return error.to_string();
    }
    // A value stands in quotes, the names of fields in backticks.
    let message: Vec<&str> = error.message().split('"').step_by(2).collect();
    format!(
        "line {}: {} (a key is a table with `name`, `secret`, `user` and, if it is so, `may_impersonate = true`)",
        before.matches('\n').count() + 1,
        message.join("…")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        let settings: Settings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.validate().map_err(|fault| fault.message)?;
        settings.memory(0).map_err(|fault| fault.message)?;
        Ok(settings)
    }

    #[test]
    fn a_configuration_is_read_with_units() {
        let settings = parse("dir = \"d\"\nflush_delay = \"20ms\"\ndirty_age_max = \"2s\"").expect("valid");
        assert_eq!(settings.flush_delay, Duration::from_millis(20));
        let printed = toml::to_string(&settings).expect("prints");
        for line in ["flush_delay = \"20ms\"", "dirty_age_max = \"2s\"", "scrub_every = \"7d\""] {
            assert!(printed.contains(line), "{printed}");
        }
        let never = toml::to_string(&parse("dir = \"d\"\nscrub_every = \"0s\"").expect("valid")).expect("prints");
        assert!(never.contains("scrub_every = \"0s\"") && parse(&never).is_ok(), "{never}");
    }

    #[test]
    fn a_wrong_configuration_says_what_is_allowed() {
        let cases = [
            ("", "give one with --dir"),
            ("dir = \"d\"\nchunk_bytes = 100000", "must be a power of two"),
            ("dir = \"d\"\nsegment_bytes = 1", "must be between"),
            ("dir = \"d\"\nindex_bytes_max = 1000", "must be between"),
            ("dir = \"d\"\nsync_bytes_per_s = 1000", "must be between"),
            ("dir = \"d\"\nmemory_bytes_max = 1000000", "give at least 99 MiB (--memory 99"),
            ("dir = \"d\"\nmemory_bytes_max = 200000000\nindex_bytes_max = 1073741824", "give at least 1"),
            ("dir = \"d\"\nreserve_bytes = 9223372036854775808", "at most 9223372036854775807"),
            ("dir = \"d\"\nreserve_bytes = 9223372036854775807", "must be between"),
            ("dir = \"d\"\ncapacity_bytes_max = 9223372036854775807", "must be between"),
            ("dir = \"d\"\nreplicas = 0", "must be between 1 and 8"),
            ("dir = \"d\"\nlease = \"0s\"", "must be between"),
            ("dir = \"d\"\nsession_timeout = \"300000d\"", "must be between"),
            ("dir = \"d\"\nimage_delay = \"300000d\"", "must be between"),
            ("dir = \"d\"\nflush_delay = 5", "string"),
            ("dir = \"d\"\nflush_delay = \"5 parsecs\"", "is not a duration"),
            ("dir = \"d\"\ncolour = 1", "unknown field `colour`"),
            ("dir = \"d\"\n[[keys]]\nname = \"a\"\nsecret = \"short\"\nuser = \"root\"", "shorter than 16"),
        ];
        for (text, words) in cases {
            let message = parse(text).unwrap_err();
            assert!(message.contains(words), "{message:?} should contain {words:?}");
        }
    }

    #[test]
    fn connections_are_as_many_as_the_memory_is_for_unless_a_number_is_set() {
        let connections = |text: &str| {
            parse(&format!("dir = \"d\"\n{text}"))
                .map(|settings| settings.with_memory_divided(64 << 30).expect("it was divided").connections_max)
        };
        assert_eq!(connections(""), Ok(4096));
        assert_eq!(connections("memory_bytes_max = 536870912"), Ok(819));
        assert_eq!(connections("memory_bytes_max = 536870912\nconnections_max = 3000"), Ok(3000));
        let words = connections("memory_bytes_max = 536870912\nconnections_max = 20000").unwrap_err();
        assert!(words.contains("give at least"), "{words}");
    }

    #[test]
    fn a_secret_is_never_printed() {
        let mut settings = Settings::default();
        let secret = "correct horse battery staple".to_owned();
        settings.keys.push(KeySettings { name: "k".into(), secret, user: "root".into(), may_impersonate: true });
        assert!(!format!("{settings:?}").contains("horse"));
        assert!(!toml::to_string(&settings).expect("prints").contains("horse"));
        for text in [
            "join_key = \"ops:correct horse battery staple\"",
            "dir = \"d\"\n[[keys]]\nname = \"k\"\nsecret = \"correct horse battery staple\"\n",
            "[join_key]\nname = \"k\"\nsecret = [\"correct horse battery staple\"]\nuser = \"root\"\n",
            "[[keys]]\nname = \"k\"\nsecret = \"correct horse battery staple\nuser = \"root\"\n",
        ] {
            let error = toml::from_str::<Settings>(text).expect_err("it is wrong");
            let words = words_of(text, &error);
            assert!(!words.contains("horse") && words.contains("line ") && words.contains("`secret`"), "{words}");
        }
        let error = toml::from_str::<Settings>("lease = 7").expect_err("it is wrong");
        assert_eq!(words_of("lease = 7", &error), error.to_string());
    }
}
