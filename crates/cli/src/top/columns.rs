//! The columns of the two tables: titles, widths, and what a row shows and is sorted by.

use std::cmp::Ordering;

use super::rates::{OpRate, ServerRate};
use super::sample::ServerSample;
use crate::format;

/// A column.
pub(super) struct TopColumn<T> {
    pub(super) title: &'static str,
    pub(super) width: u16,
    /// Columns of a low rank stay on a narrow terminal.
    pub(super) rank: u8,
    pub(super) is_right: bool,
    pub(super) text: fn(&T) -> String,
    pub(super) key: SortKey<T>,
    /// How bad the value is.
    pub(super) grade: fn(&T) -> Grade,
}

/// What rows are sorted by.
pub(super) enum SortKey<T> {
    Text,
    Number(fn(&T) -> Option<f64>),
}

/// How a value is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grade {
    Plain,
    /// Nothing happens.
    Dim,
    Warn,
    Bad,
}

/// A row of the table of servers.
pub(super) struct ServerRow {
    pub(super) server: ServerSample,
    pub(super) rate: ServerRate,
}

impl<T> TopColumn<T> {
    /// The order of two rows by this column, ascending; what is not known comes first.
    pub(super) fn compare(&self, one: &T, other: &T) -> Ordering {
        match self.key {
            SortKey::Text => (self.text)(one).cmp(&(self.text)(other)),
            SortKey::Number(key) => {
                let number = |row| key(row).unwrap_or(f64::NEG_INFINITY);
                number(one).total_cmp(&number(other))
            }
        }
    }
}

macro_rules! columns {
    (
        $name:ident: $row:ty;
        $($title:literal $width:literal $rank:literal $side:ident $text:expr, $key:expr, $grade:expr;)*
    ) => {
        pub(super) const $name: &[TopColumn<$row>] = &[$(TopColumn {
            title: $title,
            width: $width,
            rank: $rank,
            is_right: columns!(@$side),
            text: $text,
            key: $key,
            grade: $grade,
        },)*];
    };
    (@left) => { false };
    (@right) => { true };
}

use SortKey::{Number, Text};

columns! {
    OPERATION_COLUMNS: OpRate;
    "OPERATION" 10 0 left |row| row.kind.clone(), Text, |row| idle(row.per_s);
    "RATE/S" 8 1 right |row| rate(row.per_s), Number(|row| Some(row.per_s)), |row| idle(row.per_s);
    "P50" 8 3 right |row| seconds(row.p50_s), Number(|row| row.p50_s), |row| slow(row.p50_s);
    "P99" 8 2 right |row| seconds(row.p99_s), Number(|row| row.p99_s), |row| slow(row.p99_s);
    "MEAN" 8 7 right |row| seconds(row.mean_s), Number(|row| row.mean_s), |row| slow(row.mean_s);
    "IN/S" 9 4 right |row| bytes(row.received_bytes_per_s), Number(|row| Some(row.received_bytes_per_s)),
        |row| idle(row.received_bytes_per_s);
    "OUT/S" 9 5 right |row| bytes(row.sent_bytes_per_s), Number(|row| Some(row.sent_bytes_per_s)),
        |row| idle(row.sent_bytes_per_s);
    "REFUSED/S" 9 6 right |row| rate(row.refused_per_s), Number(|row| Some(row.refused_per_s)),
        |row| if row.refused_per_s > 0.0 { Grade::Warn } else { Grade::Dim };
    "TOTAL" 10 8 right |row| format!("{:.0}", row.count), Number(|row| Some(row.count)), |_| Grade::Plain;
}

