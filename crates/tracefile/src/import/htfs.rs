//! HTFS, the tracing file system of Facebook's Hadoop (`org.apache.hadoop.metrics.APITrace`), which the study of HDFS
//! under HBase used: `process,event,entry ns,duration ns,call,stream,result,arguments...`, texts as `#` and base 64.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::BASE64_NOPAD;
use frieze_trace::{CallKind, EventFlags, Gateway};

use super::target::{FileIdentities, ImportSettings, ImportTarget, for_each_line};
use crate::error::TraceFileError;
use crate::row::TraceRow;

/// Open streams that are followed.
const STREAMS_MAX: usize = 1 << 20;

/// A stream: where it is.
#[derive(Clone, Copy)]
struct HtfsStream {
    identity: u64,
    path: u64,
    position: Option<u64>,
    writes: bool,
}

pub(super) fn import(
    settings: &ImportSettings,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    let (mut streams, mut identities) = (BTreeMap::new(), FileIdentities::default());
    for_each_line(input, progress, target, |target, line| {
        // A line of log4j may have words in front.
        let fields: Vec<&str> = line.rsplit(' ').next().unwrap_or_default().split(',').collect();
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<i64>().ok());
        let (Some(entry), Some(duration), Some(call), Some(stream)) = (number(2), number(3), number(4), number(5))
        else {
            target.note("lines that are no call");
            return Ok(());
        };
        let Some(kind) = call_kind(call) else {
            target.note("calls that move no bytes and name no file");
            return Ok(());
        };
        let mut row = TraceRow::new(settings.begin_ns.saturating_add(entry), kind, Gateway::Import);
        row.duration_ns = u64::try_from(duration).ok();
        let text = |at: usize| fields.get(at).and_then(|text| text.strip_prefix('#')).map(decoded);
        let path_at = |at: usize, target: &mut ImportTarget<'_>| match text(at).flatten() {
            Some(path) => target.path(&without_host(&path), input).map(Some),
            None => Ok(None),
        };
        let process = fields[0].parse::<u64>().unwrap_or(0);
        let key = |stream: i64| (process, stream);
        match kind {
            CallKind::Open | CallKind::Create | CallKind::Append => {
                row.path = path_at(7, target)?;
                let (Some(path), Some(opened)) = (row.path, number(6)) else { return target.push(row) };
                if kind == CallKind::Append {
                    row.call = CallKind::Open;
                }
                let position = (kind != CallKind::Append).then_some(0);
                let writes = kind != CallKind::Open;
                let stream = HtfsStream { identity: identities.of(path), path, position, writes };
                (row.inode, row.stream) = (Some(stream.identity), u64::try_from(opened).ok());
                if streams.len() < STREAMS_MAX {
                    streams.insert(key(opened), stream);
                }
            }
            CallKind::Read | CallKind::Write | CallKind::Seek | CallKind::Close | CallKind::Sync | CallKind::Flush => {
                let Some(open) = streams.get_mut(&key(stream)) else {
                    target.note("calls on streams that were open before the trace");
                    return Ok(());
                };
                (row.inode, row.path, row.stream) = (Some(open.identity), Some(open.path), u64::try_from(stream).ok());
                match (call, kind) {
                    // One collapsed event: count and bytes; the stream says whether it reads.
                    (1, _) => {
                        let (count, bytes) = (number(7).unwrap_or(1), number(8).unwrap_or(0));
                        row.call = if open.writes { CallKind::Write } else { CallKind::Read };
                        row.count = u32::try_from(count.max(1)).unwrap_or(u32::MAX) & 0x7fff_ffff;
                        row.flags = EventFlags::COLLAPSED.with(EventFlags::SEQUENTIAL);
                        advance(&mut row, open, u64::try_from(bytes).unwrap_or(0), true);
                    }
                    (_, CallKind::Seek) => {
                        open.position = number(7).and_then(|place| u64::try_from(place).ok());
                        row.offset = open.position;
                    }
                    (_, CallKind::Read | CallKind::Write) => {
                        let bytes = bytes_of(call, &fields).unwrap_or(0);
                        let place = placed(call).and_then(&number).and_then(|place| u64::try_from(place).ok());
                        match place {
                            // A read at a place moves no position.
                            Some(place) => {
                                (row.offset, row.asked, row.got) = (Some(place), Some(bytes), Some(bytes));
                            }
                            None => advance(&mut row, open, bytes, true),
                        }
                    }
                    (_, CallKind::Close) => drop(streams.remove(&key(stream))),
                    _ => {}
                }
            }
            _ => {
                row.path = path_at(7, target)?;
                if kind == CallKind::Rename || kind == CallKind::Link {
                    row.path2 = path_at(8, target)?;
                }
                row.inode = match (kind, row.path, row.path2) {
                    (CallKind::Unlink, Some(path), _) => Some(identities.remove(path)),
                    (CallKind::Rename, Some(path), Some(to)) => Some(identities.rename(path, to)),
                    (_, Some(path), _) => Some(identities.of(path)),
                    _ => None,
                };
            }
        }
        target.push(row)
    })
}

fn advance(row: &mut TraceRow, open: &mut HtfsStream, bytes: u64, is_sequential: bool) {
    (row.offset, row.asked, row.got) = (open.position, Some(bytes), Some(bytes));
    open.position = open.position.map(|position| position.saturating_add(bytes));
    if is_sequential {
        row.flags = row.flags.with(EventFlags::SEQUENTIAL);
    }
}

/// What a number of HTFS is (`APITrace.CALL_*`).
fn call_kind(call: i64) -> Option<CallKind> {
    Some(match call {
        1 | 32..=38 => CallKind::Read,
        44..=46 => CallKind::Write,
        4 => CallKind::Open,
        5 => CallKind::Append,
        6..=9 => CallKind::Create,
        10 | 26..=28 => CallKind::SetAttr,
        11 => CallKind::Link,
        12 => CallKind::Rename,
        13 | 14 => CallKind::Unlink,
        15 => CallKind::List,
        16 => CallKind::Mkdir,
        21..=23 => CallKind::Stat,
        29 => CallKind::Seek,
        40 | 48 => CallKind::Close,
        43 => CallKind::Sync,
        47 => CallKind::Flush,
        _ => return None,
    })
}

/// Where the arguments of a read at a place have the place: `read(position, ...)`, `readFully(position, ...)`.
fn placed(call: i64) -> Option<usize> {
    matches!(call, 32..=34).then_some(7)
}

/// Bytes that a call moved: what it returned, or its length.
fn bytes_of(call: i64, fields: &[&str]) -> Option<u64> {
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<i64>().ok());
    let returned = number(6).filter(|value| *value >= 0);
    let last = number(fields.len().checked_sub(1)?).filter(|value| *value >= 0);
    let bytes = match call {
        // `read()` and `write(int)` move one byte.
        35 | 44 => Some(1),
        _ => returned.or(last),
    };
    bytes.and_then(|bytes| u64::try_from(bytes).ok())
}

/// `hdfs://host:port/path` is `/path`.
fn without_host(path: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(path);
    match text.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned())) {
        Some(path) => path.into_bytes(),
        None => path.to_vec(),
    }
}

/// Base 64, with or without padding, in the plain or the URL alphabet.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let plain = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    BASE64_NOPAD.decode(plain.as_bytes()).ok()
}
