//! Answers in the JSON of WebHDFS.

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use frieze_hdfs::proto::{
    self, ACL_BIT, AclEntry, BlockStoragePolicy, ContentSummary, DatanodeInfo, FsServerDefaults, GetFsStatsResponse,
    HAS_ACL, HdfsFileStatus, LocatedBlock, LocatedBlocks, QuotaUsage, XAttr, acl_scope, acl_type, file_type,
    xattr_namespace,
};
use frieze_hdfs::{Exception, FileChecksum};
use serde_json::{Value, json};

use crate::web_request::invalid;

/// A file's attributes.
pub(crate) fn status(status: &HdfsFileStatus) -> Value {
    let kind = match status.file_type {
        file_type::DIRECTORY => "DIRECTORY",
        file_type::SYMLINK => "SYMLINK",
        _ => "FILE",
    };
    let mut told = json!({
        "accessTime": status.access_time,
        "blockSize": status.blocksize.unwrap_or(0),
        "fileId": status.file_id.unwrap_or(0),
        "group": status.group,
        "length": status.length,
        "modificationTime": status.modification_time,
        "owner": status.owner,
        "pathSuffix": String::from_utf8_lossy(&status.path),
        "permission": octal(status.permission.as_ref()),
        "replication": status.block_replication.unwrap_or(0),
        "storagePolicy": 0,
        "type": kind,
    });
    if status.flags.is_some_and(|flags| flags & HAS_ACL != 0) {
        told["aclBit"] = json!(true);
    }
    match status.file_type {
        // The number of children is not counted.
        file_type::DIRECTORY => {}
        file_type::SYMLINK => told["symlink"] = json!(""),
        _ => told["childrenNum"] = json!(0),
    }
    told
}

/// Directories that have snapshots.
pub(crate) fn snapshotted_directories(list: &proto::SnapshottableDirectoryListing) -> Value {
    let told = list.listing.iter().map(|directory| {
        json!({
            "dirStatus": status(&directory.dir_status.clone().unwrap_or_default()),
            "parentFullPath": String::from_utf8_lossy(&directory.parent_fullpath),
            "snapshotNumber": directory.snapshot_number,
            "snapshotQuota": directory.snapshot_quota,
        })
    });
    json!({ "SnapshottableDirectoryList": told.collect::<Vec<_>>() })
}

/// The snapshots of a directory.
pub(crate) fn snapshots(list: &proto::SnapshotListing) -> Value {
    let told = list.listing.iter().map(|snapshot| {
        json!({
            "dirStatus": status(&snapshot.dir_status.clone().unwrap_or_default()),
            "parentFullPath": String::from_utf8_lossy(&snapshot.parent_fullpath),
            "snapshotID": snapshot.snapshot_id,
            "deletionStatus": if snapshot.is_deleted { "DELETED" } else { "ACTIVE" },
        })
    });
    json!({ "SnapshotList": told.collect::<Vec<_>>() })
}

/// What is different between two snapshots.
pub(crate) fn snapshot_diff(report: &proto::SnapshotDiffReport) -> Value {
    let told = report.entries.iter().map(|entry| {
        let target = entry.target_path.as_ref().map(|path| String::from_utf8_lossy(path).into_owned());
        json!({
            "sourcePath": String::from_utf8_lossy(&entry.fullpath),
            "targetPath": target.unwrap_or_default(),
            "type": match entry.modification_label.as_str() {
                "+" => "CREATE",
                "-" => "DELETE",
                "R" => "RENAME",
                _ => "MODIFY",
            },
        })
    });
    json!({ "SnapshotDiffReport": {
        "diffList": told.collect::<Vec<_>>(),
        "fromSnapshot": report.from_snapshot,
        "snapshotRoot": report.snapshot_root,
        "toSnapshot": report.to_snapshot,
    } })
}

/// Permission bits.
pub(crate) fn octal(permission: Option<&proto::FsPermission>) -> String {
    format!("{:o}", permission.map_or(0, |permission| permission.perm & !ACL_BIT))
}

/// Totals below a path.
pub(crate) fn content_summary(summary: &ContentSummary) -> Value {
    json!({ "ContentSummary": {
        "directoryCount": summary.directory_count,
        "fileCount": summary.file_count,
        "length": summary.length,
        "quota": signed(summary.quota),
        "spaceConsumed": summary.space_consumed,
        "spaceQuota": signed(summary.space_quota),
        "typeQuota": {},
    } })
}

