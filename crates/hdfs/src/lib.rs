//! The HDFS gateway: Hadoop's own protocols, so that unmodified Hadoop clients work, in the present and in the past.
//!
//! ```text
//! frieze serve --dir /srv/frieze --hdfs 127.0.0.1:8020
//! hdfs dfs -fs hdfs://127.0.0.1:8020 -cat /.at/5m-ago/logs/today
//! ```
//!
//! Two services, as Hadoop has them. The *name service* answers remote calls ([`rpc`], [`service`]): names, attributes,
//! leases, locations of blocks. The *data service* reads and writes blocks ([`transfer`], [`data_service`]). A block is
//! a span of a file, and a signed token names it ([`blocks`]); no other record of it exists. [`paths`] and
//! [`moving_instants`] read instants in paths.
//!
//! Calls run on three contexts: [`file_names`] (what a path means to a caller), [`locations`] (where blocks are) and
//! [`file_writers`] (leases, here and at the gateways of other servers).
//!
//! Guarantees: what is acknowledged to a writer is in the file for every reader at any gateway; the server checks the
//! rights of each caller; a client that sends garbage gets an error and is disconnected, and affects no other client;
//! what is not served is refused by name. A writer continues after a restart of the server, and in a cluster at another
//! gateway. ADR 0041 has the decisions.
//! Leaves to others: rights, history and bytes (the server, through `client`), starting and stopping (`cli`).

mod accounts;
mod acls;
mod administration;
mod attributes;
mod batched_listing;
mod block_reader;
mod block_sender;
mod block_writer;
mod blocks;
mod budget;
mod call_codec;
mod calls;
mod checksum_cache;
mod checksums;
mod concat;
mod data_service;
mod directories;
mod error;
mod exception;
mod exclusive_file;
mod file_names;
mod file_writers;
mod file_writes;
mod framing;
mod guarded_reader;
mod lease;
mod lease_record;
mod lease_store;
mod lease_takeover;
mod leases;
mod locations;
mod moving_instants;
mod mutations;
mod name_service;
mod paths;
mod peer_gateways;
pub mod proto;
mod queries;
mod quotas;
mod recorded;
mod relay;
mod remote_user;
mod replicas;
mod retry_cache;
mod rpc;
mod service;
mod snapshots;
mod transfer;
mod transfer_error;
mod transfer_responses;
mod xattrs;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;

use frieze_client::{Acceptor, Admission, Options};

pub use crate::accounts::{Account, Trust, account};
pub use crate::calls::{Calls, ReadHandle, WriteHandle};
pub use crate::checksums::FileChecksum;
use crate::data_service::DataService;
pub use crate::error::Error;
pub use crate::exception::Exception;
use crate::name_service::NameService;
pub use crate::peer_gateways::session_of;
pub use crate::remote_user::RemoteUser;
/// The trait of every message of [`proto`].
pub use prost::Message;

/// Default port of the data service: HDFS's own.
pub const DATA_PORT: u16 = 9866;
/// Purpose of the secret with which gateways sign tokens.
pub const TOKENS: &str = "frieze 2026-11-24 tokens of blocks at the HDFS door";

/// Where the gateway listens, and whose word it takes for a user's name.
#[derive(Clone, Debug)]
pub struct HdfsOptions {
    /// Where the name service listens, as `HOST:PORT`: what `fs.defaultFS` names.
    pub listen: String,
    /// Where the data service listens, as `HOST:PORT`; empty for [`DATA_PORT`] of the same host.
    pub data: String,
    /// Whose word it takes for a user's name.
    pub trust: Trust,
    /// A directory for leases that outlive the process; without one writers start over after a restart.
    pub notes: Option<PathBuf>,
    /// The connection limits of the server that this is a gateway of.
    pub admission: Admission,
}

/// An open gateway. Dropped, it is closed.
pub struct HdfsGateway {
    names: Acceptor,
    data: Acceptor,
    calls: Calls,
}

impl HdfsGateway {
    /// Opens the gateway to the server that `client` names. It is ready when this returns. The gateways of a cluster
    /// accept each other's tokens: `secret` is the same for all of them. They query each other's leases if the command
    /// of `client` is [`session_of`] that server.
    ///
    /// # Errors
    /// `Listen`, `Beyond`: choose other addresses. `Client`: the server does not answer.
    pub fn open(options: &HdfsOptions, secret: [u8; 32], client: Options) -> Result<HdfsGateway, Error> {
        let name_address = address_of(&options.listen, options.trust)?;
        let data_address = match options.data.as_str() {
            "" => SocketAddr::new(name_address.ip(), DATA_PORT),
            text => address_of(text, options.trust)?,
        };
        let name_listener = bind(name_address)?;
        let data_listener = bind(data_address)?;
        let data_at =
            data_listener.local_addr().map_err(|source| Error::System { doing: "ask for an address", source })?;
        let calls = Calls::connect(client, secret, data_at, options.notes.clone())?;
        let service = calls.service();
        let names_at = name_listener.local_addr();
        let names_at = names_at.map_err(|source| Error::System { doing: "ask for an address", source })?;
        // This is the first gateway of the service, and the only one with a name service.
        let _ = service.locator.names_port.set(names_at.port());
        let data =
            Acceptor::start(data_listener, Arc::new(DataService::new(service.clone())), options.admission.clone());
        let data = data.map_err(no_thread)?;
        let names = Arc::new(NameService::start(service, options.trust)?);
        let names = Acceptor::start(name_listener, names, options.admission.clone()).map_err(no_thread)?;
        Ok(HdfsGateway { names, data, calls })
    }

    /// Where the name service listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.names.address()
    }

    /// The same calls for another gateway of this process: they share leases.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// Where the data service listens.
    pub fn data_address(&self) -> SocketAddr {
        self.data.address()
    }
}

impl Drop for HdfsGateway {
    /// Stores every lease, the youngest too: writers continue at the next process.
    fn drop(&mut self) {
        self.calls.service().leave();
    }
}

/// Listens where a gateway with this trust can identify its clients.
///
/// # Errors
/// `Listen`, `Beyond`: choose another address.
pub fn listen(text: &str, trust: Trust) -> Result<TcpListener, Error> {
    bind(address_of(text, trust)?)
}

fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address).map_err(|source| Error::Listen { address: address.to_string(), source })
}

fn no_thread(source: io::Error) -> Error {
    Error::System { doing: "start a thread", source }
}

fn address_of(text: &str, trust: Trust) -> Result<SocketAddr, Error> {
    let failed = |source| Error::Listen { address: text.to_owned(), source };
    let none = || failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no HOST:PORT"));
    let address = text.to_socket_addrs().map_err(failed)?.next().ok_or_else(none)?;
    if trust == Trust::Kernel && !address.ip().is_loopback() {
        return Err(Error::Beyond { address: text.to_owned() });
    }
    Ok(address)
}

#[cfg(test)]
frieze_harness::count_allocations!();
