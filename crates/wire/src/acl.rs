//! Access control lists of POSIX (1003.1e draft 17, `acl(5)`), and the bytes in which Linux carries them.
//!
//! A list travels as the value of an extended attribute, in version 2 of the kernel's format: a version of 4 bytes,
//! then 8 bytes an entry (tag, permissions, id), little-endian. [`Acl`] is such a list after it was checked: every
//! entry that has to be there is, none is there twice, named entries are in order of their ids.

use std::fmt;

/// The extended attribute with the access list of a file or directory. Absent where the mode says all.
pub const ACCESS_ACL_XATTR: &[u8] = b"system.posix_acl_access";
/// The extended attribute with the default list of a directory, inherited by what is created in it.
pub const DEFAULT_ACL_XATTR: &[u8] = b"system.posix_acl_default";
/// Entries of one list, owner, group, mask and others included: as in HDFS, so that a list valid in one is valid in the
/// other.
pub const ACL_ENTRIES_MAX: usize = 32;

/// True for the names of extended attributes that are access lists.
pub fn is_acl(name: &[u8]) -> bool {
    name == ACCESS_ACL_XATTR || name == DEFAULT_ACL_XATTR
}

/// A list of rights. Permissions are the bits of a mode: read 4, write 2, execute 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Acl {
    /// Of the owner.
    pub owner: u8,
    /// Of named users, by id; at most what the mask allows.
    pub users: Vec<AclNamedEntry>,
    /// Of the owning group; at most what the mask allows, if there is one.
    pub group: u8,
    /// Of named groups, by id; at most what the mask allows.
    pub groups: Vec<AclNamedEntry>,
    /// Upper bound of named users, the owning group and named groups. Present if the list names any user or group.
    pub mask: Option<u8>,
    /// Of all others.
    pub other: u8,
}

/// The entry of a named user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclNamedEntry {
    /// User or group.
    pub id: u32,
    /// Permissions.
    pub permissions: u8,
}

impl Acl {
    /// The list equivalent to a mode.
    pub fn of_mode(mode: u32) -> Acl {
        Acl { owner: class(mode, 6), group: class(mode, 3), other: class(mode, 0), ..Acl::default() }
    }

    /// Reads the kernel's bytes. `None`: a header without entries, which means that there is no list.
    ///
    /// # Errors
    /// Why it is no list, in words.
    pub fn read(bytes: &[u8]) -> Result<Option<Acl>, &'static str> {
        let Some((version, rest)) = bytes.split_first_chunk::<4>() else { return Err("an access list has a version") };
        if u32::from_le_bytes(*version) != FORMAT_VERSION {
            return Err("an access list of another version than 2");
        }
        let (entries, []) = rest.as_chunks::<ENTRY_BYTES>() else {
            return Err("an access list with half an entry");
        };
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() > ACL_ENTRIES_MAX {
            return Err("an access list of more than 32 entries");
        }
        let (mut owner, mut group, mut other) = (None, None, None);
        let mut acl = Acl::default();
        for [t0, t1, p0, p1, id @ ..] in entries {
            let (tag, permissions) = (u16::from_le_bytes([*t0, *t1]), u16::from_le_bytes([*p0, *p1]));
            let (id, permissions) = (u32::from_le_bytes(*id), u8::try_from(permissions).unwrap_or(u8::MAX));
            if permissions > 7 {
                return Err("permissions of an access list are read, write and execute");
            }
            let once = |entry: &mut Option<u8>| match entry.replace(permissions) {
                None => Ok(()),
                Some(_) => Err("an access list with two entries of the owner, the group, the mask or others"),
            };
            match tag {
                OWNER => once(&mut owner)?,
                GROUP => once(&mut group)?,
                MASK => once(&mut acl.mask)?,
                OTHER => once(&mut other)?,
                USER | NAMED_GROUP if id == NO_ID => return Err("an access list that names no user or group"),
                USER => acl.users.push(AclNamedEntry { id, permissions }),
                NAMED_GROUP => acl.groups.push(AclNamedEntry { id, permissions }),
                _ => return Err("an access list with an entry of an unknown kind"),
            }
        }
        let (Some(owner), Some(group), Some(other)) = (owner, group, other) else {
            return Err("an access list has entries of the owner, the group and others");
        };
        (acl.owner, acl.group, acl.other) = (owner, group, other);
        acl.check_names()?;
        Ok(Some(acl))
    }

    /// Puts named entries in order.
    ///
    /// # Errors
    /// A user or group is named twice, the mask is missing, or there are too many entries.
    pub fn check_names(&mut self) -> Result<(), &'static str> {
        for names in [&mut self.users, &mut self.groups] {
            names.sort_unstable();
            if names.array_windows().any(|[a, b]| a.id == b.id) {
                return Err("an access list with two entries of one user or group");
            }
        }
        if self.mask.is_none() && self.names() > 0 {
            return Err("an access list that names users or groups has a mask");
        }
        if self.entries() > ACL_ENTRIES_MAX {
            return Err("an access list of more than 32 entries");
        }
        Ok(())
    }

    /// The kernel's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = FORMAT_VERSION.to_le_bytes().to_vec();
        let mut entry = |tag: u16, permissions: u8, id: u32| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(permissions).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        entry(OWNER, self.owner, NO_ID);
        self.users.iter().for_each(|named| entry(USER, named.permissions, named.id));
        entry(GROUP, self.group, NO_ID);
        self.groups.iter().for_each(|named| entry(NAMED_GROUP, named.permissions, named.id));
        self.mask.into_iter().for_each(|mask| entry(MASK, mask, NO_ID));
        entry(OTHER, self.other, NO_ID);
        bytes
    }

    /// True if a mode is equivalent.
    pub fn is_minimal(&self) -> bool {
        self.mask.is_none()
    }

    /// Permission bits of the mode of a file that has it: those of the group are the mask's where there is one.
    pub fn mode(&self) -> u32 {
        u32::from(self.owner) << 6 | u32::from(self.mask.unwrap_or(self.group)) << 3 | u32::from(self.other)
    }

    /// The same list after a chmod.
    pub fn with_mode(mut self, mode: u32) -> Acl {
        (self.owner, self.other) = (class(mode, 6), class(mode, 0));
        *self.mask.as_mut().unwrap_or(&mut self.group) = class(mode, 3);
        self
    }

    /// The list of a file created with `mode` below a directory with this default list: at most what both allow.
    pub fn inherited(self, mode: u32) -> Acl {
        let mode = self.mode() & mode;
        self.with_mode(mode)
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        3 + self.names() + usize::from(self.mask.is_some())
    }

    fn names(&self) -> usize {
        self.users.len() + self.groups.len()
    }
}

