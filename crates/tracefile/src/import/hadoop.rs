//! Logs of stock Hadoop: the NameNode's audit log (calls on names), and the `clienttrace` lines of DataNodes (bytes).

use std::collections::BTreeMap;
use std::path::Path;

use frieze_base::Reason;
use frieze_trace::{CallKind, Gateway};
use jiff::civil::DateTime;

use super::target::{FileIdentities, ImportSettings, ImportTarget, for_each_line};
use crate::error::TraceFileError;
use crate::row::TraceRow;
use crate::writer::TracedActor;

/// Time of a log4j line (`2026-11-28 12:00:00,123`), ns since 1970.
fn logged_ns(line: &str, zone_ns: i64) -> Option<i64> {
    let text = line.get(..23)?.replacen(',', ".", 1).replacen(' ', "T", 1);
    let time: DateTime = text.parse().ok()?;
    let ns = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_nanosecond();
    i64::try_from(ns).ok()?.checked_add(zone_ns)
}

pub(super) fn import_audit(
    settings: &ImportSettings,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    let mut identities = FileIdentities::default();
    for_each_line(input, progress, target, |target, line| {
        let Some((head, words)) = line.split_once("FSNamesystem.audit: ") else {
            target.note("lines that are no audit");
            return Ok(());
        };
        let fields: BTreeMap<&str, &str> = words.split('\t').filter_map(|field| field.split_once('=')).collect();
        // Some set-ups separate by blanks; then a path with a blank is cut.
        let fields = match fields.len() > 1 {
            true => fields,
            false => words.split(' ').filter_map(|field| field.split_once('=')).collect(),
        };
        let (time, command) = (logged_ns(head, settings.zone_ns), fields.get("cmd"));
        let (Some(time), Some(command)) = (time, command) else {
            target.note("lines of the audit without time or command");
            return Ok(());
        };
        let Some(kind) = audited(command) else {
            target.note("commands of administrators");
            return Ok(());
        };
        let named = |field: &str| fields.get(field).copied().filter(|path| path.starts_with('/'));
        let user = fields.get("ugi").map(|user| user.split(' ').next().unwrap_or_default().to_owned());
        let host = fields.get("ip").map(|ip| ip.trim_start_matches('/').to_owned());
        let mut row = TraceRow::new(time, kind, Gateway::Import);
        row.actor = Some(target.actor(TracedActor { uid: None, program: user, host }));
        row.path = named("src").map(|path| target.path(path.as_bytes(), input)).transpose()?;
        row.path2 = named("dst").map(|path| target.path(path.as_bytes(), input)).transpose()?;
        let is_allowed = fields.get("allowed").is_none_or(|allowed| *allowed == "true");
        match (is_allowed, row.path, kind) {
            (false, ..) => row.result = Reason::AccessDenied as u16,
            (true, Some(path), CallKind::Unlink) => row.inode = Some(identities.remove(path)),
            (true, Some(path), CallKind::Rename) => {
                row.inode = Some(match row.path2 {
                    Some(to) => identities.rename(path, to),
                    None => identities.remove(path),
                });
            }
            (true, Some(path), _) => row.inode = Some(identities.of(path)),
            (true, None, _) => {}
        }
        target.push(row)
    })
}

/// What a command of the audit log is; `None` for what no program asks for. The words are those of
/// `FSNamesystem.logAuditEvent` in Hadoop 3.4.
fn audited(command: &str) -> Option<CallKind> {
    // `rename (options=[TO_TRASH])`.
    Some(match command.split([' ', '(']).next().unwrap_or_default() {
        "open" => CallKind::Open,
        "create" => CallKind::Create,
        "append" | "truncate" => CallKind::Truncate,
        "delete" => CallKind::Unlink,
        "rename" => CallKind::Rename,
        "mkdirs" => CallKind::Mkdir,
        "listStatus" | "listCorruptFileBlocks" => CallKind::List,
        "getfileinfo" | "contentSummary" | "quotaUsage" | "isFileClosed" => CallKind::Stat,
        "setPermission" | "setOwner" | "setTimes" | "setReplication" | "setStoragePolicy" => CallKind::SetAttr,
        "createSymlink" => CallKind::Symlink,
        "concat" => CallKind::Join,
        "fsck" | "checkAccess" => CallKind::Access,
        "getXAttrs" => CallKind::XattrGet,
        "setXAttr" => CallKind::XattrSet,
        "listXAttrs" => CallKind::XattrList,
        "removeXAttr" => CallKind::XattrRemove,
        "createSnapshot" | "deleteSnapshot" | "renameSnapshot" => CallKind::Snapshot,
        _ => return None,
    })
}

