//! Looks at files: [`Look`] over what is here, and over what other servers were asked for.

use frieze_base::{ChainId, Fault, InodeId, Reason};
use frieze_hlc::Hlc;
use frieze_namespace::{Inode, PatchSource};
use frieze_wire::message::FileKind;

use crate::file_version::{FileVersion, Sources, layout_of, parts};
use crate::file_view::{DEPTH_MAX, Look};
use crate::files::Files;
use crate::remote_reach::RemoteReach;

impl Files {
    /// Opens a consistent view of these files. Hold it only for queries that belong together: it keeps writers from
    /// publishing.
    ///
    /// # Errors
    /// Of the device, where the index of a file has to be fetched.
    pub fn look(&self, seen: &[&FileVersion]) -> Result<Look<'_>, Fault> {
        self.look_through(seen, &[])
    }

    /// As [`Files::look`], with the files whose bytes they share.
    ///
    /// # Errors
    /// As [`Files::look`].
    pub fn look_through(&self, seen: &[&FileVersion], sources: &[&Sources]) -> Result<Look<'_>, Fault> {
        self.look_with(seen, sources, self.remote_reach(seen)?)
    }

    /// As [`Files::look_through`], with the answers of other servers.
    ///
    /// # Errors
    /// As [`Files::look`].
    pub fn look_with(
        &self,
        seen: &[&FileVersion],
        sources: &[&Sources],
        remote: RemoteReach,
    ) -> Result<Look<'_>, Fault> {
        let files = seen.iter().filter(|seen| seen.inode.kind() == FileKind::File).map(|seen| seen.id);
        let shared = sources.iter().flat_map(|sources| sources.keys()).map(|(inode, _)| *inode);
        // In this order: a record that has to be hidden is hidden before it is published.
        let log = self.planes.data.device().log_of(files.chain(shared))?;
        Ok(Look { log, cuts: self.planes.data.cuts(), data: &self.planes.data, dirty_of: None, remote })
    }

    /// Every state that `start..end` of a file may show.
    ///
    /// # Errors
    /// `Corrupt` if states lie behind each other without end; those of the store.
    ///
    /// # Cost
    /// None for a file that shares nothing; else a read of the history for each state.
    pub fn sources(&self, inode: &Inode, start: u64, end: u64) -> Result<Sources, Fault> {
        let mut sources = Sources::new();
        let mut todo: Vec<(InodeId, Hlc, u64, u64, u32)> = Vec::new();
        let add = |inode: &Inode, start, end, depth, todo: &mut Vec<_>| {
            for (_, _, patch) in parts(inode, start, end) {
                let Some(patch) = patch else { continue };
                if let PatchSource::Shared { inode, offset, at } = patch.source {
                    let len = patch.end - patch.start;
                    todo.push((inode, at, offset, offset.saturating_add(len), depth));
                }
            }
        };
        add(inode, start, end, 1, &mut todo);
        while let Some((id, at, start, end, depth)) = todo.pop() {
            if depth > 4 * DEPTH_MAX {
                return Err(Fault::new(Reason::Corrupt, format!("inode {id} at {at} shares bytes without end")));
            }
            let version = match sources.get(&(id, at)) {
                Some(version) => version,
                None => {
                    let version = self.planes.meta.inode(id, Some(at))?;
                    sources.entry((id, at)).or_insert(version)
                }
            };
            add(version, start, end, depth + 1, &mut todo);
        }
        Ok(sources)
    }

    /// Length and modification time of a file with every write, and its newest record that is not settled: the place of
    /// an append, and the source of a settled size. A `sync` write on its way to the disk counts here, though readers
    /// do not see it yet: an append must not cover it, and a settled size must not omit it.
    ///
    /// # Errors
    /// As [`Files::look`].
    pub fn current_extent(&self, id: InodeId, inode: &Inode) -> Result<(u64, i64, Option<Hlc>), Fault> {
        self.current_extent_with(id, inode, self.written_remotely(id, inode)?)
    }

    /// The answers of other servers for [`Files::current_extent_with`], fetched before, for callers that cannot wait
    /// then.
    ///
    /// # Errors
    /// As [`Files::remote_reach`].
    pub fn written_remotely(&self, id: InodeId, inode: &Inode) -> Result<RemoteReach, Fault> {
        self.remote_reach(&[&FileVersion::at(id, inode.clone(), Some(Hlc::MAX))])
    }

    /// Offset of an append to a chunk of `chain`, whose head is here, and the newest record before that offset.
    ///
    /// That record is of this chain, or committed: else it might be lost, and the appended bytes would begin behind a
    /// hole.
    ///
    /// # Errors
    /// `Unavailable` if it is not committed yet. As [`Files::look`].
    pub fn append_end(
        &self,
        seen: &mut FileVersion,
        chain: ChainId,
        remote: &RemoteReach,
    ) -> Result<(u64, Hlc), Fault> {
        seen.upto = Some(Hlc::MAX);
        let extent = self.look_with(&[seen], &[], remote.clone())?.extent(seen);
        seen.upto = None;
        let (end, newest) = (extent.size, extent.data);
        let layout = layout_of(seen.id, &seen.inode);
        let is_own = layout.chain((end / layout.chunk_bytes) as u32) == chain;
        let sure = {
            let mut look = self.look_with(&[seen], &[], remote.of_now(seen.id))?;
            look.dirty_of = is_own.then_some(chain);
            look.extent(seen).size
        };
        if sure < end {
            let words = "what the file ends with is not committed yet: try again";
            return Err(Fault::new(Reason::Unavailable, words));
        }
        Ok((end, newest.unwrap_or_default().max(seen.inode.size_as_of)))
    }

    /// As [`Files::current_extent`], without requests to other servers.
    ///
    /// # Errors
    /// As [`Files::look`].
    pub fn current_extent_with(
        &self,
        id: InodeId,
        inode: &Inode,
        remote: RemoteReach,
    ) -> Result<(u64, i64, Option<Hlc>), Fault> {
        let seen = FileVersion::at(id, inode.clone(), Some(Hlc::MAX));
        let extent = self.look_with(&[&seen], &[], remote)?.extent(&seen);
        Ok((extent.size, extent.mtime_ns, extent.data))
    }
}
