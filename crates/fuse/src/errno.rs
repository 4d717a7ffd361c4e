//! The one table from reasons to errno.
//!
//! ENOSYS never appears: the kernel would take it as "this operation does not exist" and never ask again.

use frieze_base::{Fault, Reason};
use nix::errno::Errno;

/// The errno a program sees for `reason`.
pub fn errno_of(reason: Reason) -> Errno {
    match reason {
        Reason::NotFound => Errno::ENOENT,
        Reason::Exists => Errno::EEXIST,
        Reason::NotDirectory => Errno::ENOTDIR,
        Reason::IsDirectory => Errno::EISDIR,
        Reason::NotEmpty => Errno::ENOTEMPTY,
        Reason::NameTooLong => Errno::ENAMETOOLONG,
        Reason::SymlinkLoop => Errno::ELOOP,
        Reason::TooManyLinks => Errno::EMLINK,
        Reason::AccessDenied | Reason::Unproven => Errno::EACCES,
        Reason::NotPermitted => Errno::EPERM,
        // A server that does not trust its clock serves reads only: a program meets a read-only file system.
        Reason::ReadOnly | Reason::Fenced => Errno::EROFS,
        Reason::InvalidArgument | Reason::BackwardUserTime | Reason::InvalidInstant => Errno::EINVAL,
        Reason::TooLarge => Errno::EFBIG,
        Reason::NoAttribute | Reason::NoUserTime => Errno::ENODATA,
        Reason::AttributeTooSmall => Errno::ERANGE,
        // The instant is outside the span that can be read.
        Reason::Future | Reason::HistoryExpired | Reason::IncompleteGap => Errno::ERANGE,
        Reason::NotYetClosed | Reason::Overloaded => Errno::EAGAIN,
        Reason::NoSpace => Errno::ENOSPC,
        Reason::FilesQuota | Reason::BytesQuota => Errno::EDQUOT,
        // As NFS answers after a server was recreated: the mount's file handles are stale.
        Reason::StaleHandle | Reason::WrongCluster => Errno::ESTALE,
        Reason::CrossDevice => Errno::EXDEV,
        Reason::Busy | Reason::Superseded => Errno::EBUSY,
        Reason::Unsupported => Errno::EOPNOTSUPP,
        Reason::BadFrame | Reason::WrongVersion | Reason::Removed => Errno::EPROTO,
        // The client library goes to the right server: this comes through only if it finds none in time.
        Reason::Elsewhere
        | Reason::StaleEpoch
        | Reason::UnknownSession
        | Reason::SequenceTooOld
        | Reason::FabricFailed
        | Reason::Unavailable
        | Reason::Corrupt
        | Reason::InputOutput
        | Reason::Internal => Errno::EIO,
    }
}

/// The reason that a program would see as `errno`, for a fault of the mount itself.
pub(crate) fn reason_of(errno: Errno) -> Reason {
    // Several reasons may share an errno: the first is the usual one.
    Reason::ALL.iter().copied().find(|reason| errno_of(*reason) == errno).unwrap_or(Reason::InvalidArgument)
}

/// Handles a fault where it ends: logs it once, loudly if it is not the program's own doing, and gives its errno.
pub(crate) fn answer(fault: &Fault) -> Errno {
    // Every call of every program gets it from then on.
    static OF_ANOTHER_CLUSTER: std::sync::Once = std::sync::Once::new();
    let errno = errno_of(fault.reason);
    if fault.reason == Reason::WrongCluster {
        OF_ANOTHER_CLUSTER.call_once(|| tracing::error!("unmount and mount anew: {}", fault.message));
    }
    if matches!(errno, Errno::EIO | Errno::EPROTO | Errno::EAGAIN) {
        tracing::warn!(reason = ?fault.reason, "{fault}");
    } else {
        tracing::debug!(reason = ?fault.reason, %errno, "{fault}");
    }
    errno
}

#[cfg(test)]
mod tests {
    use frieze_base::ErrorKind;

    use super::*;

    #[test]
    fn every_reason_has_an_errno_that_fits_its_kind() {
        for &reason in Reason::ALL {
            let errno = errno_of(reason);
            assert!(errno as i32 > 0 && errno as i32 <= 133, "{reason:?} is no errno of Linux");
            // The kernel switches an operation off for good on ENOSYS and repeats the system call on EINTR.
            assert!(!matches!(errno, Errno::ENOSYS | Errno::EINTR), "{reason:?}");
            let fits = match reason.kind() {
                ErrorKind::NotFound => matches!(errno, Errno::ENOENT | Errno::ENODATA | Errno::ESTALE),
                ErrorKind::Exists => errno == Errno::EEXIST,
                ErrorKind::Denied => matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS),
                ErrorKind::HistoryExpired => errno == Errno::ERANGE,
                ErrorKind::NoSpace => matches!(errno, Errno::ENOSPC | Errno::EDQUOT),
                ErrorKind::Corrupt | ErrorKind::Internal | ErrorKind::StaleEpoch => errno == Errno::EIO,
                ErrorKind::NotYetClosed => errno == Errno::EAGAIN,
                ErrorKind::Unavailable => matches!(errno, Errno::EIO | Errno::EAGAIN | Errno::EROFS),
                ErrorKind::Invalid | ErrorKind::Conflict => errno != Errno::ENOENT,
            };
            assert!(fits, "{reason:?} ({:?}) as {errno:?}", reason.kind());
        }
    }

    #[test]
    fn a_quota_that_is_used_up_is_not_a_full_disk() {
        assert_eq!(errno_of(Reason::FilesQuota), Errno::EDQUOT);
        assert_eq!(errno_of(Reason::BytesQuota), Errno::EDQUOT);
        assert_eq!(errno_of(Reason::NoSpace), Errno::ENOSPC);
    }

    #[test]
    fn instants_that_cannot_be_read_are_out_of_range() {
        assert_eq!(errno_of(Reason::Future), Errno::ERANGE);
        assert_eq!(errno_of(Reason::HistoryExpired), Errno::ERANGE);
        assert_eq!(errno_of(Reason::InvalidInstant), Errno::EINVAL);
        assert_eq!(errno_of(Reason::NoUserTime), Errno::ENODATA);
    }
}