/// The same as a quota usage.
pub(crate) fn quota_usage(usage: &QuotaUsage) -> Value {
    json!({ "QuotaUsage": {
        "fileAndDirectoryCount": usage.file_and_directory_count,
        "quota": signed(usage.quota),
        "spaceConsumed": usage.space_consumed,
        "spaceQuota": signed(usage.space_quota),
        "typeQuota": {},
    } })
}

/// A checksum.
pub(crate) fn checksum(checksum: &FileChecksum) -> Value {
    json!({ "FileChecksum": {
        "algorithm": checksum.algorithm,
        "bytes": HEXLOWER.encode(&checksum.bytes),
        "length": checksum.bytes.len(),
    } })
}

/// Defaults for programs.
pub(crate) fn server_defaults(defaults: &FsServerDefaults) -> Value {
    json!({ "FsServerDefaults": {
        "replication": defaults.replication,
        "encryptDataTransfer": defaults.encrypt_data_transfer.unwrap_or(false),
        "defaultStoragePolicyId": 7,
        "writePacketSize": defaults.write_packet_size,
        "fileBufferSize": defaults.file_buffer_size,
        "checksumType": defaults.checksum_type.unwrap_or(0),
        "trashInterval": defaults.trash_interval.unwrap_or(0),
        "keyProviderUri": defaults.key_provider_uri.as_deref().unwrap_or_default(),
        "blockSize": defaults.block_size,
        "bytesPerChecksum": defaults.bytes_per_checksum,
    } })
}

/// Capacity and free space.
pub(crate) fn fs_status(stats: &GetFsStatsResponse) -> Value {
    json!({ "FsStatus": { "used": stats.used, "remaining": stats.remaining, "capacity": stats.capacity } })
}

/// Owner, mode and the entries of access lists that the mode does not imply.
pub(crate) fn acl_status(acl: &proto::AclStatus) -> Value {
    json!({ "AclStatus": {
        "entries": acl.entries.iter().map(acl_entry).collect::<Vec<_>>(),
        "group": acl.group,
        "owner": acl.owner,
        "permission": octal(acl.permission.as_ref()),
        "stickyBit": acl.sticky,
    } })
}

