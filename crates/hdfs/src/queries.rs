//! Calls that read: attributes, listings, locations of blocks, room.

use frieze_client::{Attr, Error, FileKind, Fs, Reason, Target, View};

use crate::administration::damaged;
use crate::attributes::{followed, is_absent, must_be_file};
use crate::blocks::BLOCK_BYTES;
use crate::exception::Exception;
use crate::file_names::{DirectoryView, FileNames, ResolvedPath};
use crate::file_writers::FileWriters;
use crate::leases::Revocation;
use crate::locations::BlockLocator;
use crate::paths::{ParsedPath, place, shown, split};
use crate::peer_gateways::RemoteWriter;
use crate::proto::{
    self, DirectoryListing, GetBlockLocationsRequest, GetBlockLocationsResponse, GetFileInfoResponse,
    GetListingRequest, GetListingResponse, HdfsFileStatus, LocatedBlocks, NumberResponse, ResultResponse,
};
use crate::remote_user::{BlockClient, CallContext};
use crate::snapshots::names as snapshot_names;

/// Entries of a page of a listing.
const PAGE_ENTRIES: u32 = 1000;
const READ: u32 = 4;

/// Calls that read.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'s> {
    pub(crate) names: &'s FileNames,
    pub(crate) locator: &'s BlockLocator,
    pub(crate) writers: &'s FileWriters,
}

