//! What importers share: settings, the trace that they fill, identities of files, lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use frieze_base::Reason;
use frieze_trace::PathHasher;
use frieze_trace::words::ROOT;

use crate::error::TraceFileError;
use crate::row::TraceRow;
use crate::writer::{TraceNames, TraceWriter, TracedActor, TracedPath};

/// Longest line that is read, bytes: longer ones are counted.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Paths that an import keeps in memory, some 200 bytes each.
const PATHS_MAX: usize = 8 << 20;

/// A format of another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFormat {
    /// `strace -f -ttt -T -y -e trace=file,desc,process`.
    Strace,
    /// The NameNode's audit log: calls on names.
    HdfsAudit,
    /// The `clienttrace` lines of DataNodes' logs: bytes.
    ClientTrace,
    /// Lines of HTFS (`org.apache.hadoop.metrics.APITrace`).
    Htfs,
    /// Block traces of Microsoft Research Cambridge (SNIA).
    Msr,
    /// Block traces of Tencent's CBS (SNIA).
    Tencent,
    /// Block traces of Alibaba (2020).
    Alibaba,
    /// `oracleGeneral` of libCacheSim, 24 bytes a request.
    LibCacheSim,
}

impl ImportFormat {
    /// All of them.
    pub const ALL: [ImportFormat; 8] = [
        ImportFormat::Strace,
        ImportFormat::HdfsAudit,
        ImportFormat::ClientTrace,
        ImportFormat::Htfs,
        ImportFormat::Msr,
        ImportFormat::Tencent,
        ImportFormat::Alibaba,
        ImportFormat::LibCacheSim,
    ];

    /// Its word in commands and manifests.
    pub fn name(self) -> &'static str {
        match self {
            ImportFormat::Strace => "strace",
            ImportFormat::HdfsAudit => "hdfs-audit",
            ImportFormat::ClientTrace => "hdfs-clienttrace",
            ImportFormat::Htfs => "htfs",
            ImportFormat::Msr => "msr",
            ImportFormat::Tencent => "tencent",
            ImportFormat::Alibaba => "alibaba",
            ImportFormat::LibCacheSim => "libcachesim",
        }
    }
}

/// What an import needs beside its inputs.
#[derive(Clone, Debug)]
pub struct ImportSettings {
    /// What the inputs are.
    pub format: ImportFormat,
    /// Hashes paths.
    pub hasher: PathHasher,
    /// Only calls on paths below this one, which becomes the root. For `strace`.
    pub under: Option<Vec<u8>>,
    /// Output of `hdfs fsck / -files -blocks`: names the files of blocks. For `hdfs-clienttrace`.
    pub blocks: Option<PathBuf>,
    /// Added to times that have no zone, ns: those of a log in UTC+1 are 3,600 s too late. For logs of Hadoop.
    pub zone_ns: i64,
    /// ns since 1970 of time 0, for formats whose times begin with the program.
    pub begin_ns: i64,
}

/// The trace that an import fills.
pub(super) struct ImportTarget<'a> {
    pub(super) trace: &'a mut TraceWriter,
    pub(super) hasher: PathHasher,
    pub(super) names: TraceNames,
    pub(super) rows: u64,
}

impl ImportTarget<'_> {
    pub(super) fn push(&mut self, row: TraceRow) -> Result<(), TraceFileError> {
        self.rows += 1;
        self.trace.push(row)
    }

    pub(super) fn note(&mut self, what: &str) {
        self.trace.manifest().note(what, 1);
    }

    /// Hash of a path; its names become words of the trace.
    pub(super) fn path(&mut self, path: &[u8], input: &Path) -> Result<u64, TraceFileError> {
        let (mut hash, mut end) = (ROOT, 0);
        for name in path.split(|byte| *byte == b'/') {
            let start = end;
            end += name.len() + 1;
            if name.is_empty() {
                continue;
            }
            let parent = hash;
            hash = self.hasher.name(parent, name);
            if !self.names.paths.contains_key(&hash) {
                if self.names.paths.len() >= PATHS_MAX {
                    let why = format!("it has more than {PATHS_MAX} paths: import it in parts");
                    return Err(TraceFileError::bad(input, why));
                }
                let text = path[..start + name.len()].to_vec();
                self.names.paths.insert(hash, TracedPath { text: Some(text), parent: Some(parent), kind: None });
            }
        }
        Ok(hash)
    }

    /// Number of a user, program and machine.
    pub(super) fn actor(&mut self, actor: TracedActor) -> u64 {
        let words = format!("{:?}\0{:?}\0{:?}", actor.uid, actor.program, actor.host);
        let number = self.hasher.word(words.as_bytes()) & 0xffff_ffff;
        self.names.actors.entry(number).or_insert(actor);
        number
    }
}

