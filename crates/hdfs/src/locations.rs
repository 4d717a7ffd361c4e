//! Where clients are told that blocks are: at the doors of the servers that hold them.
//!
//! Every door of a cluster reads and writes every block, for what it lacks it asks for like any client; so any of them takes
//! the place of one that is lost. They find each other by a rule instead of a list: the doors of a cluster have their data
//! services at the same port, each at the host of its server. Who has none is a place that a client passes over.
//!
//! The first place of a block to be written is the door that gave the lease. The others are for a client whose connection
//! breaks: it goes on with the next it was told, and ends where there is none. So there are always two, if need be both here.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use frieze_client::{Attr, ByteRange, Caller, Client, NodeId, ServerAddr, View};

use crate::blocks::{self, BLOCK_BYTES, Pass, TokenMint, wall_ns};
use crate::lease::FileLease;
use crate::lease_record::OpenBlock;
use crate::proto::{self, DISK, DatanodeId, DatanodeInfo, LocatedBlock, LocatedBlocks};
use crate::remote_user::BlockClient;

/// Somewhere that blocks are read and written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    /// Tells it from others, always.
    pub(crate) name: String,
    /// The machine, as its server's address has it.
    pub(crate) host: String,
    /// Where it listens.
    pub(crate) at: SocketAddr,
    /// Port that answers for replicas; 0 for none.
    pub(crate) names_port: u16,
}

/// What a client said of the places of a block that it is to write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacementHints<'w> {
    /// `HOST:PORT` of those it likes.
    pub(crate) favored: &'w [String],
    /// Those that it could not reach.
    pub(crate) excluded: &'w [DatanodeInfo],
}

/// Where blocks are, and tokens for them.
pub(crate) struct BlockLocator {
    pub(crate) client: Client,
    /// Which server of the cluster this is.
    pub(crate) node: NodeId,
    pub(crate) mint: TokenMint,
    pub(crate) data: DataAddress,
    /// Where the name service listens, once it does: it answers for replicas too.
    pub(crate) names_port: OnceLock<u16>,
}

/// Where blocks are read and written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataAddress {
    /// The address, if it is one; else the one by which a client reached the name service.
    pub(crate) ip: Option<IpAddr>,
    /// The port.
    pub(crate) port: u16,
}

impl BlockLocator {
    /// The blocks that hold bytes of a range of a file, at a view.
    pub(crate) fn located(
        &self,
        reader: BlockClient<'_>,
        (attr, is_open): (&Attr, bool),
        view: View,
        (offset, len): (u64, u64),
    ) -> LocatedBlocks {
        let located = |(start, len)| self.readable(reader, attr, view, start, len);
        let last = attr.size.checked_sub(1).map(|last| last / BLOCK_BYTES * BLOCK_BYTES);
        LocatedBlocks {
            file_length: attr.size,
            blocks: blocks::spans(attr.size, offset, len).map(located).collect(),
            under_construction: !view.is_past() && is_open,
            last_block: last.map(|start| located((start, attr.size - start))),
            is_last_block_complete: true,
        }
    }

    fn readable(&self, reader: BlockClient<'_>, attr: &Attr, view: View, start: u64, len: u64) -> LocatedBlock {
        let inode = attr.inode;
        let places = self.places_to_read(reader, attr, ByteRange::new(start, start + len));
        let pass = Pass { inode, start, len, at: view.at, user_at: view.user_at, ..Pass::default() };
        self.block(reader, start, blocks::extended(inode, start, len, READ_GENERATION), pass, &places)
    }

    /// A block that is to be written.
    pub(crate) fn writable(
        &self,
        reader: BlockClient<'_>,
        lease: &FileLease,
        block: OpenBlock,
        len: u64,
        places: &[BlockLocation],
    ) -> LocatedBlock {
        let (inode, start) = (lease.inode, block.start);
        let door = self.own_place(reader).at.to_string();
        let pass = Pass { inode, start, len: lease.block_bytes, lease: lease.id, door, ..Pass::default() };
        self.block(reader, start, blocks::extended(inode, start, len, block.generation), pass, places)
    }

    fn block(
        &self,
        reader: BlockClient<'_>,
        offset: u64,
        named: proto::ExtendedBlock,
        pass: Pass,
        places: &[BlockLocation],
    ) -> LocatedBlock {
        let token = reader.caller.cloned().map(|Caller { uid, gid, groups }| {
            let expires_ns = wall_ns() + PASS_NS;
            self.mint.sign(&Pass { uid, gid, groups, expires_ns, ..pass })
        });
        LocatedBlock {
            b: Some(named),
            offset,
            locs: places.iter().map(BlockLocation::told).collect(),
            corrupt: false,
            block_token: Some(token.unwrap_or_default()),
            is_cached: vec![false; places.len()],
            storage_types: vec![DISK; places.len()],
            storage_ids: places.iter().map(|place| place.name.clone()).collect(),
        }
    }

