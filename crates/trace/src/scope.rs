//! A call that is being recorded.

use std::cell::RefCell;
use std::marker::PhantomData;

use frieze_hlc::Hlc;

use crate::event::{Event, EventFlags};
use crate::kinds::{CallKind, Gateway};
use crate::recorder::{Recorder, mono_ns};

/// A call from its begin to its end, on one thread. The outermost scope of a thread writes one event when it is
/// dropped; a scope within it adds what it knows to that event.
#[derive(Debug)]
pub struct CallScope<'r> {
    role: Role<'r>,
    /// The open call belongs to its thread.
    _not_send: PhantomData<*const ()>,
}

#[derive(Debug)]
enum Role<'r> {
    Off,
    Outer(&'r Recorder),
    Inner,
}

#[derive(Debug)]
struct OpenCall {
    event: Event,
    started: u64,
    /// The outer scope has stated the result.
    has_result: bool,
}

thread_local! {
    static OPEN: RefCell<Option<OpenCall>> = const { RefCell::new(None) };
}

impl Recorder {
    /// Opens a scope around a call. Within another scope of this thread it adds to that one.
    pub fn scope(&self, gateway: Gateway, call: CallKind) -> CallScope<'_> {
        CallScope::open(self, gateway, call)
    }
}

impl<'r> CallScope<'r> {
    /// A scope that records nothing: tracing is off.
    pub fn off() -> CallScope<'static> {
        CallScope { role: Role::Off, _not_send: PhantomData }
    }

    fn open(recorder: &'r Recorder, gateway: Gateway, call: CallKind) -> CallScope<'r> {
        let role = OPEN.with_borrow_mut(|open| match open {
            Some(_) => Role::Inner,
            None => {
                *open = Some(OpenCall { event: Event::new(call, gateway), started: mono_ns(), has_result: false });
                Role::Outer(recorder)
            }
        });
        CallScope { role, _not_send: PhantomData }
    }

    /// True if this scope, or one around it, records.
    pub fn is_on(&self) -> bool {
        !matches!(self.role, Role::Off)
    }

    fn change(&self, change: impl FnOnce(&mut OpenCall, bool)) {
        let is_outer = matches!(self.role, Role::Outer(_));
        if self.is_on() {
            OPEN.with_borrow_mut(|open| {
                if let Some(open) = open {
                    change(open, is_outer);
                }
            });
        }
    }

    /// The file that the call is about. The first that is known counts.
    pub fn inode(&self, inode: u64) {
        self.change(|open, is_outer| {
            if is_outer || open.event.inode == 0 {
                open.event.inode = inode;
            }
        });
    }

    /// The path that the call is about, from the directory with this inode (1: the root). The first that is known
    /// counts.
    pub fn path(&self, recorder: &Recorder, directory: u64, path: &[u8]) {
        let is_needed = self.is_on() && OPEN.with_borrow(|open| open.as_ref().is_some_and(|open| open.event.path == 0));
        if is_needed {
            let hash = recorder.path_hash(directory, path);
            self.change(|open, _| open.event.path = hash);
        }
    }

    /// The second path of a rename or link, from the directory with this inode (1: the root).
    pub fn second_path(&self, recorder: &Recorder, directory: u64, path: &[u8]) {
        let is_needed =
            self.is_on() && OPEN.with_borrow(|open| open.as_ref().is_some_and(|open| open.event.path2 == 0));
        if is_needed {
            let hash = recorder.path_hash(directory, path);
            self.change(|open, _| open.event.path2 = hash);
        }
    }

    /// The instant that is read.
    pub fn view(&self, at: Hlc) {
        self.change(|open, _| {
            open.event.view = at;
            open.event.flags = open.event.flags.with(EventFlags::PAST);
        });
    }

    /// The range that was asked for. That of the outermost scope counts, if it has one.
    pub fn range(&self, offset: u64, asked: u64) {
        self.change(|open, is_outer| {
            if is_outer || open.event.asked == 0 {
                (open.event.offset, open.event.asked) = (offset, asked);
            }
        });
    }

    /// Where an append landed.
    pub fn landed(&self, offset: u64) {
        self.change(|open, _| {
            if open.event.call == CallKind::Append && open.event.got == 0 {
                open.event.offset = offset;
            }
        });
    }

    /// Bytes that were moved; those of several scopes add up.
    pub fn moved(&self, bytes: u64) {
        self.change(|open, _| open.event.got = open.event.got.saturating_add(bytes));
    }

    /// Bytes that the whole call moved, in place of what the scopes within have added.
    pub fn moved_in_all(&self, bytes: u64) {
        self.change(|open, is_outer| {
            if is_outer {
                open.event.got = bytes;
            }
        });
    }

    /// The event stands for so many calls, one behind the other.
    pub fn count(&self, count: u64) {
        self.change(|open, _| {
            open.event.count = u16::try_from(count.max(1)).unwrap_or(u16::MAX);
            open.event.flags = open.event.flags.with(EventFlags::COLLAPSED);
        });
    }

    /// Number of the open file.
    pub fn stream(&self, stream: u32) {
        self.change(|open, _| open.event.stream = stream);
    }

    /// The caller: [`Recorder::actor`].
    pub fn actor(&self, actor: u32) {
        self.change(|open, is_outer| {
            if is_outer || open.event.actor == 0 {
                open.event.actor = actor;
            }
        });
    }

    /// Sets flags.
    pub fn flag(&self, flags: EventFlags) {
        self.change(|open, _| open.event.flags = open.event.flags.with(flags));
    }

    /// The call failed; `reason` is the number of its `Reason`, if no scope within has stated one.
    pub fn failed(&self, reason: u16) {
        self.change(|open, is_outer| {
            if open.event.result == 0 {
                open.event.result = reason;
            }
            open.has_result |= is_outer;
        });
    }

    /// How the call ended: 0, or the number of the fault's `Reason`. That of the outermost scope counts, if it states
    /// one; else that of the last scope within.
    pub fn result(&self, reason: u16) {
        self.change(|open, is_outer| {
            if is_outer || !open.has_result {
                (open.event.result, open.has_result) = (reason, is_outer);
            }
        });
    }
}

impl Drop for CallScope<'_> {
    fn drop(&mut self) {
        let Role::Outer(recorder) = self.role else { return };
        let Some(OpenCall { mut event, started, .. }) = OPEN.take() else { return };
        event.start_ns = recorder.wall_of(started);
        event.duration_ns = saturated(mono_ns().saturating_sub(started));
        recorder.record(&event);
    }
}

pub(crate) fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
