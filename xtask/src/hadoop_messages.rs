//! `cargo xtask hadoop-messages`: our definitions of Hadoop's messages have the numbers of Hadoop's own.
//!
//! Standard input is what `tests/hdfs/Descriptors.java` prints of the generated classes in Hadoop's jars; our side is
//! read from the source of `crates/hdfs/src/proto`. `tests/hdfs/messages.py` puts the two together.
//!
//! Guarantees: every field of every message of ours has the number, the label and the type of a field of its
//! counterpart, and every constant the number of its value; a field that its counterpart requires is in ours. One
//! difference of labels is allowed: a message that Hadoop requires may be optional here, because prost reads an absent
//! required message as an empty one, and the gateway refuses it by name.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use syn::{Attribute, Fields, Item, Meta, Type};

/// Where our definitions are, from the root of the workspace.
const SOURCE: &str = "crates/hdfs/src/proto";

/// Messages of ours whose counterparts are not their name with `Proto` behind it. One message stands in for several
/// that are alike.
const COUNTERPARTS: &[(&str, &[&str])] = &[
    (
        "AclRequest",
        &[
            "ModifyAclEntriesRequestProto",
            "RemoveAclEntriesRequestProto",
            "RemoveAclRequestProto",
            "RemoveDefaultAclRequestProto",
            "SetAclRequestProto",
        ],
    ),
    (
        "AddBlockResponse",
        &["AddBlockResponseProto", "GetAdditionalDatanodeResponseProto", "UpdateBlockForPipelineResponseProto"],
    ),
    ("DatanodeId", &["DatanodeIDProto"]),
    ("GetFsEcBlockGroupStatsResponse", &["GetFsECBlockGroupStatsResponseProto"]),
    ("HaServiceStateResponse", &["HAServiceStateResponseProto"]),
    (
        "NoneListed",
        &[
            "ListCacheDirectivesResponseProto",
            "ListCachePoolsResponseProto",
            "ListEncryptionZonesResponseProto",
            "ListReencryptionStatusResponseProto",
        ],
    ),
    ("NumberResponse", &["GetPreferredBlockSizeResponseProto", "GetReplicaVisibleLengthResponseProto"]),
    ("OpenFilesBatch", &["OpenFilesBatchResponseProto"]),
    (
        "PathRequest",
        &[
            "AllowSnapshotRequestProto",
            "DisallowSnapshotRequestProto",
            "GetAclStatusRequestProto",
            "GetContentSummaryRequestProto",
            "GetFileInfoRequestProto",
            "GetFileLinkInfoRequestProto",
            "GetPreferredBlockSizeRequestProto",
            "GetQuotaUsageRequestProto",
            "GetSnapshotListingRequestProto",
            "GetStoragePolicyRequestProto",
            "IsFileClosedRequestProto",
            "ListXAttrsRequestProto",
        ],
    ),
    (
        "ResultResponse",
        &[
            "CompleteResponseProto",
            "DeleteResponseProto",
            "IsFileClosedResponseProto",
            "MkdirsResponseProto",
            "RecoverLeaseResponseProto",
            "RenameResponseProto",
            "SetReplicationResponseProto",
            "SetSafeModeResponseProto",
            "TruncateResponseProto",
        ],
    ),
    ("SaslAuth", &["SaslAuth"]),
    ("SetXAttrRequest", &["RemoveXAttrRequestProto", "SetXAttrRequestProto"]),
    ("XAttrsRequest", &["GetXAttrsRequestProto"]),
    ("XAttrsResponse", &["GetXAttrsResponseProto", "ListXAttrsResponseProto"]),
];

/// The enumeration that a module of constants is, and what its values have before the names of the constants. The empty
/// module has the constants outside of all modules.
const ENUMERATIONS: &[(&str, &str, &str)] = &[
    ("", "Flags", ""),
    ("", "HAServiceStateProto", ""),
    ("", "RpcKindProto", ""),
    ("", "SafeModeActionProto", ""),
    ("", "StorageTypeProto", ""),
    ("acl_scope", "AclEntryScopeProto", ""),
    ("acl_type", "AclEntryTypeProto", ""),
    ("block_checksum", "BlockChecksumTypeProto", ""),
    ("checksum", "ChecksumTypeProto", "CHECKSUM_"),
    ("create_flag", "CreateFlagProto", ""),
    ("file_type", "FileType", "IS_"),
    ("open_files", "OpenFilesTypeProto", ""),
    ("rpc_error", "RpcErrorCodeProto", "ERROR_"),
    ("rpc_error", "RpcErrorCodeProto", "FATAL_"),
    ("rpc_status", "RpcStatusProto", ""),
    ("sasl", "SaslState", ""),
    ("stage", "BlockConstructionStage", "PIPELINE_"),
    ("status", "Status", ""),
    ("xattr_flag", "XAttrSetFlagProto", "XATTR_"),
    ("xattr_namespace", "XAttrNamespaceProto", ""),
];

