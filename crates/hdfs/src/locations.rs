//! Where clients are told that blocks are: at the doors of the servers that hold them.
//!
//! Every door of a cluster reads and writes every block, for what it lacks it asks for like any client; so any of them takes
//! the place of one that is lost. They find each other by a rule instead of a list: the doors of a cluster have their data
//! services at the same port, each at the host of its server. Who has none is a place that a client passes over.
//!
//! The first place of a block to be written is the door that gave the lease. The others are for a client whose connection
//! breaks: it goes on with the next it was told, and ends where there is none. So there are always two, if need be both here.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use frieze_client::{Attr, ByteRange, NodeId, ServerAddr};

use crate::proto::{DatanodeId, DatanodeInfo};
use crate::service::Service;
use crate::status::BlockClient;

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

impl Service {
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

/// Places of a block at most: what HDFS tells by default.
const PLACES_MAX: usize = 3;
