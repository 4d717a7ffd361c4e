//! The messages of Hadoop's protocols, as far as this gateway reads and writes them: a module for each of Hadoop's
//! `.proto` files.
//!
//! Names follow Hadoop's definitions, without their `Proto`; the numbers are facts of the wire. A field that is not
//! here is skipped on receipt and never sent (ADR 0041). An enumeration is a plain number, and a module of constants
//! names its values. `tests/hdfs/messages.py` holds numbers, labels and types against the descriptors in Hadoop's own
//! jars.

#![expect(
    missing_docs,
    reason = "what a field means is what Hadoop's definitions say; a second text would only differ"
)]

mod acl;
mod client_datanode;
mod client_namenode;
mod datatransfer;
mod ha;
mod hdfs;
mod rpc;
mod security;
mod xattr;

pub use self::acl::*;
pub use self::client_datanode::*;
pub use self::client_namenode::*;
pub use self::datatransfer::*;
pub use self::ha::*;
pub use self::hdfs::*;
pub use self::rpc::*;
pub use self::security::*;
pub use self::xattr::*;
