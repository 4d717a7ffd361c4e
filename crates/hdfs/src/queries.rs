//! Calls that look: attributes, listings, where blocks are, sums.

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

/// Calls that look at files.
#[derive(Clone, Copy)]
pub(crate) struct Queries<'s> {
    pub(crate) names: &'s FileNames,
    pub(crate) locator: &'s BlockLocator,
    pub(crate) writers: &'s FileWriters,
}

impl Queries<'_> {
    /// Attributes of a file; none if it is not there.
    pub(crate) fn file_info(
        &self,
        context: CallContext<'_>,
        path: &str,
        follow: bool,
    ) -> Result<GetFileInfoResponse, Exception> {
        let Some(looked) = self.look_if_there(context, path)? else { return Ok(GetFileInfoResponse { fs: None }) };
        let target = Target { follow: looked.target.follow && follow, ..looked.target.clone() };
        let attr = match looked.fs.stat(&target) {
            Ok(found) => found.attr,
            Err(error) if is_absent(&error) => return Ok(GetFileInfoResponse { fs: None }),
            Err(error) => return Err(Exception::of(error, path)),
        };
        Ok(GetFileInfoResponse { fs: Some(self.names.status(&shown_attr(&looked, attr), b"")) })
    }

    /// The same with where its blocks are.
    pub(crate) fn located_file_info(
        &self,
        context: CallContext<'_>,
        path: &str,
    ) -> Result<GetFileInfoResponse, Exception> {
        let Some(looked) = self.look_if_there(context, path)? else { return Ok(GetFileInfoResponse { fs: None }) };
        let attr = match looked.fs.stat(&looked.target) {
            Ok(found) => shown_attr(&looked, found.attr),
            Err(error) if is_absent(&error) => return Ok(GetFileInfoResponse { fs: None }),
            Err(error) => return Err(Exception::of(error, path)),
        };
        let may_read = looked.fs.access(&looked.target, READ).is_ok();
        let reader = if may_read { context.reader() } else { BlockClient { caller: None, ..context.reader() } };
        Ok(GetFileInfoResponse { fs: Some(self.with_locations(reader, &looked, &attr, b"")) })
    }

    /// A page of a directory, or a file as the only entry of itself.
    pub(crate) fn listing(
        &self,
        context: CallContext<'_>,
        request: &GetListingRequest,
    ) -> Result<GetListingResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let none = GetListingResponse { dir_list: None };
        let Some(looked) = self.look_if_there(context, path)? else { return Ok(none) };
        let after = after(&request.start_after)?;
        if looked.shows != DirectoryView::Names {
            return self.list_instants(&looked, path, &after);
        }
        let page = match looked.fs.list(&looked.target, &after, PAGE_ENTRIES, true) {
            Ok(page) => page,
            Err(error) if error.reason() == Reason::NotDirectory => {
                let Some(attr) = self.found(&looked.fs, &looked.target).map_err(failed)? else { return Ok(none) };
                let entry = self.entry(context, &looked, &attr, b"", request.need_location);
                return Ok(page_of(vec![entry], false));
            }
            Err(error) if is_absent(&error) => return Ok(none),
            Err(error) => return Err(failed(error)),
        };
        let directory = frieze_client::InodeId(page.inode);
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let target = Target::under(directory, entry.name.as_slice());
            // It may have gone since: then it is left out.
            let attr = match entry.attr {
                Some(attr) => Some(attr),
                None => self.found(&looked.fs, &target).map_err(failed)?,
            };
            let Some(attr) = attr else { continue };
            let attr = followed(&looked.fs, &target, attr).map_err(failed)?;
            entries.push(self.entry(context, &looked, &attr, &entry.name, request.need_location));
        }
        Ok(page_of(entries, page.more))
    }

    /// The saved snapshots: what `.at` shows, and `.snapshot` by the names they have there.
    fn list_instants(&self, looked: &ResolvedPath, path: &str, after: &[u8]) -> Result<GetListingResponse, Exception> {
        let failed = |error| Exception::of(error, path);
        let attr = shown_attr(looked, looked.fs.stat(&looked.target).map_err(failed)?.attr);
        let snapshots = self.names.client.snapshots().map_err(failed)?;
        let names: Vec<String> = match looked.shows {
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
        looked: &ResolvedPath,
        attr: &Attr,
        name: &[u8],
        is_located: bool,
    ) -> HdfsFileStatus {
        if !is_located {
            return self.names.status(attr, name);
        }
        // As in HDFS: places, so that work can be sent there, and no right to read. Who opens the file is asked for his.
        self.with_locations(BlockClient { caller: None, ..context.reader() }, looked, attr, name)
    }

    fn with_locations(
        &self,
        reader: BlockClient<'_>,
        looked: &ResolvedPath,
        attr: &Attr,
        name: &[u8],
    ) -> HdfsFileStatus {
        let mut status = self.names.status(attr, name);
        if attr.kind() != FileKind::Directory {
            // What is not a regular file has no bytes here.
            let attr = Attr { size: status.length, ..attr.clone() };
            status.locations = Some(self.located(reader, &attr, looked.fs.view(), (0, u64::MAX)));
        }
        status
    }

    fn located(&self, client: BlockClient<'_>, attr: &Attr, view: View, (offset, len): (u64, u64)) -> LocatedBlocks {
        let is_open = self.writers.leases.is_held(attr.inode);
        self.locator.located(client, (attr, is_open), view, (offset, len))
    }

    /// Where the bytes of a range of a file are.
    pub(crate) fn block_locations(
        &self,
        context: CallContext<'_>,
        request: &GetBlockLocationsRequest,
    ) -> Result<GetBlockLocationsResponse, Exception> {
        let path = &request.src;
        let failed = |error| Exception::of(error, path);
        let looked = self.names.look(context, path)?;
        let attr = looked.fs.stat(&looked.target).map_err(failed)?.attr;
        must_be_file(&attr, path)?;
        looked.fs.access(&looked.target, READ).map_err(failed)?;
        let located = self.located(context.reader(), &attr, looked.fs.view(), (request.offset, request.length));
        Ok(GetBlockLocationsResponse { locations: Some(located) })
    }

    /// The block size of a file.
    pub(crate) fn block_size(&self, context: CallContext<'_>, path: &str) -> Result<NumberResponse, Exception> {
        let looked = self.names.look(context, path)?;
        let attr = looked.fs.stat(&looked.target).map_err(|error| Exception::of(error, path))?.attr;
        must_be_file(&attr, path)?;
        Ok(NumberResponse { number: BLOCK_BYTES })
    }

    /// Succeeds if the caller may.
    pub(crate) fn check_access(
        &self,
        context: CallContext<'_>,
        request: &proto::CheckAccessRequest,
    ) -> Result<(), Exception> {
        let looked = self.names.look(context, &request.path)?;
        // An action is a number of the same three bits.
        let mask = u32::try_from(request.mode).unwrap_or(0) & 7;
        looked.fs.access(&looked.target, mask).map_err(|error| Exception::of(error, &request.path))
    }

    /// True if nobody writes it.
    pub(crate) fn is_file_closed(&self, context: CallContext<'_>, path: &str) -> Result<ResultResponse, Exception> {
        let looked = self.names.look(context, path)?;
        let attr = looked.fs.stat(&looked.target).map_err(|error| Exception::of(error, path))?.attr;
        must_be_file(&attr, path)?;
        if looked.fs.view().is_past() {
            return Ok(ResultResponse { result: true });
        }
        let is_closed = !self.writers.leases.is_held(attr.inode)
            && self
                .writers
                .writer_elsewhere(attr.inode, Revocation::Nothing)
                .map_err(|error| Exception::of(error, path))?
                == RemoteWriter::Nobody;
        Ok(ResultResponse { result: is_closed })
    }

    /// How much room there is.
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

    /// The places where blocks are.
    pub(crate) fn datanode_report(
        &self,
        context: CallContext<'_>,
        request: &proto::GetDatanodeReportRequest,
    ) -> Result<proto::GetDatanodeReportResponse, Exception> {
        if ![ALL, LIVE].contains(&request.kind) {
            return Ok(proto::GetDatanodeReportResponse { di: Vec::new() });
        }
        let (capacity, remaining) = self.room()?;
        // The room of each is this server's: that of others is not asked.
        let nodes = self.locator.all_places(context.reader()).into_iter().map(|place| proto::DatanodeInfo {
            capacity: Some(capacity),
            dfs_used: Some(capacity.saturating_sub(remaining)),
            remaining: Some(remaining),
            ..place.told()
        });
        Ok(proto::GetDatanodeReportResponse { di: nodes.collect() })
    }

    fn room(&self) -> Result<(u64, u64), Exception> {
        let status = self.names.client.status().map_err(|error| Exception::of(error, "/"))?;
        Ok((status.capacity_bytes, status.free_bytes))
    }

    /// As [`Service::look`]; `None` if the past that the path names has no such directory.
    fn look_if_there(&self, context: CallContext<'_>, path: &str) -> Result<Option<ResolvedPath>, Exception> {
        match self.names.look(context, path) {
            Ok(looked) => Ok(Some(looked)),
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

/// Of `.at` and `.snapshot`, the attributes of their directory without the right to write.
fn shown_attr(looked: &ResolvedPath, attr: Attr) -> Attr {
    if looked.shows != DirectoryView::Names { Attr { mode: attr.mode & !0o222, ..attr } } else { attr }
}

fn page_of(partial_listing: Vec<HdfsFileStatus>, more: bool) -> GetListingResponse {
    // How many more there are is not known; that there are is what clients ask.
    let dir_list = Some(DirectoryListing { partial_listing, remaining_entries: u32::from(more) });
    GetListingResponse { dir_list }
}

/// The name that a listing goes on behind, as it is and not as it was shown.
fn after(text: &[u8]) -> Result<Vec<u8>, Exception> {
    // A name that is not UTF-8 is shown as it is.
    let Ok(name) = std::str::from_utf8(text) else { return Ok(text.to_vec()) };
    match place(&format!("/{name}")) {
        Ok(ParsedPath::Now(path)) if shown(split(&path).1) == text => Ok(split(&path).1.to_vec()),
        _ => Ok(text.to_vec()),
    }
}

/// `GetDatanodeReportRequest::kind`.
const ALL: i32 = 1;
const LIVE: i32 = 2;
