//! Access lists, changed as HDFS changes them: entry by entry; the mask follows from the entries.
//!
//! Guarantees: access list and default list change together, and only if they still are what the change was computed
//! from.
//! Leaves to others: the meaning of a list and the right to set it (the server), names of users and groups
//! ([`crate::accounts`]).

use std::collections::{BTreeMap, BTreeSet};

use frieze_client::{ACL_ENTRIES_MAX, AccessLists, Acl, AclNamedEntry, Fs, Reason, Target};

use crate::accounts::{gid_of, uid_of};
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::proto::{self, AclEntry, FsPermission, acl_scope, acl_type};
use crate::remote_user::CallContext;

/// A change of the entries of both lists.
#[derive(Clone, Debug)]
enum AclUpdate {
    /// Adds entries, or replaces those of the same user or group.
    Modify(AclEntries),
    /// Removes entries.
    Remove(AclEntries),
    /// Removes the default list.
    RemoveDefault,
    /// Removes both lists: the mode alone remains.
    RemoveAll,
    /// Replaces all entries of the lists that these belong to.
    Replace(AclEntries),
}

/// The subject of an entry, in the order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    Mask,
    Other,
}

/// Which of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AclScope {
    Access,
    Default,
}

/// Permissions by entry.
type AclEntries = BTreeMap<(AclScope, Whose), u8>;

/// Owner, mode and entries: of the access list those that the mode does not imply, of the default list all.
pub(crate) fn acl_status(
    names: &FileNames,
    context: CallContext<'_>,
    path: &str,
) -> Result<proto::GetAclStatusResponse, Exception> {
    let resolved = names.resolve(context, path)?;
    let failed = |error| Exception::of(error, path);
    let attr = resolved.fs.stat(&resolved.target).map_err(failed)?.attr;
    let lists =
        if attr.has_acl { resolved.fs.access_lists(&resolved.target).map_err(failed)? } else { AccessLists::default() };
    let proto::HdfsFileStatus { owner, group, .. } = names.status(&attr, b"");
    let (sticky, permission) = (attr.mode & 0o1000 != 0, Some(FsPermission { perm: attr.mode & 0o777 }));
    let is_minimal = lists.access.is_minimal();
    let is_listed = |(scope, whose): (AclScope, Whose)| match (scope, whose) {
        (AclScope::Access, Whose::Owner | Whose::Mask | Whose::Other) => false,
        (AclScope::Access, _) => !is_minimal,
        (AclScope::Default, _) => true,
    };
    let entries = entries_of(&lists).into_iter().filter(|(key, _)| is_listed(*key));
    let entries = entries.map(|(key, permissions)| acl_entry(names, key, permissions)).collect();
    Ok(proto::GetAclStatusResponse { result: Some(proto::AclStatus { owner, group, sticky, entries, permission }) })
}

/// Adds or replaces entries.
pub(crate) fn modify_acl(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::AclRequest,
) -> Result<(), Exception> {
    change_acl(names, context, &request.src, &AclUpdate::Modify(spec(request)?))
}

/// Removes entries.
pub(crate) fn remove_acl_entries(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::AclRequest,
) -> Result<(), Exception> {
    change_acl(names, context, &request.src, &AclUpdate::Remove(spec(request)?))
}

/// Removes the default list.
pub(crate) fn remove_default_acl(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::AclRequest,
) -> Result<(), Exception> {
    change_acl(names, context, &request.src, &AclUpdate::RemoveDefault)
}

/// Removes all entries but those of the mode.
pub(crate) fn remove_acl(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::AclRequest,
) -> Result<(), Exception> {
    change_acl(names, context, &request.src, &AclUpdate::RemoveAll)
}

/// Replaces all entries of one list, or of both.
pub(crate) fn set_acl(
    names: &FileNames,
    context: CallContext<'_>,
    request: &proto::AclRequest,
) -> Result<(), Exception> {
    let change = if request.entries.is_empty() { AclUpdate::RemoveAll } else { AclUpdate::Replace(spec(request)?) };
    change_acl(names, context, &request.src, &change)
}