/// Constants that have another name in Hadoop, or are of no enumeration there: then without one.
const OTHER_NAMES: &[(&str, Option<&str>)] = &[
    // A bit of a number in `FsPermissionExtension`, which is no generated class.
    ("ACL_BIT", None),
    ("ALL", Some("ALL_OPEN_FILES")),
    ("DIRECTORY", Some("DIR")),
    ("MD5_OF_CRCS", Some("MD5CRC")),
];

/// Messages and values by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Definitions {
    /// The fields of each message, by number.
    messages: BTreeMap<String, BTreeMap<u32, MessageField>>,
    /// The values of each enumeration, or the constants of each module, by name.
    values: BTreeMap<String, BTreeMap<String, i64>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MessageField {
    name: String,
    /// `optional`, `required`, `repeated` or `packed`.
    label: String,
    /// The wire's: `uint64`, `enum`.
    wire_type: String,
    /// Which message or enumeration; empty for a plain value.
    of: String,
}

/// Compares our definitions with the table on standard input. Returns the differences, a line each.
pub(crate) fn run(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("the table of Hadoop's messages cannot be read")?;
    let (ours, theirs) = (ours(root)?, theirs(&text)?);
    ensure!(
        !theirs.messages.is_empty(),
        "standard input has no messages: pipe what tests/hdfs/Descriptors.java prints"
    );
    let fields: usize = ours.messages.values().map(BTreeMap::len).sum();
    let values: usize = ours.values.values().map(BTreeMap::len).sum();
    println!("{} messages with {fields} fields, {values} values of enumerations", ours.messages.len());
    Ok(differences(&ours, &theirs))
}

/// Reads what `Descriptors.java` prints.
fn theirs(text: &str) -> anyhow::Result<Definitions> {
    let mut all = Definitions::default();
    for line in text.lines() {
        let malformed = || format!("no line of a table of messages: {line}");
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["message", message] => drop(all.messages.entry((*message).to_owned()).or_default()),
            ["field", message, number, label, wire_type, name, of @ ..] => {
                let [label, wire_type, name, of] =
                    [*label, *wire_type, *name, of.first().copied().unwrap_or("")].map(str::to_owned);
                let field = MessageField { name, label, wire_type, of };
                let number = number.parse().with_context(malformed)?;
                all.messages.entry((*message).to_owned()).or_default().insert(number, field);
            }
            ["value", enumeration, number, name] => {
                let number = number.parse().with_context(malformed)?;
                all.values.entry((*enumeration).to_owned()).or_default().insert((*name).to_owned(), number);
            }
            _ => bail!(malformed()),
        }
    }
    Ok(all)
}

/// Reads our source.
fn ours(root: &Path) -> anyhow::Result<Definitions> {
    let mut all = Definitions::default();
    let mut paths = vec![root.join(SOURCE).with_extension("rs")];
    sources(&root.join(SOURCE), &mut paths)?;
    for path in paths {
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        add_source(&text, &mut all).with_context(|| path.display().to_string())?;
    }
    ensure!(!all.messages.is_empty(), "there are no messages in {SOURCE}");
    Ok(all)
}

fn sources(folder: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("{} cannot be listed", folder.display()))? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sources(&entry.path(), into)?,
            false => into.push(entry.path()),
        }
    }
    Ok(())
}

fn add_source(text: &str, all: &mut Definitions) -> anyhow::Result<()> {
    for item in syn::parse_file(text)?.items {
        match item {
            Item::Struct(message) => {
                let mut fields = BTreeMap::new();
                let Fields::Named(named) = &message.fields else { bail!("{} is no message", message.ident) };
                for field in &named.named {
                    let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    let (number, field) = field_of(&name, &field.attrs, &field.ty)
                        .with_context(|| format!("{}.{name}", message.ident))?;
                    ensure!(fields.insert(number, field).is_none(), "{} has number {number} twice", message.ident);
                }
                all.messages.insert(message.ident.to_string(), fields);
            }
            Item::Const(constant) => add_constant("", &constant, all)?,
            Item::Mod(module) => {
                for item in module.content.into_iter().flat_map(|(_, items)| items) {
                    let Item::Const(constant) = item else { bail!("{} holds constants alone", module.ident) };
                    add_constant(&module.ident.to_string(), &constant, all)?;
                }
            }
            Item::Use(_) | Item::Type(_) => {}
            _ => bail!("an item that is neither a message nor a constant"),
        }
    }
    Ok(())
}