impl Queries<'_> {
    /// Attributes of a file; none if it does not exist.
    pub(crate) fn file_info(
        &self,
        context: CallContext<'_>,
        path: &str,
        follow: bool,
    ) -> Result<GetFileInfoResponse, Exception> {
        let Some(resolved) = self.look_if_exists(context, path)? else { return Ok(GetFileInfoResponse { fs: None }) };
        let target = Target { follow: resolved.target.follow && follow, ..resolved.target.clone() };
        let attr = match resolved.fs.stat(&target) {
            Ok(found) => found.attr,
            Err(error) if is_absent(&error) => return Ok(GetFileInfoResponse { fs: None }),
            Err(error) => return Err(Exception::of(error, path)),
        };
        Ok(GetFileInfoResponse { fs: Some(self.names.status(&shown_attr(&resolved, attr), b"")) })
    }

    /// The same with locations of its blocks.
    pub(crate) fn located_file_info(
        &self,
        context: CallContext<'_>,
        path: &str,
    ) -> Result<GetFileInfoResponse, Exception> {
        let Some(resolved) = self.look_if_exists(context, path)? else { return Ok(GetFileInfoResponse { fs: None }) };
        let attr = match resolved.fs.stat(&resolved.target) {
            Ok(found) => shown_attr(&resolved, found.attr),
            Err(error) if is_absent(&error) => return Ok(GetFileInfoResponse { fs: None }),
            Err(error) => return Err(Exception::of(error, path)),
        };
        let may_read = resolved.fs.access(&resolved.target, READ).is_ok();
        let reader = if may_read { context.reader() } else { BlockClient { caller: None, ..context.reader() } };
        Ok(GetFileInfoResponse { fs: Some(self.with_locations(reader, &resolved, &attr, b"")) })
    }

    /// A page of a directory, or a file as its own only entry.
    pub(crate) fn listing(
        &self,
        context: CallContext<'_>,
        request: &GetListingRequest,
    ) -> Result<GetListingResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let none = GetListingResponse { dir_list: None };
        let Some(resolved) = self.look_if_exists(context, path)? else { return Ok(none) };
        let after = after(&request.start_after)?;
        if resolved.shows != DirectoryView::Names {
            return self.list_instants(&resolved, path, &after);
        }
        let page = match resolved.fs.list(&resolved.target, &after, PAGE_ENTRIES, true) {
            Ok(page) => page,
            Err(error) if error.reason() == Reason::NotDirectory => {
                let Some(attr) = self.found(&resolved.fs, &resolved.target).map_err(failed)? else { return Ok(none) };
                let entry = self.entry(context, &resolved, &attr, b"", request.need_location);
                return Ok(page_of(vec![entry], false));
            }
            Err(error) if is_absent(&error) => return Ok(none),
            Err(error) => return Err(failed(error)),
        };
        let directory = frieze_client::InodeId(page.inode);
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let target = Target::under(directory, entry.name.as_slice());
            // A name that was removed meanwhile is left out.
            let attr = match entry.attr {
                Some(attr) => Some(attr),
                None => self.found(&resolved.fs, &target).map_err(failed)?,
            };
            let Some(attr) = attr else { continue };
            let attr = followed(&resolved.fs, &target, attr).map_err(failed)?;
            entries.push(self.entry(context, &resolved, &attr, &entry.name, request.need_location));
        }
        Ok(page_of(entries, page.more))
    }

    /// The saved snapshots: `.at` lists all, `.snapshot` those of its directory.
    fn list_instants(
        &self,
        resolved: &ResolvedPath,
        path: &str,
        after: &[u8],
    ) -> Result<GetListingResponse, Exception> {
        let failed = |error| Exception::of(error, path);
        let attr = shown_attr(resolved, resolved.fs.stat(&resolved.target).map_err(failed)?.attr);
        let snapshots = self.names.client.snapshots().map_err(failed)?;
        let names: Vec<String> = match resolved.shows {
            DirectoryView::Snapshots if attr.kind() != FileKind::Directory => {
                return Ok(GetListingResponse { dir_list: None });
            }
            DirectoryView::Snapshots => snapshot_names::below(snapshots, attr.inode).into_keys().collect(),
            _ => snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
        };
        let later = names.iter().filter(|name| name.as_bytes() > after);
        Ok(page_of(later.map(|name| self.names.status(&attr, name.as_bytes())).collect(), false))
    }

    fn entry(
        &self,
        context: CallContext<'_>,
        resolved: &ResolvedPath,
        attr: &Attr,
        name: &[u8],
        is_located: bool,
    ) -> HdfsFileStatus {
        if !is_located {
            return self.names.status(attr, name);
        }
        // As in HDFS: locations for scheduling, without a right to read. The right is checked when the file is opened.
        self.with_locations(BlockClient { caller: None, ..context.reader() }, resolved, attr, name)
    }

    fn with_locations(
        &self,
        reader: BlockClient<'_>,
        resolved: &ResolvedPath,
        attr: &Attr,
        name: &[u8],
    ) -> HdfsFileStatus {
        let mut status = self.names.status(attr, name);
        if attr.kind() != FileKind::Directory {
            // A file that is not regular has no bytes here.
            let attr = Attr { size: status.length, ..attr.clone() };
            status.locations = Some(self.located(reader, &attr, resolved.fs.view(), (0, u64::MAX)));
        }
        status
    }

    fn located(&self, client: BlockClient<'_>, attr: &Attr, view: View, (offset, len): (u64, u64)) -> LocatedBlocks {
        let is_open = self.writers.leases.is_open(attr.inode);
        self.locator.located(client, (attr, is_open), view, (offset, len))
    }

    /// The locations of a range of a file.
    pub(crate) fn block_locations(
        &self,
        context: CallContext<'_>,
        request: &GetBlockLocationsRequest,
    ) -> Result<GetBlockLocationsResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let resolved = self.names.resolve(context, path)?;
        let attr = resolved.fs.stat(&resolved.target).map_err(failed)?.attr;
        must_be_file(&attr, path)?;
        resolved.fs.access(&resolved.target, READ).map_err(failed)?;
        let located = self.located(context.reader(), &attr, resolved.fs.view(), (request.offset, request.length));
        Ok(GetBlockLocationsResponse { locations: Some(located) })
    }

    /// The block size of a file.
    pub(crate) fn block_size(&self, context: CallContext<'_>, path: &str) -> Result<NumberResponse, Exception> {
        let resolved = self.names.resolve(context, path)?;
        let attr = resolved.fs.stat(&resolved.target).map_err(|error| Exception::of(error, path))?.attr;
        must_be_file(&attr, path)?;
        Ok(NumberResponse { number: BLOCK_BYTES })
    }

    /// Succeeds if the caller has the rights.
    pub(crate) fn check_access(
        &self,
        context: CallContext<'_>,
        request: &proto::CheckAccessRequest,
    ) -> Result<(), Exception> {
        let resolved = self.names.resolve(context, &request.path)?;
        // An action is a number of the same three bits.
        let mask = u32::try_from(request.mode).unwrap_or(0) & 7;
        resolved.fs.access(&resolved.target, mask).map_err(|error| Exception::of(error, &request.path))
    }

    /// True if no client writes the file.
    pub(crate) fn is_file_closed(&self, context: CallContext<'_>, path: &str) -> Result<ResultResponse, Exception> {
        let resolved = self.names.resolve(context, path)?;
        let attr = resolved.fs.stat(&resolved.target).map_err(|error| Exception::of(error, path))?.attr;
        must_be_file(&attr, path)?;
        if resolved.fs.view().is_past() {
            return Ok(ResultResponse { result: true });
        }
        let is_closed = !self.writers.leases.is_open(attr.inode)
            && self
                .writers
                .remote_writer(attr.inode, Revocation::Nothing)
                .map_err(|error| Exception::of(error, path))?
                == RemoteWriter::Nobody;
        Ok(ResultResponse { result: is_closed })
    }

    /// Capacity and free space.
    pub(crate) fn stats(&self) -> Result<proto::GetFsStatsResponse, Exception> {
        let (capacity, remaining) = self.room()?;
        Ok(proto::GetFsStatsResponse {
            capacity,
            used: capacity.saturating_sub(remaining),
            remaining,
            corrupt_blocks: damaged(self.names)?,
            ..proto::GetFsStatsResponse::default()
        })
    }

    /// The data services of the cluster.
    pub(crate) fn datanode_report(
        &self,
        context: CallContext<'_>,
        request: &proto::GetDatanodeReportRequest,
    ) -> Result<proto::GetDatanodeReportResponse, Exception> {
        if ![ALL, LIVE].contains(&request.kind) {
            return Ok(proto::GetDatanodeReportResponse { di: Vec::new() });
        }
        let (capacity, remaining) = self.room()?;
        // The numbers are this server's: those of others are not queried.
        let nodes = self.locator.all_locations(context.reader()).into_iter().map(|place| proto::DatanodeInfo {
            capacity: Some(capacity),
            dfs_used: Some(capacity.saturating_sub(remaining)),
            remaining: Some(remaining),
            ..place.datanode_info()
        });
        Ok(proto::GetDatanodeReportResponse { di: nodes.collect() })
    }

    fn room(&self) -> Result<(u64, u64), Exception> {
        let status = self.names.client.status().map_err(|error| Exception::of(error, "/"))?;
        Ok((status.capacity_bytes, status.free_bytes))
    }

    /// As [`FileNames::look`]; `None` if the directory of a path of the past does not exist.
    fn look_if_exists(&self, context: CallContext<'_>, path: &str) -> Result<Option<ResolvedPath>, Exception> {
        match self.names.resolve(context, path) {
            Ok(resolved) => Ok(Some(resolved)),
            Err(exception) if exception.class == Exception::not_found("").class => Ok(None),
            Err(exception) => Err(exception),
        }
    }

    fn found(&self, fs: &Fs, target: &Target) -> Result<Option<Attr>, Error> {
        match fs.stat(target) {
            Ok(found) => Ok(Some(found.attr)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The attributes of a directory; of its `.at` and `.snapshot` without the right to write.
fn shown_attr(resolved: &ResolvedPath, attr: Attr) -> Attr {
    if resolved.shows != DirectoryView::Names { Attr { mode: attr.mode & !0o222, ..attr } } else { attr }
}

fn page_of(partial_listing: Vec<HdfsFileStatus>, more: bool) -> GetListingResponse {
    // The number of further entries is unknown; clients only compare it with 0.
    let dir_list = Some(DirectoryListing { partial_listing, remaining_entries: u32::from(more) });
    GetListingResponse { dir_list }
}

/// The last name of the page before, decoded.
fn after(text: &[u8]) -> Result<Vec<u8>, Exception> {
    // A name that is not UTF-8 is sent as it is.
    let Ok(name) = std::str::from_utf8(text) else { return Ok(text.to_vec()) };
    match place(&format!("/{name}")) {
        Ok(ParsedPath::Now(path)) if shown(split(&path).1) == text => Ok(split(&path).1.to_vec()),
        _ => Ok(text.to_vec()),
    }
}

/// `GetDatanodeReportRequest::kind`.
const ALL: i32 = 1;
const LIVE: i32 = 2;
