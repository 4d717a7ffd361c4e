//! Calls that write files: who opens one gets a lease, then block after block, and completes it.
//!
//! frieze has no blocks. A client is told of one that begins where it is in the file, and what it sends is written there at once
//! (`data_service`): what is acknowledged is in the file, for readers at any door. The calls here keep the books.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frieze_client::{Attr, CreateMode, FileKind, Fs, OpenFlags, Reason, Target};

use crate::blocks::{self, block_id, required, wall_ns};
use crate::exception::Exception;
use crate::leases::{FileLease, LeaseRequest, OpenBlock, WriteProgress};
use crate::locations::{BlockLocation, PlacementHints, is_named};
use crate::mutations::make_directories;
use crate::paths::split;
use crate::proto::{self, BlockResponse, ExtendedBlock, ResultResponse, create_flag};
use crate::queries::must_be_file;
use crate::service::{CallContext, Service};
use crate::status::new_mode;

const WRITE: u32 = 2;

/// A file that is to be changed: by whom, which name, what it is.
pub(crate) struct ExclusiveFile {
    pub(crate) fs: Fs,
    pub(crate) target: Target,
    pub(crate) attr: Attr,
}

impl Service {
    /// Makes a file to write. One that is there is replaced if that is wanted.
    pub(crate) fn create(
        &self,
        context: CallContext<'_>,
        request: &proto::CreateRequest,
    ) -> Result<proto::CreateResponse, Exception> {
        let path = &request.src;
        let target = self.change(context, path)?;
        check_wanted(request)?;
        let (mode, umask) = new_mode(request.masked.as_ref(), request.unmasked.as_ref(), 0o644);
        let fs = self.fs(context).with_umask(umask);
        let replaces = request.create_flag & create_flag::OVERWRITE != 0;
        let mut rounds = 0;
        let file = loop {
            rounds += 1;
            let made = match replaces {
                true => fs.create_replacing(&target, mode, OpenFlags::WRITE),
                false => {
                    fs.create_with(&target, mode, CreateMode::Exclusive, OpenFlags::WRITE).map(|file| (file, None))
                }
            };
            match made {
                Ok((file, replaced)) => {
                    // Whoever wrote what was there writes it no more.
                    replaced.and_then(|replaced| self.leases.end(replaced.0));
                    break file;
                }
                Err(error) if error.reason() == Reason::NotFound && rounds < ROUNDS_MAX => {
                    let parent = split(&target.path).0;
                    if !request.create_parent {
                        let parent = String::from_utf8_lossy(parent).into_owned();
                        return Err(Exception::not_found(format!("Parent directory doesn't exist: {parent}")));
                    }
                    make_directories(&fs, parent, PARENT_MODE, path)?;
                }
                Err(error) if error.reason() == Reason::Exists => return Err(self.taken(context, request, &target)),
                Err(error) if error.reason() == Reason::IsDirectory => {
                    return Err(Exception::already_exists(format!("{path} already exists as a directory")));
                }
                Err(error) => return Err(Exception::of(error, path)),
            }
        };
        // The writer takes its block size from here.
        let status = proto::HdfsFileStatus { blocksize: Some(request.block_size), ..self.status(file.attr(), b"") };
        let inode = file.inode().0;
        let (path, holder) = (path.clone(), context.holder(&request.client_name));
        let caller = context.user.account.caller.clone();
        let (block_bytes, machine) = (request.block_size, Some(context.user.peer));
        self.leases.give(LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, next: 0 })?;
        Ok(proto::CreateResponse { fs: Some(status) })
    }

    /// Why a file is not made whose name is taken.
    fn taken(&self, context: CallContext<'_>, request: &proto::CreateRequest, target: &Target) -> Exception {
        let path = &request.src;
        match self.fs(context).stat(target).map(|found| found.attr) {
            Ok(attr) if attr.kind() == FileKind::Directory => {
                return Exception::already_exists(format!("{path} already exists as a directory"));
            }
            Ok(attr) => {
                if let Err(writes) = self.check_free(context, attr.inode, path, &request.client_name) {
                    return writes;
                }
            }
            // It was there.
            Err(_) => {}
        }
        Exception::already_exists(format!("{path} for client {} already exists", request.client_name))
    }

    /// A file that is to be changed, and that nobody else writes.
    pub(crate) fn free_file(
        &self,
        context: CallContext<'_>,
        path: &str,
        client_name: &str,
    ) -> Result<ExclusiveFile, Exception> {
        let found = self.file_to_change(context, path)?;
        self.check_free(context, found.attr.inode, path, client_name)?;
        Ok(found)
    }

    fn file_to_change(&self, context: CallContext<'_>, path: &str) -> Result<ExclusiveFile, Exception> {
        let target = Target { follow: true, ..self.change(context, path)? };
        let fs = self.fs(context);
        let attr = fs.stat(&target).map_err(|error| Exception::of(error, path))?.attr;
        must_be_file(&attr, path)?;
        Ok(ExclusiveFile { fs, target, attr })
    }

    /// Opens a file to write on at its end.
    pub(crate) fn append(
        &self,
        context: CallContext<'_>,
        request: &proto::AppendRequest,
    ) -> Result<proto::AppendResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let ExclusiveFile { fs, attr, .. } = self.free_file(context, path, &request.client_name)?;
        let file = fs.open(&Target::inode(frieze_client::InodeId(attr.inode)), OpenFlags::WRITE).map_err(failed)?;
        // Only who may write takes it from a writer that has been silent.
        self.leases.end(attr.inode);
        let holder = context.holder(&request.client_name);
        let (inode, block_bytes) = (attr.inode, blocks::BLOCK_BYTES);
        let caller = context.user.account.caller.clone();
        let (path, machine) = (path.clone(), Some(context.user.peer));
        let wanted = LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, next: attr.size };
        let lease = self.leases.give(wanted)?;
        if let Err(refused) = self.claim(&lease, attr.size) {
            self.close(lease, None)?;
            return Err(refused);
        }
        // Where it ends is asked when nobody else writes it any more.
        let attr = lease.file.stat().map_err(failed)?.attr;
        lease.writing()?.next = attr.size;
        // Without a block the client asks for a new one, which begins where the file ends.
        Ok(proto::AppendResponse { block: None, stat: Some(self.status(&attr, b"")) })
    }

    /// Begins the next block.
    pub(crate) fn add_block(
        &self,
        context: CallContext<'_>,
        request: &proto::AddBlockRequest,
    ) -> Result<BlockResponse, Exception> {
        let lease = self.held(request.file_id.unwrap_or(0), &request.src, &context.holder(&request.client_name))?;
        let mut progress = lease.writing()?;
        finish_block(&lease, &mut progress, request.previous.as_ref())?;
        if progress.next > 0 {
            // Here a client hears why there is no room, and not where it sends bytes; the first chunk came with the file.
            let granted = lease.file.prepare_write(progress.next, lease.block_bytes);
            granted.map_err(|error| Exception::of(error, &request.src))?;
        }
        let block = OpenBlock { start: progress.next, generation: self.next_generation(), received: 0 };
        progress.block = Some(block);
        self.leases.note_block(&lease, &mut progress);
        let wishes = PlacementHints { favored: &request.favored_nodes, excluded: &request.exclude_nodes };
        let places = self.places_to_write(context.reader(), wishes);
        Ok(BlockResponse { block: Some(self.writable(context.reader(), &lease, block, 0, &places)) })
    }

    /// More places for a block that is being written, behind those that its writer has. There is nothing to be copied to them.
    pub(crate) fn additional_place(
        &self,
        context: CallContext<'_>,
        request: &proto::GetAdditionalDatanodeRequest,
    ) -> Result<BlockResponse, Exception> {
        let named = required(request.blk.clone())?;
        let lease = self.held(request.file_id.unwrap_or(0), &request.src, &context.holder(&request.client_name))?;
        let progress = lease.writing()?;
        let block =
            is_block(&lease, &progress, &named).ok_or_else(|| Exception::io("the block is not being written"))?;
        let known = [request.existings.as_slice(), &request.excludes].concat();
        let all = self.places_to_write(context.reader(), PlacementHints { excluded: &known, favored: &[] });
        let is_fresh = |place: &&BlockLocation| !known.iter().any(|node| is_named(node, &place.name));
        let fresh: Vec<BlockLocation> =
            all.iter().filter(is_fresh).take(request.num_additional_nodes as usize).cloned().collect();
        if fresh.is_empty() {
            return Err(Exception::io(format!("{}: there is no further place for it", request.src)));
        }
        let mut located = self.writable(context.reader(), &lease, block, named.num_bytes.unwrap_or(0), &fresh);
        let existing = request.existings.iter();
        located
            .storage_ids
            .splice(0..0, existing.clone().map(|node| node.id.clone().unwrap_or_default().datanode_uuid));
        located.locs.splice(0..0, existing.cloned());
        located.storage_types = vec![proto::DISK; located.locs.len()];
        located.is_cached = vec![false; located.locs.len()];
        Ok(BlockResponse { block: Some(located) })
    }

    /// Gives up the block that was begun: the next one begins at the same place.
    pub(crate) fn abandon_block(
        &self,
        context: CallContext<'_>,
        request: &proto::AbandonBlockRequest,
    ) -> Result<(), Exception> {
        let lease = self.held(request.file_id.unwrap_or(0), &request.src, &context.holder(&request.holder))?;
        let mut progress = lease.writing()?;
        let named = required(request.b.clone())?;
        if let Some(block) = is_block(&lease, &progress, &named) {
            progress.left_behind |= block.received > 0;
            progress.block = None;
        }
        Ok(())
    }

    /// Closes a file. What was sent of a block that was given up is cut off.
    pub(crate) fn complete(
        &self,
        context: CallContext<'_>,
        request: &proto::CompleteRequest,
    ) -> Result<ResultResponse, Exception> {
        let lease = self.held(request.file_id.unwrap_or(0), &request.src, &context.holder(&request.client_name))?;
        let mut progress = lease.writing()?;
        finish_block(&lease, &mut progress, request.last.as_ref())?;
        let end = progress.next;
        drop(progress);
        self.close(lease, Some(end))?;
        Ok(ResultResponse { result: true })
    }

    /// What was sent is in the file already; `hsync` asks for the disk with its bytes.
    pub(crate) fn fsync(&self, context: CallContext<'_>, request: &proto::FsyncRequest) -> Result<(), Exception> {
        let lease = self.held(request.file_id.unwrap_or(0), &request.src, &context.holder(&request.client))?;
        lease.writing().map(|_| ())
    }

    /// A new generation for a block whose writer lost its connection.
    pub(crate) fn update_block(
        &self,
        context: CallContext<'_>,
        request: &proto::UpdateBlockForPipelineRequest,
    ) -> Result<BlockResponse, Exception> {
        let named = required(request.block.clone())?;
        let lease = self.held_of_block(named.block_id, &context.holder(&request.client_name))?;
        let progress = lease.writing()?;
        let block =
            is_block(&lease, &progress, &named).ok_or_else(|| Exception::io("the block is not being written"))?;
        let renewed = OpenBlock { generation: self.next_generation(), ..block };
        let len = named.num_bytes.unwrap_or(0);
        let places = self.places_to_write(context.reader(), PlacementHints::default());
        Ok(BlockResponse { block: Some(self.writable(context.reader(), &lease, renewed, len, &places)) })
    }

    /// The writer goes on with the block under its new generation.
    pub(crate) fn update_pipeline(
        &self,
        context: CallContext<'_>,
        request: &proto::UpdatePipelineRequest,
    ) -> Result<(), Exception> {
        let (old, new) = (required(request.old_block.clone())?, required(request.new_block.clone())?);
        let lease = self.held_of_block(old.block_id, &context.holder(&request.client_name))?;
        let mut progress = lease.writing()?;
        let is_it = is_block(&lease, &progress, &old).is_some() && new.block_id == old.block_id;
        match &mut progress.block {
            Some(block) if is_it => block.generation = new.generation_stamp,
            _ => return Err(Exception::io("the new block is another one than the old")),
        }
        Ok(())
    }

    /// Takes a file away from whoever writes it. True: it is closed.
    pub(crate) fn recover_lease(
        &self,
        context: CallContext<'_>,
        request: &proto::RecoverLeaseRequest,
    ) -> Result<ResultResponse, Exception> {
        let ExclusiveFile { fs, target, attr } = self.file_to_change(context, &request.src)?;
        fs.access(&target, WRITE).map_err(|error| Exception::of(error, &request.src))?;
        if let Some(lease) = self.leases.end(attr.inode) {
            close_file(lease, None)?;
        }
        let is_closed = self.take_from_all(attr.inode).map_err(|error| Exception::of(error, &request.src))?;
        Ok(ResultResponse { result: is_closed })
    }

    /// Ends a lease in good order.
    pub(crate) fn close(&self, lease: Arc<FileLease>, end: Option<u64>) -> Result<(), Exception> {
        self.leases.end_this(&lease);
        close_file(lease, end)
    }

    /// Above all that this door has given, and those of others, as far as the clocks of servers agree.
    fn next_generation(&self) -> u64 {
        self.generation.fetch_max(wall_ns(), Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Settles a file that nobody may write to under this lease any more; cuts it at `end` if that is where its writer was.
pub(crate) fn close_file(lease: Arc<FileLease>, end: Option<u64>) -> Result<(), Exception> {
    let failed = |error, path: &str| Exception::of(error, path);
    let path = lease.path.clone();
    if let Some(end) = end
        && lease.progress().left_behind
    {
        let size = lease.file.stat().map_err(|error| failed(error, &path))?.attr.size;
        if size > end {
            lease.file.set_len(end).map_err(|error| failed(error, &path))?;
        }
    }
    match Arc::try_unwrap(lease) {
        Ok(lease) => lease.file.close_unused_later().map_err(|error| failed(error, &path)),
        // A transfer is about to end: it closes the file when it does.
        Err(_) => Ok(()),
    }
}

/// The block that was being written is as long as its writer says.
fn finish_block(
    lease: &FileLease,
    progress: &mut WriteProgress,
    last: Option<&ExtendedBlock>,
) -> Result<(), Exception> {
    let Some(last) = last else {
        // Nothing of a block that was begun is wanted.
        progress.left_behind |= progress.block.take().is_some_and(|block| block.received > 0);
        return Ok(());
    };
    // The client names the block before one that it gave up.
    if (last.block_id, last.generation_stamp) == progress.last {
        progress.left_behind |= progress.block.take().is_some_and(|block| block.received > 0);
        return Ok(());
    }
    let len = last.num_bytes.unwrap_or(0);
    let Some(block) = is_block(lease, progress, last) else {
        return Err(Exception::io(format!("{}: block {} is not the one being written", lease.path, last.block_id)));
    };
    if len > block.received {
        return Err(Exception::io(format!(
            "{}: of the {len} bytes of block {} only {} have arrived",
            lease.path, last.block_id, block.received
        )));
    }
    progress.left_behind |= len < block.received;
    progress.next = block.start + len;
    progress.last = (last.block_id, last.generation_stamp);
    progress.block = None;
    Ok(())
}

/// The block that is being written, if that is the one named.
fn is_block(lease: &FileLease, progress: &WriteProgress, named: &ExtendedBlock) -> Option<OpenBlock> {
    progress.block.filter(|block| block_id(lease.inode, block.start) == named.block_id)
}

fn check_wanted(request: &proto::CreateRequest) -> Result<(), Exception> {
    if request.create_flag & create_flag::APPEND != 0 {
        return Err(Exception::illegal_argument("create does not append: append does"));
    }
    if request.ec_policy_name.as_deref().is_some_and(|name| !name.is_empty() && name != REPLICATION) {
        return Err(Exception::unsupported("frieze has no erasure coding: it keeps replicas"));
    }
    if request.block_size < BLOCK_BYTES_MIN {
        return Err(Exception::io(format!(
            "Specified block size is less than configured minimum value: {} < {BLOCK_BYTES_MIN}",
            request.block_size
        )));
    }
    Ok(())
}

/// Somebody else makes and removes the same name again and again.
const ROUNDS_MAX: u32 = 8;
/// Of directories that a file needs.
const PARENT_MODE: u32 = 0o755;
/// A block holds at least one checksum's bytes; HDFS by default wants 1 MiB.
const BLOCK_BYTES_MIN: u64 = 512;
/// The one policy that means none.
const REPLICATION: &str = "REPLICATION";