fn change_acl(names: &FileNames, context: CallContext<'_>, path: &str, change: &AclUpdate) -> Result<(), Exception> {
    let target = Target { follow: true, ..names.resolve_for_change(context, path)? };
    let fs: Fs = names.fs(context);
    for round in 1.. {
        let current = fs.access_lists(&target).map_err(|error| Exception::of(error, path))?;
        let lists =
            changed(&current, change).map_err(|why| Exception::acl(format!("Invalid ACL: {why} Path: {path}")))?;
        match fs.set_access_lists(&target, &lists, Some(&current)) {
            Ok(_) => break,
            Err(error) if error.reason() == Reason::Superseded && round < ROUNDS_MAX => {}
            Err(error) if error.reason() == Reason::AccessDenied && lists.default.is_some() => {
                // A caller without access to the file was refused when its lists were read.
                return Err(Exception::acl(format!(
                    "Invalid ACL: only directories may have a default ACL. Path: {path}"
                )));
            }
            Err(error) => return Err(Exception::of(error, path)),
        }
    }
    Ok(())
}

fn acl_entry(names: &FileNames, (scope, whose): (AclScope, Whose), permissions: u8) -> AclEntry {
    let (kind, name) = match whose {
        Whose::Owner => (acl_type::USER, None),
        Whose::User(uid) => (acl_type::USER, Some(names.accounts.user(uid))),
        Whose::Group => (acl_type::GROUP, None),
        Whose::NamedGroup(gid) => (acl_type::GROUP, Some(names.accounts.group(gid))),
        Whose::Mask => (acl_type::MASK, None),
        Whose::Other => (acl_type::OTHER, None),
    };
    let scope = if scope == AclScope::Default { acl_scope::DEFAULT } else { acl_scope::ACCESS };
    AclEntry { kind, scope, permissions: permissions.into(), name }
}

/// The lists after a change, or why the result would not be a valid list.
///
/// # Source
/// The behaviour of HDFS (`AclTransformation`): a mask that is not given is the union of the entries that it limits, if
/// the list was touched and has or had a mask; a default list without owner, group or others takes those of the access
/// list.
fn changed(current: &AccessLists, change: &AclUpdate) -> Result<AccessLists, &'static str> {
    let before = entries_of(current);
    let of_mask = |((_, whose), _): &(&(AclScope, Whose), &u8)| *whose == Whose::Mask;
    let mut touched: BTreeSet<AclScope> = BTreeSet::new();
    // Lists whose mask the change sets or removes.
    let mut masks: BTreeSet<AclScope> = BTreeSet::new();
    let mut after = match change {
        AclUpdate::RemoveDefault => {
            return Ok(AccessLists { default: None, ..current.clone() });
        }
        AclUpdate::RemoveAll => {
            let Acl { owner, group, other, .. } = current.access;
            return Ok(AccessLists { access: Acl { owner, group, other, ..Acl::default() }, default: None });
        }
        AclUpdate::Modify(spec) => before.iter().chain(spec).map(|(key, permissions)| (*key, *permissions)).collect(),
        AclUpdate::Remove(spec) => {
            before.iter().filter(|(key, _)| !spec.contains_key(*key)).map(|(key, value)| (*key, *value)).collect()
        }
        AclUpdate::Replace(spec) => {
            let stays = |scope| !spec.keys().any(|(of, _)| *of == scope);
            let kept = before.iter().filter(|((scope, _), _)| stays(*scope));
            kept.chain(spec).map(|(key, value)| (*key, *value)).collect::<AclEntries>()
        }
    };
    let (AclUpdate::Modify(spec) | AclUpdate::Remove(spec) | AclUpdate::Replace(spec)) = change else {
        return Ok(current.clone());
    };
    let is_there = |key: &&(AclScope, Whose)| !matches!(change, AclUpdate::Remove(_)) || before.contains_key(*key);
    touched.extend(spec.keys().filter(is_there).map(|(scope, _)| *scope));
    masks.extend(spec.iter().filter(of_mask).map(|((scope, _), _)| *scope).filter(|scope| touched.contains(scope)));
    if after.keys().any(|(scope, _)| *scope == AclScope::Default) {
        for whose in [Whose::Owner, Whose::Group, Whose::Other] {
            if let Some(&permissions) = after.get(&(AclScope::Access, whose)) {
                after.entry((AclScope::Default, whose)).or_insert(permissions);
            }
        }
    }
    for scope in [AclScope::Access, AclScope::Default] {
        let limited = |whose: Whose| matches!(whose, Whose::User(_) | Whose::Group | Whose::NamedGroup(_));
        let of_scope = || after.iter().filter(move |((of, _), _)| *of == scope);
        let union = of_scope().filter(|((_, whose), _)| limited(*whose)).fold(0, |all, (_, value)| all | value);
        let names = of_scope().any(|((_, whose), _)| matches!(whose, Whose::User(_) | Whose::NamedGroup(_)));
        let is_given = after.contains_key(&(scope, Whose::Mask));
        match (is_given, masks.contains(&scope), touched.contains(&scope)) {
            (false, true, _) if names => return Err("mask is required and cannot be deleted."),
            (true, true, _) | (true, _, false) => {}
            _ if names || is_given => drop(after.insert((scope, Whose::Mask), union)),
            _ => {}
        }
    }
    let access = list_of(&after, AclScope::Access)?.ok_or(INCOMPLETE)?;
    Ok(AccessLists { access, default: list_of(&after, AclScope::Default)? })
}

