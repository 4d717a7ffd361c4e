//! The calls of Hadoop's file system, for another gateway of the same process that speaks another protocol.
//!
//! Guarantees: a call does and refuses the same through every gateway, for it is the same function; gateways share
//! leases.
//! Leaves to others: the account of the caller ([`crate::account`]), encoding of calls and answers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, mpsc};

use frieze_base::ByteRange;
use frieze_client::{
    CallKind, CallScope, Client, Error as ClientError, File, Gateway, NodeId, OpenFlags, Options, mono,
};
use prost::Message;

use crate::attributes::must_be_file;
use crate::blocks::{self, TokenMint, wall_ns};
use crate::checksums::{FileChecksum, FileChecksummer};
use crate::error::Error;
use crate::exception::{Exception, malformed};
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::lease::FileLease;
use crate::lease_store::LeaseStore;
use crate::leases::Leases;
use crate::locations::{BlockLocator, DataAddress};
use crate::paths::{self, ParsedPath, place};
use crate::peer_gateways::PeerGateways;
use crate::proto::{AppendRequest, AppendResponse, CreateRequest, CreateResponse};
use crate::remote_user::{CallContext, RemoteUser};
use crate::rpc::{Call, CallId};
use crate::service::{PROTOCOL, Service};

/// The calls. Clones are the same.
#[derive(Clone)]
pub struct Calls(Arc<Service>);

impl Calls {
    /// Connects to the server that `client` names. `secret` signs tokens of blocks, and is the same for all gateways of
    /// a cluster; `data` is the address that clients get for blocks; `notes` a directory for leases that outlive the
    /// process.
    ///
    /// # Errors
    /// `Client`: the server does not answer. `System`: no thread, or no such directory.
    pub fn connect(
        client: Options,
        secret: [u8; 32],
        data: SocketAddr,
        notes: Option<PathBuf>,
    ) -> Result<Calls, Error> {
        let client = Client::connect(client)?;
        let failed = |source| Error::System { doing: "read what is noted of writers", source };
        let mint = TokenMint::new(secret);
        let signs = mint.of("frieze 2026-11-26 notes of leases at the HDFS doors");
        let notes = LeaseStore::new(client.clone(), signs, notes).map_err(failed)?;
        let leases = Leases::new(client.clone(), notes).map_err(failed)?;
        let (lease_thread, ended) = mpsc::channel();
        let locator = Arc::new(BlockLocator {
            client: client.clone(),
            node: NodeId(client.hello().node),
            mint: mint.clone(),
            data: DataAddress { ip: specified(data.ip()), port: data.port() },
            names_port: OnceLock::new(),
        });
        let between_gateways = mint.of("frieze 2026-11-26 questions between HDFS doors");
        let peers = PeerGateways { client: client.clone(), locator: locator.clone(), mint: between_gateways };
        // Generations of this process exceed those of the process before.
        let generation = AtomicU64::new(wall_ns());
        let service = Service {
            names: FileNames { client: client.clone(), accounts: Default::default(), moving: Default::default() },
            locator,
            writers: FileWriters { client, leases, peers, generation },
            is_safe: Default::default(),
            retries: Default::default(),
            began: mono(),
            _lease_thread: lease_thread,
        };
        let service = Arc::new(service);
        let failed = |source| Error::System { doing: "start a thread", source };
        service.store_leases(ended).map_err(failed)?;
        Ok(Calls(service))
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.0
    }

    /// Makes a call of `ClientProtocol`, once. The name of a moving instant is resolved for this call alone.
    ///
    /// # Errors
    /// Those of the call.
    pub fn ask<R: Message + Default>(
        &self,
        user: &RemoteUser,
        method: &str,
        request: &impl Message,
    ) -> Result<R, Exception> {
        let call = Call {
            id: CallId::default(),
            retry: 0,
            protocol: PROTOCOL.to_owned(),
            method: method.to_owned(),
            parameters: request.encode_to_vec(),
        };
        let answer = self.0.answer(user, &call)?;
        R::decode(answer.as_slice()).map_err(|error| malformed(method, &error))
    }

    /// Opens a file to read.
    ///
    /// # Errors
    /// `FileNotFoundException`, `AccessControlException` and others.
    pub fn read(&self, user: &RemoteUser, path: &str) -> Result<ReadHandle, Exception> {
        let resolved = self.0.names.resolve(context(user), path)?;
        let failed = |error| Exception::of(error, path);
        must_be_file(&resolved.fs.stat(&resolved.target).map_err(failed)?.attr, path)?;
        let file = resolved.fs.open(&resolved.target, OpenFlags::READ).map_err(failed)?;
        let size = file.stat().map_err(failed)?.attr.size;
        Ok(ReadHandle { file, size, path: path.to_owned() })
    }

    /// Creates a file and opens it to write; the call is `create`.
    ///
    /// # Errors
    /// Those of the call.
    pub fn create(&self, user: &RemoteUser, request: &CreateRequest) -> Result<WriteHandle, Exception> {
        let made: CreateResponse = self.ask(user, "create", request)?;
        let inode = made.fs.and_then(|status| status.file_id).unwrap_or(0);
        self.writing(user, inode, &request.src, &request.client_name)
    }

