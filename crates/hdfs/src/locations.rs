//! The locations of blocks that clients get: the gateways of the servers that hold them.
//!
//! Every gateway of a cluster reads and writes every block, for it gets what it lacks like any client; so any of them
//! replaces one that is lost. They find each other by a rule instead of a list: the gateways of a cluster have their
//! data services at the same port, each at the host of its server. A client skips a server without a gateway.
//!
//! The first location of a block to write is the gateway that gave the lease. The others are spares: a client whose
//! connection breaks continues at the next, and fails without one. So there are always two, if need be both here.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;

use frieze_client::{Attr, ByteRange, Caller, Client, NodeId, ServerAddr, View};

use crate::blocks::{self, BLOCK_BYTES, Pass, TokenMint, wall_ns};
use crate::lease::FileLease;
use crate::lease_record::OpenBlock;
use crate::proto::{self, DISK, DatanodeId, DatanodeInfo, LocatedBlock, LocatedBlocks};
use crate::remote_user::BlockClient;

/// Where a block is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockLocation {
    /// Its unique and permanent name.
    pub(crate) name: String,
    /// The host, from the address of its server.
    pub(crate) host: String,
    /// Where it listens.
    pub(crate) at: SocketAddr,
    /// Port that answers for replicas; 0 for none.
    pub(crate) names_port: u16,
}

/// What a client requests about the locations of a block to write.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlacementHints<'w> {
    /// `HOST:PORT` of those it prefers.
    pub(crate) favored: &'w [String],
    /// Those that it cannot reach.
    pub(crate) excluded: &'w [DatanodeInfo],
}

/// Finds locations of blocks, and signs tokens for them.
pub(crate) struct BlockLocator {
    pub(crate) client: Client,
    /// The server of this gateway.
    pub(crate) node: NodeId,
    pub(crate) mint: TokenMint,
    pub(crate) data: DataAddress,
    /// Port of the name service, once it listens: it serves calls about replicas too.
    pub(crate) names_port: OnceLock<u16>,
}

/// Address of the data service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataAddress {
    /// The address, if it is specified; else the one at which a client reached the name service.
    pub(crate) ip: Option<IpAddr>,
    /// The port.
    pub(crate) port: u16,
}

impl BlockLocator {
    /// The blocks that hold bytes of a range of a file, in a view.
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
        let places = self.locations_to_read(reader, attr, ByteRange::new(start, start + len));
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
        let gateway = self.own_location(reader).at.to_string();
        let pass = Pass { inode, start, len: lease.block_bytes, lease: lease.id, gateway, ..Pass::default() };
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
            locs: places.iter().map(BlockLocation::datanode_info).collect(),
            corrupt: false,
            block_token: Some(token.unwrap_or_default()),
            is_cached: vec![false; places.len()],
            storage_types: vec![DISK; places.len()],
            storage_ids: places.iter().map(|place| place.name.clone()).collect(),
        }
    }

    /// Locations to read bytes of a file from: the client's own machine first, then the servers with most of them.
    pub(crate) fn locations_to_read(
        &self,
        reader: BlockClient<'_>,
        attr: &Attr,
        range: ByteRange,
    ) -> Vec<BlockLocation> {
        let holders = self.client.holders(attr, range);
        let mut places: Vec<BlockLocation> =
            holders.iter().filter_map(|holder| self.location_of(reader, holder)).collect();
        if places.is_empty() {
            places.push(self.own_location(reader));
        }
        places.sort_by_key(|place| place.at.ip() != reader.peer);
        places.truncate(PLACES_MAX);
        places
    }

    /// Locations to write a block to.
    pub(crate) fn locations_to_write(&self, reader: BlockClient<'_>, wishes: PlacementHints<'_>) -> Vec<BlockLocation> {
        let own = self.own_location(reader);
        let spare = BlockLocation { name: format!("{}-again", own.name), ..own.clone() };
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let others = holders.iter().filter(|(node, _)| *node != self.node);
        let others = others.filter_map(|holder| self.location_of(reader, holder));
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

    /// All locations.
    pub(crate) fn all_locations(&self, reader: BlockClient<'_>) -> Vec<BlockLocation> {
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let places: Vec<BlockLocation> = holders.iter().filter_map(|holder| self.location_of(reader, holder)).collect();
        if places.is_empty() { vec![self.own_location(reader)] } else { places }
    }

    /// True if `ip` is where this gateway listens.
    pub(crate) fn is_here(&self, ip: IpAddr) -> bool {
        // If it listens on every address, the system knows whether this is one of them.
        self.data.ip.map_or_else(|| std::net::UdpSocket::bind((ip, 0)).is_ok(), |own| own == ip)
    }

    /// This gateway, at the address that the client reached.
    pub(crate) fn own_location(&self, reader: BlockClient<'_>) -> BlockLocation {
        let ip = self.data.ip.unwrap_or(reader.reached);
        let at = SocketAddr::new(ip, self.data.port);
        BlockLocation { name: name_of(self.node), host: ip.to_string(), at, names_port: self.names_port() }
    }

    /// Address of the data service of another server's gateway.
    pub(crate) fn data_address_of(&self, node: NodeId) -> Option<SocketAddr> {
        let holders = self.client.holders(&Attr::default(), ByteRange::new(0, 0));
        let (_, address) = holders.iter().find(|(holder, _)| *holder == node)?;
        self.data_at(address)
    }

    fn names_port(&self) -> u16 {
        self.names_port.get().copied().unwrap_or(0)
    }

    fn data_at(&self, address: &ServerAddr) -> Option<SocketAddr> {
        let ServerAddr::Tcp { host, .. } = address else { return None };
        // Usually it is an address; a name is resolved by the system.
        match host.parse::<IpAddr>() {
            Ok(ip) => Some(SocketAddr::new(ip, self.data.port)),
            Err(_) => (host.as_str(), self.data.port).to_socket_addrs().ok()?.next(),
        }
    }

    fn location_of(&self, reader: BlockClient<'_>, (node, address): &(NodeId, ServerAddr)) -> Option<BlockLocation> {
        if *node == self.node {
            return Some(self.own_location(reader));
        }
        let ServerAddr::Tcp { host, .. } = address else { return None };
        let at = self.data_at(address)?;
        Some(BlockLocation { name: name_of(*node), host: host.clone(), at, names_port: self.names_port() })
    }
}

impl BlockLocation {
    /// As clients get it.
    pub(crate) fn datanode_info(&self) -> DatanodeInfo {
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

/// True if a client names this location.
pub(crate) fn is_named(node: &DatanodeInfo, name: &str) -> bool {
    node.id.as_ref().is_some_and(|id| id.datanode_uuid == name)
}

fn name_of(node: NodeId) -> String {
    format!("frieze-{node}")
}

/// Lifetime of a token, as in HDFS.
const PASS_NS: u64 = 10 * 3600 * 1_000_000_000;
/// Generation of blocks that are read: they are never written again.
const READ_GENERATION: u64 = 1;
/// Locations of a block at most, as in HDFS by default.
const PLACES_MAX: usize = 3;
