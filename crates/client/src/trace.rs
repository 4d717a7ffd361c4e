//! Calls as traces record them: what a request is about, and how it ended.
//!
//! Every request opens a scope, so no call escapes a trace; a method that makes several requests opens one around them,
//! and a gateway one around its own call. Without a recorder a scope costs one comparison.

use frieze_base::Reason;
use frieze_trace::{CallKind, CallScope, EventFlags, OpenSpan, SpanContext, SpanKind};
use frieze_wire::message::{OpenReply, Reply, Request, StatReply, TxnReply, View};
use frieze_wire::trace::TraceContext;
use frieze_wire::txn::{Make, MakeKind, Op, Target};

use crate::Error;
use crate::client_core::ClientCore;
use crate::request::RpcRequest;

impl ClientCore {
    /// A scope around several requests that are one call of the program.
    pub(crate) fn scope(&self, call: CallKind) -> CallScope<'_> {
        match &self.options.trace {
            Some(recorder) => recorder.scope(self.options.gateway, call),
            None => CallScope::off(),
        }
    }

    /// A scope around one request.
    pub(crate) fn request_scope(&self, request: &RpcRequest<'_>) -> CallScope<'_> {
        let (Some(recorder), Some(asked)) = (&self.options.trace, &request.body.request) else {
            return CallScope::off();
        };
        let Some(subject) = Subject::of(asked) else { return CallScope::off() };
        let scope = recorder.scope(self.options.gateway, subject.call);
        if let Some(target) = subject.target {
            match target.path.is_empty() {
                true => scope.inode(target.base),
                false => scope.path(recorder, target.base, &target.path),
            }
        }
        if subject.inode != 0 {
            scope.inode(subject.inode);
        }
        if let Some((offset, len)) = subject.range {
            scope.range(offset, len.unwrap_or(request.payload.len() as u64));
        }
        match subject.view.map(|view| (view.instant(), view.is_past())) {
            Some((Some(at), _)) => scope.view(at),
            // At a time of the data.
            Some((None, true)) => scope.flag(EventFlags::PAST),
            _ => {}
        }
        if let Some(second) = subject.second.filter(|second| !second.path.is_empty()) {
            scope.second_path(recorder, second.base, &second.path);
        }
        if let Some(program) = &self.program {
            let uid = request.body.caller.as_ref().map_or(self.hello.uid, |caller| caller.uid);
            scope.actor(recorder.actor(program, uid));
        }
        recorder.note_stamp(self.newest());
        scope
    }
}

impl ClientCore {
    /// A span of one request, if it is sampled: the request carries it to the server.
    pub(crate) fn request_span(&self, request: &RpcRequest<'_>) -> Option<OpenSpan> {
        let tracer = self.options.spans.as_ref()?;
        let subject = Subject::of(request.body.request.as_ref()?)?;
        let mut span = tracer.begin(SpanKind::Client, subject.call.name())?;
        if let Some((offset, len)) = subject.range {
            span = span.with_number("frieze.offset", offset);
            span = span.with_number("frieze.bytes", len.unwrap_or(request.payload.len() as u64));
        }
        let SpanContext { trace, span: id } = span.context();
        request.trace.set(Some(TraceContext::of(trace, id)));
        Some(span)
    }

    /// The same for a request that may be sent again: all attempts are within one span.
    pub(crate) fn sample_once(&self, request: &RpcRequest<'_>, span: &mut Option<OpenSpan>) {
        match span {
            None => *span = self.request_span(request),
            Some(span) => {
                let SpanContext { trace, span: id } = span.context();
                request.trace.set(Some(TraceContext::of(trace, id)));
            }
        }
    }
}

/// States how the request of a span ended.
pub(crate) fn end_span<T>(span: Option<&OpenSpan>, result: &Result<T, Error>) {
    if let Some(span) = span {
        span.end(result.as_ref().err().map_or(0, |error| error.reason() as u32 as u16));
    }
}

/// States how a stream ended: the program's own source or sink may have failed.
pub(crate) fn note_stream_end<T, E>(scope: &CallScope<'_>, result: &Result<T, E>) {
    if scope.is_on() {
        match result {
            Ok(_) => scope.result(0),
            Err(_) => scope.failed(Reason::InputOutput as u32 as u16),
        }
    }
}

/// States how a call ended.
pub(crate) fn note_end<T>(scope: &CallScope<'_>, result: &Result<T, Error>) {
    if scope.is_on() {
        scope.result(result.as_ref().err().map_or(0, |error| error.reason() as u32 as u16));
    }
}

/// Notes what a reply says of the call: its file, and the bytes that were moved.
pub(crate) fn note_reply(scope: &CallScope<'_>, request: &RpcRequest<'_>, reply: &Reply, count: usize) {
    if !scope.is_on() {
        return;
    }
    match reply {
        Reply::Stat(StatReply { attr, .. }) | Reply::Open(OpenReply { attr, .. }) => scope.inode(attr.inode),
        Reply::Read(_) => scope.moved(count as u64),
        Reply::Write(written) => {
            scope.landed(written.offset);
            scope.moved(request.payload.len() as u64);
        }
        Reply::Txn(TxnReply { attr: Some(attr), .. }) => scope.inode(attr.inode),
        _ => {}
    }
}

/// What a request is about.
struct Subject<'r> {
    call: CallKind,
    target: Option<&'r Target>,
    /// The new name of a rename or link.
    second: Option<&'r Target>,
    inode: u64,
    /// First byte and bytes; `None`: those of the payload.
    range: Option<(u64, Option<u64>)>,
    view: Option<&'r View>,
}

