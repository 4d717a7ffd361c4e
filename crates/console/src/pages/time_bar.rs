//! The slider over whatever directory or file a page shows.

use frieze_client::Hlc;

use crate::paths::PagePath;
use crate::visit::Visit;
use crate::words::{exact_time, time_of};

/// What the slider shows and where it leads.
pub(crate) struct TimeBar {
    /// The page that it moves: `files`, `changes`, ...
    pub(crate) page: &'static str,
    /// The path, as addresses have it.
    pub(crate) path: String,
    /// The exact instant that is shown; empty for now.
    pub(crate) at: String,
    /// As people read it, and as programs do.
    pub(crate) at_time: String,
    pub(crate) at_exact: String,
    /// In microseconds since 1970.
    pub(crate) at_us: u64,
    pub(crate) now_us: u64,
    pub(crate) earliest_us: u64,
}

impl TimeBar {
    pub(crate) fn new(visit: &Visit<'_>, page: &'static str, path: &PagePath, at: Option<Hlc>) -> TimeBar {
        let now = visit.now();
        let shown = at.unwrap_or(now);
        TimeBar {
            page,
            path: path.escaped(),
            at: at.map_or_else(String::new, |at| at.to_string()),
            at_time: time_of(shown),
            at_exact: exact_time(shown),
            at_us: shown.micros(),
            now_us: now.micros(),
            earliest_us: visit.earliest().micros().min(now.micros()),
        }
    }

    pub(crate) fn is_now(&self) -> bool {
        self.at.is_empty()
    }

    /// `?at=...` of links to other pages of the same instant; empty for now.
    pub(crate) fn query(&self) -> String {
        if self.is_now() { String::new() } else { format!("?at={}", self.at) }
    }
}
