//! A view of the file system: now or an instant of its past, for one caller.

use std::sync::Arc;

use frieze_base::{InodeId, Reason};
use frieze_hlc::{Hlc, UserTime};
use frieze_trace::CallKind;
use frieze_wire::edit::EditReply;
use frieze_wire::message::{
    Access, DirEntry, Durability, GetXattr, List, ListReply, Log, LogReply, Open, OpenReply, PATH_XATTR, ReadLink,
    Reply, Request, Stat, StatReply, Sync, TxnReply, View,
};
use frieze_wire::quota::{QUOTA_XATTR, Quota, QuotaUse, USAGE_XATTR, parse_quota};
use frieze_wire::txn::{
    Caller, DeleteSnapshot, Link, Make, MakeKind, MakeNameless, MakeSnapshot, Op, Remove, RemoveXattr, Rename, SetAttr,
    SetXattr, Special, Target,
};
use frieze_wire::writers::{FileWriter, WRITERS_XATTR, parse_writers};

use crate::cache_leases::CacheLease;
use crate::client_core::ClientCore;
use crate::file::OpenContext;
use crate::interval::HistoryInterval;
use crate::modes::{CreateMode, OpenFlags, RenameMode, XattrMode};
use crate::rpc::QueryOptions;
use crate::{Error, File};

/// A view of the file system. Cheap to clone; [`Fs::at`] and the like give another view of the same client.
///
/// Paths start at the root. Every method answers for the view's instant and caller; a change through a view of the
/// past is refused here.
///
/// # Errors
/// Every method can end with `Refused` (the server's reason, as POSIX would have it), `Unanswered` (no answer in time;
/// a change may or may not have happened), `Busy` or `Closed`.
#[derive(Clone, Debug)]
pub struct Fs {
    pub(crate) shared: Arc<ClientCore>,
    view: View,
    caller: Option<Caller>,
    durability: Durability,
    lease: Option<Arc<CacheLease>>,
    /// New files belong to the group of their directory.
    shares_group: bool,
    umask: u32,
    recent: bool,
}

impl Fs {
    pub(crate) fn new(shared: Arc<ClientCore>) -> Fs {
        let durability = shared.options.durability;
        let (caller, lease) = (None, None);
        Fs { shared, view: View::NOW, caller, durability, lease, shares_group: false, umask: 0, recent: false }
    }

    /// The same at an instant of system time, inclusive.
    pub fn at(&self, at: Hlc) -> Fs {
        Fs { view: View { at: Some(at.0), ..self.view }, ..self.clone() }
    }

    /// The same with every file cut at its last record with a user time up to `user_at`.
    pub fn user_at(&self, user_at: UserTime) -> Fs {
        Fs { view: View { user_at: Some(user_at.0), ..self.view }, ..self.clone() }
    }

    /// The same on behalf of another user, for connections of root and of keys with that right.
    pub fn as_caller(&self, caller: Caller) -> Fs {
        Fs { caller: Some(caller), ..self.clone() }
    }

    /// The same with another durability of writes and changes.
    pub fn with_durability(&self, durability: Durability) -> Fs {
        Fs { durability, ..self.clone() }
    }

    /// The same; new files belong to the group of their directory, as in HDFS.
    pub fn sharing_group(&self) -> Fs {
        Fs { shares_group: true, ..self.clone() }
    }

    /// The same; new files lack the permissions of this mask, unless the directory has a default access list, which
    /// then decides.
    pub fn with_umask(&self, umask: u32) -> Fs {
        Fs { umask, ..self.clone() }
    }

    /// The same for the attributes of directories only: if the cluster has no leader for a second, they are read as a
    /// server knew them last.
    pub fn recent(&self) -> Fs {
        Fs { recent: true, ..self.clone() }
    }

    /// The same with requests for cache leases; `lease` then holds those of the last reply. Only for clients with a
    /// [`crate::Recaller`] whose recalls they obey.
    pub fn leasing(&self, lease: Arc<CacheLease>) -> Fs {
        Fs { lease: Some(lease), ..self.clone() }
    }

    /// The instant and user time of this view.
    pub fn view(&self) -> View {
        self.view
    }

