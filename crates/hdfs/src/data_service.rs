//! The data service: connections on which blocks are read and written.
//!
//! A block is written under a lease of one gateway; a write that arrives at another is forwarded to that one
//! ([`relay`]). The further locations in a client's pipeline are spares: nothing is sent to them, because chains
//! replicate. For the same reason a client's request to copy a block to a new location copies nothing.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use frieze_base::ByteRange;
use frieze_client::{
    AcceptedConnection, CallKind, Caller, ConnectionHandler, Fs, Guest, Hlc, InodeId, OpenFlags, Target, UserTime,
};
use prost::Message;

use crate::block_reader::BlockReader;
use crate::block_writer::BlockReceiver;
use crate::blocks::{Pass, block_id, wall_ns};
use crate::budget::MemoryBudget;
use crate::checksum_cache::BlockChecksumCache;
use crate::checksums::{BlockChecksummer, ChecksumRequest};
use crate::framing::{read_message, read_or_end};
use crate::guarded_reader::{self, GuardedReader, PROOF_MAX};
use crate::proto::{self, BaseHeader, BlockOpResponse, OpReadBlock, OpWriteBlock, stage, status};
use crate::relay;
use crate::service::Service;
use crate::transfer::{self, Operation};
use crate::transfer_error::TransferError;
use crate::transfer_responses::{forbid, refused, respond};

/// Bytes received and in no file yet, of all connections together.
const BUDGET_BYTES: usize = 256 << 20;
/// Bytes read from a writer's socket at once.
const BUFFER_BYTES: usize = 512 << 10;
/// How long a connection without a request is kept. A client drops it after three seconds.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A client that neither reads nor sends for this long is lost: a writer sends a heartbeat every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// Requests of 1 MiB in flight.
const DEPTH: usize = 4;

/// Serves transfers.
pub(crate) struct DataService {
    service: Arc<Service>,
    reader: BlockReader,
    /// Bytes received and in no file yet.
    budget: MemoryBudget,
    checksums: Arc<BlockChecksumCache>,
}

impl DataService {
    pub(crate) fn new(service: Arc<Service>) -> DataService {
        let checksums: Arc<BlockChecksumCache> = Arc::default();
        let (reader, budget) = (BlockReader::new(checksums.clone()), MemoryBudget::new(BUDGET_BYTES));
        DataService { service, reader, budget, checksums }
    }

    fn converse(&self, accepted: AcceptedConnection) -> Result<(), TransferError> {
        let AcceptedConnection { stream, mut guest, .. } = accepted;
        let (stream, guest) = (&stream, &mut guest);
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut reader = guarded_reader::reader(stream);
        let mut is_known = false;
        loop {
            let mut first = [0; 3];
            match read_or_end(&mut reader, &mut first) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let operation = transfer::operation(first)?;
            if is_known {
                guarded_reader::expire(&reader, PROOF_MAX);
            }
            let message = read_message(&mut reader)?;
            guarded_reader::admit(&reader, SILENCE_MAX)?;
            let goes_on = match operation {
                Operation::Read => {
                    self.read(stream, &mut reader, guest, &transfer::message(&message, "read request")?)?
                }
                Operation::Write => self.write(stream, &mut reader, guest, &message)?,
                Operation::Copy => self.copy(stream, guest, &transfer::message(&message, "request to copy")?)?,
                Operation::Checksum => {
                    self.checksum(stream, guest, &transfer::message(&message, "checksum request")?)?
                }
                Operation::Question => {
                    let Some(answer) =
                        self.service.writers.answer_peer(&transfer::message(&message, "query of a gateway")?)
                    else {
                        return Ok(());
                    };
                    (&*stream).write_all(&answer.encode_length_delimited_to_vec())?;
                    false
                }
                Operation::Other(_) => {
                    let words = format!("operation {} is not supported by frieze", first[2]);
                    respond(stream, &refused(status::ERROR_UNSUPPORTED, &words))?;
                    false
                }
            };
            if !goes_on {
                return Ok(());
            }
            is_known = true;
            guarded_reader::resize(&mut reader, guarded_reader::SMALL_BYTES)?;
            guarded_reader::expire(&reader, IDLE_MAX);
        }
    }

    /// Sends a range of a block. True if the connection can serve another request.
    fn read(
        &self,
        stream: &TcpStream,
        reader: &mut GuardedReader<'_>,
        guest: &mut Guest,
        request: &OpReadBlock,
    ) -> Result<bool, TransferError> {
        let Some(pass) = self.pass(request.header.as_ref().and_then(|header| header.base_header.as_ref())) else {
            return forbid(stream);
        };
        guest.belongs_to(pass.uid)?;
        let end = request.offset.checked_add(request.len).filter(|&end| end <= pass.len && pass.lease == 0);
        let Some(end) = end else {
            let words = format!("{} bytes from {} on of a block of {}", request.len, request.offset, pass.len);
            respond(stream, &refused(status::ERROR_INVALID, &words))?;
            return Ok(true);
        };
        // Before the file is opened: that is a part of this read, and no call of the client's.
        let scope = self.service.names.client.scope(CallKind::Read);
        scope.inode(pass.inode);
        scope.range(pass.start + request.offset, request.len);
        let file = match self.view(&pass).open(&Target::inode(InodeId(pass.inode)), OpenFlags::READ) {
            Ok(file) => file,
            Err(error) => {
                respond(stream, &refused(status::ERROR, &error.to_string()))?;
                return Ok(true);
            }
        };
        self.reader.send(stream, reader, (&file, &pass), request, end)
    }