    /// Where bytes of a file are read: at the client's own machine if that holds some, then where most of them are.
    pub(crate) fn places_to_read(&self, reader: BlockClient<'_>, attr: &Attr, range: ByteRange) -> Vec<BlockLocation> {
        let holders = self.client.holders(attr, range);
        let mut places: Vec<BlockLocation> =
            holders.iter().filter_map(|holder| self.place_of(reader, holder)).collect();
        if places.is_empty() {
            places.push(self.own_place(reader));
        }
        places.sort_by_key(|place| place.at.ip() != reader.peer);
        places.truncate(PLACES_MAX);
        places
    }

    /// Where a block is to be written.
    pub(crate) fn places_to_write(&self, reader: BlockClient<'_>, wishes: PlacementHints<'_>) -> Vec<BlockLocation> {
        let own = self.own_place(reader);
        let spare = BlockLocation { name: format!("{}-again", own.name), ..own.clone() };
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let others = holders.iter().filter(|(node, _)| *node != self.node);
        let others = others.filter_map(|holder| self.place_of(reader, holder));
        let mut places: Vec<BlockLocation> = [own].into_iter().chain(others).chain([spare]).collect();
        let is_excluded = |place: &BlockLocation| wishes.excluded.iter().any(|node| is_named(node, &place.name));
        if !places.iter().all(is_excluded) {
            places.retain(|place| !is_excluded(place));
        }
        let is_favored = |place: &BlockLocation| {
            let at = [place.at.to_string(), format!("{}:{}", place.host, place.at.port())];
            wishes.favored.iter().any(|favored| at.contains(favored))
        };
        places.sort_by_key(|place| !is_favored(place));
        places.truncate(PLACES_MAX);
        places
    }

    /// Everywhere that blocks are.
    pub(crate) fn all_places(&self, reader: BlockClient<'_>) -> Vec<BlockLocation> {
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let places: Vec<BlockLocation> = holders.iter().filter_map(|holder| self.place_of(reader, holder)).collect();
        if places.is_empty() { vec![self.own_place(reader)] } else { places }
    }

    /// True if `ip` is where this door listens.
    pub(crate) fn is_here(&self, ip: IpAddr) -> bool {
        // Where it listens on every address, whether this is one of them is the system's to say.
        self.data.ip.map_or_else(|| std::net::UdpSocket::bind((ip, 0)).is_ok(), |own| own == ip)
    }

    /// This door, as the client reaches it.
    pub(crate) fn own_place(&self, reader: BlockClient<'_>) -> BlockLocation {
        let ip = self.data.ip.unwrap_or(reader.reached);
        let at = SocketAddr::new(ip, self.data.port);
        BlockLocation { name: name_of(self.node), host: ip.to_string(), at, names_port: self.names_port() }
    }

    /// Where the data service of another server's door listens.
    pub(crate) fn data_place_of(&self, node: NodeId) -> Option<SocketAddr> {
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let (_, address) = holders.iter().find(|(holder, _)| *holder == node)?;
        self.data_at(address)
    }

    fn names_port(&self) -> u16 {
        self.names_port.get().copied().unwrap_or(0)
    }

    fn data_at(&self, address: &ServerAddr) -> Option<SocketAddr> {
        let ServerAddr::Tcp { host, .. } = address else { return None };
        // Most often it is an address; a name is looked up as the machine looks names up.
        match host.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, self.data.port)),
            Err(_) => (host.as_str(), self.data.port).to_socket_addrs().ok()?.next(),
        }
    }

    fn place_of(&self, reader: BlockClient<'_>, (node, address): &(NodeId, ServerAddr)) -> Option<BlockLocation> {
        if *node == self.node {
            return Some(self.own_place(reader));
        }
        let ServerAddr::Tcp { host, .. } = address else { return None };
        let at = self.data_at(address)?;
        Some(BlockLocation { name: name_of(*node), host: host.clone(), at, names_port: self.names_port() })
    }
}

impl BlockLocation {
    /// As clients are told of it.
    pub(crate) fn told(&self) -> DatanodeInfo {
        DatanodeInfo {
            id: Some(DatanodeId {
                ip_addr: self.at.ip().to_string(),
                host_name: self.host.clone(),
                datanode_uuid: self.name.clone(),
                xfer_port: self.at.port().into(),
                info_port: 0,
                ipc_port: self.names_port.into(),
                info_secure_port: Some(0),
            }),
            capacity: None,
            dfs_used: None,
            remaining: None,
            last_update: None,
            location: Some("/default-rack".to_owned()),
        }
    }
}

/// True if a client means the place of that name.
pub(crate) fn is_named(node: &DatanodeInfo, name: &str) -> bool {
    node.id.as_ref().is_some_and(|id| id.datanode_uuid == name)
}

fn name_of(node: NodeId) -> String {
    format!("frieze-{node}")
}

/// How long a token is good for: as in HDFS.
const PASS_NS: u64 = 10 * 3600 * 1_000_000_000;
/// Generation of the blocks of a file that is read: they are never written again.
const READ_GENERATION: u64 = 1;
/// Places of a block at most: what HDFS tells by default.
const PLACES_MAX: usize = 3;
