//! Composite changes: clients' requests for clones, restores, undos and shared copies, and the one transaction that the
//! server makes of each.
//!
//! The server reads the tree without locking it, writes the changes into an [`Edit`] together with what it read, and
//! the namespace runs it whole, at one stamp, if that still holds (OLLP, CalvinFS §2.1).

use prost::Message;

use crate::mode::ModeChange;
use crate::target::Target;

/// Set in an inode number of an edit: the rest is the position of a [`NewInode`] among the edit's new inodes, from 0.
pub const NEW: u64 = 1 << 63;

/// The purpose of an edit, shown by `log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum EditKind {
    /// A copy that shares.
    Clone = 0,
    /// An older state comes back.
    Restore = 1,
    /// Removes the changes of an actor.
    Undo = 2,
    /// A range is copied by sharing.
    CopyRange = 3,
    /// A file or tree goes.
    Remove = 4,
    /// Files become a part of another.
    Join = 5,
    /// Mode and owner of a tree change.
    Change = 6,
    /// A tree gets a policy of retention.
    Retain = 7,
}

/// Many changes at one stamp, all or none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Edit {
    /// The purpose.
    #[prost(enumeration = "EditKind", tag = "1")]
    pub kind: i32,
    /// The instant it takes things from, 0 for none: for `log`.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// Inodes without a name that memory may have evicted, to be named again.
    #[prost(message, repeated, tag = "3")]
    pub brought: Vec<NamelessInode>,
    /// Inodes to make.
    #[prost(message, repeated, tag = "4")]
    pub new: Vec<NewInode>,
    /// Names to set or take, each once.
    #[prost(message, repeated, tag = "5")]
    pub names: Vec<SetName>,
    /// Inodes to change, each once.
    #[prost(message, repeated, tag = "6")]
    pub states: Vec<SetState>,
    /// True: a directory that is made keeps its modification time over the names it gets. False in edits of older
    /// servers, which are executed as they were when they were logged.
    #[prost(bool, tag = "7")]
    pub keeps_times: bool,
    /// Parts staged before, which come before what the lists here have.
    #[prost(message, optional, tag = "8")]
    pub staged: Option<StagedParts>,
    /// The policy of retention that some of the inodes get.
    #[prost(string, tag = "9")]
    pub policy: String,
}

impl Edit {
    /// Divides an edit that takes more than `part_bytes` bytes: its lists in encoded parts, each of one element at
    /// least, and what is left of it. No parts if it is shorter.
    pub fn divided(mut self, part_bytes: usize) -> (Vec<Vec<u8>>, Edit) {
        if self.encoded_len() <= part_bytes {
            return (Vec::new(), self);
        }
        let mut parts = EditParts { part_bytes, done: Vec::new(), part: Edit::default(), bytes: 0 };
        for brought in std::mem::take(&mut self.brought) {
            parts.put(brought.encoded_len(), |part| part.brought.push(brought));
        }
        for new in std::mem::take(&mut self.new) {
            parts.put(new.encoded_len(), |part| part.new.push(new));
        }
        for name in std::mem::take(&mut self.names) {
            parts.put(name.encoded_len(), |part| part.names.push(name));
        }
        for state in std::mem::take(&mut self.states) {
            parts.put(state.encoded_len(), |part| part.states.push(state));
        }
        parts.end();
        (parts.done, self)
    }
}

/// The lists of an edit, in parts.
struct EditParts {
    part_bytes: usize,
    done: Vec<Vec<u8>>,
    part: Edit,
    bytes: usize,
}

impl EditParts {
    fn put(&mut self, bytes: usize, add: impl FnOnce(&mut Edit)) {
        add(&mut self.part);
        // A tag and a length of up to four bytes.
        self.bytes += bytes + 5;
        if self.bytes >= self.part_bytes {
            self.end();
        }
    }

    fn end(&mut self) {
        if self.bytes > 0 {
            self.done.push(std::mem::take(&mut self.part).encode_to_vec());
        }
        self.bytes = 0;
    }
}

/// The parts of an edit that is too long for one transaction.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StagedParts {
    /// Number of the request of the session that the edit is for.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Which plan of it.
    #[prost(uint64, tag = "2")]
    pub plan: u64,
    /// How many parts there are.
    #[prost(uint32, tag = "3")]
    pub count: u32,
    /// Inodes that they make.
    #[prost(uint64, tag = "4")]
    pub new: u64,
}