    /// Sends the checksum of a block. True if the connection can serve another request.
    fn checksum(
        &self,
        stream: &TcpStream,
        guest: &mut Guest,
        request: &proto::OpBlockChecksum,
    ) -> Result<bool, TransferError> {
        let Some(pass) = self.pass(request.header.as_ref()).filter(|pass| pass.lease == 0) else {
            return forbid(stream);
        };
        guest.belongs_to(pass.uid)?;
        let Some(wanted) = ChecksumRequest::read(request.block_checksum_options.as_ref()) else {
            respond(stream, &refused(status::ERROR_UNSUPPORTED, "frieze has no checksums of that kind"))?;
            return Ok(true);
        };
        // For a part of a file the client names the length within its last block.
        let named = request.header.as_ref().and_then(|header| header.block.as_ref()?.num_bytes);
        let len = named.unwrap_or(pass.len).min(pass.len);
        let mut sums = BlockChecksummer::new(wanted);
        let file = self.view(&pass).open(&Target::inode(InodeId(pass.inode)), OpenFlags::READ);
        let read = file.and_then(|file| {
            let range = ByteRange::new(pass.start, pass.start + len);
            file.read_stream(range, DEPTH, |piece| {
                sums.add(piece);
                Ok::<_, frieze_client::Error>(())
            })
        });
        let response = match read {
            Ok(count) if count == len => {
                BlockOpResponse { checksum_response: Some(sums.response()), ..BlockOpResponse::default() }
            }
            Ok(_) => refused(status::ERROR, &TransferError::Short.to_string()),
            Err(error) => refused(status::ERROR, &error.to_string()),
        };
        respond(stream, &response)?;
        Ok(true)
    }

    /// A writer adds a location to its pipeline. What is acknowledged is in the file: there is nothing to copy.
    fn copy(
        &self,
        stream: &TcpStream,
        guest: &mut Guest,
        request: &proto::OpTransferBlock,
    ) -> Result<bool, TransferError> {
        let base = request.header.as_ref().and_then(|header| header.base_header.as_ref());
        let Some(pass) = self.pass(base) else { return forbid(stream) };
        guest.belongs_to(pass.uid)?;
        respond(stream, &BlockOpResponse::default())?;
        Ok(true)
    }

    /// Receives a block. True if the connection can serve another request.
    fn write(
        &self,
        stream: &TcpStream,
        reader: &mut GuardedReader<'_>,
        guest: &mut Guest,
        message: &[u8],
    ) -> Result<bool, TransferError> {
        let request: OpWriteBlock = transfer::message(message, "write request")?;
        let base = request.header.as_ref().and_then(|header| header.base_header.as_ref());
        let Some(pass) = self.pass(base) else { return forbid(stream) };
        guest.belongs_to(pass.uid)?;
        guarded_reader::resize(reader, BUFFER_BYTES)?;
        if pass.lease != 0 && !self.is_own(&pass.gateway) {
            return relay::relay(stream, reader, &pass.gateway, message).map(|()| false).map_err(TransferError::from);
        }
        let Some(lease) = self.service.writers.leases.numbered(pass.inode, pass.lease) else {
            respond(stream, &refused(status::ERROR, "the file is not open for writing any more"))?;
            return Ok(true);
        };
        let transfer = match BlockReceiver::begin(&request, &pass, lease, self.checksums.clone()) {
            Ok(transfer) => transfer,
            Err((status, words)) => {
                respond(stream, &refused(status, &words))?;
                return Ok(true);
            }
        };
        respond(stream, &BlockOpResponse { first_bad_link: Some(String::new()), ..BlockOpResponse::default() })?;
        if request.stage == stage::CLOSE_RECOVERY {
            return Ok(true);
        }
        transfer.receive(stream, reader, &self.budget).map(|()| true)
    }

    /// True if this gateway gave the lease.
    fn is_own(&self, gateway: &str) -> bool {
        let data = self.service.locator.data;
        gateway.parse::<SocketAddr>().is_ok_and(|at| at.port() == data.port && self.service.locator.is_here(at.ip()))
    }

    /// What a transfer may do, if its token is valid for the block of the request.
    fn pass(&self, header: Option<&BaseHeader>) -> Option<Pass> {
        let header = header?;
        let pass = self.service.locator.mint.verify(header.token.as_ref()?, wall_ns())?;
        let named = header.block.as_ref()?.block_id;
        (named == block_id(pass.inode, pass.start)).then_some(pass)
    }

    /// The file system at the instant and for the user of the pass.
    fn view(&self, pass: &Pass) -> Fs {
        let caller = Caller { uid: pass.uid, gid: pass.gid, groups: pass.groups.clone() };
        let mut fs = self.service.names.client.fs().as_caller(caller);
        if let Some(at) = pass.at {
            fs = fs.at(Hlc(at));
        }
        match pass.user_at {
            Some(user_at) => fs.user_at(UserTime(user_at)),
            None => fs,
        }
    }
}

impl ConnectionHandler for DataService {
    const NAME: &'static str = "hdfs-data";

    fn serve(&self, accepted: AcceptedConnection) {
        if let Err(ended) = self.converse(accepted) {
            match ended {
                TransferError::Client(_) | TransferError::Short => {
                    tracing::warn!("a transfer of a Hadoop client failed: {ended}")
                }
                _ => tracing::debug!("a transfer of a Hadoop client ended: {ended}"),
            }
        }
    }
}
