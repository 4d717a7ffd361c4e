//! Access lists of files and directories.

use frieze_base::Reason;
use frieze_wire::acl::{ACCESS_ACL_XATTR, Acl, DEFAULT_ACL_XATTR};
use frieze_wire::message::TxnReply;
use frieze_wire::txn::{Op, SetAcl, Target};

use crate::{Error, Fs};

/// The access lists of a file or directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessLists {
    /// Its own list; without one, the list that its mode implies.
    pub access: Acl,
    /// The list of new files in it; `None`: they get the mode that their creator requests.
    pub default: Option<Acl>,
}

impl Fs {
    /// The access lists at this view's instant.
    pub fn access_lists(&self, target: &Target) -> Result<AccessLists, Error> {
        let attr = self.stat(target)?.attr;
        // Not the name again: another file may have it by now.
        let target = Target::inode(frieze_base::InodeId(attr.inode));
        let read = |name| match attr.has_acl {
            true => self.access_list(&target, name),
            false => Ok(None),
        };
        let access = read(ACCESS_ACL_XATTR)?.unwrap_or_else(|| Acl::of_mode(attr.mode));
        Ok(AccessLists { access, default: read(DEFAULT_ACL_XATTR)? })
    }

    fn access_list(&self, target: &Target, name: &[u8]) -> Result<Option<Acl>, Error> {
        match self.get_xattr(target, name) {
            Ok(bytes) => Acl::read(&bytes).map_err(|_| Error::Refused(Reason::Internal.into())),
            Err(error) if error.reason() == Reason::NoAttribute => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the access lists, at one stamp. The file's own list decides its mode; a list that a mode can express is
    /// stored as that mode.
    ///
    /// # Errors
    /// `Superseded` if they are not the `expected` ones any more: read them again. `NotPermitted` unless the caller is
    /// the owner or the superuser; `AccessDenied` for a default list of a file that is no directory; `InvalidArgument`
    /// for a malformed list.
    pub fn set_access_lists(
        &self,
        target: &Target,
        lists: &AccessLists,
        expected: Option<&AccessLists>,
    ) -> Result<TxnReply, Error> {
        let bytes = |acl: &Option<Acl>| acl.as_ref().map_or(Vec::new(), Acl::encode);
        let op = SetAcl {
            target: target.clone(),
            access: Some(lists.access.encode()),
            default_list: Some(bytes(&lists.default)),
            expect_access: expected.map(|expected| expected.access.encode()),
            expect_default: expected.map(|expected| bytes(&expected.default)),
        };
        self.change("setting an access list", Op::SetAcl(op))
    }
}