fn list_of(entries: &AclEntries, scope: AclScope) -> Result<Option<Acl>, &'static str> {
    let mut acl = Acl::default();
    let mut found = BTreeSet::new();
    for ((_, whose), &permissions) in entries.iter().filter(|((of, _), _)| *of == scope) {
        found.insert(*whose);
        match *whose {
            Whose::Owner => acl.owner = permissions,
            Whose::User(id) => acl.users.push(AclNamedEntry { id, permissions }),
            Whose::Group => acl.group = permissions,
            Whose::NamedGroup(id) => acl.groups.push(AclNamedEntry { id, permissions }),
            Whose::Mask => acl.mask = Some(permissions),
            Whose::Other => acl.other = permissions,
        }
    }
    if found.is_empty() {
        return Ok(None);
    }
    if ![Whose::Owner, Whose::Group, Whose::Other].iter().all(|whose| found.contains(whose)) {
        return Err(INCOMPLETE);
    }
    if acl.entries() > ACL_ENTRIES_MAX {
        return Err("ACL has more than the maximum of 32 entries.");
    }
    Ok(Some(acl))
}

fn entries_of(lists: &AccessLists) -> AclEntries {
    let mut entries = AclEntries::new();
    for (scope, acl) in [(AclScope::Access, Some(&lists.access)), (AclScope::Default, lists.default.as_ref())] {
        let Some(acl) = acl else { continue };
        let once = [(Whose::Owner, acl.owner), (Whose::Group, acl.group), (Whose::Other, acl.other)];
        let users = acl.users.iter().map(|user| (Whose::User(user.id), user.permissions));
        let groups = acl.groups.iter().map(|group| (Whose::NamedGroup(group.id), group.permissions));
        let mask = acl.mask.map(|mask| (Whose::Mask, mask));
        let all = once.into_iter().chain(users).chain(groups).chain(mask);
        entries.extend(all.map(|(whose, permissions)| ((scope, whose), permissions)));
    }
    entries
}

/// The entries that a call names.
fn spec(request: &proto::AclRequest) -> Result<AclEntries, Exception> {
    let wrong = |why: String| Exception::acl(format!("Invalid ACL: {why} Path: {}", request.src));
    let mut entries = AclEntries::new();
    for entry in &request.entries {
        let name = entry.name.as_deref().filter(|name| !name.is_empty());
        let whose = match (entry.kind, name) {
            (acl_type::USER, None) => Whose::Owner,
            (acl_type::GROUP, None) => Whose::Group,
            (acl_type::MASK, None) => Whose::Mask,
            (acl_type::OTHER, None) => Whose::Other,
            (acl_type::USER, Some(name)) => Whose::User(uid_of(name).ok_or_else(|| {
                wrong(format!("user {name} is not known on the frieze server: add it to its user database."))
            })?),
            (acl_type::GROUP, Some(name)) => Whose::NamedGroup(gid_of(name).ok_or_else(|| {
                wrong(format!("group {name} is not known on the frieze server: add it to its group database."))
            })?),
            (_, Some(_)) => return Err(wrong("this entry type must not have a name.".to_owned())),
            _ => return Err(wrong("unknown type of an entry.".to_owned())),
        };
        let scope = if entry.scope == acl_scope::DEFAULT { AclScope::Default } else { AclScope::Access };
        let permissions = u8::try_from(entry.permissions).ok().filter(|bits| *bits <= 7);
        let permissions = permissions.ok_or_else(|| wrong("unknown permissions of an entry.".to_owned()))?;
        if entries.insert((scope, whose), permissions).is_some() {
            return Err(wrong("multiple entries with same scope, type and name.".to_owned()));
        }
    }
    Ok(entries)
}