fn add_constant(module: &str, constant: &syn::ItemConst, all: &mut Definitions) -> anyhow::Result<()> {
    let name = constant.ident.to_string();
    if OTHER_NAMES.iter().any(|(ours, theirs)| *ours == name && theirs.is_none()) {
        return Ok(());
    }
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(number), .. }) = &*constant.expr else {
        bail!("{name} is no plain number")
    };
    all.values.entry(module.to_owned()).or_default().insert(name, number.base10_parse()?);
    Ok(())
}

/// A field by its attribute `#[prost(TYPE, LABEL, tag = "NUMBER")]`.
fn field_of(name: &str, attributes: &[Attribute], rust_type: &Type) -> anyhow::Result<(u32, MessageField)> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("prost"));
    let Some(Meta::List(list)) = attribute.map(|attribute| &attribute.meta) else { bail!("no attribute `prost`") };
    let tokens = list.tokens.to_string().replace(' ', "");
    let (mut number, mut label, mut wire_type) = (None, None, None);
    for word in tokens.split(',') {
        match word.split_once('=').map_or((word, ""), |(key, value)| (key, value.trim_matches('"'))) {
            ("tag", value) => number = Some(value.parse()?),
            ("packed", value) => ensure!(value == "false", "a list of Hadoop's is not packed"),
            (word @ ("optional" | "required" | "repeated"), "") => label = Some(word.to_owned()),
            (word, _) => wire_type = Some(word.to_owned()),
        }
    }
    let (number, label) = (number.context("no number")?, label.context("no label")?);
    let wire_type = wire_type.context("no type")?;
    let is_list_of_numbers = label == "repeated" && !["message", "string", "bytes"].contains(&wire_type.as_str());
    // prost packs a list of numbers unless an attribute says otherwise.
    let label = if is_list_of_numbers && !tokens.contains("packed=") { "packed".to_owned() } else { label };
    let of = if wire_type == "message" { innermost(rust_type).context("no message")? } else { String::new() };
    Ok((number, MessageField { name: name.to_owned(), label, wire_type, of }))
}

/// `Token` of `Option<Token>`, `Vec<Token>` and `Token`.
fn innermost(rust_type: &Type) -> Option<String> {
    let Type::Path(path) = rust_type else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        syn::PathArguments::AngleBracketed(arguments) => match arguments.args.first()? {
            syn::GenericArgument::Type(inner) => innermost(inner),
            _ => None,
        },
        _ => Some(last.ident.to_string()),
    }
}

fn counterparts(message: &str) -> Vec<String> {
    match COUNTERPARTS.iter().find(|(ours, _)| *ours == message) {
        Some((_, theirs)) => theirs.iter().map(|name| (*name).to_owned()).collect(),
        None => vec![format!("{message}Proto")],
    }
}

fn differences(ours: &Definitions, theirs: &Definitions) -> Vec<String> {
    let mut wrong = Vec::new();
    for (message, fields) in &ours.messages {
        let names = counterparts(message);
        for name in &names {
            match theirs.messages.get(name) {
                Some(there) => wrong.extend(compare_message(message, fields, name, there)),
                None => wrong.push(format!("{message}: Hadoop has no message {name}")),
            }
        }
        for (number, field) in fields {
            let is_known = |name| theirs.messages.get(name).is_some_and(|there| there.contains_key(number));
            if !names.iter().any(is_known) {
                wrong.push(format!("{message}.{} = {number}: {} has no such number", field.name, names.join(", ")));
            }
        }
    }
    for (module, constants) in &ours.values {
        for (name, number) in constants {
            wrong.extend(compare_constant(module, name, *number, theirs));
        }
    }
    wrong
}

/// What two messages differ in, where both have a field.
fn compare_message(
    message: &str,
    fields: &BTreeMap<u32, MessageField>,
    counterpart: &str,
    there: &BTreeMap<u32, MessageField>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, theirs) in there {
        let at = format!("{message} = {counterpart}, number {number} ({})", theirs.name);
        let Some(ours) = fields.get(number) else {
            if theirs.label == "required" {
                wrong.push(format!("{at}: it is required there, and missing here"));
            }
            continue;
        };
        let may_be_absent =
            theirs.wire_type == "message" && (ours.label.as_str(), theirs.label.as_str()) == ("optional", "required");
        if ours.label != theirs.label && !may_be_absent {
            wrong.push(format!("{at}: {} there, {} here", theirs.label, ours.label));
        }
        // An enumeration is a plain number here: the same bytes.
        let wire_type = if theirs.wire_type == "enum" { "int32" } else { &theirs.wire_type };
        if ours.wire_type != wire_type {
            wrong.push(format!("{at}: {wire_type} there, {} here", ours.wire_type));
        }
        if theirs.wire_type == "message" && !counterparts(&ours.of).contains(&theirs.of) {
            wrong.push(format!("{at}: a {} there, a {} here", theirs.of, ours.of));
        }
    }
    wrong
}

