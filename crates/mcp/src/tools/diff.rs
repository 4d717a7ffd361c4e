//! `diff`: the differences between two instants, with the lines of text files.

use frieze_base::Reason;
use frieze_client::{Difference, FileKind, Fs, HistoryInterval, Hlc, OpenFlags, Side, Target, flags};
use similar::TextDiff;

use crate::answers::{Authors, Change, ChangePage};
use crate::arguments::{DiffArguments, limit_of};
use crate::error::ToolError;
use crate::page_cursor::PageCursor;
use crate::tool_context::ToolContext;
use crate::words::{count, lossy};

/// Longest file of which lines are compared.
const TEXT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of lines of one file in an answer.
const FILE_LINES_BYTES_MAX: usize = 32 << 10;
/// Bytes of lines of all files in an answer.
const LINES_BYTES_MAX: usize = 64 << 10;
/// Bytes of files that one answer compares: a call ends in seconds.
const COMPARED_BYTES_MAX: u64 = 16 << 20;

/// One page of the server, and the two states of each text file in it.
pub(crate) fn diff(context: &ToolContext, args: DiffArguments) -> Result<(String, ChangePage), ToolError> {
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    let limit = limit_of(args.limit);
    let position = context.position(args.next.as_deref(), args.from.as_deref(), args.to.as_deref(), limit)?;
    let interval = HistoryInterval { after: position.after, upto: position.upto };
    let (fs, target) = context.target_in(&path, interval)?;
    let reply = fs.diff(&target, interval, position.skip, position.page).map_err(ToolError::about(path.to_string()))?;
    let mut authors = Authors::default();
    authors.learn(reply.sessions);
    let mut lines = DiffLines { fs: &fs, interval, bytes: 0, compared: 0 };
    let mut changes = Vec::new();
    for difference in &reply.differences {
        let Some(mut change) = Change::of(&context.scope, &authors, difference) else { continue };
        if args.text != Some(false) && change.kind == "file" {
            lines.put(context, difference, &mut change)?;
        }
        changes.push(change);
    }
    let read = reply.differences.len() as u64;
    let next = (reply.more && read > 0).then(|| PageCursor { skip: position.skip + read, ..position }.to_string());
    let text = format!(
        "{} between {} and {}{}.",
        count(changes.len() as u64, "difference"),
        interval.after,
        interval.upto,
        if next.is_some() { "; there are more: call again with next" } else { "" }
    );
    let (from, to) = (interval.after.to_string(), interval.upto.to_string());
    Ok((text, ChangePage { changes, from, to, next, hidden: reply.hidden, forgotten_before: None }))
}

/// The lines of an answer.
struct DiffLines<'a> {
    fs: &'a Fs,
    interval: HistoryInterval,
    bytes: usize,
    compared: u64,
}

impl DiffLines<'_> {
    /// Adds the lines of a difference, as far as the answer has room.
    fn put(&mut self, context: &ToolContext, difference: &Difference, change: &mut Change) -> Result<(), ToolError> {
        let sides = [&difference.before, &difference.after];
        if difference.flags & (flags::CONTENT | flags::REPLACED) == 0 && sides.iter().all(|side| side.is_some()) {
            return Ok(());
        }
        let sizes: Vec<u64> = sides.iter().filter_map(|side| side.as_ref()).map(|side| side.size).collect();
        if sizes.iter().any(|size| *size > TEXT_BYTES_MAX) {
            change.text_omitted = Some("too-long");
            return Ok(());
        }
        self.compared += sizes.iter().sum::<u64>();
        if self.bytes >= LINES_BYTES_MAX || self.compared > COMPARED_BYTES_MAX {
            change.text_omitted = Some("budget");
            return Ok(());
        }
        let mut texts = Vec::new();
        for (side, at) in sides.into_iter().zip([self.interval.after, self.interval.upto]) {
            match side.as_ref().filter(|side| context.scope.shows(&side.path)) {
                None => texts.push(("/dev/null".to_owned(), String::new())),
                Some(side) => match self.text_of(side, at)? {
                    Some(text) => texts.push((lossy(&side.path), text)),
                    None => {
                        change.text_omitted = Some("binary");
                        return Ok(());
                    }
                },
            }
        }
        let [(old_path, old), (new_path, new)] = &texts[..] else { return Ok(()) };
        let compared = TextDiff::from_lines(old, new);
        let mut text = compared.unified_diff().header(old_path, new_path).to_string();
        if text.len() > FILE_LINES_BYTES_MAX {
            text.truncate(text.floor_char_boundary(FILE_LINES_BYTES_MAX));
            change.text_omitted = Some("cut");
        }
        self.bytes += text.len();
        change.text = (!text.is_empty()).then_some(text);
        Ok(())
    }

    /// The text of a file at an instant; none if it is no text, or the caller may not read it.
    fn text_of(&self, side: &Side, at: Hlc) -> Result<Option<String>, ToolError> {
        if side.kind() != FileKind::File {
            return Ok(None);
        }
        let target = Target { follow: false, ..Target::path(side.path.clone()) };
        let subject = lossy(&side.path);
        let file = match self.fs.at(at).open(&target, OpenFlags::READ) {
            Ok(file) => file,
            Err(error) if error.reason() == Reason::AccessDenied => return Ok(None),
            Err(error) => return Err(ToolError::Client { subject, source: error }),
        };
        let mut bytes = vec![0; usize::try_from(side.size).expect("it is at most TEXT_BYTES_MAX")];
        let len = file.read_at(0, &mut bytes).map_err(ToolError::about(subject))?;
        bytes.truncate(len);
        Ok(String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')))
    }
}
