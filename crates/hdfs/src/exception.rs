//! The exceptions of calls, as Hadoop's clients know them: a class name and a message.
//!
//! This is the one table from reasons to exceptions. A client throws the class if it knows it, else one that contains
//! name and message.

use frieze_base::{Fault, Reason};

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Exception {
    /// Name of the Java class.
    pub class: &'static str,
    /// The message.
    pub message: String,
}

macro_rules! classes {
    ($($name:ident = $class:literal => $reason:ident;)*) => {
        impl Exception {
            $(#[doc = concat!("A `", $class, "`.")]
            pub fn $name(message: impl Into<String>) -> Exception {
                Exception { class: $class, message: message.into() }
            })*

            /// The reason that the class stands for, where no request has stated a finer one.
            pub fn reason(&self) -> Reason {
                match self.class {
                    $($class => Reason::$reason,)*
                    _ => Reason::Internal,
                }
            }
        }
    };
}

classes! {
    access_control = "org.apache.hadoop.security.AccessControlException" => AccessDenied;
    acl = "org.apache.hadoop.hdfs.protocol.AclException" => InvalidArgument;
    already_being_created = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException" => Busy;
    already_exists = "org.apache.hadoop.fs.FileAlreadyExistsException" => Exists;
    argument = "java.lang.IllegalArgumentException" => InvalidArgument;
    authorization = "org.apache.hadoop.security.authorize.AuthorizationException" => AccessDenied;
    end_of_file = "java.io.EOFException" => InvalidArgument;
    illegal_argument = "org.apache.hadoop.HadoopIllegalArgumentException" => InvalidArgument;
    invalid_path = "org.apache.hadoop.fs.InvalidPathException" => InvalidInstant;
    io = "java.io.IOException" => InputOutput;
    lease_expired = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException" => Superseded;
    name_too_long = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException" => NameTooLong;
    no_such_method = "org.apache.hadoop.ipc.RpcNoSuchMethodException" => Unsupported;
    no_such_protocol = "org.apache.hadoop.ipc.RpcNoSuchProtocolException" => Unsupported;
    no_replica = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException" => Elsewhere;
    not_a_directory = "org.apache.hadoop.fs.PathIsNotDirectoryException" => NotDirectory;
    not_a_parent = "org.apache.hadoop.fs.ParentNotDirectoryException" => NotDirectory;
    not_empty = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException" => NotEmpty;
    not_found = "java.io.FileNotFoundException" => NotFound;
    past = "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException" => ReadOnly;
    snapshot = "org.apache.hadoop.hdfs.protocol.SnapshotException" => InvalidArgument;
    files_quota = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException" => FilesQuota;
    bytes_quota = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException" => BytesQuota;
    security = "java.lang.SecurityException" => AccessDenied;
    safe_mode = "org.apache.hadoop.hdfs.server.namenode.SafeModeException" => Unavailable;
    unsupported = "java.lang.UnsupportedOperationException" => Unsupported;
}

impl Exception {
    /// The exception for `error` in a call about `path`.
    pub fn of(error: frieze_client::Error, path: &str) -> Exception {
        let fault = Fault::from(error);
        match fault.reason {
            Reason::NotFound | Reason::StaleHandle => Exception::not_found(format!("File does not exist: {path}")),
            Reason::Exists => Exception::already_exists(format!("{path} already exists")),
            Reason::NotDirectory => Exception::not_a_parent(format!("{path} (is not a directory)")),
            Reason::IsDirectory => Exception::not_found(format!("Path is not a file: {path}")),
            Reason::NotEmpty => Exception::not_empty(format!("`{path} is non empty': Directory is not empty")),
            Reason::NameTooLong => Exception::name_too_long(format!("a name in {path} is longer than 255 bytes")),
            Reason::AccessDenied | Reason::NotPermitted | Reason::Unproven => {
                Exception::access_control(format!("Permission denied: {path}: {fault}"))
            }
            Reason::ReadOnly => Exception::past(words(path)),
            Reason::InvalidInstant => Exception::invalid_path(format!("{path}: {fault}")),
            Reason::InvalidArgument | Reason::TooLarge => Exception::illegal_argument(format!("{path}: {fault}")),
            Reason::FilesQuota => Exception::files_quota(format!(
                "The NameSpace quota (directories and files) of a directory above {path} is exceeded: {fault}"
            )),
            Reason::BytesQuota => {
                Exception::bytes_quota(format!("The DiskSpace quota of a directory above {path} is exceeded: {fault}"))
            }
            Reason::Unsupported => Exception::unsupported(format!("{path}: {fault}")),
            _ => {
                if matches!(fault.reason, Reason::Corrupt | Reason::Internal | Reason::InputOutput) {
                    tracing::warn!(reason = ?fault.reason, "{path}: {fault}");
                }
                Exception::io(format!("{path}: {fault}"))
            }
        }
    }

    /// For a change below `.at`.
    pub(crate) fn past_of(path: &str) -> Exception {
        Exception::past(words(path))
    }
}

fn words(path: &str) -> String {
    format!("{path}: the past cannot be changed")
}

/// For parameters that cannot be decoded.
pub(crate) fn malformed(method: &str, error: &prost::DecodeError) -> Exception {
    Exception {
        class: "org.apache.hadoop.thirdparty.protobuf.InvalidProtocolBufferException",
        message: format!("malformed parameters of {method}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_an_exception_that_names_its_path() {
        for &reason in Reason::ALL {
            let exception = Exception::of(frieze_client::Error::Refused(reason.into()), "/a/b");
            assert!(exception.class.contains('.') && exception.message.contains("/a/b"), "{reason:?}: {exception}");
        }
    }

    #[test]
    fn reasons_have_the_exceptions_of_hadoop() {
        let of = |reason: Reason| Exception::of(frieze_client::Error::Refused(reason.into()), "/a").class;
        assert_eq!(of(Reason::AccessDenied), "org.apache.hadoop.security.AccessControlException");
        assert_eq!(of(Reason::NotFound), "java.io.FileNotFoundException");
        assert_eq!(of(Reason::FilesQuota), "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException");
        assert_eq!(of(Reason::BytesQuota), "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException");
        assert_eq!(of(Reason::HistoryExpired), "java.io.IOException");
        assert_eq!(of(Reason::ReadOnly), "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException");
    }
}
