//! How a file is described: its attributes as JSON, and the words for its kind.

use frieze_client::{Acl, Attr, FileKind, InstantInfo, Rights};
use frieze_hlc::Hlc;
use serde_json::{Map, Value, json};

use crate::format;
use crate::past;
use crate::path::FsPath;
use crate::run::CommandRun;

/// The kind as the first letter of a mode.
pub(crate) fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    }
}

/// The fields of `frieze ls --json`: `path`, `name`, then the attributes.
pub(crate) fn to_json(path: &FsPath, attr: &Attr, link_text: Option<&[u8]>, answered: &InstantInfo) -> Value {
    let mut fields = Map::new();
    fields.insert("path".to_owned(), text(path.as_bytes()));
    fields.insert("name".to_owned(), text(path.name().unwrap_or(b"/")));
    // JSON has no bytes: a path that is not UTF-8 is given exactly beside its readable form.
    if std::str::from_utf8(path.as_bytes()).is_err() {
        fields.insert("path_hex".to_owned(), format::hex(path.as_bytes()).into());
    }
    let attributes = json!({
        "kind": attr.kind().word(),
        "inode": attr.inode,
        "mode": format!("{:04o}", attr.mode),
        "links": attr.links,
        "uid": attr.uid,
        "gid": attr.gid,
        "size": attr.size,
        "bytes_live": attr.bytes_live,
        "mtime": format::time_ns(attr.mtime_ns),
        "ctime": format::time_ns(attr.ctime_ns),
        "born": Hlc(attr.born).to_string(),
        "target": link_text.map(text),
        "time_plugin": plugin(attr),
        "changed": Hlc(attr.changed).to_string(),
        "has_acl": attr.has_acl,
    });
    if let Value::Object(attributes) = attributes {
        fields.extend(attributes);
    }
    let answered = past::to_json(answered);
    if !answered.is_null() {
        fields.insert("answered".to_owned(), answered);
    }
    Value::Object(fields)
}

/// The entries of an access list, as getfacl(1) shows them: `user:ann:rw-`.
pub(crate) fn acl(run: &mut CommandRun, acl: &Acl) -> Vec<String> {
    let mut entries = vec![format!("user::{}", Rights(acl.owner))];
    entries.extend(
        acl.users.iter().map(|named| format!("user:{}:{}", run.names.user(named.id), Rights(named.permissions))),
    );
    entries.push(format!("group::{}", Rights(acl.group)));
    entries.extend(
        acl.groups.iter().map(|named| format!("group:{}:{}", run.names.group(named.id), Rights(named.permissions))),
    );
    entries.extend(acl.mask.map(|mask| format!("mask::{}", Rights(mask))));
    entries.push(format!("other::{}", Rights(acl.other)));
    entries
}

/// The time plug-in, null where there is none.
pub(crate) fn plugin(attr: &Attr) -> Option<&str> {
    (!attr.time_plugin.is_empty()).then_some(attr.time_plugin.as_str())
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_path_that_is_not_text_is_given_exactly_too() {
        let path = FsPath::parse(OsStr::from_bytes(b"/a\xff")).unwrap();
        let fields = to_json(&path, &Attr::default(), None, &InstantInfo::default());
        assert_eq!(fields["path"], "/a\u{fffd}");
        assert_eq!(fields["path_hex"], "2f61ff");
        assert_eq!(fields.get("answered"), None, "a read of now says nothing of an instant");
    }

    #[test]
    fn fields_keep_their_names_and_their_order() {
        let path = FsPath::parse(OsStr::new("/d/f")).unwrap();
        let attr = Attr { kind: FileKind::Symlink as i32, mode: 0o777, inode: 7, ..Attr::default() };
        let answered = InstantInfo { at: Hlc::last_of_micros(1).0, was_stable: true, ..InstantInfo::default() };
        assert_eq!(
            to_json(&path, &attr, Some(b"t"), &answered).to_string(),
            "{\"path\":\"/d/f\",\"name\":\"f\",\"kind\":\"symlink\",\"inode\":7,\"mode\":\"0777\",\"links\":0,\
             \"uid\":0,\"gid\":0,\"size\":0,\"bytes_live\":0,\"mtime\":\"1970-01-01T00:00:00.000000Z\",\
             \"ctime\":\"1970-01-01T00:00:00.000000Z\",\"born\":\"hlc-0000000000000000\",\"target\":\"t\",\
             \"time_plugin\":null,\"changed\":\"hlc-0000000000000000\",\"has_acl\":false,\
             \"answered\":{\"at\":\"hlc-0000000000001fff\",\
             \"at_time\":\"1970-01-01T00:00:00.000001Z\",\"precision_us\":0,\"stable\":true,\"incomplete\":false,\
             \"user_time_open\":false,\"without_lease\":false,\"executed\":null}}"
        );
    }
}