    /// The user on whose behalf it acts; `None` for the proven user of the connection.
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_ref()
    }

    /// When writes and changes made through this view are acknowledged.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Attributes of a file.
    pub fn stat(&self, target: &Target) -> Result<StatReply, Error> {
        let stat = Stat { target: target.clone(), view: self.view, recent: false };
        let reply = match self.recent && !self.view.is_past() {
            true => self.shared.query_recent(self.caller.as_ref(), stat, self.lease.as_deref())?,
            false => self.query(Request::Stat(stat))?,
        };
        match reply {
            Reply::Stat(reply) => Ok(reply),
            other => Err(self.shared.unexpected("attributes", &other)),
        }
    }

    /// A page of a directory in byte order of names: those after `after`, at most `count_max` (0 leaves it to the
    /// server).
    pub fn list(&self, target: &Target, after: &[u8], count_max: u32, with_attrs: bool) -> Result<ListReply, Error> {
        self.list_page(List {
            target: target.clone(),
            view: self.view,
            after: after.to_vec(),
            count_max,
            with_attrs,
            by_handle: false,
        })
    }

    /// As [`Fs::list`] of a directory whose right to be read was checked with [`Fs::access`] when it was opened: like a
    /// descriptor it stays readable when the right is taken away.
    pub fn list_opened(
        &self,
        directory: InodeId,
        after: &[u8],
        count_max: u32,
        with_attrs: bool,
    ) -> Result<ListReply, Error> {
        self.list_page(List {
            target: Target::inode(directory),
            view: self.view,
            after: after.to_vec(),
            count_max,
            with_attrs,
            by_handle: true,
        })
    }

    fn list_page(&self, list: List) -> Result<ListReply, Error> {
        match self.query(Request::List(list))? {
            Reply::List(reply) => Ok(reply),
            other => Err(self.shared.unexpected("entries", &other)),
        }
    }

    /// All entries of a directory in byte order of names.
    pub fn entries(&self, target: &Target) -> Result<Vec<DirEntry>, Error> {
        self.all_entries(target, false)
    }

    /// All entries of a directory in byte order of names, with their attributes.
    pub fn entries_with_attrs(&self, target: &Target) -> Result<Vec<DirEntry>, Error> {
        self.all_entries(target, true)
    }

    fn all_entries(&self, target: &Target, with_attrs: bool) -> Result<Vec<DirEntry>, Error> {
        let _scope = self.shared.scope(CallKind::List);
        let mut page = self.list(target, b"", 0, with_attrs)?;
        let mut entries = page.entries;
        // Later pages name the inode of the first one: the directory may have been renamed.
        while let Some(last) = entries.last().filter(|_| page.more).map(|entry| entry.name.clone()) {
            page = self.list_opened(InodeId(page.inode), &last, 0, with_attrs)?;
            if page.entries.is_empty() {
                break;
            }
            entries.append(&mut page.entries);
        }
        Ok(entries)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, target: &Target) -> Result<Vec<u8>, Error> {
        self.bytes(Request::ReadLink(ReadLink { target: target.clone(), view: self.view }), "a link's target")
    }

    /// Succeeds if the caller has the rights: `R_OK` 4, `W_OK` 2, `X_OK` 1; 0 checks only that the target exists.
    pub fn access(&self, target: &Target, mask: u32) -> Result<(), Error> {
        match self.query(Request::Access(Access { target: target.clone(), view: self.view, mask }))? {
            Reply::Done(_) => Ok(()),
            other => Err(self.shared.unexpected("rights", &other)),
        }
    }

    /// An extended attribute.
    pub fn get_xattr(&self, target: &Target, name: &[u8]) -> Result<Vec<u8>, Error> {
        let request = GetXattr { target: target.clone(), view: self.view, name: name.to_vec() };
        self.bytes(Request::GetXattr(request), "an attribute")
    }

    /// The names of the extended attributes.
    pub fn list_xattr(&self, target: &Target) -> Result<Vec<Vec<u8>>, Error> {
        let request = GetXattr { target: target.clone(), view: self.view, name: Vec::new() };
        let names = self.bytes(Request::GetXattr(request), "names of attributes")?;
        Ok(names.split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    /// The path of an inode at the view, or one of several.
    ///
    /// # Errors
    /// `NoAttribute` if it has no name, or one in a directory that the caller may not list; `StaleHandle`, `NotFound`
    /// if there is no such inode.
    pub fn path_of(&self, inode: InodeId) -> Result<Vec<u8>, Error> {
        self.get_xattr(&Target::inode(inode), PATH_XATTR)
    }

    /// The sessions that hold write grants of a regular file now: they have it open for writing and have written, or
    /// are about to. A session that has closed the file, or has ended, is not among them.
    ///
    /// # Errors
    /// `NoAttribute` of the past; `AccessDenied` if the caller may neither read nor write it; as [`Fs::get_xattr`].
    pub fn writers(&self, target: &Target) -> Result<Vec<FileWriter>, Error> {
        parse_writers(&self.get_xattr(target, WRITERS_XATTR)?).ok_or(Error::Refused(Reason::Internal.into()))
    }

    /// The present quota of a directory and its use; `None` if it has none.
    ///
    /// # Errors
    /// As [`Fs::get_xattr`].
    pub fn quota(&self, target: &Target) -> Result<Option<QuotaUse>, Error> {
        let request = GetXattr { target: target.clone(), view: View::NOW, name: USAGE_XATTR.to_vec() };
        match self.bytes(Request::GetXattr(request), "a quota") {
            Ok(told) => Ok(Some(parse_quota(&told).ok_or(Error::Refused(Reason::Internal.into()))?)),
            Err(error) if error.reason() == Reason::NoAttribute => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets the quota of a directory, or removes it if `quota` bounds nothing. It may be less than the present use: the
    /// files stay.
    ///
    /// # Errors
    /// `NotPermitted` unless the caller is the superuser; `InvalidArgument` if the target is no directory.
    pub fn set_quota(&self, target: &Target, quota: &Quota) -> Result<(), Error> {
        if *quota != Quota::default() {
            return self.set_xattr(target, QUOTA_XATTR, quota.to_string().as_bytes(), XattrMode::Any).map(drop);
        }
        match self.remove_xattr(target, QUOTA_XATTR) {
            Err(error) if error.reason() == Reason::NoAttribute => Ok(()),
            removed => removed.map(drop),
        }
    }

    fn bytes(&self, request: Request, asked: &'static str) -> Result<Vec<u8>, Error> {
        match self.query(request)? {
            Reply::Bytes(reply) => Ok(reply.value),
            other => Err(self.shared.unexpected(asked, &other)),
        }
    }

    /// Versions of a file in order of stamp: those of `interval`, at most `count_max` (0 leaves it to the server). An
    /// interval up to `Hlc::MAX` includes the present, which only the leader, or the holder of a lease, can answer.
    pub fn log(&self, target: &Target, interval: HistoryInterval, count_max: u32) -> Result<LogReply, Error> {
        self.log_in(target, interval, count_max, false)
    }

    /// As [`Fs::log`], the newest versions first. While `more` is set, the next page is the interval up to `after` of
    /// the reply.
    pub fn log_newest(&self, target: &Target, interval: HistoryInterval, count_max: u32) -> Result<LogReply, Error> {
        self.log_in(target, interval, count_max, true)
    }

    fn log_in(
        &self,
        target: &Target,
        interval: HistoryInterval,
        count_max: u32,
        newest_first: bool,
    ) -> Result<LogReply, Error> {
        let upto = if interval.upto == Hlc::MAX { 0 } else { interval.upto.0 };
        let (target, after) = (target.clone(), interval.after.0);
        let request = Log { target, view: self.view, after, count_max, upto, newest_first };
        match self.query(Request::Log(request))? {
            Reply::Log(reply) => Ok(reply),
            other => Err(self.shared.unexpected("versions", &other)),
        }
    }

    /// Opens a regular file at the view. Rights are checked once, here.
    pub fn open(&self, target: &Target, flags: OpenFlags) -> Result<File, Error> {
        if flags.write {
            self.must_be_now("opening for writing")?;
        }
        let _opening = self.shared.open_files.begin();
        let open = Open { target: target.clone(), view: self.view, read: flags.read, write: flags.write, made_at: 0 };
        match self.query_open(open)? {
            Reply::Open(reply) => Ok(self.file(reply, flags)),
            other => Err(self.shared.unexpected("an open file", &other)),
        }
    }

    /// Makes a regular file (or opens an existing one) to read and write, whatever `mode` permits. `mode` holds
    /// permission bits without those of the umask, unless [`Fs::with_umask`] names them.
    pub fn create(&self, target: &Target, mode: u32, create: CreateMode) -> Result<File, Error> {
        self.create_with(target, mode, create, OpenFlags::READ_WRITE)
    }

    /// As [`Fs::create`], opened for `flags` only.
    pub fn create_with(&self, target: &Target, mode: u32, create: CreateMode, flags: OpenFlags) -> Result<File, Error> {
        let _opening = self.shared.open_files.begin();
        let made = self.make_as(target, mode, create, MakeKind::File(flags.write))?;
        self.made_file(made, flags)
    }

    /// As [`Fs::create_with`]; but the new file takes the name from an old one, in one change. The old one is no
    /// directory, and the caller may write to it. Returns the old one, if there was one.
    pub fn create_replacing(
        &self,
        target: &Target,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(File, Option<InodeId>), Error> {
        let _opening = self.shared.open_files.begin();
        let made = self.make_as(target, mode, CreateMode::Replace, MakeKind::File(flags.write))?;
        let replaced = (made.replaced != 0).then_some(InodeId(made.replaced));
        self.made_file(made, flags).map(|file| (file, replaced))
    }

    fn made_file(&self, made: TxnReply, flags: OpenFlags) -> Result<File, Error> {
        let inode = InodeId(made.id);
        match made.attr {
            Some(attr) if !made.existed && !made.capability.is_empty() => {
                let reply = OpenReply { attr, capability: made.capability, answered: Default::default() };
                let file = self.file(reply, flags);
                // Made for writing, the file has the grant of its first chunk.
                file.note_granted(0..1);
                Ok(file)
            }
            // Not the name again: another file may have it by now.
            _ if made.existed => self.open(&Target::inode(inode), flags),
            _ => {
                let target = Target::inode(inode);
                let open = Open { target, view: self.view, read: flags.read, write: flags.write, made_at: made.stamp };
                match self.query_open(open)? {
                    Reply::Open(reply) => Ok(self.file(reply, flags)),
                    other => Err(self.shared.unexpected("an open file", &other)),
                }
            }
        }
    }

    /// A file without a name, of the layout of another, to write and read.
    pub(crate) fn make_nameless(&self, beside: &File) -> Result<File, Error> {
        let _opening = self.shared.open_files.begin();
        let made = self.change("writing", Op::MakeNameless(MakeNameless { beside: beside.inode().0 }))?;
        let attr = made.attr.ok_or_else(|| Error::Refused(Reason::StaleHandle.into()))?;
        let reply = OpenReply { attr, capability: made.capability, answered: Default::default() };
        let file = self.file(reply, OpenFlags::READ_WRITE);
        file.note_granted(0..1);
        Ok(file)
    }

    fn query_open(&self, open: Open) -> Result<Reply, Error> {
        if open.view.at.is_some() {
            // The past needs no session, so it can be read without a leader.
            return self.shared.query(self.caller.as_ref(), Request::Open(open), QueryOptions::default());
        }
        let options = QueryOptions { in_session: true, lease: self.lease.as_deref() };
        self.shared.query(self.caller.as_ref(), Request::Open(open), options)
    }

    fn file(&self, reply: OpenReply, flags: OpenFlags) -> File {
        let context = OpenContext { view: self.view, caller: self.caller.clone(), durability: self.durability };
        File::new(self.shared.clone(), reply, flags, context)
    }

    /// Makes a directory.
    pub fn mkdir(&self, target: &Target, mode: u32) -> Result<TxnReply, Error> {
        self.make(target, mode, MakeKind::Directory(true))
    }

    /// Makes a symbolic link to `to`.
    pub fn symlink(&self, to: &[u8], target: &Target) -> Result<TxnReply, Error> {
        self.make(target, 0o777, MakeKind::Symlink(to.to_vec()))
    }

    /// Makes a fifo, socket or device.
    pub fn special(&self, target: &Target, mode: u32, special: Special) -> Result<TxnReply, Error> {
        self.make(target, mode, MakeKind::Special(special))
    }

    fn make(&self, target: &Target, mode: u32, kind: MakeKind) -> Result<TxnReply, Error> {
        self.make_as(target, mode, CreateMode::Exclusive, kind)
    }

    fn make_as(&self, target: &Target, mode: u32, create: CreateMode, kind: MakeKind) -> Result<TxnReply, Error> {
        let make = Make {
            target: target.clone(),
            mode,
            or_open: create == CreateMode::OpenExisting,
            replaces: create == CreateMode::Replace,
            group_of_directory: self.shares_group,
            umask: self.umask,
            kind: Some(kind),
        };
        self.change("making", Op::Make(make))
    }

    /// Gives an existing file another name.
    pub fn link(&self, file: &Target, name: &Target) -> Result<TxnReply, Error> {
        self.change("linking", Op::Link(Link { file: file.clone(), name: name.clone() }))
    }

    /// Removes a name that is not a directory's.
    pub fn unlink(&self, target: &Target) -> Result<TxnReply, Error> {
        self.change("removing", Op::Remove(Remove { target: target.clone(), directory: false }))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, target: &Target) -> Result<TxnReply, Error> {
        self.change("removing", Op::Remove(Remove { target: target.clone(), directory: true }))
    }

    /// Moves a name.
    pub fn rename(&self, from: &Target, to: &Target, mode: RenameMode) -> Result<TxnReply, Error> {
        let flags = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
        };
        self.change("renaming", Op::Rename(Rename { from: from.clone(), to: to.clone(), flags }))
    }

    /// Changes attributes; absent fields stay. The answer holds the attributes just after.
    pub fn set_attr(&self, change: SetAttr) -> Result<TxnReply, Error> {
        self.change("changing attributes", Op::SetAttr(change))
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&self, target: &Target, name: &[u8], value: &[u8], mode: XattrMode) -> Result<TxnReply, Error> {
        let flags = match mode {
            XattrMode::Any => 0,
            XattrMode::Create => 1,
            XattrMode::Replace => 2,
        };
        let op = SetXattr { target: target.clone(), name: name.to_vec(), value: value.to_vec(), flags };
        self.change("setting an attribute", Op::SetXattr(op))
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&self, target: &Target, name: &[u8]) -> Result<TxnReply, Error> {
        let op = RemoveXattr { target: target.clone(), name: name.to_vec() };
        self.change("removing an attribute", Op::RemoveXattr(op))
    }

    /// Makes everything the session wrote to a file or directory, and the metadata that names it, durable.
    pub fn sync(&self, inode: InodeId) -> Result<(), Error> {
        self.must_be_now("syncing")?;
        let request = Request::Sync(Sync { inode: inode.0 });
        match self.shared.query(self.caller.as_ref(), request, QueryOptions::IN_SESSION)? {
            Reply::Done(_) => Ok(()),
            other => Err(self.shared.unexpected("a barrier", &other)),
        }
    }

    /// Makes everything that was written so far durable.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.sync(InodeId(0))
    }

    /// As [`Client::make_snapshot`](crate::Client::make_snapshot), on behalf of this view's user, whose snapshot it is.
    ///
    /// # Errors
    /// As there.
    pub fn make_snapshot(&self, name: &str, at: Option<Hlc>) -> Result<Hlc, Error> {
        let op = Op::MakeSnapshot(MakeSnapshot { name: name.to_owned(), at: at.map_or(0, |at| at.0), count_max: 0 });
        let reply = self.change("name an instant", op)?;
        Ok(at.unwrap_or(Hlc(reply.stamp)))
    }

    /// As [`Client::delete_snapshot`](crate::Client::delete_snapshot), on behalf of this view's user.
    ///
    /// # Errors
    /// As there; `NotPermitted` if another made it.
    pub fn delete_snapshot(&self, name: &str) -> Result<(), Error> {
        let op = Op::DeleteSnapshot(DeleteSnapshot { name: name.to_owned() });
        self.change("forget a named instant", op).map(drop)
    }

    /// Makes a composite change, or with `dry_run` returns what it would do.
    pub(crate) fn edit(&self, request: Request, dry_run: bool) -> Result<EditReply, Error> {
        match self.query_edit(request, dry_run)? {
            Reply::Edited(reply) => Ok(reply),
            other => Err(self.shared.unexpected("a clone, restore or undo", &other)),
        }
    }

    /// Sends a numbered change, or with `dry_run` a query.
    pub(crate) fn query_edit(&self, request: Request, dry_run: bool) -> Result<Reply, Error> {
        match dry_run {
            true => self.query(request),
            false => self.shared.call_numbered(self.caller.as_ref(), request, None),
        }
    }

    pub(crate) fn query(&self, request: Request) -> Result<Reply, Error> {
        // Leases belong to a session.
        let options = QueryOptions { in_session: self.lease.is_some(), lease: self.lease.as_deref() };
        self.shared.query(self.caller.as_ref(), request, options)
    }

    pub(crate) fn unexpected(&self, asked: &'static str, got: &Reply) -> Error {
        self.shared.unexpected(asked, got)
    }

    pub(crate) fn change(&self, what: &'static str, op: Op) -> Result<TxnReply, Error> {
        self.must_be_now(what)?;
        self.shared.change_leasing(self.caller.as_ref(), self.durability, op, self.lease.as_deref())
    }

    pub(crate) fn must_be_now(&self, what: &'static str) -> Result<(), Error> {
        if self.view.is_past() { Err(Error::PastView { what }) } else { Ok(()) }
    }
}