/// Files of blocks, from `hdfs fsck / -files -blocks`: path, and where the block begins in it.
fn block_files(input: &Path, target: &mut ImportTarget<'_>) -> Result<BTreeMap<u64, (u64, u64)>, TraceFileError> {
    let (mut blocks, mut file) = (BTreeMap::new(), None);
    for_each_line(input, &mut |_| {}, target, |target, line| {
        if line.starts_with('/') {
            let path = line.split_once(" <dir>").map_or(line, |(path, _)| path);
            // `/path 123 bytes, replicated: replication=3, 1 block(s):  OK`
            let path =
                path.split(" bytes, ").next().and_then(|path| path.rsplit_once(' ')).map_or(path, |(path, _)| path);
            file = Some((target.path(path.as_bytes(), input)?, 0_u64));
        } else if let (Some((path, begin)), Some(block)) = (&mut file, block_number(line)) {
            blocks.insert(block, (*path, *begin));
            let len = line.split_once("len=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
            *begin += len.unwrap_or(0);
        }
        Ok(())
    })?;
    match blocks.is_empty() {
        true => Err(TraceFileError::bad(input, "it names no block: give the output of hdfs fsck / -files -blocks")),
        false => Ok(blocks),
    }
}

/// The number in `blk_1073741825_1001`.
fn block_number(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("blk_")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '-').next()?;
    digits.parse::<i64>().ok().map(|number| number as u64)
}

pub(super) fn import_transfers(
    settings: &ImportSettings,
    input: &Path,
    target: &mut ImportTarget<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), TraceFileError> {
    let files = settings.blocks.as_deref().map(|blocks| block_files(blocks, target)).transpose()?.unwrap_or_default();
    for_each_line(input, progress, target, |target, line| {
        let Some((head, words)) = line.split_once("clienttrace: ") else {
            target.note("lines that are no clienttrace");
            return Ok(());
        };
        let fields: BTreeMap<&str, &str> = words.split(", ").filter_map(|field| field.split_once(": ")).collect();
        let number = |name: &str| fields.get(name).and_then(|text| text.trim().parse::<u64>().ok());
        let kind = match fields.get("op") {
            Some(&"HDFS_READ") => CallKind::Read,
            Some(&"HDFS_WRITE") => CallKind::Write,
            _ => {
                target.note("clienttrace of other operations");
                return Ok(());
            }
        };
        let block = fields.get("blockid").and_then(|text| block_number(text));
        let (Some(end), Some(block), Some(bytes)) = (logged_ns(head, settings.zone_ns), block, number("bytes")) else {
            target.note("clienttrace without time, block or bytes");
            return Ok(());
        };
        let duration = number("duration(ns)").or_else(|| number("duration"));
        // The line is written when the transfer has ended.
        let start = end.saturating_sub(i64::try_from(duration.unwrap_or(0)).unwrap_or(0));
        let mut row = TraceRow::new(start, kind, Gateway::Import);
        row.duration_ns = duration;
        let offset = number("offset").unwrap_or(0);
        match files.get(&block) {
            Some((path, begin)) => {
                (row.inode, row.path, row.offset) = (Some(*path), Some(*path), Some(begin.saturating_add(offset)));
            }
            None => {
                target.note("blocks without a file: each is taken for one");
                (row.inode, row.offset) = (Some(block), Some(offset));
            }
        }
        (row.asked, row.got) = (Some(bytes), Some(bytes));
        let client = fields.get("cliID").map(|client| (*client).to_owned());
        let from = if kind == CallKind::Read { "dest" } else { "src" };
        let host = fields.get(from).map(|host| host.trim_start_matches('/').split(':').next().unwrap_or_default());
        let actor = TracedActor { uid: None, program: client, host: host.map(str::to_owned) };
        row.actor = Some(target.actor(actor));
        target.push(row)
    })
}
