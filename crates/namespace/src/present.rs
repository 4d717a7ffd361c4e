//! The present in memory: inodes by number, names by directory, both packed.
//!
//! Guarantees: what is read is what was written, field by field; two presents with the same content are equal, packed
//! or not; a snapshot shares all memory with the present until one of them changes, and costs a handle for each 1,024
//! numbers.
//! Leaves to others: what the content means (`apply`), versions of the past ([`crate::VersionHistory`]).
//!
//! Numbers are given one after the other, so a page is 64 consecutive numbers and its place follows from the number.
//! What is the same for most files of a page is in the page once ([`inode_page`]). An inode with something that few
//! inodes have is unpacked: it lies in a list beside its page. So is each directory, because each walk reads it.
//!
//! Pages and blocks that a checkpoint has may leave memory ([`eviction`]): those that nothing used for long. They are
//! read from there when they are needed ([`place`]).
//!
//! The names of a directory are blocks of at most 1 KiB, sorted, each name without the bytes that it shares with the
//! name before ([`name_block`]). A directory of few names is one block as large as they need; a large one is a tree of
//! two levels over its blocks ([`directory`]).

mod block_parts;
mod bytes;
mod directories;
mod directory;
mod entry_name;
mod eviction;
mod inode_page;
mod inode_table;
mod layouts;
mod memory_pieces;
mod name_block;
mod place;
mod relocation;
mod row;
mod snapshot;

pub use directories::DirectoryTable;
pub(crate) use directory::DirectoryBuilder;
pub use directory::{DirectoryNames, NameCursor};
pub(crate) use eviction::EvictionHand;
pub use eviction::NamesMemory;
pub use inode_table::InodeTable;
pub(crate) use layouts::FileLayouts;
pub use memory_pieces::MemoryPieces;
pub use place::{ColdFile, ColdSource, PieceLoads, PieceWindow};
pub use relocation::{PieceOffsets, Relocation};
pub use snapshot::{PackedInodes, PackedNames, PresentSnapshot, VisitPiece};