impl<'r> Subject<'r> {
    fn about(call: CallKind, target: &'r Target) -> Subject<'r> {
        Subject { target: Some(target), ..Subject::bare(call) }
    }

    fn bare(call: CallKind) -> Subject<'r> {
        Subject { call, target: None, second: None, inode: 0, range: None, view: None }
    }

    fn viewed_at(self, view: &'r View) -> Subject<'r> {
        Subject { view: Some(view), ..self }
    }

    fn ranged(call: CallKind, offset: u64, len: Option<u64>) -> Subject<'r> {
        Subject { range: Some((offset, len)), ..Subject::bare(call) }
    }

    /// `None` for what no program asks for: greetings, signs of life, recalls, maps of the cluster.
    fn of(request: &'r Request) -> Option<Subject<'r>> {
        Some(match request {
            Request::Stat(stat) => Subject::about(CallKind::Stat, &stat.target).viewed_at(&stat.view),
            Request::List(list) => Subject::about(CallKind::List, &list.target).viewed_at(&list.view),
            Request::ReadLink(link) => Subject::about(CallKind::Readlink, &link.target).viewed_at(&link.view),
            Request::Access(access) => Subject::about(CallKind::Access, &access.target).viewed_at(&access.view),
            Request::GetXattr(get) => Subject::about(CallKind::XattrGet, &get.target).viewed_at(&get.view),
            Request::Open(open) => Subject::about(CallKind::Open, &open.target).viewed_at(&open.view),
            Request::Read(read) => Subject::ranged(CallKind::Read, read.offset, Some(read.len.into())),
            Request::Write(write) => {
                let call = if write.append { CallKind::Append } else { CallKind::Write };
                Subject::ranged(call, write.offset, None)
            }
            Request::Punch(punch) => Subject::ranged(CallKind::Punch, punch.offset, Some(punch.len)),
            Request::Sync(sync) => Subject { inode: sync.inode, ..Subject::bare(CallKind::Sync) },
            Request::Seek(seek) => Subject::ranged(CallKind::Seek, seek.offset, Some(0)),
            Request::Txn(txn) => return txn.op.as_ref().and_then(Subject::of_change),
            Request::Log(log) => Subject::about(CallKind::History, &log.target).viewed_at(&log.view),
            Request::Snapshots(_) => Subject::bare(CallKind::Snapshot),
            Request::Clone(_) | Request::CopyRange(_) => Subject::bare(CallKind::Clone),
            Request::Restore(_) | Request::Undo(_) => Subject::bare(CallKind::Restore),
            Request::Forget(_) => Subject::bare(CallKind::Forget),
            Request::RemoveTree(_) => Subject::bare(CallKind::RemoveTree),
            Request::JoinFiles(_) => Subject::bare(CallKind::Join),
            Request::ChangeTree(_) => Subject::bare(CallKind::SetAttr),
            Request::Lock(_) | Request::TestLock(_) | Request::CancelLock(_) => Subject::bare(CallKind::Lock),
            Request::Diff(_)
            | Request::Retention(_)
            | Request::Story(_)
            | Request::LastExisted(_)
            | Request::Deleted(_)
            | Request::Sessions(_)
            | Request::Usage(_) => Subject::bare(CallKind::History),
            Request::Now(_) | Request::Status(_) | Request::Scrub(_) | Request::Cluster(_) => {
                Subject::bare(CallKind::Other)
            }
            Request::Hello(_)
            | Request::Prove(_)
            | Request::Ping(_)
            | Request::ConnectFabric(_)
            | Request::Recalls(_)
            | Request::AwaitChange(_)
            | Request::ClusterMap(_)
            | Request::Join(_) => return None,
        })
    }

    fn of_change(op: &'r Op) -> Option<Subject<'r>> {
        Some(match op {
            Op::Make(make) => Subject::about(kind_made(make), &make.target),
            Op::Link(link) => Subject { second: Some(&link.name), ..Subject::about(CallKind::Link, &link.file) },
            Op::Remove(remove) => {
                let call = if remove.directory { CallKind::Rmdir } else { CallKind::Unlink };
                Subject::about(call, &remove.target)
            }
            Op::Rename(rename) => {
                Subject { second: Some(&rename.to), ..Subject::about(CallKind::Rename, &rename.from) }
            }
            Op::SetAttr(change) => {
                let call = if change.size.is_some() { CallKind::Truncate } else { CallKind::SetAttr };
                Subject::about(call, &change.target)
            }
            Op::SetXattr(set) => Subject::about(CallKind::XattrSet, &set.target),
            Op::RemoveXattr(remove) => Subject::about(CallKind::XattrRemove, &remove.target),
            Op::MakeNameless(_) => Subject::bare(CallKind::Create),
            Op::MakeSnapshot(_) | Op::DeleteSnapshot(_) => Subject::bare(CallKind::Snapshot),
            Op::Settle(settle) => Subject { inode: settle.inode, ..Subject::bare(CallKind::Close) },
            Op::SettleAll(_) => Subject::bare(CallKind::Close),
            // Parts of other calls, or never sent by a client.
            _ => return None,
        })
    }
}

fn kind_made(make: &Make) -> CallKind {
    match make.kind {
        Some(MakeKind::Directory(_)) => CallKind::Mkdir,
        Some(MakeKind::Symlink(_)) => CallKind::Symlink,
        Some(MakeKind::Special(_)) => CallKind::Special,
        Some(MakeKind::File(_)) | None => CallKind::Create,
    }
}