/// `default:user:name:rwx`.
fn acl_entry(entry: &AclEntry) -> String {
    let scope = if entry.scope == acl_scope::DEFAULT { "default:" } else { "" };
    let (kind, _) = ACL_TYPES[usize::try_from(entry.kind).unwrap_or_default() % ACL_TYPES.len()];
    let letter = |bit: i32, letter: char| if entry.permissions & bit != 0 { letter } else { '-' };
    let name = entry.name.as_deref().unwrap_or_default();
    format!("{scope}{kind}:{name}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
}

/// Parses `aclspec`: entries separated by commas. Entries to remove need no permissions.
pub(crate) fn acl_spec(text: &str, with_permissions: bool) -> Result<Vec<AclEntry>, Exception> {
    let wrong = || Exception::illegal_argument(format!("Invalid <aclSpec> : {text}"));
    let entry = |entry: &str| {
        let (scope, rest) = match entry.strip_prefix("default:") {
            Some(rest) => (acl_scope::DEFAULT, rest),
            None => (acl_scope::ACCESS, entry),
        };
        let words: Vec<&str> = rest.split(':').collect();
        let (_, kind) = ACL_TYPES.iter().find(|(name, _)| *name == words[0]).ok_or_else(wrong)?;
        let name = words.get(1).filter(|name| !name.is_empty()).map(|name| (*name).to_owned());
        let permissions = match (words.get(2), with_permissions) {
            (Some(text), true) if words.len() == 3 => rwx(text).ok_or_else(wrong)?,
            (None | Some(&""), false) if words.len() <= 3 => 0,
            _ => return Err(wrong()),
        };
        Ok(AclEntry { kind: *kind, scope, permissions, name })
    };
    text.split(',').map(str::trim).filter(|text| !text.is_empty()).map(entry).collect()
}

/// `rw-`.
fn rwx(text: &str) -> Option<i32> {
    let letters = <[u8; 3]>::try_from(text.as_bytes()).ok()?;
    let bits = letters.into_iter().zip([(b'r', 4), (b'w', 2), (b'x', 1)]);
    bits.map(|(found, (letter, bit))| match found {
        b'-' => Some(0),
        found => (found.to_ascii_lowercase() == letter).then_some(bit),
    })
    .sum()
}

/// A storage policy.
pub(crate) fn storage_policy(policy: &BlockStoragePolicy) -> Value {
    json!({
        "id": policy.policy_id,
        "name": policy.name,
        "storageTypes": ["DISK"],
        "creationFallbacks": [],
        "replicationFallbacks": [],
        "copyOnCreateFile": false,
    })
}

/// Locations of blocks, for schedulers.
pub(crate) fn block_locations(located: &LocatedBlocks) -> Value {
    let told = located.blocks.iter().map(|block| {
        json!({
            "cachedHosts": [],
            "corrupt": block.corrupt,
            "hosts": each(block, |place| json!(place.id.as_ref().map(|id| id.host_name.as_str()))),
            "length": len_of(block),
            "names": each(block, |place| json!(address_of(place))),
            "offset": block.offset,
            "storageTypes": each(block, |_| json!("DISK")),
            "topologyPaths": each(block, |place| json!(format!("{}/{}", rack_of(place), address_of(place)))),
        })
    });
    json!({ "BlockLocations": { "BlockLocation": told.collect::<Vec<_>>() } })
}

/// The same as Hadoop's own clients encode them.
pub(crate) fn located_blocks(located: &LocatedBlocks) -> Value {
    json!({ "LocatedBlocks": {
        "fileLength": located.file_length,
        "isLastBlockComplete": located.is_last_block_complete,
        "isUnderConstruction": located.under_construction,
        "lastLocatedBlock": located.last_block.as_ref().map(located_block),
        "locatedBlocks": located.blocks.iter().map(located_block).collect::<Vec<_>>(),
    } })
}

fn located_block(block: &LocatedBlock) -> Value {
    let named = block.b.clone().unwrap_or_default();
    json!({
        "block": {
            "blockId": named.block_id,
            "blockPoolId": named.pool_id,
            "generationStamp": named.generation_stamp,
            "numBytes": len_of(block),
        },
        // An empty token, without a right: bytes are read by OPEN.
        "blockToken": { "urlString": BASE64URL_NOPAD.encode(&[0; 4]) },
        "cachedLocations": [],
        "isCorrupt": block.corrupt,
        "locations": each(block, datanode),
        "startOffset": block.offset,
        "storageTypes": each(block, |_| json!("DISK")),
    })
}

fn datanode(place: &DatanodeInfo) -> Value {
    let id = place.id.clone().unwrap_or_default();
    json!({
        "name": address_of(place),
        "ipAddr": id.ip_addr,
        "hostName": id.host_name,
        "storageID": id.datanode_uuid,
        "xferPort": id.xfer_port,
        "infoPort": id.info_port,
        "infoSecurePort": 0,
        "ipcPort": id.ipc_port,
        "capacity": place.capacity.unwrap_or(0),
        "dfsUsed": place.dfs_used.unwrap_or(0),
        "remaining": place.remaining.unwrap_or(0),
        "blockPoolUsed": 0,
        "lastUpdate": 0,
        "lastUpdateMonotonic": 0,
        "xceiverCount": 0,
        "networkLocation": rack_of(place),
        "adminState": "NORMAL",
    })
}

fn each(block: &LocatedBlock, tell: impl Fn(&DatanodeInfo) -> Value) -> Vec<Value> {
    block.locs.iter().map(tell).collect()
}

fn len_of(block: &LocatedBlock) -> u64 {
    block.b.as_ref().and_then(|named| named.num_bytes).unwrap_or(0)
}

fn address_of(place: &DatanodeInfo) -> String {
    place.id.as_ref().map_or(String::new(), |id| format!("{}:{}", id.ip_addr, id.xfer_port))
}

fn rack_of(place: &DatanodeInfo) -> &str {
    place.location.as_deref().unwrap_or("/default-rack")
}

/// Extended attributes with their values, in the requested encoding; without one as text if possible.
pub(crate) fn xattrs(xattrs: &[XAttr], encoding: Option<&str>) -> Result<Value, Exception> {
    let told = xattrs.iter().map(|xattr| {
        let value = xattr.value.as_deref().unwrap_or_default();
        Ok(json!({ "name": full_name(xattr), "value": encoded(value, encoding)? }))
    });
    Ok(json!({ "XAttrs": told.collect::<Result<Vec<_>, Exception>>()? }))
}

/// Their names: a list encoded in a string.
pub(crate) fn xattr_names(xattrs: &[XAttr]) -> Value {
    let names: Vec<String> = xattrs.iter().map(full_name).collect();
    json!({ "XAttrNames": json!(names).to_string() })
}

/// Parses an attribute with its namespace.
pub(crate) fn xattr_named(name: &str, value: Option<&str>) -> Result<XAttr, Exception> {
    let parts = name.split_once('.').filter(|(_, rest)| !rest.is_empty());
    let found = parts.and_then(|(prefix, rest)| {
        let known = NAMESPACES.iter().find(|(_, known)| prefix.eq_ignore_ascii_case(known));
        known.map(|(namespace, _)| (*namespace, rest))
    });
    let (namespace, rest) = found.ok_or_else(|| {
        Exception::illegal_argument(
            "An XAttr name must be prefixed with user/trusted/security/system/raw, followed by a '.'",
        )
    })?;
    let value = value.map(decoded).transpose()?;
    Ok(XAttr { namespace, name: rest.to_owned(), value })
}

fn full_name(xattr: &XAttr) -> String {
    let prefix = NAMESPACES.iter().find(|(namespace, _)| *namespace == xattr.namespace);
    format!("{}.{}", prefix.map_or("user", |(_, prefix)| prefix), xattr.name)
}

fn encoded(value: &[u8], encoding: Option<&str>) -> Result<String, Exception> {
    let text = |text: &str| format!("\"{text}\"");
    let hex = || format!("0x{}", HEXLOWER.encode(value));
    match encoding.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(std::str::from_utf8(value).map_or_else(|_| hex(), text)),
        Some("text") => Ok(text(&String::from_utf8_lossy(value))),
        Some("hex") => Ok(hex()),
        Some("base64") => Ok(format!("0s{}", BASE64.encode(value))),
        Some(other) => Err(invalid("encoding", other, "it is text, hex or base64")),
    }
}

