//! Which records have left the index of a file: by writer, the interval in which they were written.

use frieze_hlc::Hlc;

use crate::slim::reserve_slim;

/// When records were written that are not here any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DroppedSpan {
    /// Number of their writer; `None` stands for several, where there are too many to keep apart.
    pub(crate) writer: Option<u32>,
    /// Stamp of the first.
    pub(crate) first: Hlc,
    /// Stamp of the last.
    pub(crate) last: Hlc,
}

/// The losses of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct DroppedSpans(Vec<DroppedSpan>);

impl DroppedSpans {
    /// Those that may be of records stamped in `(after, upto]`.
    pub(crate) fn within(&self, after: Hlc, upto: Hlc) -> impl Iterator<Item = &DroppedSpan> {
        self.0.iter().filter(move |loss| loss.last > after && loss.first <= upto)
    }

    /// Stamp of the last record of them all; zero of none.
    pub(super) fn last(&self) -> Hlc {
        self.0.iter().map(|loss| loss.last).max().unwrap_or_default()
    }

    /// All of them, by writer.
    pub(super) fn into_sorted(mut self) -> impl Iterator<Item = DroppedSpan> {
        self.0.sort_by_key(|loss| (loss.first, loss.last));
        self.0.into_iter()
    }

    /// Takes all of them out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = DroppedSpan> {
        self.0.drain(..)
    }

    /// Notes some, and returns by how much the memory grew.
    pub(super) fn add(&mut self, new: DroppedSpan) -> usize {
        if let Some(known) = self.0.iter_mut().find(|known| known.writer == new.writer) {
            (known.first, known.last) = (known.first.min(new.first), known.last.max(new.last));
            return 0;
        }
        let grown = reserve_slim(&mut self.0, 1);
        self.0.push(new);
        if self.0.len() > WRITERS_MAX {
            // The writer that has been silent for longest is the least asked about.
            let named = self.0.iter().enumerate().filter(|(_, loss)| loss.writer.is_some());
            let oldest = named.min_by_key(|(_, loss)| loss.last).map_or(0, |(at, _)| at);
            let loss = self.0.swap_remove(oldest);
            return grown + self.add(DroppedSpan { writer: None, ..loss });
        }
        grown
    }
}

/// So many writers of records that are gone are kept apart: 24 bytes each, for each file.
const WRITERS_MAX: usize = 16;