/// A part of an edit. It is kept, and changes nothing, until the edit runs that names it, or the request is
/// acknowledged, or the session ends.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StageEdit {
    /// Number of the request of the session that the edit is for.
    #[prost(uint64, tag = "1")]
    pub request: u64,
    /// Which plan of it.
    #[prost(uint64, tag = "2")]
    pub plan: u64,
    /// Which part, from 0.
    #[prost(uint32, tag = "3")]
    pub part: u32,
    /// An [`Edit`] that has lists only, encoded.
    #[prost(bytes = "vec", tag = "4")]
    pub edit: Vec<u8>,
    /// An earlier plan of the request, whose parts are dropped; 0 for none.
    #[prost(uint64, tag = "5")]
    pub former: u64,
    /// The purpose of the edit: names are removed on a full disk, too.
    #[prost(enumeration = "EditKind", tag = "6")]
    pub kind: i32,
}

/// The last version of an inode without a name. Ignored if it is still in memory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NamelessInode {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Stamp of the version.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// The version as it is stored.
    #[prost(bytes = "vec", tag = "3")]
    pub value: Vec<u8>,
    /// Its extended attributes.
    #[prost(message, repeated, tag = "4")]
    pub xattrs: Vec<Xattr>,
}

/// An extended attribute; without a value: that there is none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Xattr {
    /// Name with its class.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    /// Value.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub value: Option<Vec<u8>>,
}

/// An inode to make. Its first name is a [`SetName`] of the same edit.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NewInode {
    /// Kind, as in `FileKind`.
    #[prost(enumeration = "crate::message::FileKind", tag = "1")]
    pub kind: i32,
    /// Permission bits.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "3")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "4")]
    pub gid: u32,
    /// Access time, ns.
    #[prost(sint64, tag = "5")]
    pub atime_ns: i64,
    /// Modification time, ns.
    #[prost(sint64, tag = "6")]
    pub mtime_ns: i64,
    /// Length of a file, bytes.
    #[prost(uint64, tag = "7")]
    pub size: u64,
    /// Where a symbolic link leads.
    #[prost(bytes = "vec", tag = "8")]
    pub target: Vec<u8>,
    /// Device number.
    #[prost(uint32, tag = "9")]
    pub rdev: u32,
    /// Chunk size, bytes.
    #[prost(uint64, tag = "10")]
    pub chunk_bytes: u64,
    /// Chains.
    #[prost(uint32, tag = "11")]
    pub chain_count: u32,
    /// Time plug-in; empty for none.
    #[prost(string, tag = "12")]
    pub plugin: String,
    /// Extended attributes.
    #[prost(message, repeated, tag = "13")]
    pub xattrs: Vec<Xattr>,
    /// Where its bytes come from.
    #[prost(message, repeated, tag = "14")]
    pub shares: Vec<Share>,
    /// The file whose user times come before its own; 0 for none.
    #[prost(uint64, tag = "15")]
    pub origin: u64,
    /// Those up to this instant.
    #[prost(uint64, tag = "16")]
    pub origin_at: u64,
    /// Number of its policy of retention, with what earlier ones have thinned.
    #[prost(uint32, tag = "17")]
    pub regime: u32,
}

/// A range of a file that shows an older state of a file, or zeros.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Share {
    /// First byte.
    #[prost(uint64, tag = "1")]
    pub start: u64,
    /// Length in bytes; 0: without end.
    #[prost(uint64, tag = "2")]
    pub len: u64,
    /// File it comes from; 0: zeros.
    #[prost(uint64, tag = "3")]
    pub inode: u64,
    /// Where in that file.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// That file's state at this instant, which is closed.
    #[prost(uint64, tag = "5")]
    pub at: u64,
}

/// A name to set or take.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetName {
    /// The directory; may be a new one.
    #[prost(uint64, tag = "1")]
    pub directory: u64,
    /// The name.
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Inode it names now, 0 for none: anything else means that the analysis is out of date.
    #[prost(uint64, tag = "3")]
    pub expect: u64,
    /// Inode it is to name, 0 for none; may be a new one.
    #[prost(uint64, tag = "4")]
    pub inode: u64,
}