fn decoded(text: &str) -> Result<Vec<u8>, Exception> {
    let failed = |_| invalid("xattr.value", text, "it is no hexadecimal or base 64 number");
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).map_err(failed);
    }
    if let Some(base64) = text.strip_prefix("0s").or_else(|| text.strip_prefix("0S")) {
        return BASE64.decode(base64.as_bytes()).map_err(failed);
    }
    let inside = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    Ok(inside.unwrap_or(text).as_bytes().to_vec())
}

/// Absent values are -1.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(-1)
}

/// The namespaces of Hadoop. The HDFS gateway supports some of them.
const NAMESPACES: &[(i32, &str)] = &[
    (xattr_namespace::USER, "user"),
    (xattr_namespace::TRUSTED, "trusted"),
    (xattr_namespace::SECURITY, "security"),
    (3, "system"),
    (4, "raw"),
];

/// Kinds of entries of access lists, in the order of their numbers.
const ACL_TYPES: [(&str, i32); 4] =
    [("user", acl_type::USER), ("group", acl_type::GROUP), ("mask", acl_type::MASK), ("other", acl_type::OTHER)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_attributes_go_there_and_back_in_every_encoding() {
        for encoding in [None, Some("text"), Some("HEX"), Some("base64")] {
            let written = encoded(b"a \"b\"", encoding).unwrap();
            assert_eq!(decoded(&written).unwrap(), b"a \"b\"", "{encoding:?}: {written}");
        }
        assert_eq!(encoded(&[0xff, 0], None).unwrap(), "0xff00");
        assert_eq!(decoded("plain").unwrap(), b"plain");
        assert!(decoded("0xzz").is_err() && decoded("0s*").is_err() && encoded(b"", Some("rot13")).is_err());
    }

    #[test]
    fn an_attribute_is_named_with_a_namespace() {
        let named = xattr_named("User.a.b", Some("0x01")).unwrap();
        assert_eq!((named.namespace, named.name.as_str(), named.value), (xattr_namespace::USER, "a.b", Some(vec![1])));
        for wrong in ["a", "user", "user.", ".a", "other.a"] {
            assert!(xattr_named(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn any_text_is_the_value_of_an_attribute_or_an_exception() {
        frieze_harness::fuzz!(["\"text\"", "0x00ff", "0sAQID", "plain"], |bytes: &[u8]| {
            let Some(Ok(value)) = std::str::from_utf8(bytes).ok().map(decoded) else { return };
            for encoding in ["hex", "base64"] {
                let Ok(text) = encoded(&value, Some(encoding)) else { panic!("bytes have such a text") };
                assert_eq!(decoded(&text).ok(), Some(value.clone()));
            }
        });
    }
}
