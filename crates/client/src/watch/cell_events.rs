//! Events of whole cells of time.
//!
//! Guarantees: the events of a cell do not depend on where the pages ended that they came in. Writes of one session to
//! one file, with no write of another session in between, are one event of the cell: it has the stamp and the names of
//! the last of them, and the bytes of all.

use std::collections::BTreeMap;

use frieze_hlc::Hlc;
use frieze_wire::timeline::{CELL_US, ChangedSpan, Difference};

use super::is_write;

/// Most spans of one event; an event with more names none.
const SPANS_MAX: usize = 64;

/// Events of a cell that may still get more.
#[derive(Debug, Default)]
pub(super) struct CellEvents {
    open: Vec<Difference>,
}

impl CellEvents {
    /// Adds a page of events, in the order of their stamps, that is complete up to `upto`. Returns the events of the
    /// cells that have ended, and up to where these are complete: an end of a cell, or `upto` itself if no event waits.
    pub(super) fn add(&mut self, page: Vec<Difference>, upto: Hlc) -> (Vec<Difference>, Hlc) {
        self.open.extend(page);
        // The cell of `upto` has ended if `upto` is its last stamp.
        let first_open = cell(upto.next());
        let ended = self.open.partition_point(|event| cell(Hlc(event.stamp)) < first_open);
        let rest = self.open.split_off(ended);
        let ended = std::mem::replace(&mut self.open, rest);
        let mark = if self.open.is_empty() && cell(upto) < first_open {
            upto
        } else {
            Hlc::last_of_micros((first_open * CELL_US).saturating_sub(1))
        };
        (merged_by_cell(&ended), mark)
    }

    /// The events that still wait: no more follow.
    pub(super) fn end(&mut self) -> Vec<Difference> {
        merged_by_cell(&std::mem::take(&mut self.open))
    }
}

fn cell(stamp: Hlc) -> u64 {
    stamp.micros() / CELL_US
}

fn merged_by_cell(events: &[Difference]) -> Vec<Difference> {
    events.chunk_by(|one, other| cell(Hlc(one.stamp)) == cell(Hlc(other.stamp))).flat_map(merged).collect()
}

/// The events of one cell, with the writes of each run as one.
fn merged(of_cell: &[Difference]) -> Vec<Difference> {
    // The run that a file's next write may belong to: its writer, its bytes, and where its events are.
    struct CellRun {
        writer: (u64, u32),
        stamp: u64,
        spans: Vec<ChangedSpan>,
        has_more: bool,
        events: Vec<usize>,
    }
    let mut runs: BTreeMap<u64, CellRun> = BTreeMap::new();
    let mut events: Vec<Option<Difference>> = Vec::with_capacity(of_cell.len());
    for event in of_cell {
        let inode = event.after.as_ref().map_or(0, |side| side.inode);
        if !is_write(event) {
            events.push(Some(event.clone()));
            continue;
        }
        let writer = (event.session, event.uid);
        let mut run = match runs.remove(&inode) {
            Some(run) if run.writer == writer => run,
            _ => CellRun { writer, stamp: 0, spans: Vec::new(), has_more: false, events: Vec::new() },
        };
        if run.stamp != event.stamp {
            // The names of the newest write count; another event of the same stamp is another name of the file.
            run.events.drain(..).for_each(|index| events[index] = None);
            run.stamp = event.stamp;
        }
        run.spans = apart(run.spans.iter().chain(&event.spans).copied().collect());
        run.has_more |= event.more_spans;
        run.events.push(events.len());
        events.push(Some(event.clone()));
        let has_more = run.has_more || run.spans.len() > SPANS_MAX;
        for index in &run.events {
            if let Some(event) = &mut events[*index] {
                event.more_spans = has_more;
                event.spans = if has_more { Vec::new() } else { run.spans.clone() };
            }
        }
        runs.insert(inode, run);
    }
    events.into_iter().flatten().collect()
}

