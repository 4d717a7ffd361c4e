//! `read_at`: a file or directory as it was at an instant, in parts.

use frieze_client::{FileKind, Fs, OpenFlags, Target};

use crate::answers::{NameInDirectory, PastObject};
use crate::arguments::{READ_BYTES_DEFAULT, READ_BYTES_MAX, ReadAtArguments, limit_of};
use crate::error::ToolError;
use crate::scoped_path::ScopedPath;
use crate::tool_context::ToolContext;
use crate::words::{count, hex_unless_text, lossy, time_of};

/// One view of an exact instant for all that the answer holds.
pub(crate) fn read_at(context: &ToolContext, args: ReadAtArguments) -> Result<(String, PastObject), ToolError> {
    let path = context.path(args.path.as_deref(), args.path_hex.as_deref())?;
    let at = args.at.as_deref().map_or_else(|| context.now(), |text| context.instant(text))?;
    let fs = context.client()?.fs().at(at);
    let target = context.scope.target(std::slice::from_ref(&fs), &path)?;
    let found = fs.stat(&target).map_err(ToolError::about(path.to_string()))?;
    let (kind, time) = (found.attr.kind(), time_of(at));
    let mut object = PastObject {
        path: path.to_string(),
        at: at.to_string(),
        time: time.clone(),
        kind: kind.word(),
        size: found.attr.size,
        incomplete: found.answered.incomplete,
        ..PastObject::default()
    };
    let target = Target::inode(frieze_base::InodeId(found.attr.inode));
    let mut text = match kind {
        FileKind::File => bytes(&fs, &target, &path, &args, &mut object)?,
        FileKind::Directory => names(&fs, &target, &path, &args, &mut object)?,
        FileKind::Symlink => {
            let link = fs.read_link(&target).map_err(ToolError::about(path.to_string()))?;
            object.link = Some(lossy(&link));
            format!("a symbolic link to {:?}", lossy(&link))
        }
        _ => "which has no content to read".to_owned(),
    };
    if object.incomplete {
        text.push_str("; a power loss took some of what was acknowledged around then");
    }
    Ok((format!("{path} as of {time}: {text}."), object))
}

fn bytes(
    fs: &Fs,
    target: &Target,
    path: &ScopedPath,
    args: &ReadAtArguments,
    object: &mut PastObject,
) -> Result<String, ToolError> {
    let offset = args.offset.unwrap_or(0);
    let len = args.len.unwrap_or(READ_BYTES_DEFAULT).clamp(1, READ_BYTES_MAX);
    let left = usize::try_from(object.size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; left.min(len as usize)];
    if !bytes.is_empty() {
        let file = fs.open(target, OpenFlags::READ).map_err(ToolError::about(path.to_string()))?;
        let read = file.read_at(offset, &mut bytes).map_err(ToolError::about(path.to_string()))?;
        bytes.truncate(read);
    }
    // A letter that the end cuts begins the next part.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
        && offset + (bytes.len() as u64) < object.size
    {
        bytes.truncate(error.valid_up_to());
    }
    let end = offset.saturating_add(bytes.len() as u64);
    (object.offset, object.len) = (Some(offset), Some(bytes.len() as u64));
    object.next_offset = (end < object.size).then_some(end);
    let words = format!("{} from {offset} of {}", count(bytes.len() as u64, "byte"), object.size);
    match String::from_utf8(bytes) {
        Ok(text) => object.text = Some(text),
        Err(error) => object.base64 = Some(data_encoding::BASE64.encode(error.as_bytes())),
    }
    Ok(match object.next_offset {
        Some(next) => format!("{words}; the rest begins at offset {next}"),
        None => words,
    })
}

fn names(
    fs: &Fs,
    target: &Target,
    path: &ScopedPath,
    args: &ReadAtArguments,
    object: &mut PastObject,
) -> Result<String, ToolError> {
    let after = args.next.as_deref().map_or(Ok(Vec::new()), |next| {
        let wrong = |_| ToolError::Arguments(format!("next {next:?} is not the next of an earlier answer"));
        data_encoding::HEXLOWER.decode(next.as_bytes()).map_err(wrong)
    })?;
    let limit = limit_of(args.limit);
    let reply = fs.list(target, &after, limit, true).map_err(ToolError::about(path.to_string()))?;
    let entries = reply.entries.iter().map(|entry| NameInDirectory {
        name: lossy(&entry.name),
        name_hex: hex_unless_text(&entry.name),
        kind: entry.kind().word(),
        size: entry.attr.as_ref().filter(|_| entry.kind() == FileKind::File).map(|attr| attr.size),
    });
    object.entries = Some(entries.collect());
    let last = reply.entries.last().filter(|_| reply.more);
    object.next = last.map(|entry| data_encoding::HEXLOWER.encode(&entry.name));
    let words = format!("a directory; {} listed", count(reply.entries.len() as u64, "name"));
    Ok(if object.next.is_some() { format!("{words}, there are more: call again with next") } else { words })
}
