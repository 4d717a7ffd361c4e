//! Connections of the data service: blocks are read and written.
//!
//! What a writer sends is written to the file as it comes, and acknowledged when it is there. Packets that have arrived
//! together are written together. Bytes that a client sends again (it repeats what it flushed of a checksum's span) are
//! not written again.
//!
//! A block is written under a lease, which one door holds: what comes to another is handed on to that one ([`relay`]). The
//! places that a client names behind this one are there for when it fails; nothing is sent to them, for copies are the chains'
//! affair. For the same reason there is nothing to be copied to a place that a client takes in.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use frieze_base::ByteRange;
use frieze_client::{Caller, Fs, Hlc, InodeId, OpenFlags, Target, UserTime};
use prost::Message;

use crate::block_sender::BlockSender;
use crate::blocks::{Pass, block_id, wall_ns};
use crate::budget::MemoryBudget;
use crate::checksum_cache::{ChecksumCache, ChecksumKey};
use crate::checksums::{BlockChecksummer, ChecksumRequest};
use crate::connections::{AcceptedConnection, ConnectionHandler, Guest};
use crate::exception::Exception;
use crate::guarded_reader::{self, GuardedReader, PROOF_MAX};
use crate::leases::{FileLease, WriteProgress};
use crate::name_service::{read_frame, read_or_end};
use crate::proto::{
    self, BaseHeader, BlockOpResponse, ClientReadStatus, OpReadBlock, OpWriteBlock, PacketHeader, PipelineAck,
    checksum, stage, status,
};
use crate::relay;
use crate::service::Service;
use crate::transfer::{
    self, CHUNK_BYTES, ChecksumKind, LENGTHS_BYTES, Lengths, MESSAGE_BYTES_MAX, Operation, SUM_BYTES,
};

/// Packets that arrived together are written together, up to so many bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Bytes that have come and are in no file yet, of all connections together.
const BUDGET_BYTES: usize = 256 << 20;
/// Bytes that were read and that no reader has taken yet, of all connections together.
const READERS_BYTES: usize = 256 << 20;
/// Checksums of fewer bytes are not kept: so few are sooner read than handed on.
const KEPT_BYTES_MIN: usize = 32 << 10;
/// A buffer of a larger packet is not kept for the next one.
const BYTES_KEPT: usize = 1 << 20;
/// Bytes that are taken from a writer's socket at once.
const BUFFER_BYTES: usize = 512 << 10;
/// How long a connection without a request is kept. A client throws it away after three seconds.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A client that neither takes nor sends anything for so long is gone: a writer sends a sign of life every 30 s.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// Requests of 1 MiB in flight.
const DEPTH: usize = 4;
/// Of a packet that is only a sign of life.
const HEARTBEAT: i64 = -1;

/// Serves transfers.
pub(crate) struct DataService {
    service: Arc<Service>,
    budget: MemoryBudget,
    /// Of what was read for readers, and they have not taken.
    readers: MemoryBudget,
    kept: Arc<ChecksumCache>,
}