/// What a constant differs in from the value of its enumeration.
fn compare_constant(module: &str, name: &str, number: i64, theirs: &Definitions) -> Option<String> {
    let there = OTHER_NAMES.iter().find(|(ours, _)| *ours == name).and_then(|(_, theirs)| *theirs).unwrap_or(name);
    let enumerations = ENUMERATIONS.iter().filter(|(of, _, _)| *of == module);
    let mut found = enumerations.filter_map(|(_, enumeration, prefix)| {
        let value = theirs.values.get(*enumeration)?.get(&format!("{prefix}{there}"))?;
        Some((*enumeration, *value))
    });
    let at = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
    match found.next() {
        Some((_, value)) if value == number => None,
        Some((enumeration, value)) => Some(format!("{at} = {number}: {value} in {enumeration}")),
        None => {
            Some(format!("{at}: Hadoop has no value of that name: see ENUMERATIONS in xtask/src/hadoop_messages.rs"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HADOOP: &str = "\
field TokenProto 1 required bytes identifier
field TokenProto 2 required string kind
field BlockProto 1 required message token TokenProto
field BlockProto 2 repeated enum types StorageTypeProto
field BlockProto 3 optional uint64 length
message EmptyProto
value Status 0 SUCCESS
value Status 5 ERROR_ACCESS_TOKEN
";
    const OURS: &str = r#"
        pub struct Token {
            #[prost(bytes = "vec", required, tag = "1")]
            pub identifier: Vec<u8>,
            #[prost(string, required, tag = "2")]
            pub kind: String,
        }
        pub struct Block {
            #[prost(message, optional, tag = "1")]
            pub token: Option<Token>,
            #[prost(int32, repeated, packed = "false", tag = "2")]
            pub types: Vec<i32>,
        }
        pub struct Empty {}
        pub mod status {
            pub const SUCCESS: i32 = 0;
            pub const ERROR_ACCESS_TOKEN: i32 = 5;
        }
    "#;

    fn found(source: &str) -> Vec<String> {
        let mut ours = Definitions::default();
        add_source(source, &mut ours).expect("it is well written");
        differences(&ours, &theirs(HADOOP).expect("it is well written"))
    }

    /// What is found after one change of our source.
    fn found_after(from: &str, to: &str) -> Vec<String> {
        assert!(OURS.contains(from), "{from}");
        found(&OURS.replacen(from, to, 1))
    }

    #[test]
    fn definitions_that_are_alike_have_no_difference() {
        assert_eq!(found(OURS), Vec::<String>::new());
    }

    #[test]
    fn a_changed_number_label_type_or_value_is_found() {
        let moved = found_after("string, required, tag = \"2\"", "string, required, tag = \"3\"");
        assert_eq!(moved.len(), 2, "{moved:?}");
        for (from, to, expect) in [
            ("string, required", "string, optional", "required there, optional here"),
            ("string, required", "uint64, required", "string there, uint64 here"),
            ("packed = \"false\", ", "", "repeated there, packed here"),
            ("int32, repeated", "uint32, repeated", "int32 there, uint32 here"),
            ("Option<Token>", "Option<Empty>", "a TokenProto there, a Empty here"),
            (
                "ERROR_ACCESS_TOKEN: i32 = 5",
                "ERROR_ACCESS_TOKEN: i32 = 6",
                "status::ERROR_ACCESS_TOKEN = 6: 5 in Status",
            ),
            ("ERROR_ACCESS_TOKEN", "ERROR_TOKEN", "Hadoop has no value of that name"),
            ("struct Empty", "struct Void", "Void: Hadoop has no message VoidProto"),
        ] {
            let found = found_after(from, to);
            assert!(found.len() == 1 && found[0].contains(expect), "{from} → {to}: {found:?}");
        }
    }

    #[test]
    fn a_field_that_hadoop_requires_is_missed() {
        let found = found_after("#[prost(string, required, tag = \"2\")]\n            pub kind: String,", "");
        assert!(found.len() == 1 && found[0].contains("required there, and missing here"), "{found:?}");
    }

    #[test]
    fn our_own_source_is_read_whole() {
        let ours = ours(&crate::root()).expect("the source is there");
        assert!(ours.messages.len() > 100 && ours.values.len() > 10);
        assert_eq!(ours.messages["LocatedBlock"][&5].of, "Token");
    }
}
