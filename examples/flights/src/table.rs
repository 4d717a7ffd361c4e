//! What the flights were, by the tables alone: the truth that answers are compared with.

use std::path::Path;

use anyhow::{Context, ensure};

/// One table: a header and rows, each with its time in the first column.
#[derive(Debug)]
pub(crate) struct FlightTable {
    text: String,
    /// Where each line ends, the header first.
    ends: Vec<usize>,
}

impl FlightTable {
    /// Reads a table that `table.py` made.
    ///
    /// # Errors
    /// If there is none, or it holds no row.
    pub(crate) fn read(path: &Path) -> anyhow::Result<FlightTable> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}; make it with examples/flights/table.py", path.display()))?;
        let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        ensure!(ends.len() > 1, "{} holds no flight", path.display());
        Ok(FlightTable { text, ends })
    }

    /// Rows, without the header.
    pub(crate) fn count(&self) -> usize {
        self.ends.len() - 1
    }

    /// The header with its line break.
    pub(crate) fn header(&self) -> &str {
        &self.text[..self.ends[0]]
    }

    /// Row `number`, from 0, with its line break.
    pub(crate) fn row(&self, number: usize) -> &str {
        &self.text[self.ends[number]..self.ends[number + 1]]
    }

    /// The time of a row, as it is written: such texts sort as the times do.
    pub(crate) fn time(&self, number: usize) -> &str {
        let row = self.row(number);
        row.split_once(',').map_or(row, |(time, _)| time)
    }

    /// The header and the first `count` rows.
    pub(crate) fn first(&self, count: usize) -> &str {
        &self.text[..self.ends[count]]
    }

    /// Of the first `count` rows those up to a time, counted one by one.
    pub(crate) fn upto(&self, count: usize, time: &str) -> usize {
        (0..count).filter(|row| self.time(*row) <= time).count()
    }

    /// The first row that lies before the one above it.
    pub(crate) fn first_backward(&self) -> Option<usize> {
        (1..self.count()).find(|row| self.time(*row) < self.time(row - 1))
    }

    /// Where a row begins, in bytes.
    pub(crate) fn offset(&self, number: usize) -> usize {
        self.ends[number]
    }
}
