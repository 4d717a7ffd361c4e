//! Calls that write files: a client that opens one gets a lease, then block after block, and completes it.
//!
//! frieze has no blocks. A client gets one that begins at its position in the file, and what it sends is written there
//! at once ([`crate::block_writer`]): what is acknowledged is in the file, for readers at any gateway. The calls here
//! keep the state of the lease.

use frieze_client::{CreateMode, FileKind, OpenFlags, Reason, Target};

use crate::attributes::new_mode;
use crate::blocks::{self, required};
use crate::directories::make_directories;
use crate::exception::Exception;
use crate::exclusive_file::{ExclusiveFile, exclusive_file, file_to_change};
use crate::file_names::FileNames;
use crate::file_writers::FileWriters;
use crate::lease::{close_file, finish_block, is_block};
use crate::lease_record::OpenBlock;
use crate::lease_takeover::{find_lease, lease_of_block};
use crate::leases::LeaseRequest;
use crate::locations::{BlockLocation, BlockLocator, PlacementHints, is_named};
use crate::paths::split;
use crate::proto::{self, BlockResponse, ResultResponse, create_flag};
use crate::remote_user::CallContext;

const WRITE: u32 = 2;

/// Calls that write files.
#[derive(Clone, Copy)]
pub(crate) struct FileWrites<'s> {
    pub(crate) names: &'s FileNames,
    pub(crate) locator: &'s BlockLocator,
    pub(crate) writers: &'s FileWriters,
}