    /// Opens a file to append; the call is `append`.
    ///
    /// # Errors
    /// Those of the call.
    pub fn append(&self, user: &RemoteUser, request: &AppendRequest) -> Result<WriteHandle, Exception> {
        let opened: AppendResponse = self.ask(user, "append", request)?;
        let inode = opened.stat.and_then(|status| status.file_id).unwrap_or(0);
        self.writing(user, inode, &request.src, &request.client_name)
    }

    fn writing(&self, user: &RemoteUser, inode: u64, path: &str, client_name: &str) -> Result<WriteHandle, Exception> {
        let holder = context(user).holder(client_name);
        let lease = self.0.writers.leases.lease_of(inode, path, &holder)?;
        lease.progress().is_own = true;
        Ok(WriteHandle { service: self.0.clone(), lease: Some(lease) })
    }

    /// A scope around a call of another gateway's user, for traces: the calls within it, on this thread, add to its
    /// event.
    pub fn scope(&self, gateway: Gateway, call: CallKind) -> CallScope<'_> {
        self.0.names.client.scope_at(gateway, call)
    }

    /// The checksum of a whole file, as Hadoop's clients compute it from those of its blocks.
    ///
    /// # Errors
    /// As [`Calls::read`].
    pub fn checksum(&self, user: &RemoteUser, path: &str) -> Result<FileChecksum, Exception> {
        let ReadHandle { file, size, .. } = self.read(user, path)?;
        let mut sums = FileChecksummer::default();
        for (start, len) in blocks::spans(size, 0, u64::MAX) {
            sums.begin_block();
            let range = ByteRange::new(start, start + len);
            let read = file.read_stream(range, DEPTH, |piece| {
                sums.add(piece);
                Ok::<_, ClientError>(())
            });
            if read.map_err(|error| Exception::of(error, path))? != len {
                return Err(shorter(path));
            }
        }
        Ok(sums.checksum())
    }

    /// The same path with an exact instant in place of a moving one.
    ///
    /// # Errors
    /// Those of resolving the path.
    pub fn pinned(&self, user: &RemoteUser, path: &str) -> Result<String, Exception> {
        let ParsedPath::Past(past) = place(path)? else { return Ok(path.to_owned()) };
        let resolved = self.0.names.resolve(context(user), path)?;
        let Some(at) = resolved.fs.view().at else { return Ok(path.to_owned()) };
        Ok(paths::pinned(&past, &frieze_client::Hlc(at).to_string()))
    }
}

/// A file that is open to read.
#[derive(Debug)]
pub struct ReadHandle {
    file: File,
    size: u64,
    path: String,
}

impl ReadHandle {
    /// Its size when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// `IOException`: the file has become shorter, or its server does not answer.
    pub fn fill(&self, offset: u64, into: &mut [u8]) -> Result<(), Exception> {
        let count = self.file.read_at(offset, into).map_err(|error| Exception::of(error, &self.path))?;
        if count == into.len() { Ok(()) } else { Err(shorter(&self.path)) }
    }
}

/// A file that is open to write, under a lease. Dropped, it is closed, with everything that was written.
pub struct WriteHandle {
    service: Arc<Service>,
    /// Taken by `close`.
    lease: Option<Arc<FileLease>>,
}

impl WriteHandle {
    /// Appends bytes. They are in the file for every reader when this returns.
    ///
    /// # Errors
    /// `LeaseExpiredException`: another client took the file over. Others as of any write.
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Exception> {
        let lease = self.lease.as_ref().expect("it is open until it is dropped");
        let mut progress = lease.writing()?;
        lease.file.write_at(progress.next, bytes).map_err(|error| Exception::of(error, &lease.path))?;
        progress.next += bytes.len() as u64;
        drop(progress);
        // Renews the lease: its holder is not silent.
        self.service.writers.leases.lease_of(lease.inode, &lease.path, &lease.holder).map(|_| ())
    }

    /// Closes it.
    ///
    /// # Errors
    /// As of any close.
    pub fn close(mut self) -> Result<(), Exception> {
        let lease = self.lease.take().expect("it is open until it is dropped");
        self.service.writers.close(lease, None)
    }
}

impl Drop for WriteHandle {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        let path = lease.path.clone();
        if let Err(exception) = self.service.writers.close(lease, None) {
            tracing::warn!(path, "a file that its writer left could not be closed: {exception}");
        }
    }
}

/// The context of a caller whose program is unknown.
fn context(user: &RemoteUser) -> CallContext<'_> {
    CallContext { user, program: b"" }
}

fn shorter(path: &str) -> Exception {
    Exception::io(format!("{path} has become shorter while it was read"))
}

fn specified(ip: IpAddr) -> Option<IpAddr> {
    (!ip.is_unspecified()).then_some(ip)
}

/// Requests of 1 MiB in flight.
const DEPTH: usize = 4;
