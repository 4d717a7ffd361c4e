//! Targets of an export.

use anyhow::Result;
use frieze_client::{Attr, FileKind};

use crate::copy::Pull;

/// Attributes that are exported beside the bytes.
pub(super) struct Meta {
    pub(super) attr: Attr,
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Meta {
    pub(super) fn kind(&self) -> FileKind {
        self.attr.kind()
    }
}

/// Where files go. Names are relative; that of everything is empty.
pub(super) trait ExportTarget {
    /// A directory, before its entries.
    fn directory(&mut self, name: &[u8], meta: &Meta) -> Result<()>;
    /// The same, after them. Returns what cannot be kept.
    fn leave(&mut self, name: &[u8], meta: &Meta) -> Result<Vec<String>>;
    /// A file with its bytes. Returns what cannot be kept.
    fn file(&mut self, name: &[u8], meta: &Meta, bytes: &mut dyn Pull) -> Result<Vec<String>>;
    /// Another name of a file.
    fn again(&mut self, name: &[u8], first: &[u8], meta: &Meta) -> Result<()>;
    /// A symbolic link.
    fn link(&mut self, name: &[u8], meta: &Meta, target: &[u8]) -> Result<Vec<String>>;
    /// A pipe, a device or a socket. Returns what cannot be kept.
    fn special(&mut self, name: &[u8], meta: &Meta) -> Result<Vec<String>>;
    /// True if the bytes of files are wanted.
    fn takes_bytes(&self) -> bool {
        true
    }
}