/// Identities of files by their paths, through renames and removals.
#[derive(Default)]
pub(super) struct FileIdentities {
    known: BTreeMap<u64, u64>,
    /// Files that had this path before.
    former: BTreeMap<u64, u64>,
}

impl FileIdentities {
    pub(super) fn of(&mut self, path: u64) -> u64 {
        let former = self.former.get(&path).copied().unwrap_or(0);
        *self.known.entry(path).or_insert(path.wrapping_add(former))
    }

    pub(super) fn is_known(&self, path: u64) -> bool {
        self.known.contains_key(&path)
    }

    pub(super) fn remove(&mut self, path: u64) -> u64 {
        let identity = self.of(path);
        self.known.remove(&path);
        *self.former.entry(path).or_default() += 1;
        identity
    }

    pub(super) fn rename(&mut self, from: u64, to: u64) -> u64 {
        let identity = self.remove(from);
        if self.known.insert(to, identity).is_some() {
            *self.former.entry(to).or_default() += 1;
        }
        identity
    }
}

/// Reads a file line by line. A longer line than [`LINE_BYTES_MAX`] is counted, and left out.
pub(super) fn for_each_line(
    input: &Path,
    progress: &mut dyn FnMut(u64),
    target: &mut ImportTarget<'_>,
    mut visit: impl FnMut(&mut ImportTarget<'_>, &str) -> Result<(), TraceFileError>,
) -> Result<(), TraceFileError> {
    let file = File::open(input).map_err(TraceFileError::system("open", input))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(TraceFileError::system("read", input))? as u64;
        if read == 0 {
            return Ok(());
        }
        progress(read);
        if read == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            target.note("lines longer than 1 MiB");
            // The rest of the line.
            loop {
                line.clear();
                let rest = (&mut reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
                let rest = rest.map_err(TraceFileError::system("read", input))? as u64;
                progress(rest);
                if rest == 0 || line.last() == Some(&b'\n') {
                    break;
                }
            }
            continue;
        }
        visit(target, String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']))?;
    }
}

/// The reason that stands for an errno.
pub(super) fn reason_of_errno(name: &str) -> Reason {
    match name {
        "ENOENT" => Reason::NotFound,
        "EEXIST" => Reason::Exists,
        "ENOTDIR" => Reason::NotDirectory,
        "EISDIR" => Reason::IsDirectory,
        "ENOTEMPTY" => Reason::NotEmpty,
        "ENAMETOOLONG" => Reason::NameTooLong,
        "ELOOP" => Reason::SymlinkLoop,
        "EMLINK" => Reason::TooManyLinks,
        "EACCES" => Reason::AccessDenied,
        "EPERM" => Reason::NotPermitted,
        "EROFS" => Reason::ReadOnly,
        "EINVAL" => Reason::InvalidArgument,
        "EFBIG" => Reason::TooLarge,
        "ENODATA" => Reason::NoAttribute,
        "ERANGE" => Reason::AttributeTooSmall,
        "ENOSPC" => Reason::NoSpace,
        "EDQUOT" => Reason::BytesQuota,
        "ESTALE" | "EBADF" => Reason::StaleHandle,
        "EXDEV" => Reason::CrossDevice,
        "EBUSY" | "ETXTBSY" => Reason::Busy,
        "EIO" => Reason::InputOutput,
        "EOPNOTSUPP" | "ENOTSUP" | "ENOSYS" => Reason::Unsupported,
        "EAGAIN" | "EINTR" => Reason::Unavailable,
        _ => Reason::Internal,
    }
}
