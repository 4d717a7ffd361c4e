//! How a driver reads and writes index runs.

use frieze_base::Fault;

use super::key::RunKey;

/// Index runs as the driver can read them.
pub trait RunSource {
    /// Reads from `offset` and returns how many bytes were read: fewer than asked only at the end of the file.
    ///
    /// # Errors
    /// The disk's.
    fn read(&mut self, key: RunKey, offset: u64, into: &mut [u8]) -> Result<usize, Fault>;
}

/// Takes the bytes of an index run as they are made, each with its offset; not in order.
pub type RunSink<'a> = dyn FnMut(u64, &[u8]) -> Result<(), Fault> + 'a;