/// An inode to change. Absent fields stay.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetState {
    /// The inode.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Stamp of its newest version: anything else means that the analysis is out of date.
    #[prost(uint64, tag = "2")]
    pub expect: u64,
    /// Permission bits.
    #[prost(uint32, optional, tag = "3")]
    pub mode: Option<u32>,
    /// Owner.
    #[prost(uint32, optional, tag = "4")]
    pub uid: Option<u32>,
    /// Group.
    #[prost(uint32, optional, tag = "5")]
    pub gid: Option<u32>,
    /// Access time, ns.
    #[prost(sint64, optional, tag = "6")]
    pub atime_ns: Option<i64>,
    /// Modification time, ns.
    #[prost(sint64, optional, tag = "7")]
    pub mtime_ns: Option<i64>,
    /// Length, bytes; what lies beyond is hidden.
    #[prost(uint64, optional, tag = "8")]
    pub size: Option<u64>,
    /// Ranges to share.
    #[prost(message, repeated, tag = "9")]
    pub shares: Vec<Share>,
    /// Extended attributes.
    #[prost(message, repeated, tag = "10")]
    pub xattrs: Vec<Xattr>,
    /// True: `size` is the least length. Bytes that other clients write beyond it meanwhile are neither hidden nor
    /// forgotten.
    #[prost(bool, tag = "11")]
    pub extends: bool,
    /// True: the order of the file's user times begins anew, behind those of `origin`. False in edits of older servers.
    #[prost(bool, tag = "12")]
    pub times_anew: bool,
    /// The file whose user times come before those of new writes; 0 for none. Only with `times_anew`.
    #[prost(uint64, tag = "13")]
    pub origin: u64,
    /// Those up to this instant.
    #[prost(uint64, tag = "14")]
    pub origin_at: u64,
    /// True: it gets the policy of retention of the edit. A file may have changed since the analysis.
    #[prost(bool, tag = "15")]
    pub gets_policy: bool,
}

impl SetState {
    /// True if it gives a policy of retention and changes nothing else.
    pub fn is_only_policy(&self) -> bool {
        let only = SetState { inode: self.inode, expect: self.expect, gets_policy: true, ..SetState::default() };
        *self == only
    }
}

/// Copies a file or tree, as it was at an instant, by sharing its bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CloneTree {
    /// The file or tree to copy.
    #[prost(message, required, tag = "1")]
    pub source: Target,
    /// The instant; 0: now.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// The name to make; it must be free.
    #[prost(message, required, tag = "3")]
    pub target: Target,
    /// True: report the changes without making them.
    #[prost(bool, tag = "4")]
    pub dry_run: bool,
}

/// Takes the name of a file, or of a directory and of all that is below it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RemoveTree {
    /// The name to create; not the root.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// True: report the changes without making them.
    #[prost(bool, tag = "2")]
    pub dry_run: bool,
}

/// Changes mode and owner of a file, or of a directory and of all that is below it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ChangeTree {
    /// The file or directory. Links below are not followed: they get an owner, and have no mode.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Changes of the mode, one after the other.
    #[prost(message, repeated, tag = "2")]
    pub modes: Vec<ModeChange>,
    /// New owner.
    #[prost(uint32, optional, tag = "3")]
    pub uid: Option<u32>,
    /// New group.
    #[prost(uint32, optional, tag = "4")]
    pub gid: Option<u32>,
    /// True: report the changes without making them.
    #[prost(bool, tag = "5")]
    pub dry_run: bool,
    /// New policy of retention, as a policy is written.
    #[prost(string, optional, tag = "6")]
    pub policy: Option<String>,
}

/// Joins files: the bytes of several come behind those of one, by sharing, and their names go; at one stamp.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct JoinFiles {
    /// The right to write the file that they are joined to.
    #[prost(bytes = "vec", tag = "1")]
    pub target: Vec<u8>,
    /// The files, in the order in which their bytes are to lie.
    #[prost(message, repeated, tag = "2")]
    pub sources: Vec<Target>,
}

/// Makes a file or tree what it was at an instant.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Restore {
    /// The file or tree; by its path now, or if it was deleted by its path then.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// The instant.
    #[prost(uint64, tag = "2")]
    pub at: u64,
    /// True: names made since go.
    #[prost(bool, tag = "3")]
    pub delete: bool,
    /// True: report the changes without making them.
    #[prost(bool, tag = "4")]
    pub dry_run: bool,
}

/// Undoes the changes of an actor: every unit whose newest version is the actor's gets its newest version by any other
/// actor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Undo {
    /// Only below it; the root for everything.
    #[prost(message, required, tag = "1")]
    pub target: Target,
    /// Sessions whose changes are undone; empty for all.
    #[prost(uint64, repeated, tag = "2")]
    pub sessions: Vec<u64>,
    /// User whose changes are undone.
    #[prost(uint32, optional, tag = "3")]
    pub uid: Option<u32>,
    /// Only changes stamped after it.
    #[prost(uint64, tag = "4")]
    pub after: u64,
    /// Only changes stamped up to it; 0: all.
    #[prost(uint64, tag = "5")]
    pub upto: u64,
    /// True: report the changes without making them.
    #[prost(bool, tag = "6")]
    pub dry_run: bool,
}

