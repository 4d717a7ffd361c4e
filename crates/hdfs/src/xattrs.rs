//! Extended attributes: Hadoop's namespaces are the prefixes that they have everywhere else.

use frieze_client::{Fs, QUOTA_XATTR, Reason, Target, XattrMode};

use crate::exception::Exception;
use crate::file_names::{FileNames, ResolvedPath};
use crate::lease_store::is_lease_record;
use crate::proto::{self, XAttr, xattr_flag, xattr_namespace};
use crate::remote_user::CallContext;

/// The attributes of the request, or all.
pub(crate) fn xattrs(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::XAttrsRequest,
) -> Result<proto::XAttrsResponse, Exception> {
    let path = &request.src;
    let ResolvedPath { fs, target, .. } = names.resolve(context, path)?;
    let xattrs = if request.xattrs.is_empty() {
        attribute_names(&fs, &target, path)?
            .into_iter()
            .filter_map(|name| valued(&fs, &target, name, path).transpose())
            .collect()
    } else {
        let named = request.xattrs.iter().map(|named| {
            valued(&fs, &target, full_name(named)?, path)?
                .ok_or_else(|| Exception::io("At least one of the attributes provided was not found."))
        });
        named.collect::<Result<Vec<XAttr>, Exception>>()
    };
    Ok(proto::XAttrsResponse { xattrs: xattrs? })
}

/// The names of all.
pub(crate) fn xattr_names(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::PathRequest,
) -> Result<proto::XAttrsResponse, Exception> {
    let path = &request.path;
    let ResolvedPath { fs, target, .. } = names.resolve(context, path)?;
    let xattrs = attribute_names(&fs, &target, path)?.iter().filter_map(|name| in_hadoop(name, None)).collect();
    Ok(proto::XAttrsResponse { xattrs })
}

/// Sets an attribute.
pub(crate) fn set_xattr(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::SetXAttrRequest,
) -> Result<(), Exception> {
    let target = Target { follow: true, ..names.resolve_for_change(context, &request.src)? };
    let named = request.xattr.as_ref().ok_or_else(|| Exception::illegal_argument("the call names no attribute"))?;
    let mode = match request.flag.unwrap_or(0) {
        xattr_flag::CREATE => XattrMode::Create,
        xattr_flag::REPLACE => XattrMode::Replace,
        _ => XattrMode::Any,
    };
    let value = named.value.as_deref().unwrap_or_default();
    let set = names.fs(context).set_xattr(&target, &full_name(named)?, value, mode);
    set.map(|_| ()).map_err(|error| failed(error, &request.src))
}

/// Removes an attribute.
pub(crate) fn remove_xattr(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::SetXAttrRequest,
) -> Result<(), Exception> {
    let target = Target { follow: true, ..names.resolve_for_change(context, &request.src)? };
    let named = request.xattr.as_ref().ok_or_else(|| Exception::illegal_argument("the call names no attribute"))?;
    let removed = names.fs(context).remove_xattr(&target, &full_name(named)?);
    removed.map(|_| ()).map_err(|error| failed(error, &request.src))
}

fn attribute_names(fs: &Fs, target: &Target, path: &str) -> Result<Vec<Vec<u8>>, Exception> {
    let mut names = fs.list_xattr(target).map_err(|error| Exception::of(error, path))?;
    // Stored leases are internal.
    names.retain(|name| !is_lease_record(name));
    Ok(names)
}

/// An attribute with its value; `None` if it does not exist, or has no name in Hadoop.
fn valued(fs: &Fs, target: &Target, name: Vec<u8>, path: &str) -> Result<Option<XAttr>, Exception> {
    match fs.get_xattr(target, &name) {
        Ok(value) => Ok(in_hadoop(&name, Some(value))),
        Err(error) if error.reason() == Reason::NoAttribute => Ok(None),
        Err(error) => Err(Exception::of(error, path)),
    }
}

fn failed(error: frieze_client::Error, path: &str) -> Exception {
    match error.reason() {
        Reason::NoAttribute => Exception::io("No matching attributes found for remove operation"),
        Reason::Exists => Exception::io(format!("XAttr of {path} exists already: the REPLACE flag has to be set")),
        _ => Exception::of(error, path),
    }
}

/// The full name.
fn full_name(xattr: &XAttr) -> Result<Vec<u8>, Exception> {
    let prefix = PREFIXES.iter().find(|(namespace, _)| *namespace == xattr.namespace);
    let (_, prefix) =
        prefix.ok_or_else(|| Exception::unsupported("frieze keeps attributes of user, trusted and security"))?;
    Ok([prefix.as_bytes(), xattr.name.as_bytes()].concat())
}

/// The name in Hadoop; `None` if Hadoop has no such namespace.
fn in_hadoop(name: &[u8], value: Option<Vec<u8>>) -> Option<XAttr> {
    // Hadoop has calls of its own for quotas.
    if name == QUOTA_XATTR {
        return None;
    }
    let text = std::str::from_utf8(name).ok()?;
    let named = |(namespace, prefix): &(i32, &str)| {
        Some(XAttr { namespace: *namespace, name: text.strip_prefix(prefix)?.to_owned(), value: value.clone() })
    };
    PREFIXES.iter().find_map(named)
}

const PREFIXES: &[(i32, &str)] = &[
    (xattr_namespace::USER, "user."),
    (xattr_namespace::TRUSTED, "trusted."),
    (xattr_namespace::SECURITY, "security."),
];