const INCOMPLETE: &str = "the user, group and other entries are required.";
/// Attempts, each after a concurrent change of the lists.
const ROUNDS_MAX: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: AclScope = AclScope::Access;
    const DEFAULT: AclScope = AclScope::Default;

    fn entries(entries: &[(AclScope, Whose, u8)]) -> AclEntries {
        entries.iter().map(|(scope, whose, permissions)| ((*scope, *whose), *permissions)).collect()
    }

    fn check(current: &AccessLists, change: &AclUpdate, expect: &[(AclScope, Whose, u8)]) -> AccessLists {
        let after = changed(current, change).unwrap();
        assert_eq!(entries_of(&after), entries(expect), "{change:?}");
        after
    }

    #[test]
    fn entries_come_and_go_and_the_mask_follows_as_in_hdfs() {
        use Whose::{Group, Mask, NamedGroup, Other, Owner, User};
        let plain = AccessLists { access: Acl::of_mode(0o640), default: None };
        let add = AclUpdate::Modify(entries(&[(ACCESS, User(7), 7)]));
        let base = [(ACCESS, Owner, 6), (ACCESS, Group, 4), (ACCESS, Other, 0)];
        let one = check(&plain, &add, &[&base[..], &[(ACCESS, User(7), 7), (ACCESS, Mask, 7)]].concat());
        // One more; the mask is found anew, unless it is given.
        let more = AclUpdate::Modify(entries(&[(ACCESS, User(7), 2), (ACCESS, NamedGroup(8), 1)]));
        let both = [(ACCESS, User(7), 2), (ACCESS, NamedGroup(8), 1)];
        let two = check(&one, &more, &[&base[..], &both, &[(ACCESS, Mask, 7)]].concat());
        let given = AclUpdate::Modify(entries(&[(ACCESS, Mask, 0)]));
        check(&two, &given, &[&base[..], &both, &[(ACCESS, Mask, 0)]].concat());
        // The last that is named goes: the mask stays, as wide as the group.
        let named =
            AclUpdate::Remove(entries(&[(ACCESS, User(7), 0), (ACCESS, NamedGroup(8), 0), (ACCESS, User(99), 0)]));
        let left = check(&two, &named, &[&base[..], &[(ACCESS, Mask, 4)]].concat());
        check(&left, &AclUpdate::RemoveAll, &base);
        let mask = AclUpdate::Remove(entries(&[(ACCESS, Mask, 0)]));
        check(&left, &mask, &base);
        assert_eq!(changed(&two, &mask), Err("mask is required and cannot be deleted."));
        assert_eq!(changed(&two, &AclUpdate::Remove(entries(&[(ACCESS, Group, 0)]))), Err(INCOMPLETE));
        // A default list has what it lacks of the access list, and its own mask; the other's stays.
        let default = AclUpdate::Modify(entries(&[(DEFAULT, User(9), 5)]));
        let inherited = [(DEFAULT, Owner, 6), (DEFAULT, Group, 4), (DEFAULT, Other, 0)];
        let of_two = [(ACCESS, User(7), 2), (ACCESS, NamedGroup(8), 1), (ACCESS, Mask, 7)];
        let of_default = [(DEFAULT, User(9), 5), (DEFAULT, Mask, 5)];
        let three = check(&two, &default, &[&base[..], &of_two, &inherited, &of_default].concat());
        check(&three, &AclUpdate::RemoveDefault, &[&base[..], &of_two].concat());
        // A list that is set leaves the other as it is.
        let set = AclUpdate::Replace(entries(&[(ACCESS, Owner, 7), (ACCESS, Group, 5), (ACCESS, Other, 5)]));
        let after = [(ACCESS, Owner, 7), (ACCESS, Group, 5), (ACCESS, Other, 5)];
        check(&three, &set, &[&after[..], &inherited, &of_default].concat());
        let set = AclUpdate::Replace(entries(&[(ACCESS, Owner, 7), (ACCESS, User(7), 7)]));
        assert_eq!(changed(&plain, &set), Err(INCOMPLETE));
        let many: AclEntries = (0..29).map(|id| ((ACCESS, User(id)), 7)).collect();
        assert!(changed(&plain, &AclUpdate::Modify(many)).unwrap_err().contains("32"));
    }
}