impl FileWrites<'_> {
    /// Creates a file. An existing one is replaced if the request says so.
    pub(crate) fn create(
        &self,
        context: CallContext<'_>,
        request: &proto::CreateRequest,
    ) -> Result<proto::CreateResponse, Exception> {
        let path = &request.src;
        let target = self.names.resolve_for_change(context, path)?;
        check_wanted(request)?;
        let (mode, umask) = new_mode(request.masked.as_ref(), request.unmasked.as_ref(), 0o644);
        let fs = self.names.fs(context).with_umask(umask);
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
                    // The writer of the replaced file loses its lease.
                    replaced.and_then(|replaced| self.writers.leases.end(replaced.0));
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
                Err(error) if error.reason() == Reason::Exists => {
                    return Err(self.exists_exception(context, request, &target));
                }
                Err(error) if error.reason() == Reason::IsDirectory => {
                    return Err(Exception::already_exists(format!("{path} already exists as a directory")));
                }
                Err(error) => return Err(Exception::of(error, path)),
            }
        };
        // The writer takes its block size from here.
        let status =
            proto::HdfsFileStatus { blocksize: Some(request.block_size), ..self.names.status(file.attr(), b"") };
        let inode = file.inode().0;
        let (path, holder) = (path.clone(), context.holder(&request.client_name));
        let caller = context.user.account.caller.clone();
        let (block_bytes, machine) = (request.block_size, Some(context.user.peer));
        self.writers.leases.give(LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, next: 0 })?;
        Ok(proto::CreateResponse { fs: Some(status) })
    }

    /// The exception for a name that exists.
    fn exists_exception(&self, context: CallContext<'_>, request: &proto::CreateRequest, target: &Target) -> Exception {
        let path = &request.src;
        match self.names.fs(context).stat(target).map(|found| found.attr) {
            Ok(attr) if attr.kind() == FileKind::Directory => {
                return Exception::already_exists(format!("{path} already exists as a directory"));
            }
            Ok(attr) => {
                if let Err(writes) = self.writers.check_free(context, attr.inode, path, &request.client_name) {
                    return writes;
                }
            }
            // It existed a moment ago.
            Err(_) => {}
        }
        Exception::already_exists(format!("{path} for client {} already exists", request.client_name))
    }

    /// Opens a file to append.
    pub(crate) fn append(
        &self,
        context: CallContext<'_>,
        request: &proto::AppendRequest,
    ) -> Result<proto::AppendResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let ExclusiveFile { fs, attr, .. } =
            exclusive_file(self.names, self.writers, context, path, &request.client_name)?;
        let file = fs.open(&Target::inode(frieze_client::InodeId(attr.inode)), OpenFlags::WRITE).map_err(failed)?;
        // Only a caller that may write takes the file from a silent writer.
        self.writers.leases.end(attr.inode);
        let holder = context.holder(&request.client_name);
        let (inode, block_bytes) = (attr.inode, blocks::BLOCK_BYTES);
        let caller = context.user.account.caller.clone();
        let (path, machine) = (path.clone(), Some(context.user.peer));
        let wanted = LeaseRequest { inode, path, holder, block_bytes, file, caller, machine, next: attr.size };
        let lease = self.writers.leases.give(wanted)?;
        if let Err(refused) = self.writers.claim(&lease, attr.size) {
            self.writers.close(lease, None)?;
            return Err(refused);
        }
        // The end is read when no other client writes any more.
        let attr = lease.file.stat().map_err(failed)?.attr;
        lease.writing()?.next = attr.size;
        // Without a block the client requests a new one, which begins at the end of the file.
        Ok(proto::AppendResponse { block: None, stat: Some(self.names.status(&attr, b"")) })
    }

    /// Begins the next block.
    pub(crate) fn add_block(
        &self,
        context: CallContext<'_>,
        request: &proto::AddBlockRequest,
    ) -> Result<BlockResponse, Exception> {
        let lease = find_lease(
            self.writers,
            request.file_id.unwrap_or(0),
            &request.src,
            &context.holder(&request.client_name),
        )?;
        let mut progress = lease.writing()?;
        finish_block(&lease, &mut progress, request.previous.as_ref())?;
        if progress.next > 0 {
            // Here a client gets the reason for a lack of space, and not where it sends bytes; the first chunk was
            // granted with the file.
            let granted = lease.file.prepare_write(progress.next, lease.block_bytes);
            granted.map_err(|error| Exception::of(error, &request.src))?;
        }
        let block = OpenBlock { start: progress.next, generation: self.writers.next_generation(), received: 0 };
        progress.block = Some(block);
        self.writers.leases.update_record(&lease, &mut progress);
        let wishes = PlacementHints { favored: &request.favored_nodes, excluded: &request.exclude_nodes };
        let places = self.locator.locations_to_write(context.reader(), wishes);
        Ok(BlockResponse { block: Some(self.locator.writable(context.reader(), &lease, block, 0, &places)) })
    }

    /// Further locations for a block that is being written, behind those that its writer has. Nothing is copied to
    /// them.
    pub(crate) fn additional_location(
        &self,
        context: CallContext<'_>,
        request: &proto::GetAdditionalDatanodeRequest,
    ) -> Result<BlockResponse, Exception> {
        let named = required(request.blk.clone())?;
        let lease = find_lease(
            self.writers,
            request.file_id.unwrap_or(0),
            &request.src,
            &context.holder(&request.client_name),
        )?;
        let progress = lease.writing()?;
        let block =
            is_block(&lease, &progress, &named).ok_or_else(|| Exception::io("the block is not being written"))?;
        let known = [request.existings.as_slice(), &request.excludes].concat();
        let all = self.locator.locations_to_write(context.reader(), PlacementHints { excluded: &known, favored: &[] });
        let is_fresh = |place: &&BlockLocation| !known.iter().any(|node| is_named(node, &place.name));
        let fresh: Vec<BlockLocation> =
            all.iter().filter(is_fresh).take(request.num_additional_nodes as usize).cloned().collect();
        if fresh.is_empty() {
            return Err(Exception::io(format!("{}: there is no further place for it", request.src)));
        }
        let mut located = self.locator.writable(context.reader(), &lease, block, named.num_bytes.unwrap_or(0), &fresh);
        let existing = request.existings.iter();
        located
            .storage_ids
            .splice(0..0, existing.clone().map(|node| node.id.clone().unwrap_or_default().datanode_uuid));
        located.locs.splice(0..0, existing.cloned());
        located.storage_types = vec![proto::DISK; located.locs.len()];
        located.is_cached = vec![false; located.locs.len()];
        Ok(BlockResponse { block: Some(located) })
    }

    /// Abandons the block that was begun: the next one begins at the same place.
    pub(crate) fn abandon_block(
        &self,
        context: CallContext<'_>,
        request: &proto::AbandonBlockRequest,
    ) -> Result<(), Exception> {
        let lease =
            find_lease(self.writers, request.file_id.unwrap_or(0), &request.src, &context.holder(&request.holder))?;
        let mut progress = lease.writing()?;
        let named = required(request.b.clone())?;
        if let Some(block) = is_block(&lease, &progress, &named) {
            progress.has_abandoned_bytes |= block.received > 0;
            progress.block = None;
        }
        Ok(())
    }

    /// Closes a file. Bytes of an abandoned block are cut off.
    pub(crate) fn complete(
        &self,
        context: CallContext<'_>,
        request: &proto::CompleteRequest,
    ) -> Result<ResultResponse, Exception> {
        let lease = find_lease(
            self.writers,
            request.file_id.unwrap_or(0),
            &request.src,
            &context.holder(&request.client_name),
        )?;
        let mut progress = lease.writing()?;
        finish_block(&lease, &mut progress, request.last.as_ref())?;
        let end = progress.next;
        drop(progress);
        self.writers.close(lease, Some(end))?;
        Ok(ResultResponse { result: true })
    }

    /// Bytes that were sent are in the file already; `hsync` requests the flush with its bytes.
    pub(crate) fn fsync(&self, context: CallContext<'_>, request: &proto::FsyncRequest) -> Result<(), Exception> {
        let lease =
            find_lease(self.writers, request.file_id.unwrap_or(0), &request.src, &context.holder(&request.client))?;
        lease.writing().map(|_| ())
    }

    /// A new generation for a block whose writer lost its connection.
    pub(crate) fn update_block(
        &self,
        context: CallContext<'_>,
        request: &proto::UpdateBlockForPipelineRequest,
    ) -> Result<BlockResponse, Exception> {
        let named = required(request.block.clone())?;
        let lease = lease_of_block(self.writers, named.block_id, &context.holder(&request.client_name))?;
        let progress = lease.writing()?;
        let block =
            is_block(&lease, &progress, &named).ok_or_else(|| Exception::io("the block is not being written"))?;
        let renewed = OpenBlock { generation: self.writers.next_generation(), ..block };
        let len = named.num_bytes.unwrap_or(0);
        let places = self.locator.locations_to_write(context.reader(), PlacementHints::default());
        Ok(BlockResponse { block: Some(self.locator.writable(context.reader(), &lease, renewed, len, &places)) })
    }

    /// Continues the block under its new generation.
    pub(crate) fn update_pipeline(
        &self,
        context: CallContext<'_>,
        request: &proto::UpdatePipelineRequest,
    ) -> Result<(), Exception> {
        let (old, new) = (required(request.old_block.clone())?, required(request.new_block.clone())?);
        let lease = lease_of_block(self.writers, old.block_id, &context.holder(&request.client_name))?;
        let mut progress = lease.writing()?;
        let is_it = is_block(&lease, &progress, &old).is_some() && new.block_id == old.block_id;
        match &mut progress.block {
            Some(block) if is_it => block.generation = new.generation_stamp,
            _ => return Err(Exception::io("the new block is another one than the old")),
        }
        Ok(())
    }

    /// Revokes the lease on a file. True: the file is closed.
    pub(crate) fn recover_lease(
        &self,
        context: CallContext<'_>,
        request: &proto::RecoverLeaseRequest,
    ) -> Result<ResultResponse, Exception> {
        let ExclusiveFile { fs, target, attr } = file_to_change(self.names, context, &request.src)?;
        fs.access(&target, WRITE).map_err(|error| Exception::of(error, &request.src))?;
        if let Some(lease) = self.writers.leases.end(attr.inode) {
            close_file(lease, None)?;
        }
        let is_closed = self.writers.take_from_all(attr.inode).map_err(|error| Exception::of(error, &request.src))?;
        Ok(ResultResponse { result: is_closed })
    }
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

/// Another client creates and removes the same name again and again.
const ROUNDS_MAX: u32 = 8;
/// Mode of the parents of a new file.
const PARENT_MODE: u32 = 0o755;
/// A block holds at least one checksum's bytes; HDFS by default wants 1 MiB.
const BLOCK_BYTES_MIN: u64 = 512;
/// The policy that stands for no erasure coding.
const REPLICATION: &str = "REPLICATION";