/// Copies bytes within a file system by sharing them: one range, or several at one stamp, all or none.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CopyRange {
    /// The right to read the source.
    #[prost(bytes = "vec", tag = "1")]
    pub source: Vec<u8>,
    /// Where in it.
    #[prost(uint64, tag = "2")]
    pub source_offset: u64,
    /// The right to write the target.
    #[prost(bytes = "vec", tag = "3")]
    pub target: Vec<u8>,
    /// Where in it.
    #[prost(uint64, tag = "4")]
    pub target_offset: u64,
    /// Bytes; fewer are copied where the source ends before, but of several ranges all or none.
    #[prost(uint64, tag = "5")]
    pub len: u64,
    /// More ranges, laid over those before them. Their own `also` is empty.
    #[prost(message, repeated, tag = "6")]
    pub also: Vec<CopyRange>,
}

/// An action on one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum ActionKind {
    /// A new inode gets a name.
    Make = 0,
    /// A name comes back, with its inode.
    Name = 1,
    /// A name goes.
    Unname = 2,
    /// A name leads to another inode.
    Replace = 3,
    /// Bytes change.
    Bytes = 4,
    /// Attributes change.
    Attributes = 5,
    /// Left as it is, and why.
    Left = 6,
}

impl ActionKind {
    /// As commands and JSON name it.
    pub fn word(self) -> &'static str {
        match self {
            ActionKind::Make => "make",
            ActionKind::Name => "bring back",
            ActionKind::Unname => "remove",
            ActionKind::Replace => "replace",
            ActionKind::Bytes => "bytes",
            ActionKind::Attributes => "attributes",
            ActionKind::Left => "left",
        }
    }
}

/// One action that an edit makes or would make.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EditAction {
    /// The action.
    #[prost(enumeration = "ActionKind", tag = "1")]
    pub kind: i32,
    /// Path of the name, from the root.
    #[prost(bytes = "vec", tag = "2")]
    pub path: Vec<u8>,
    /// The inode.
    #[prost(uint64, tag = "3")]
    pub inode: u64,
    /// First byte, where bytes change.
    #[prost(uint64, tag = "4")]
    pub offset: u64,
    /// How many bytes.
    #[prost(uint64, tag = "5")]
    pub len: u64,
    /// As text: which attributes, from what to what, or why the object is left alone.
    #[prost(string, tag = "6")]
    pub words: String,
    /// Stamp of the version that is there now, where it matters; 0 for none.
    #[prost(uint64, tag = "7")]
    pub newest: u64,
    /// Stamp of the version that would come back, or of the actor's; 0 for none.
    #[prost(uint64, tag = "8")]
    pub older: u64,
    /// Of a copy that a restore makes: where its original is now; empty if the caller may not see it.
    #[prost(bytes = "vec", tag = "9")]
    pub lives_at: Vec<u8>,
    /// Of a removal and a change of mode or owner: the kind of the object.
    #[prost(enumeration = "crate::message::FileKind", tag = "10")]
    pub file_kind: i32,
    /// Of a change of mode or owner: the mode, the owner and the group that it has then.
    #[prost(message, optional, tag = "11")]
    pub rights: Option<FileRights>,
}

/// Mode, owner and group.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FileRights {
    /// Permission bits.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    /// Owner.
    #[prost(uint32, tag = "2")]
    pub uid: u32,
    /// Group.
    #[prost(uint32, tag = "3")]
    pub gid: u32,
}

/// The actions that an edit made, or would make.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EditReply {
    /// Its stamp; 0 if nothing was done.
    #[prost(uint64, tag = "1")]
    pub stamp: u64,
    /// The inode made by a clone; 0 for none.
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// The actions, by path, as many as fit; see `count`.
    #[prost(message, repeated, tag = "3")]
    pub actions: Vec<EditAction>,
    /// How many there are, those that did not fit included.
    #[prost(uint64, tag = "4")]
    pub count: u64,
    /// Exact instant that older states were taken at; 0 where there is none.
    #[prost(uint64, tag = "5")]
    pub at: u64,
    /// True if the request had run before: its actions are not repeated here.
    #[prost(bool, tag = "6")]
    pub repeated: bool,
    /// Bytes copied by a `CopyRange` or a `JoinFiles`.
    #[prost(uint64, tag = "7")]
    pub len: u64,
    /// Of a dry run: the code of the reason for which the real one would be refused as things are; 0 if it would not.
    #[prost(uint32, tag = "8")]
    pub refused: u32,
    /// The same in words.
    #[prost(string, tag = "9")]
    pub refused_words: String,
}
