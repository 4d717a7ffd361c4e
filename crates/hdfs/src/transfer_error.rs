//! Errors that end a transfer.

use std::io;

use crate::exception::Exception;
use crate::transfer;

/// Why a transfer ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// Malformed bytes.
    #[error(transparent)]
    Protocol(#[from] transfer::PacketError),
    /// The server refused, or does not answer.
    #[error(transparent)]
    Client(#[from] frieze_client::Error),
    /// A call or lease refuses it.
    #[error(transparent)]
    Refused(#[from] Exception),
    /// The file is shorter than the block.
    #[error("the file has become shorter than the block that is read")]
    Short,
}