/// The same bytes in order, neighbours and overlaps as one.
fn apart(mut spans: Vec<ChangedSpan>) -> Vec<ChangedSpan> {
    spans.sort_unstable_by_key(|span| span.offset);
    let mut out: Vec<ChangedSpan> = Vec::with_capacity(spans.len());
    for span in spans {
        match out.last_mut() {
            Some(last) if span.offset <= last.offset.saturating_add(last.len) => {
                last.len = last.len.max(span.offset.saturating_add(span.len) - last.offset);
            }
            _ => out.push(span),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use frieze_base::Rng;
    use frieze_wire::timeline::{CONTENT, Side};

    use super::*;

    fn side(inode: u64, path: &str) -> Side {
        Side { inode, path: path.as_bytes().to_vec(), ..Side::default() }
    }

    fn write(at_us: u64, (inode, path): (u64, &str), session: u64, offset: u64) -> Difference {
        let spans = vec![ChangedSpan { offset, len: 10 }];
        let (before, after) = (Some(side(inode, path)), Some(side(inode, path)));
        let stamp = Hlc::first_of_micros(at_us).0;
        Difference { before, after, flags: CONTENT, stamp, session, spans, ..Difference::default() }
    }

    fn all(events: &[Difference], page_ends_us: &[u64]) -> Vec<Difference> {
        let (mut cells, mut out, mut from) = (CellEvents::default(), Vec::new(), 0);
        for end in page_ends_us {
            let upto = Hlc::last_of_micros(*end);
            let to = events.partition_point(|event| event.stamp <= upto.0);
            let (ended, mark) = cells.add(events[from..to].to_vec(), upto);
            assert!(ended.iter().all(|event| event.stamp <= mark.0) && mark <= upto, "{mark} {upto}");
            out.extend(ended);
            from = to;
        }
        out.extend(cells.end());
        out
    }

    #[test]
    fn writes_of_one_session_are_one_event_of_their_cell() {
        let events = [
            write(10, (1, "/a"), 7, 0),
            write(20, (1, "/a"), 7, 10),
            write(30, (2, "/b"), 7, 0),
            write(40, (1, "/new-name"), 7, 100),
            write(50, (1, "/new-name"), 8, 0),
            write(60, (1, "/new-name"), 7, 0),
            write(CELL_US + 1, (1, "/new-name"), 7, 0),
        ];
        let merged = all(&events, &[3 * CELL_US]);
        let lines: Vec<_> = merged
            .iter()
            .map(|event| {
                let name = String::from_utf8_lossy(&event.after.as_ref().unwrap().path).into_owned();
                (Hlc(event.stamp).micros(), name, event.spans.iter().map(|span| span.len).collect::<Vec<_>>())
            })
            .collect();
        let expected = [
            (30, "/b", vec![10]),
            (40, "/new-name", vec![20, 10]),
            (50, "/new-name", vec![10]),
            (60, "/new-name", vec![10]),
            (CELL_US + 1, "/new-name", vec![10]),
        ];
        assert_eq!(lines, expected.map(|(at, name, lens)| (at, name.to_owned(), lens)));
    }

    #[test]
    fn the_events_do_not_depend_on_where_pages_end() {
        let mut rng = Rng::new(43);
        for _ in 0..300 {
            let (mut at, mut events) = (1, Vec::new());
            let span_us = 4 * CELL_US;
            while at < span_us {
                let inode = 1 + rng.below(3);
                let mut event =
                    write(at, (inode, ["/a", "/b"][rng.below(2) as usize]), 7 + rng.below(2), rng.below(5000));
                if rng.below(8) == 0 {
                    event.after = None;
                }
                events.push(event);
                at += 1 + rng.below(CELL_US / 30);
            }
            let whole = all(&events, &[span_us]);
            let mut ends: Vec<u64> = (0..rng.below(9)).map(|_| 1 + rng.below(span_us)).chain([span_us]).collect();
            ends.sort_unstable();
            assert_eq!(all(&events, &ends), whole, "pages end at {ends:?}");
        }
    }
}
