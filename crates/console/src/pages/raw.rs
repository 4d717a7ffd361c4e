//! The bytes of a file at an instant.

use bytes::Bytes;
use frieze_client::OpenFlags;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{PageRefusal, about};
use crate::paths::PagePath;
use crate::preview::{PICTURE_BYTES_MAX, picture_kind};
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};

/// Bytes read and sent at once.
const PIECE_BYTES: usize = 512 << 10;

/// Bytes of a file's name that a header may have as they are (RFC 5987, attr-char).
const NAME_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The name of a file in a header.
fn download_name(path: &PagePath) -> String {
    // Browsers take UTF-8 alone.
    utf8_percent_encode(&String::from_utf8_lossy(path.name()), NAME_ESCAPED).to_string()
}

/// The bytes, to be saved; with `inline=1` a picture of a known format, to be shown.
pub(super) fn bytes(visit: &Visit<'_>, path: &PagePath, query: &Params) -> Result<ConsoleReply, PageRefusal> {
    // Of an exact instant, now too: it stays as long as it takes to send it.
    let fs = visit.view(Some(visit.instant_of(query, "at")?.unwrap_or(visit.now())));
    let file = fs.open(&target(path), OpenFlags::READ).map_err(about(path.shown()))?;
    let len = file.stat().map_err(about(path.shown()))?.attr.size;
    let mut first = [0; 16];
    let count = file.read_at(0, &mut first).map_err(about(path.shown()))?;
    let kind = picture_kind(&first[..count]).filter(|_| query.flag("inline") && len <= PICTURE_BYTES_MAX);
    if kind.is_none() && query.flag("inline") {
        return Err(PageRefusal::bad(format!("{} is no picture of a format that the page shows", path.shown())));
    }
    let mut offset = 0;
    let next = move || {
        let mut piece = vec![0; usize::try_from(len - offset).unwrap_or(usize::MAX).min(PIECE_BYTES)];
        if piece.is_empty() {
            return Ok(None);
        }
        let count = file.read_at(offset, &mut piece)?;
        if count == 0 {
            let words = format!("the file ends at {offset}, and had {len} bytes");
            return Err(frieze_client::Error::Program(words));
        }
        piece.truncate(count);
        offset += count as u64;
        Ok(Some(Bytes::from(piece)))
    };
    Ok(ConsoleReply::file(kind, &download_name(path), len, Box::new(next)))
}
