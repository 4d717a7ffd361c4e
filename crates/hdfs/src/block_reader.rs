//! A range of a block on its way to a reader, and the reader's verdict.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use frieze_base::ByteRange;
use frieze_client::{File, InodeId};

use crate::block_sender::BlockSender;
use crate::blocks::Pass;
use crate::budget::MemoryBudget;
use crate::checksum_cache::BlockChecksumCache;
use crate::framing::read_message;
use crate::guarded_reader::GuardedReader;
use crate::proto::{ClientReadStatus, OpReadBlock, status};
use crate::transfer::{self, CHUNK_BYTES, ChecksumKind};
use crate::transfer_error::TransferError;
use crate::transfer_responses::{begun, respond};

/// Bytes read for readers and not sent yet, of all connections together.
const READERS_BYTES: usize = 256 << 20;

/// Sends blocks to readers.
pub(crate) struct BlockReader {
    /// Bytes read and not sent yet.
    budget: MemoryBudget,
    checksums: Arc<BlockChecksumCache>,
}

impl BlockReader {
    pub(crate) fn new(checksums: Arc<BlockChecksumCache>) -> BlockReader {
        BlockReader { budget: MemoryBudget::new(READERS_BYTES), checksums }
    }

    /// Sends the bytes of a block from the request's offset to `end`. True if the connection can serve another request.
    pub(crate) fn send(
        &self,
        stream: &TcpStream,
        reader: &mut GuardedReader<'_>,
        (file, pass): (&File, &Pass),
        request: &OpReadBlock,
        end: u64,
    ) -> Result<bool, TransferError> {
        let sums =
            if request.send_checksums.unwrap_or(true) { ChecksumKind::Crc32c(CHUNK_BYTES) } else { ChecksumKind::None };
        // From the beginning of a checksum's span to the end of one, so that a client can verify everything.
        let span = u64::from(CHUNK_BYTES);
        let from = request.offset / span * span;
        let upto = end.div_ceil(span).saturating_mul(span).min(pass.len);
        respond(stream, &begun(sums, from))?;
        let (inode, cache) = (InodeId(pass.inode), &*self.checksums);
        let verifies = cache.take_doubt(inode);
        let sending = BlockSender::new(
            stream,
            (file, inode),
            (sums, cache),
            &self.budget,
            pass.start,
            ByteRange::new(from, upto),
        );
        let ended = sending.send(verifies).and_then(|()| is_well(reader));
        // The next read finds damage that only the reader noticed. Most readers without a verdict have read enough.
        let is_well = matches!(ended, Ok(ReadVerdict::Well));
        if !is_well && (!verifies || ended.is_err()) {
            cache.doubt(inode);
        }
        ended.map(|told| told != ReadVerdict::Nothing)
    }
}

/// The verdict that a reader sends at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadVerdict {
    /// The checksums match, as far as the reader compared them.
    Well,
    /// Any other status.
    Unwell,
    /// None: the reader has enough, and closes.
    Nothing,
}

/// Receives the verdict.
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
