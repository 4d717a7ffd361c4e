//! A block on its way from a writer into its file: packets in, acknowledgements out.
//!
//! What a writer sends is written to the file as it arrives, and acknowledged when it is there. Packets that have
//! arrived together are written together. Bytes that a client sends again (it repeats what it flushed of a checksum's
//! span) are not written again.

use std::io::{self, BufRead, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use frieze_client::InodeId;
use prost::Message;

use crate::blocks::Pass;
use crate::budget::MemoryBudget;
use crate::checksum_cache::{BlockChecksumCache, ChecksumKey};
use crate::exception::Exception;
use crate::guarded_reader::GuardedReader;
use crate::lease::{FileLease, WriteProgress};
use crate::proto::{OpWriteBlock, PacketHeader, PipelineAck, stage, status};
use crate::transfer::{self, CHUNK_BYTES, ChecksumKind, LENGTHS_BYTES, Lengths, SUM_BYTES};
use crate::transfer_error::TransferError;

/// Packets that arrived together are written together, up to this many bytes.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Smaller records are not cached: reading them is cheaper than handing them to the kernel.
const CACHED_BYTES_MIN: usize = 32 << 10;
/// A larger packet buffer is not reused.
const REUSED_BYTES_MAX: usize = 1 << 20;
/// Sequence number of a packet without data, which keeps the connection alive.
const HEARTBEAT: i64 = -1;

/// A block that is being received.
pub(crate) struct BlockReceiver {
    lease: Arc<FileLease>,
    /// Where it begins, and which attempt at it this is.
    start: u64,
    generation: u64,
    len_max: u64,
    sums: ChecksumKind,
    /// Bytes of the block that are in the file or in `pending`.
    received: u64,
    /// Received and not written yet.
    pending: Vec<u8>,
    /// The writer's checksums of what is next written at once, for the cache.
    sent_sums: WriterChecksums,
    cache: Arc<BlockChecksumCache>,
    /// Packets to acknowledge after the next write.
    numbers: Vec<i64>,
    acks: Acks,
}

impl BlockReceiver {
    pub(crate) fn begin(
        request: &OpWriteBlock,
        pass: &Pass,
        lease: Arc<FileLease>,
        cache: Arc<BlockChecksumCache>,
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
            // An earlier sender of this block is refused from here on.
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
            cache,
            numbers: Vec::new(),
            acks: Acks::default(),
        })
    }

    /// Receives packets until the last one.
    pub(crate) fn receive(
        mut self,
        stream: &TcpStream,
        reader: &mut GuardedReader<'_>,
        budget: &MemoryBudget,
    ) -> Result<(), TransferError> {
        let mut bytes = Vec::new();
        let mut share = budget.none();
        loop {
            let mut lengths = [0; LENGTHS_BYTES];
            reader.read_exact(&mut lengths)?;
            let lengths = Lengths::read(lengths)?;
            bytes.clear();
            let whole = lengths.header + lengths.body;
            // Most packets are complete in the buffer, and are parsed there.
            let is_here = reader.buffer().len() >= whole;
            // A packet that came alone is written from the buffer. Otherwise its bytes are needed twice: as a packet,
            // and in `pending`.
            let stays = reader.buffer().len() == whole && self.pending.is_empty();
            if !stays && !share.try_add(2 * whole) {
                self.put_or_say(stream, &[], false)?;
                self.acknowledge(stream)?;
                (bytes, self.pending) = (Vec::new(), Vec::new());
                share.release();
                share.add(2 * whole);
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
                Ok((fresh, packet.header))
            });
            let (fresh, header) = match taken {
                Ok(taken) => taken,
                Err(ended) => return self.fail(stream, header, ended),
            };
            let (is_last, syncs) = (header.last_packet_in_block, header.sync_block.unwrap_or(false));
            // Another packet of this length would exceed one write.
            let waits = is_all || self.pending.len() + 2 * fresh.len() > WRITE_BYTES_MAX;
            let goes_on = !(waits || is_last || syncs || header.seqno == HEARTBEAT);
            // Bytes that are written alone are written from the buffer.
            let alone = if goes_on || !self.pending.is_empty() {
                self.pending.extend_from_slice(fresh);
                &[][..]
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
                // Acknowledged after the lease is released: the writer's `complete` must find itself the last holder.
                let numbers = self.done();
                return Ok(Acks::default().send(stream, &numbers, status::SUCCESS)?);
            }
            self.acknowledge(stream)?;
            if bytes.capacity() > REUSED_BYTES_MAX {
                bytes = Vec::new();
            }
            share.release();
        }
    }

    /// Acknowledges the packets that are in the file.
    fn acknowledge(&mut self, stream: &TcpStream) -> Result<(), TransferError> {
        self.acks.send(stream, &self.numbers, status::SUCCESS)?;
        self.numbers.clear();
        Ok(())
    }

    /// The packets to acknowledge when the transfer is otherwise over.
    fn done(self) -> Vec<i64> {
        self.numbers
    }

    /// Writes what is pending and then `alone`, one of which is empty; on failure sends an error for the first packet.
    fn put_or_say(&mut self, stream: &TcpStream, alone: &[u8], syncs: bool) -> Result<(), TransferError> {
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

    /// Appends a packet. Returns the bytes that were not received before: to be written, or to be added to `pending`.
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

    /// Writes what is pending.
    fn put_pending(&mut self) -> Result<(), TransferError> {
        let pending = std::mem::take(&mut self.pending);
        self.put(&pending)?;
        self.pending = pending;
        self.pending.clear();
        Ok(())
    }

    /// Writes bytes of the block that end at `received`.
    fn put(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
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
        // A writer may send the same bytes over several connections, as HBase does: each byte is written once.
        let begins = self.received - bytes.len() as u64;
        assert!(begins <= block.received, "what came before has been written");
        let known = (block.received - begins).min(bytes.len() as u64) as usize;
        let (at, bytes) = (self.start + begins + known as u64, &bytes[known..]);
        let stamp = self.lease.file.write_at(at, bytes)?;
        block.received = block.received.max(self.received);
        if let Some(sums) = self.sent_sums.of_record(at, bytes.len()) {
            self.cache.put(ChecksumKey { inode: InodeId(self.lease.inode), stamp, start: at }, sums);
        }
        self.sent_sums.clear();
        Ok(())
    }

    /// Sends an error for a packet that is refused; those before it are written and acknowledged.
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

/// The checksums that came with what is next written at once, if they match it span by span.
struct WriterChecksums {
    sums: Vec<u8>,
    /// Bytes that they cover.
    of: usize,
    fit: bool,
    /// They are of the kind that readers get.
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

    /// Those of `len` bytes that were written at `at` of a file, if they are one record of a size worth caching.
    fn of_record(&self, at: u64, len: usize) -> Option<&[u8]> {
        let is_worth_it = (CACHED_BYTES_MIN..=WRITE_BYTES_MAX).contains(&len) && at.is_multiple_of(CHUNK_BYTES.into());
        (self.fit && self.of == len && is_worth_it).then_some(&self.sums)
    }

    fn clear(&mut self) {
        self.sums.clear();
        (self.of, self.fit) = (0, self.can_fit);
    }
}

/// Sends acknowledgements, and reuses their buffer.
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