columns! {
    SERVER_COLUMNS: ServerRow;
    "SERVER" 15 0 left |row| if row.server.leads { format!("{} *", row.server.name) } else { row.server.name.clone() },
        Text, |_| Grade::Plain;
    "STATE" 9 1 left |row| row.server.state.clone(), Text,
        |row| if row.server.state == "up" { Grade::Plain } else { Grade::Bad };
    "REQ/S" 7 2 right |row| known(row.rate.per_s, rate), Number(|row| row.rate.per_s),
        |row| idle(row.rate.per_s.unwrap_or(0.0));
    "P99" 8 4 right |row| seconds(row.rate.p99_s), Number(|row| row.rate.p99_s), |row| slow(row.rate.p99_s);
    "CPU" 5 5 right |row| known(row.rate.cpu, |cpu| format!("{cpu:.2}")), Number(|row| row.rate.cpu), |_| Grade::Plain;
    "MEMORY" 9 6 right |row| known(row.server.resident_bytes, bytes), Number(|row| row.server.resident_bytes),
        |row| beyond(row.server.resident_bytes, row.server.memory_max_bytes);
    "FREE" 9 3 right |row| known(row.server.free_bytes, bytes), Number(|row| row.server.free_bytes),
        |row| full(&row.server);
    "RECORDS" 9 9 right |row| known(row.server.records_bytes, bytes), Number(|row| row.server.records_bytes),
        |_| Grade::Plain;
    "UNSYNCED" 9 8 right |row| known(row.server.dirty_bytes, bytes), Number(|row| row.server.dirty_bytes),
        |row| if row.server.dirty_age_s > Some(5.0) { Grade::Bad } else { Grade::Plain };
    "CLOCK" 9 7 right |row| known(row.server.clock_offset_s, signed_seconds), Number(|row| row.server.clock_offset_s),
        |row| if row.server.clock_offset_s.is_some_and(|s| s.abs() > 0.1) { Grade::Bad } else { Grade::Plain };
    "CHAINS" 6 10 right |row| known(row.server.chains, |count| count.to_string()),
        Number(|row| row.server.chains.map(|count| count as f64)), |_| Grade::Plain;
    "HEADS" 5 11 right |row| known(row.server.heads, |count| count.to_string()),
        Number(|row| row.server.heads.map(|count| count as f64)), |_| Grade::Plain;
    "SESSIONS" 8 12 right |row| known(row.server.sessions, |count| format!("{count:.0}")),
        Number(|row| row.server.sessions), |_| Grade::Plain;
    "CONNS" 6 13 right |row| known(row.server.connections, |count| format!("{count:.0}")),
        Number(|row| row.server.connections), |_| Grade::Plain;
    "LEASE" 7 14 right |row| seconds(row.server.lease_left_s), Number(|row| row.server.lease_left_s), |_| Grade::Plain;
    "UPTIME" 8 15 right |row| known(row.server.uptime_s, |s| format::duration_ms((s * 1e3) as u64)),
        Number(|row| row.server.uptime_s), |_| Grade::Plain;
}

fn idle(per_s: f64) -> Grade {
    if per_s > 0.0 { Grade::Plain } else { Grade::Dim }
}

fn slow(duration_s: Option<f64>) -> Grade {
    match duration_s {
        None => Grade::Dim,
        Some(s) if s > 1.0 => Grade::Bad,
        Some(s) if s > 0.1 => Grade::Warn,
        Some(_) => Grade::Plain,
    }
}

fn beyond(value: Option<f64>, bound: Option<f64>) -> Grade {
    match (value, bound) {
        (Some(value), Some(bound)) if value > bound => Grade::Bad,
        _ => Grade::Plain,
    }
}

/// The share of a server's device that is free.
pub(super) fn free_share(server: &ServerSample) -> Option<f64> {
    Some(server.free_bytes? / server.capacity_bytes.filter(|bytes| *bytes > 0.0)?)
}

fn full(server: &ServerSample) -> Grade {
    match free_share(server) {
        Some(share) if share < 0.02 => Grade::Bad,
        Some(share) if share < 0.1 => Grade::Warn,
        _ => Grade::Plain,
    }
}

/// A value, or a dash where it is not known.
pub(super) fn known<V>(value: Option<V>, text: impl Fn(V) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// `0`, `1.2`, `1234`, `12.3k`, `4.5M`.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        0.0 => "0".to_owned(),
        small if small < 99.95 => format!("{small:.1}"),
        middle if middle < 9999.5 => format!("{middle:.0}"),
        large if large < 999_950.0 => format!("{:.1}k", large / 1e3),
        large => format!("{:.1}M", large / 1e6),
    }
}

/// `12.0K`, `4.5M`, without the word for bytes: a column has no room for it.
pub(super) fn bytes(bytes: f64) -> String {
    format::human(bytes.max(0.0) as u64)
}

/// `21 us`, `1.4 ms`, `2.5 s`; a dash where it is not known.
pub(super) fn seconds(duration_s: Option<f64>) -> String {
    known(duration_s, |s| match s {
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 0.1 => format!("{:.1} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 1e3 => format!("{s:.1} s"),
        s => format!("{s:.0} s"),
    })
}

fn signed_seconds(offset_s: f64) -> String {
    let sign = if offset_s < 0.0 { "-" } else { "+" };
    format!("{sign}{}", seconds(Some(offset_s.abs())))
}