/// A transfer ended otherwise than it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// What came is none of the protocol.
    #[error(transparent)]
    Protocol(#[from] transfer::PacketError),
    /// The server refused.
    #[error(transparent)]
    Client(#[from] frieze_client::Error),
    /// It is not to be.
    #[error(transparent)]
    Refused(#[from] Exception),
    /// The file is shorter than it was.
    #[error("the file has become shorter than the block that is read")]
    Short,
}

impl DataService {
    pub(crate) fn new(service: Arc<Service>) -> DataService {
        let (budget, readers) = (MemoryBudget::new(BUDGET_BYTES), MemoryBudget::new(READERS_BYTES));
        DataService { service, budget, readers, kept: Arc::default() }
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
                    let Some(answer) = self.service.answer_door(&transfer::message(&message, "question of a door")?)
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

    /// Sends a range of a block. True if the connection can go on.
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
        let file = match self.view(&pass).open(&Target::inode(InodeId(pass.inode)), OpenFlags::READ) {
            Ok(file) => file,
            Err(error) => {
                respond(stream, &refused(status::ERROR, &error.to_string()))?;
                return Ok(true);
            }
        };
        let sums =
            if request.send_checksums.unwrap_or(true) { ChecksumKind::Crc32c(CHUNK_BYTES) } else { ChecksumKind::None };
        // From the beginning of a checksum's span to the end of one, so that a client can verify all it gets.
        let span = u64::from(CHUNK_BYTES);
        let from = request.offset / span * span;
        let upto = end.div_ceil(span).saturating_mul(span).min(pass.len);
        respond(stream, &begun(sums, from))?;
        let (inode, kept) = (InodeId(pass.inode), &self.kept);
        let verifies = kept.take_doubt(inode);
        let sending = BlockSender::new(
            stream,
            (&file, inode),
            (sums, kept),
            &self.readers,
            pass.start,
            ByteRange::new(from, upto),
        );
        let ended = sending.send(verifies).and_then(|()| is_well(reader));
        // Damage that only the reader has seen is to be found here the next time. Most who say nothing have read enough.
        let is_well = matches!(ended, Ok(ReadVerdict::Well));
        if !is_well && (!verifies || ended.is_err()) {
            kept.doubt(inode);
        }
        ended.map(|told| told != ReadVerdict::Nothing)
    }

    /// Sends the checksum of a block. True if the connection can go on.
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
        // Of a part of a file the client names the part of its last block.
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

    /// A writer brings another place into its pipeline. What is acknowledged is in the file: there is nothing to copy.
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

    /// Takes a block. True if the connection can go on.
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
        if pass.lease != 0 && !self.is_own(&pass.door) {
            return relay::relay(stream, reader, &pass.door, message).map(|()| false).map_err(TransferError::from);
        }
        let Some(lease) = self.service.leases.numbered(pass.inode, pass.lease) else {
            respond(stream, &refused(status::ERROR, "the file is not open for writing any more"))?;
            return Ok(true);
        };
        let transfer = match BlockReceiver::begin(&request, &pass, lease, self.kept.clone()) {
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

    /// True if the lease was given by this door.
    fn is_own(&self, door: &str) -> bool {
        let data = self.service.data;
        door.parse::<SocketAddr>().is_ok_and(|at| at.port() == data.port && self.service.is_here(at.ip()))
    }

    /// What a transfer may, if its token says so of this block.
    fn pass(&self, header: Option<&BaseHeader>) -> Option<Pass> {
        let header = header?;
        let pass = self.service.mint.verify(header.token.as_ref()?, wall_ns())?;
        let named = header.block.as_ref()?.block_id;
        (named == block_id(pass.inode, pass.start)).then_some(pass)
    }

    /// The file system as the pass has it.
    fn view(&self, pass: &Pass) -> Fs {
        let caller = Caller { uid: pass.uid, gid: pass.gid, groups: pass.groups.clone() };
        let mut fs = self.service.client.fs().as_caller(caller);
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

/// A block that is being received.
struct BlockReceiver {
    lease: Arc<FileLease>,
    /// Where it begins, and which attempt at it this is.
    start: u64,
    generation: u64,
    len_max: u64,
    sums: ChecksumKind,
    /// Bytes of the block that are in the file or in `pending`.
    received: u64,
    /// Arrived, and not yet written.
    pending: Vec<u8>,
    /// Of what is next written at once: the writer's checksums, to be kept.
    sent_sums: WriterChecksums,
    kept: Arc<ChecksumCache>,
    /// Packets to be acknowledged when it is.
    numbers: Vec<i64>,
    acks: Acks,
}

/// Bytes to be written that lie in a packet.
#[derive(Clone, Copy, Default)]
struct FreshBytes<'b> {
    bytes: &'b [u8],
    /// Their CRC32C, if it is known.
    crc: Option<u32>,
}

impl BlockReceiver {
    fn begin(
        request: &OpWriteBlock,
        pass: &Pass,
        lease: Arc<FileLease>,
        kept: Arc<ChecksumCache>,
    ) -> Result<BlockReceiver, (i32, String)> {
        let wanted = request.requested_checksum.clone().unwrap_or_default();
        let Some(sums) = ChecksumKind::read(wanted.kind, wanted.bytes_per_checksum) else {
            return Err((
                status::ERROR_UNSUPPORTED,
                "checksums are CRC32C or CRC32: set dfs.checksum.type to one of them".to_owned(),
            ));
        };
        let named = request.header.as_ref().and_then(|header| header.base_header.as_ref()?.block.as_ref());
        let is_recovery = [stage::SETUP_STREAMING_RECOVERY, stage::CLOSE_RECOVERY].contains(&request.stage);
        let generation = match (request.stage, named) {
            (stage::SETUP_CREATE, Some(named)) => named.generation_stamp,
            (_, Some(_)) if is_recovery => request.latest_generation_stamp,
            _ => return Err((status::ERROR_UNSUPPORTED, format!("stage {} of a block is not served", request.stage))),
        };
        let received = {
            let mut progress = lease.writing().map_err(|exception| (status::ERROR, exception.message))?;
            let block =
                progress.block.as_mut().filter(|block| block.start == pass.start && block.generation <= generation);
            let Some(block) = block else {
                return Err((status::ERROR, "another block of the file is being written".to_owned()));
            };
            // Who sent it before is refused from now on.
            block.generation = generation;
            block.received
        };
        if !is_recovery && received > 0 {
            return Err((status::ERROR_EXISTS, "the block has been begun already".to_owned()));
        }
        let (start, len_max, pending) = (pass.start, pass.len, Vec::with_capacity(WRITE_BYTES_MAX));
        let sent_sums = WriterChecksums::of(sums);
        Ok(BlockReceiver {
            lease,
            start,
            generation,
            len_max,
            sums,
            received,
            pending,
            sent_sums,
            kept,
            numbers: Vec::new(),
            acks: Acks::default(),
        })
    }

    /// Takes packets until the last one.
    fn receive(
        mut self,
        stream: &TcpStream,
        reader: &mut GuardedReader<'_>,
        budget: &MemoryBudget,
    ) -> Result<(), TransferError> {
        let mut bytes = Vec::new();
        let mut lent = budget.none();
        loop {
            let mut lengths = [0; LENGTHS_BYTES];
            reader.read_exact(&mut lengths)?;
            let lengths = Lengths::read(lengths)?;
            bytes.clear();
            let whole = lengths.header + lengths.body;
            // Most have come as a whole, and are looked at where they lie.
            let is_here = reader.buffer().len() >= whole;
            // One that came alone is written from there. Else its bytes are needed twice: as a packet, and as what waits to be written.
            let stays = reader.buffer().len() == whole && self.pending.is_empty();
            if !stays && !lent.try_add(2 * whole) {
                self.put_or_say(stream, FreshBytes::default(), false)?;
                self.acknowledge(stream)?;
                (bytes, self.pending) = (Vec::new(), Vec::new());
                lent.give_back();
                lent.add(2 * whole);
            }
            if !is_here && reader.by_ref().take(whole as u64).read_to_end(&mut bytes)? < whole {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let is_all = reader.buffer().len() == if is_here { whole } else { 0 };
            let packet = if is_here { &reader.buffer()[..whole] } else { &bytes };
            let (header, body) = packet.split_at(lengths.header);
            let taken = transfer::packet(header, body, self.sums).map_err(TransferError::from).and_then(|packet| {
                let fresh = self.take(&packet.header, packet.data)?;
                self.sent_sums.add(packet.sums, packet.data.len(), fresh.len());
                let crc = packet.crc.filter(|_| fresh.len() == packet.data.len());
                Ok((FreshBytes { bytes: fresh, crc }, packet.header))
            });
            let (fresh, header) = match taken {
                Ok(taken) => taken,
                Err(ended) => return self.fail(stream, header, ended),
            };
            let (is_last, syncs) = (header.last_packet_in_block, header.sync_block.unwrap_or(false));
            // Another of this length would make it too much for one write.
            let waits = is_all || self.pending.len() + 2 * fresh.bytes.len() > WRITE_BYTES_MAX;
            let goes_on = !(waits || is_last || syncs || header.seqno == HEARTBEAT);
            // What is to be written alone is written from where it lies.
            let alone = if goes_on || !self.pending.is_empty() {
                self.pending.extend_from_slice(fresh.bytes);
                FreshBytes::default()
            } else {
                fresh
            };
            if !goes_on {
                self.put_or_say(stream, alone, syncs)?;
            }
            if is_here {
                reader.consume(whole);
            }
            if goes_on {
                continue;
            }
            if is_last {
                // Before its writer completes the file: who closes it is the last to hold it.
                let numbers = self.done();
                return Ok(Acks::default().send(stream, &numbers, status::SUCCESS)?);
            }
            self.acknowledge(stream)?;
            if bytes.capacity() > BYTES_KEPT {
                bytes = Vec::new();
            }
            lent.give_back();
        }
    }

    /// Says of the packets that were taken that they are in the file.
    fn acknowledge(&mut self, stream: &TcpStream) -> Result<(), TransferError> {
        self.acks.send(stream, &self.numbers, status::SUCCESS)?;
        self.numbers.clear();
        Ok(())
    }

    /// The packets that are to be acknowledged when all else of the transfer is over.
    fn done(self) -> Vec<i64> {
        self.numbers
    }

    /// Writes what has arrived and then `alone`, of which one is nothing; or says which packet it could not.
    fn put_or_say(&mut self, stream: &TcpStream, alone: FreshBytes<'_>, syncs: bool) -> Result<(), TransferError> {
        let done = self
            .put_pending()
            .and_then(|()| self.put(alone))
            .and_then(|()| if syncs { Ok(self.lease.file.sync()?) } else { Ok(()) });
        if let Err(ended) = done {
            self.acks.send(stream, &[self.numbers.first().copied().unwrap_or(HEARTBEAT)], status::ERROR)?;
            return Err(ended);
        }
        Ok(())
    }

    /// Puts a packet behind those before it. Returns what of its data has not come before: to be written, or kept.
    fn take<'d>(&mut self, header: &PacketHeader, data: &'d [u8]) -> Result<&'d [u8], TransferError> {
        self.numbers.push(header.seqno);
        if header.seqno == HEARTBEAT {
            return Ok(&[]);
        }
        let offset = header.offset_in_block as u64;
        let end = offset.checked_add(data.len() as u64).filter(|&end| end <= self.len_max);
        let (received, len_max) = (self.received, self.len_max);
        let wrong = || transfer::PacketError::Place { at: offset, len: data.len(), received, len_max };
        let end = end.filter(|_| offset <= received).ok_or_else(wrong)?;
        self.received = received.max(end);
        let known = (received - offset).min(data.len() as u64) as usize;
        Ok(&data[known..])
    }

    /// Writes what has arrived before.
    fn put_pending(&mut self) -> Result<(), TransferError> {
        let pending = std::mem::take(&mut self.pending);
        self.put(FreshBytes { bytes: &pending, crc: None })?;
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    /// Writes bytes of the block that end where it has been received.
    fn put(&mut self, came: FreshBytes<'_>) -> Result<(), TransferError> {
        let FreshBytes { bytes, crc } = came;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut progress = self.lease.writing()?;
        let WriteProgress { block: Some(block), .. } = &mut *progress else {
            return Err(Exception::io("the block was given up").into());
        };
        if block.start != self.start || block.generation != self.generation {
            return Err(Exception::io("another transfer of the block goes on").into());
        }
        // A writer may send the same over several connections, as HBase does: each byte is written once.
        let begins = self.received - bytes.len() as u64;
        assert!(begins <= block.received, "what came before has been written");
        let known = (block.received - begins).min(bytes.len() as u64) as usize;
        let (at, bytes) = (self.start + begins + known as u64, &bytes[known..]);
        let stamp = match crc.filter(|_| known == 0) {
            Some(crc) => self.lease.file.write_summed(at, bytes, crc)?,
            None => self.lease.file.write_at(at, bytes)?,
        };
        block.received = block.received.max(self.received);
        if let Some(sums) = self.sent_sums.of_record(at, bytes.len()) {
            self.kept.put(ChecksumKey { inode: InodeId(self.lease.inode), stamp, start: at }, sums);
        }
        self.sent_sums.clear();
        Ok(())
    }

    /// Says which packet could not be taken; those before it are.
    fn fail(mut self, stream: &TcpStream, header: &[u8], ended: TransferError) -> Result<(), TransferError> {
        let status = match &ended {
            TransferError::Protocol(transfer::PacketError::Checksum { .. }) => status::ERROR_CHECKSUM,
            _ => status::ERROR,
        };
        let number = PacketHeader::decode(header).map_or(HEARTBEAT, |header| header.seqno);
        self.numbers.retain(|&before| before != number);
        if self.put_pending().is_ok() {
            self.acks.send(stream, &self.numbers, status::SUCCESS)?;
        }
        self.acks.send(stream, &[number], status)?;
        Err(ended)
    }
}

/// The checksums that came with what is to be written at once, if they fit it span by span.
struct WriterChecksums {
    sums: Vec<u8>,
    /// Bytes that they are of.
    of: usize,
    fit: bool,
    /// They are of the kind that is sent to readers.
    can_fit: bool,
}

impl WriterChecksums {
    fn of(sums: ChecksumKind) -> WriterChecksums {
        let can_fit = sums == ChecksumKind::Crc32c(CHUNK_BYTES);
        WriterChecksums { sums: Vec::new(), of: 0, fit: can_fit, can_fit }
    }

    /// Adds those of a packet of `len` bytes, of which the last `fresh` are to be written.
    fn add(&mut self, sums: &[u8], len: usize, fresh: usize) {
        if fresh == 0 {
            return;
        }
        let (known, span) = (len - fresh, CHUNK_BYTES as usize);
        self.fit &= known.is_multiple_of(span) && self.of.is_multiple_of(span);
        if self.fit {
            self.sums.extend_from_slice(&sums[known / span * SUM_BYTES..]);
        }
        self.of += fresh;
    }

    /// Those of `len` bytes that were written at `at` of a file, if they are one record that is worth it.
    fn of_record(&self, at: u64, len: usize) -> Option<&[u8]> {
        let is_worth_it = (KEPT_BYTES_MIN..=WRITE_BYTES_MAX).contains(&len) && at.is_multiple_of(CHUNK_BYTES.into());
        (self.fit && self.of == len && is_worth_it).then_some(&self.sums)
    }

    fn clear(&mut self) {
        self.sums.clear();
        (self.of, self.fit) = (0, self.can_fit);
    }
}

/// A message with its length in front.
pub(crate) fn read_message(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a message of an impossible length");
    let mut len = 0_usize;
    for shift in (0..).step_by(7).take(LENGTH_BYTES_MAX) {
        let mut byte = [0];
        reader.read_exact(&mut byte)?;
        len |= usize::from(byte[0] & 0x7f) << shift;
        if byte[0] & 0x80 == 0 {
            return if len <= MESSAGE_BYTES_MAX { read_frame(reader, len) } else { Err(malformed()) };
        }
    }
    Err(malformed())
}

fn respond(mut stream: &TcpStream, response: &BlockOpResponse) -> io::Result<()> {
    stream.write_all(&response.encode_length_delimited_to_vec())
}

fn refused(status: i32, words: &str) -> BlockOpResponse {
    BlockOpResponse { status, message: Some(words.to_owned()), ..BlockOpResponse::default() }
}

/// The token is none of this server, or over, or of another block: the client asks for another, and tries again.
fn forbid(stream: &TcpStream) -> Result<bool, TransferError> {
    respond(stream, &refused(status::ERROR_ACCESS_TOKEN, "the token is not valid for this block"))?;
    Ok(false)
}

fn begun(sums: ChecksumKind, from: u64) -> BlockOpResponse {
    let kind = if sums == ChecksumKind::None { checksum::NULL } else { checksum::CRC32C };
    let info = proto::ReadOpChecksumInfo {
        checksum: Some(proto::Checksum { kind, bytes_per_checksum: CHUNK_BYTES }),
        chunk_offset: from,
    };
    BlockOpResponse { read_op_checksum_info: Some(info), ..BlockOpResponse::default() }
}

/// What a reader said when he had all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadVerdict {
    /// The checksums are those of the bytes, as far as he looked.
    Well,
    /// Something else.
    Unwell,
    /// He has read enough, and closes.
    Nothing,
}

/// What the client thinks of what it was sent.
fn is_well(reader: &mut GuardedReader<'_>) -> Result<ReadVerdict, TransferError> {
    match read_message(reader) {
        Ok(answer) => {
            let ClientReadStatus { status } = transfer::message(&answer, "status of a read")?;
            let is_well = [status::SUCCESS, status::CHECKSUM_OK].contains(&status);
            Ok(if is_well { ReadVerdict::Well } else { ReadVerdict::Unwell })
        }
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(ReadVerdict::Nothing),
        Err(error) => Err(error.into()),
    }
}

/// Acknowledges packets. What is needed for one is kept for the next.
#[derive(Default)]
struct Acks {
    ack: PipelineAck,
    bytes: Vec<u8>,
}

impl Acks {
    /// Acknowledges packets, in the order they came.
    fn send(&mut self, mut stream: &TcpStream, numbers: &[i64], status: i32) -> io::Result<()> {
        self.bytes.clear();
        self.ack.reply.clear();
        self.ack.reply.push(status);
        for &seqno in numbers {
            self.ack.seqno = seqno;
            self.ack.encode_length_delimited(&mut self.bytes).expect("a vector grows");
        }
        stream.write_all(&self.bytes)
    }
}

/// Bytes of a length up to 2^28.
const LENGTH_BYTES_MAX: usize = 4;
