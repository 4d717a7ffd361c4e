//! What went wrong, in three sizes: a small closed kind that says what the caller does next, a reason that a door can
//! map to errno or to an exception, and a sentence for a person.

use std::fmt;

/// What the caller does next. Closed and small on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// The thing named is not there (at that instant). Final for this request.
    NotFound,
    /// The name is taken. Choose another or replace it on purpose.
    Exists,
    /// The request itself is wrong. Mend it; sending it again gives the same answer.
    Invalid,
    /// The caller may not. Ask the owner.
    Denied,
    /// Another client changed or holds it. Read it again, then decide.
    Conflict,
    /// Sent under an old chain configuration. Take the new one from the reply and send again.
    StaleEpoch,
    /// The instant is still open. Wait until it closes, then send again.
    NotYetClosed,
    /// The instant is no longer kept. Final; the message names the exact instants beside it.
    HistoryExpired,
    /// No room. Free space, then send again.
    NoSpace,
    /// The server cannot answer now. Send again later; the same (session, seq) runs once.
    Unavailable,
    /// Stored bytes fail their checksum. Never returned as data; the message names file, range and instant.
    Corrupt,
    /// A defect of frieze. Please report it.
    Internal,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal => $kind:ident, $words:literal;)*) => {
        /// Why a request failed, fine enough for a door to choose the right errno. Codes are part of the wire format:
        /// add at the end, never reuse.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Reason { $($(#[$doc])* #[doc = $words] $name = $code,)* }

        impl Reason {
            /// Every reason, in the order of the codes.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// What the caller does next.
            pub fn kind(self) -> ErrorKind {
                match self { $(Reason::$name => ErrorKind::$kind,)* }
            }

            /// The reason in plain words, lower case, no full stop.
            pub fn words(self) -> &'static str {
                match self { $(Reason::$name => $words,)* }
            }

            /// The reason with this wire code; an unknown code (a newer peer) is `Internal`.
            pub fn from_code(code: u32) -> Reason {
                match code { $($code => Reason::$name,)* _ => Reason::Internal }
            }
        }
    };
}

reasons! {
    NotFound = 1 => NotFound, "no such file or directory";
    Exists = 2 => Exists, "already exists";
    NotDirectory = 3 => Invalid, "not a directory";
    IsDirectory = 4 => Invalid, "is a directory";
    NotEmpty = 5 => Conflict, "directory not empty";
    NameTooLong = 6 => Invalid, "name too long";
    SymlinkLoop = 7 => Invalid, "too many levels of symbolic links";
    TooManyLinks = 8 => Invalid, "too many links";
    AccessDenied = 9 => Denied, "permission denied";
    NotPermitted = 10 => Denied, "operation not permitted";
    ReadOnly = 11 => Denied, "read-only: the past cannot be changed";
    InvalidArgument = 12 => Invalid, "invalid argument";
    TooLarge = 13 => Invalid, "file too large";
    NoAttribute = 14 => NotFound, "no such attribute";
    AttributeTooSmall = 15 => Invalid, "buffer too small for the attribute";
    NoUserTime = 16 => NotFound, "the file holds no user time";
    BackwardUserTime = 17 => Invalid, "user time runs backwards";
    Future = 18 => Invalid, "the instant lies in the future";
    NotYetClosed = 19 => NotYetClosed, "the instant is not closed yet";
    HistoryExpired = 20 => HistoryExpired, "history is no longer kept for that instant";
    NoSpace = 21 => NoSpace, "no space left on device";
    StaleHandle = 22 => NotFound, "stale handle";
    StaleEpoch = 23 => StaleEpoch, "stale configuration";
    UnknownSession = 24 => Conflict, "unknown or ended session";
    SequenceTooOld = 25 => Conflict, "request number too old to be remembered";
    Unproven = 26 => Denied, "the caller is not proven";
    Unavailable = 27 => Unavailable, "temporarily unavailable";
    Overloaded = 28 => Unavailable, "too many requests or connections";
    Fenced = 29 => Unavailable, "the server's clock is not trusted: it serves reads only";
    Corrupt = 30 => Corrupt, "stored data is corrupt";
    BadFrame = 31 => Invalid, "malformed frame";
    WrongVersion = 32 => Invalid, "another version";
    WrongCluster = 33 => Invalid, "another cluster";
    Unsupported = 34 => Invalid, "operation not supported";
    CrossDevice = 35 => Invalid, "across views or file systems";
    Busy = 36 => Conflict, "in use";
    IncompleteGap = 37 => Conflict, "the instant lies inside a gap";
    InvalidInstant = 38 => Invalid, "not an instant";
    InputOutput = 39 => Unavailable, "input/output error";
    Internal = 40 => Internal, "internal error";
    Superseded = 41 => Conflict, "changed meanwhile";
    Elsewhere = 42 => Unavailable, "another server of the cluster answers this";
    FilesQuota = 43 => NoSpace, "the quota of files is used up";
    BytesQuota = 44 => NoSpace, "the quota of bytes is used up";
    Removed = 45 => Invalid, "this server was removed from the cluster";
    FabricFailed = 46 => Unavailable, "registered memory cannot be reached";
}

/// A failed request as it travels between crates and processes: the reason and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why, for programs.
    pub reason: Reason,
    /// What was wrong, where, and what to do, for people. One sentence or two, no trailing newline.
    pub message: String,
}

impl Fault {
    /// A fault with a message of its own.
    pub fn new(reason: Reason, message: impl Into<String>) -> Fault {
        Fault { reason, message: message.into() }
    }

    /// What the caller does next.
    pub fn kind(&self) -> ErrorKind {
        self.reason.kind()
    }
}

impl From<Reason> for Fault {
    fn from(reason: Reason) -> Fault {
        Fault { reason, message: reason.words().to_owned() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_survives_its_code() {
        for &reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason as u32), reason);
            assert!(!reason.words().ends_with('.'));
        }
        assert_eq!(Reason::from_code(9999), Reason::Internal);
    }
}
