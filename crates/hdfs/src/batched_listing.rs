//! One call that lists many directories.
//!
//! A page holds parts of the listings of several directories, in the order of the request. A directory that cannot be
//! listed has its exception in its place; the others follow.

use prost::Message;

use crate::exception::Exception;
use crate::proto::{
    BatchedDirectoryListing, GetBatchedListingRequest, GetBatchedListingResponse, GetListingRequest, RemoteException,
};
use crate::queries::Queries;
use crate::remote_user::CallContext;

/// Directories in one call, as in HDFS.
const DIRECTORIES_MAX: usize = 100;
/// A page is full at this many entries; the listing of one directory is not cut for it.
const ENTRIES: usize = 1000;

/// Where the next page begins. Clients return it unchanged.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct After {
    #[prost(uint32, tag = "1")]
    directory: u32,
    #[prost(bytes = "vec", tag = "2")]
    name: Vec<u8>,
}

/// The next page.
pub(crate) fn batched_listing(
    queries: Queries<'_>,
    context: CallContext<'_>,
    request: &GetBatchedListingRequest,
) -> Result<GetBatchedListingResponse, Exception> {
    let count = request.paths.len();
    if count > DIRECTORIES_MAX {
        return Err(Exception::argument(format!("Too many source paths ({count}): at most {DIRECTORIES_MAX}")));
    }
    let mut at = After::decode(request.start_after.as_slice())
        .map_err(|error| Exception::argument(format!("no such place to go on listing at: {error}")))?;
    let (mut listings, mut entries) = (Vec::new(), 0);
    while entries < ENTRIES
        && let Some(path) = request.paths.get(at.directory as usize)
    {
        let wanted = GetListingRequest {
            src: path.clone(),
            start_after: std::mem::take(&mut at.name),
            need_location: request.need_location,
        };
        let listed = queries.listing(context, &wanted).and_then(|listed| {
            listed.dir_list.ok_or_else(|| Exception::not_found(format!("File {path} does not exist.")))
        });
        let parent_idx = at.directory;
        match listed {
            Ok(page) => {
                entries += page.partial_listing.len();
                match page.partial_listing.last().filter(|_| page.remaining_entries > 0) {
                    Some(last) => at.name = last.path.clone(),
                    None => at.directory += 1,
                }
                let partial_listing = page.partial_listing;
                listings.push(BatchedDirectoryListing { partial_listing, parent_idx, exception: None });
            }
            Err(Exception { class, message }) => {
                at.directory += 1;
                let exception = Some(RemoteException { class_name: class.to_owned(), message: Some(message) });
                listings.push(BatchedDirectoryListing { partial_listing: Vec::new(), parent_idx, exception });
            }
        }
    }
    let has_more = (at.directory as usize) < count;
    Ok(GetBatchedListingResponse { listings, has_more, start_after: at.encode_to_vec() })
}
