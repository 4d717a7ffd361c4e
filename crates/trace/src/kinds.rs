//! The closed lists of an event: kinds of calls, and gateways.
//!
//! Numbers are part of the format: a number is never given to another word, and a word that ends keeps its number.

macro_rules! closed_list {
    ($(#[$doc:meta])* $list:ident { $($number:literal $name:literal $kind:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $list {
            $(#[doc = concat!("`", $name, "`")] $kind = $number,)*
        }

        impl $list {
            /// All of them, by number.
            pub const ALL: &[$list] = &[$($list::$kind,)*];

            /// Its word in tables and columns.
            pub fn name(self) -> &'static str {
                match self {
                    $($list::$kind => $name,)*
                }
            }

            /// The one with this number; `None` for a number of a newer version.
            pub fn from_number(number: u8) -> Option<$list> {
                match number {
                    $($number => Some($list::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

closed_list! {
    /// What a call did, in the words of POSIX where it has one. Those from 39 on are a server's own
    /// ([`crate::DeviceFile`]), never a user's.
    CallKind {
        1 "open" Open,
        2 "create" Create,
        3 "read" Read,
        4 "write" Write,
        5 "append" Append,
        6 "flush" Flush,
        7 "sync" Sync,
        8 "close" Close,
        9 "seek" Seek,
        10 "stat" Stat,
        11 "list" List,
        12 "lookup" Lookup,
        13 "rename" Rename,
        14 "link" Link,
        15 "unlink" Unlink,
        16 "rmdir" Rmdir,
        17 "remove_tree" RemoveTree,
        18 "mkdir" Mkdir,
        19 "symlink" Symlink,
        20 "readlink" Readlink,
        21 "setattr" SetAttr,
        22 "truncate" Truncate,
        23 "punch" Punch,
        24 "xattr_get" XattrGet,
        25 "xattr_set" XattrSet,
        26 "xattr_list" XattrList,
        27 "xattr_remove" XattrRemove,
        28 "lock" Lock,
        29 "snapshot" Snapshot,
        30 "clone" Clone,
        31 "restore" Restore,
        32 "join" Join,
        33 "access" Access,
        34 "statfs" StatFs,
        35 "special" Special,
        36 "history" History,
        37 "forget" Forget,
        38 "other" Other,
        39 "device_append" DeviceAppend,
        40 "device_flush" DeviceFlush,
        41 "device_fetch" DeviceFetch,
        42 "device_drop" DeviceDrop,
        43 "device_remove" DeviceRemove,
        44 "device_shares" DeviceShares,
    }
}

closed_list! {
    /// Where the user's call arrived.
    Gateway {
        1 "library" Library,
        2 "mount" Mount,
        3 "hdfs" Hdfs,
        4 "webhdfs" WebHdfs,
        5 "command" Command,
        6 "device" Device,
        7 "import" Import,
    }
}

impl CallKind {
    /// True if `asked` and `got` are bytes of a file.
    pub fn moves_bytes(self) -> bool {
        matches!(self, CallKind::Read | CallKind::Write | CallKind::Append)
    }
}
