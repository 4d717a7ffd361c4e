//! A row of the table of events, and the table's columns.

use frieze_trace::{CallKind, Event, EventFlags, Gateway};

/// What a call of a database was for, where the source of a trace knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// A request of a user reads.
    Read = 1,
    /// A write-ahead log.
    Log = 2,
    /// Records in memory become a file.
    Flush = 3,
    /// Files are read and written as one.
    Compaction = 4,
}

impl Purpose {
    /// All of them, by number.
    pub const ALL: [Purpose; 4] = [Purpose::Read, Purpose::Log, Purpose::Flush, Purpose::Compaction];

    /// Its word in tables.
    pub fn name(self) -> &'static str {
        ["read", "log", "flush", "compaction"][self as usize - 1]
    }

    /// The one with this number.
    pub fn from_number(number: i64) -> Option<Purpose> {
        Purpose::ALL.into_iter().find(|purpose| *purpose as i64 == number)
    }
}

/// One call, or several that are one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRow {
    /// Start, ns since 1970.
    pub start_ns: i64,
    /// Until it was answered, ns.
    pub duration_ns: Option<u64>,
    /// What was called.
    pub call: CallKind,
    /// Where it was called.
    pub gateway: Gateway,
    /// What else is known.
    pub flags: EventFlags,
    /// Identity of the file.
    pub inode: Option<u64>,
    /// Number of the open file.
    pub stream: Option<u64>,
    /// First byte.
    pub offset: Option<u64>,
    /// Bytes asked for.
    pub asked: Option<u64>,
    /// Bytes moved.
    pub got: Option<u64>,
    /// Number of the fault's `Reason`; 0: none.
    pub result: u16,
    /// Calls that this row stands for, 1 or more.
    pub count: u32,
    /// Keyed hash of the path.
    pub path: Option<u64>,
    /// Keyed hash of the second path of a rename or link.
    pub path2: Option<u64>,
    /// Number of user and program.
    pub actor: Option<u64>,
    /// The instant that was read, ns since 1970.
    pub view_ns: Option<i64>,
    /// What the call was for.
    pub purpose: Option<Purpose>,
}

impl TraceRow {
    /// One call, of which nothing else is known.
    pub fn new(start_ns: i64, call: CallKind, gateway: Gateway) -> TraceRow {
        TraceRow {
            start_ns,
            duration_ns: None,
            call,
            gateway,
            flags: EventFlags::default(),
            inode: None,
            stream: None,
            offset: None,
            asked: None,
            got: None,
            result: 0,
            count: 1,
            path: None,
            path2: None,
            actor: None,
            view_ns: None,
            purpose: None,
        }
    }

    /// The row of an event of a ring.
    pub fn of(event: &Event) -> TraceRow {
        let known = |number: u64| (number != 0).then_some(number);
        let ranged = event.call.moves_bytes() || event.asked != 0 || event.offset != 0;
        TraceRow {
            start_ns: event.start_ns,
            duration_ns: Some(event.duration_ns.into()),
            call: event.call,
            gateway: event.gateway,
            flags: event.flags,
            inode: known(event.inode),
            stream: known(event.stream.into()),
            offset: ranged.then_some(event.offset),
            asked: ranged.then_some(event.asked),
            got: ranged.then_some(event.got),
            result: event.result,
            count: event.count.into(),
            path: known(event.path),
            path2: known(event.path2),
            actor: known(event.actor.into()),
            view_ns: (event.view.0 != 0).then(|| i64::try_from(event.view.micros()).unwrap_or(i64::MAX / 1000) * 1000),
            purpose: None,
        }
    }
}

/// A column of events.
pub(crate) struct EventColumn {
    pub(crate) name: &'static str,
    /// 32 bits wide, not 64.
    pub(crate) is_narrow: bool,
    pub(crate) is_optional: bool,
    /// Encoded as differences: its values grow.
    pub(crate) is_growing: bool,
    pub(crate) get: fn(&TraceRow) -> Option<i64>,
    /// `None` if the column cannot have the value.
    pub(crate) set: fn(&mut TraceRow, Option<i64>) -> Option<()>,
}

/// A column of 64 bits that may be unknown.
macro_rules! optional {
    ($name:literal, $field:ident, $growing:literal) => {
        EventColumn {
            name: $name,
            is_narrow: false,
            is_optional: true,
            is_growing: $growing,
            get: |row| row.$field.map(|value| value as i64),
            set: |row, value| {
                row.$field = value.map(|value| value as _);
                Some(())
            },
        }
    };
}

/// A column of 32 bits that is always known.
macro_rules! narrow {
    ($name:literal, $get:expr, $set:expr) => {
        EventColumn {
            name: $name,
            is_narrow: true,
            is_optional: false,
            is_growing: false,
            get: |row| Some($get(row)),
            set: |row, value| $set(row, value?),
        }
    };
}

/// The columns of events, in order.
pub(crate) const COLUMNS: [EventColumn; 17] = [
    EventColumn {
        name: "t_ns",
        is_narrow: false,
        is_optional: false,
        is_growing: true,
        get: |row| Some(row.start_ns),
        set: |row, value| {
            row.start_ns = value?;
            Some(())
        },
    },
    optional!("dur_ns", duration_ns, false),
    narrow!("call", |row: &TraceRow| row.call as i64, |row: &mut TraceRow, value: i64| {
        // A newer version may know more calls.
        row.call = u8::try_from(value).ok().and_then(CallKind::from_number).unwrap_or(CallKind::Other);
        Some(())
    }),
    narrow!("gateway", |row: &TraceRow| row.gateway as i64, |row: &mut TraceRow, value: i64| {
        row.gateway = u8::try_from(value).ok().and_then(Gateway::from_number)?;
        Some(())
    }),
    narrow!("flags", |row: &TraceRow| i64::from(row.flags.0), |row: &mut TraceRow, value: i64| {
        row.flags = EventFlags(u16::try_from(value).ok()?);
        Some(())
    }),
    optional!("inode", inode, false),
    optional!("stream", stream, false),
    optional!("offset", offset, true),
    optional!("asked", asked, false),
    optional!("got", got, false),
    narrow!("result", |row: &TraceRow| i64::from(row.result), |row: &mut TraceRow, value: i64| {
        row.result = u16::try_from(value).ok()?;
        Some(())
    }),
    narrow!("count", |row: &TraceRow| i64::from(row.count), |row: &mut TraceRow, value: i64| {
        row.count = u32::try_from(value).ok()?;
        Some(())
    }),
    optional!("path", path, false),
    optional!("path2", path2, false),
    optional!("actor", actor, false),
    optional!("view_ns", view_ns, false),
    EventColumn {
        name: "purpose",
        is_narrow: true,
        is_optional: true,
        is_growing: false,
        get: |row| row.purpose.map(|purpose| purpose as i64),
        set: |row, value| {
            row.purpose = match value {
                Some(value) => Some(Purpose::from_number(value)?),
                None => None,
            };
            Some(())
        },
    },
];
