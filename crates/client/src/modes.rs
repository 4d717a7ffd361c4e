//! How files are opened, made and renamed.

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags {
    /// To read.
    pub read: bool,
    /// To write: in the present only.
    pub write: bool,
}

impl OpenFlags {
    /// To read only.
    pub const READ: OpenFlags = OpenFlags { read: true, write: false };
    /// To write only.
    pub const WRITE: OpenFlags = OpenFlags { read: false, write: true };
    /// To read and write.
    pub const READ_WRITE: OpenFlags = OpenFlags { read: true, write: true };
}

/// What [`Fs::create`](crate::Fs::create) does with a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// It fails with `Exists`.
    Exclusive,
    /// An existing regular file is opened as it is, not truncated.
    OpenExisting,
    /// The new file takes the name from the old one, in one change. The old one is no directory, and the caller may
    /// write to it.
    Replace,
}

/// What [`Fs::rename`](crate::Fs::rename) does with a new name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// It fails with `Exists`.
    NoReplace,
    /// The two change places.
    Exchange,
}

/// What [`Fs::set_xattr`](crate::Fs::set_xattr) expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Nothing: the attribute is set in either case.
    Any,
    /// The attribute does not exist yet.
    Create,
    /// The attribute exists.
    Replace,
}
