//! What ends a transfer.

use std::io;

use crate::exception::Exception;
use crate::transfer;

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
