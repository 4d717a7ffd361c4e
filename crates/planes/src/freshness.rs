//! What must be known here before a read of now, and which chains a read at an instant closes.
//!
//! Guarantees: a read of now shows all that was committed when it began; if this server lacks a part of the data, it
//! does not answer from its own copy.

use std::collections::BTreeSet;

use frieze_base::{ChainId, Fault, InodeId};
use frieze_namespace::Inode;
use frieze_wire::message::{Read, View};

use crate::chain_parts::{
    chains_of_chunks, chains_of_grants, chains_of_range, chains_of_read, granted_chains, parts_before, parts_of,
};
use crate::file_version::{FileVersion, layout_of, spread_of};
use crate::files::Files;
use crate::remote_reach::RemoteReach;

impl Files {
    /// Ensures that this server knows how far writers have extended a file by now.
    pub fn look_at_length(&self, id: InodeId, inode: &Inode, view: View) -> Result<(), Fault> {
        let chains = || (0..self.planes.data.chain_count()).map(ChainId);
        if view.at.is_some() || inode.grants().is_empty() || !self.planes.data.has_to_query_tail(chains()) {
            return Ok(());
        }
        // A chain that is not here is refused where its part is read.
        self.planes
            .data
            .await_tails(granted_chains(id, inode).into_iter().filter(|chain| self.planes.data.is_member(*chain)))
    }

    /// True if this server knows all that a read of now asks of a file without patches, though writes are in flight on
    /// its chains: the read ends before the file does, and the writes in flight lie outside its range.
    pub fn is_clean_there(&self, id: InodeId, inode: Inode, ask: &Read) -> Result<bool, Fault> {
        let (start, end) = (ask.offset, ask.offset.saturating_add(ask.len.into()));
        let seen = FileVersion::at(id, inode, None);
        // No server is asked for this: the file may be longer than this server knows, not shorter.
        let remote = RemoteReach::unasked(&seen, self.remote_chains(None));
        if ask.len == 0 || end > self.look_with(&[&seen], &[], remote)?.extent(&seen).size {
            return Ok(false);
        }
        let layout = layout_of(id, &seen.inode);
        let before = parts_before(layout, seen.inode.reaches_from(), ask)
            .into_iter()
            .filter(|(chain, ..)| self.planes.data.is_member(*chain));
        let parts = parts_of(layout, start, end);
        Ok(parts.is_some_and(|parts| self.planes.data.is_clean_in(parts.into_iter().chain(before))))
    }

    /// The chains that have to be closed for a read at an instant: those of its range; all, if writers may have
    /// extended the file.
    pub fn chains_to_close(&self, id: InodeId, ask: &Read) -> Option<BTreeSet<ChainId>> {
        let settled = self.planes.meta.file_chunks(id).filter(|chunks| !chunks.has_writers);
        settled.map(|chunks| chains_of_read(spread_of(id, chunks.layout), chunks.reaches_from, ask))
    }

    /// The chains with bytes of a file, as far as this server knows; all chains for an unknown file.
    pub fn chains_of_file(&self, id: InodeId) -> BTreeSet<ChainId> {
        let Some(chunks) = self.planes.meta.file_chunks(id) else {
            return (0..self.planes.data.chain_count()).map(ChainId).collect();
        };
        let layout = spread_of(id, chunks.layout);
        let end = u32::try_from(chunks.size.div_ceil(layout.chunk_bytes)).unwrap_or(u32::MAX);
        let mut chains = chains_of_chunks(layout, 0..end);
        chains.extend(chains_of_grants(id, &chunks));
        chains
    }

    /// Checks that this server has everything that a read covers at its instant.
    ///
    /// # Errors
    /// `Elsewhere` if the client has to ask another server.
    pub fn check_read_here(&self, id: InodeId, inode: &Inode, view: View, ask: &Read) -> Result<(), Fault> {
        let mut chains = chains_of_range(layout_of(id, inode), ask).into_iter();
        chains.try_for_each(|chain| self.planes.data.check_here(chain, view.instant()))
    }
}