/// As `setfacl` and tars take it, with the numbers of users and groups:
/// `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
impl fmt::Display for Acl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user::{}", Rights(self.owner))?;
        for AclNamedEntry { id, permissions } in &self.users {
            write!(f, ",user:{id}:{}", Rights(*permissions))?;
        }
        write!(f, ",group::{}", Rights(self.group))?;
        for AclNamedEntry { id, permissions } in &self.groups {
            write!(f, ",group:{id}:{}", Rights(*permissions))?;
        }
        if let Some(mask) = self.mask {
            write!(f, ",mask::{}", Rights(mask))?;
        }
        write!(f, ",other::{}", Rights(self.other))
    }
}

/// Permissions as letters: `rw-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(pub u8);

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |bit: u8, letter: char| if self.0 & bit != 0 { letter } else { '-' };
        write!(f, "{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
    }
}

fn class(mode: u32, shift: u32) -> u8 {
    (mode >> shift & 7) as u8
}

// From <linux/posix_acl_xattr.h>, <linux/posix_acl.h>.
const FORMAT_VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries without a user or group.
const NO_ID: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that Linux has of `u::rwx,u:1000:rw-,g::r-x,g:7:r--,m::rw-,o::---`.
    const LINUX: &str = "02000000 01000700ffffffff 02000600e8030000 04000500ffffffff 0800040007000000 \
                         10000600ffffffff 20000000ffffffff";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn bytes_are_those_of_linux() {
        let acl = Acl::read(&bytes(LINUX)).unwrap().unwrap();
        let named = |id, permissions| vec![AclNamedEntry { id, permissions }];
        let expect = Acl { owner: 7, users: named(1000, 6), group: 5, groups: named(7, 4), mask: Some(6), other: 0 };
        assert_eq!(acl, expect);
        assert_eq!(acl.encode(), bytes(LINUX));
        assert_eq!(acl.to_string(), "user::rwx,user:1000:rw-,group::r-x,group:7:r--,mask::rw-,other::---");
        assert_eq!((acl.mode(), acl.entries(), acl.is_minimal()), (0o760, 6, false));
        assert_eq!(acl.clone().with_mode(0o604), Acl { owner: 6, mask: Some(0), other: 4, ..acl.clone() });
        assert_eq!(acl.clone().inherited(0o644), Acl { owner: 6, mask: Some(4), ..acl });
        let of_mode = Acl::of_mode(0o4751);
        assert_eq!((of_mode.mode(), of_mode.is_minimal()), (0o751, true));
        assert_eq!(Acl::read(&of_mode.encode()), Ok(Some(of_mode)));
        assert_eq!(Acl::read(&bytes("02000000")), Ok(None));
    }

    #[test]
    fn an_invalid_list_is_refused() {
        let base = "01000700ffffffff 04000500ffffffff 20000000ffffffff";
        for wrong in [
            "",
            "0200",
            "01000000",
            "02000000 01",
            "02000000 01000700ffffffff 04000500ffffffff",
            &format!("02000000 {base} 20000000ffffffff"),
            &format!("02000000 {base} 02000600e8030000"),
            &format!("02000000 {base} 10000700ffffffff 02000600ffffffff"),
            &format!("02000000 {base} 10000700ffffffff 02000600e8030000 02000500e8030000"),
            &format!("02000000 {base} 10000800ffffffff"),
            &format!("02000000 {base} 10000001ffffffff"),
            &format!("02000000 {base} 40000000ffffffff"),
        ] {
            assert!(Acl::read(&bytes(wrong)).is_err(), "{wrong}");
        }
        let many = |count: u32| {
            let users = (0..count).map(|id| AclNamedEntry { id, permissions: 7 }).collect();
            Acl { users, mask: Some(7), ..Acl::default() }.encode()
        };
        assert!(Acl::read(&many(28)).is_ok());
        assert!(Acl::read(&many(29)).unwrap_err().contains("32"));
    }
}
