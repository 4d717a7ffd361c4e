//! Progress on standard error, for work that lasts, when a person is looking.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that ends sooner shows nothing.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Drawings a second: enough to see it move.
const DRAWN_HZ: u8 = 8;

/// A bar (or a counter, where the end is not known) that appears when the work lasts longer than half a second.
///
/// Shows nothing where standard error is not a terminal. Dropping it clears its line.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    bar: ProgressBar,
    wanted: bool,
    shown: bool,
    subject: String,
}

impl ProgressLine {
    /// Counts bytes; the end grows by [`ProgressLine::expect`].
    pub(crate) fn bytes(wanted: bool) -> ProgressLine {
        ProgressLine::new(wanted, "{wide_msg} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left [{bar:20}]")
    }

    /// Counts files of an unknown number.
    pub(crate) fn items(wanted: bool, noun: &str) -> ProgressLine {
        ProgressLine::new(wanted, &format!("{{wide_msg}} {{human_pos}} {noun}, {{per_sec}}"))
    }

    /// Counts the work of another process, which reports its position ([`ProgressLine::is_at`]).
    pub(crate) fn known(wanted: bool, noun: &str) -> ProgressLine {
        ProgressLine::new(wanted, &format!("{{wide_msg}} {{human_pos}} of {{human_len}} {noun} [{{bar:20}}]"))
    }

    /// Counts work whose end is known, with the time that is left.
    pub(crate) fn timed(wanted: bool, noun: &str) -> ProgressLine {
        ProgressLine::new(
            wanted,
            &format!("{{wide_msg}} {{human_pos}} of {{human_len}} {noun}, {{eta}} left [{{bar:20}}]"),
        )
    }

    fn new(wanted: bool, template: &str) -> ProgressLine {
        let style = ProgressStyle::with_template(template).expect("the template is a constant and valid");
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden()).with_style(style);
        ProgressLine { bar, wanted, shown: false, subject: String::new() }
    }

    /// More work was found.
    pub(crate) fn expect(&mut self, count: u64) {
        self.bar.inc_length(count);
    }

    /// Work was done.
    pub(crate) fn advance(&mut self, count: u64) {
        self.bar.inc(count);
        if self.wanted && !self.shown && self.bar.elapsed() >= SHOWN_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWN_HZ));
            self.bar.set_message(std::mem::take(&mut self.subject));
            self.shown = true;
        }
    }

    /// So much is done, of so much; 0 where the end is not known yet.
    pub(crate) fn is_at(&mut self, done: u64, all: u64) {
        self.bar.set_length(all.max(done));
        self.bar.set_position(done);
        self.advance(0);
    }

    /// True if a person may see it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The present item.
    pub(crate) fn at(&mut self, subject: String) {
        match self.shown {
            true => self.bar.set_message(subject),
            false => self.subject = subject,
        }
    }

    /// Writes to the terminal without tearing the bar.
    pub(crate) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid_and_count() {
        let mut bytes = ProgressLine::bytes(false);
        bytes.expect(10);
        bytes.expect(5);
        bytes.advance(7);
        assert_eq!((bytes.bar.position(), bytes.bar.length()), (7, Some(15)));
        let mut known = ProgressLine::known(true, "files");
        for (done, all) in [(5, 0), (7, 30), (30, 30)] {
            known.is_at(done, all);
            assert_eq!((known.bar.position(), known.bar.length()), (done, Some(all.max(done))));
        }
        let mut timed = ProgressLine::timed(true, "accesses");
        timed.is_at(3, 4);
        assert_eq!((timed.bar.position(), timed.bar.length()), (3, Some(4)));
        let mut items = ProgressLine::items(true, "files");
        items.advance(3);
        assert_eq!(items.bar.position(), 3);
        assert!(!items.shown, "half a second has not passed");
    }
}
