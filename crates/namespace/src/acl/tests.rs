use std::sync::Arc;

use frieze_hlc::Hlc;
use frieze_wire::acl::AclNamedEntry;
use frieze_wire::txn::Caller;
use proptest::prelude::*;

use super::*;
use crate::inode::{FileLayout, allows};

/// The subject of an entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whom {
    Owner,
    User(u32),
    Group,
    Named(u32),
    Mask,
    Other,
}

/// The access check of `acl(5)`, as the page has it, over a list of entries.
fn reference(entries: &[(Whom, u8)], owner: (u32, u32), caller: &Caller, asked: u8) -> bool {
    let of = |whom: Whom| entries.iter().find(|(found, _)| *found == whom).map(|(_, permissions)| *permissions);
    let mask = of(Whom::Mask).unwrap_or(7);
    if caller.uid == owner.0 {
        return of(Whom::Owner).unwrap() & asked == asked;
    }
    if let Some(permissions) = of(Whom::User(caller.uid)) {
        return permissions & mask & asked == asked;
    }
    let mut is_member = false;
    for (whom, permissions) in entries {
        let group = match whom {
            Whom::Group => owner.1,
            Whom::Named(group) => *group,
            _ => continue,
        };
        if caller.gid == group || caller.groups.contains(&group) {
            is_member = true;
            if permissions & mask & asked == asked {
                return true;
            }
        }
    }
    !is_member && of(Whom::Other).unwrap() & asked == asked
}

fn inode(acl: &Acl, (uid, gid): (u32, u32)) -> Inode {
    let extra = Extra { acl: blank(acl).map(Box::new), ..Extra::default() };
    Inode {
        from: Hlc(1),
        born: Hlc(1),
        ctime: Hlc(1),
        mtime_ns: 0,
        mtime_stamp: Hlc(1),
        atime_ns: 0,
        size: 0,
        size_as_of: Hlc(1),
        named: Hlc(1),
        parent: InodeId::ROOT,
        layout: Arc::new(FileLayout { chunk_bytes: 4096, chain_count: 1, plugin: String::new(), regime: 0 }),
        links: 1,
        uid,
        gid,
        mode: acl.mode() as u16,
        kind: FileKind::File as u8,
        extra: (!extra.is_empty()).then(|| Box::new(extra)),
    }
}

fn names() -> impl Strategy<Value = Vec<(u32, u8)>> {
    prop::collection::btree_map(1..5u32, 0..8u8, 0..4).prop_map(|names| names.into_iter().collect())
}

proptest! {
    #[test]
    fn rights_are_those_of_the_manual_page(
        (owner, group, other, mask) in (0..8u8, 0..8u8, 0..8u8, prop::option::of(0..8u8)),
        (users, groups) in (names(), names()),
        owner_ids in (1..5u32, 1..5u32),
        (uid, gid, more) in (1..6u32, 1..6u32, prop::collection::vec(1..6u32, 0..3)),
        asked in 0..8u8,
    ) {
        let mask = if users.is_empty() && groups.is_empty() { mask } else { mask.or(Some(7)) };
        let mut entries = vec![(Whom::Owner, owner), (Whom::Group, group), (Whom::Other, other)];
        entries.extend(users.iter().map(|&(id, permissions)| (Whom::User(id), permissions)));
        entries.extend(groups.iter().map(|&(id, permissions)| (Whom::Named(id), permissions)));
        entries.extend(mask.map(|mask| (Whom::Mask, mask)));
        let entry = |&(id, permissions): &(u32, u8)| AclNamedEntry { id, permissions };
        let named = |all: &[(u32, u8)]| all.iter().map(entry).collect();
        let acl = Acl { owner, users: named(&users), group, groups: named(&groups), mask, other };
        prop_assert_eq!(Acl::read(&acl.encode()), Ok(Some(acl.clone())));
        let inode = inode(&acl, owner_ids);
        prop_assert_eq!(inode.access_list(), acl);
        let caller = Caller { uid, gid, groups: more };
        prop_assert_eq!(
            allows(&inode, &caller, asked.into()),
            reference(&entries, owner_ids, &caller, asked),
            "{:?} of {:?}: {:?} asks {}", entries, owner_ids, caller, asked
        );
    }
}
