//! The numbers that the study prints, or that follow from what it prints, beside those of a load.

use std::collections::BTreeMap;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaperSource {
    /// The study's text or tables print it.
    Printed,
    /// It follows from printed numbers; ADR 0071 says how.
    Derived,
}

/// How near is near enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// A share of the number.
    Relative(f64),
    /// To each side.
    Absolute(f64),
    /// The number is a bound from above.
    AtMost,
    /// The number is a bound from below.
    AtLeast,
}

impl Tolerance {
    /// Distance of `model` from `paper` in tolerances: at most 1 is met.
    pub fn distance(self, model: f64, paper: f64) -> f64 {
        match self {
            Tolerance::Relative(share) => (model / paper - 1.0).abs() / share,
            Tolerance::Absolute(far) => (model - paper).abs() / far,
            Tolerance::AtMost if model <= paper => 0.0,
            Tolerance::AtLeast if model >= paper => 0.0,
            // Beyond a bound a tenth of it, or of 1 percentage point, is one tolerance.
            Tolerance::AtMost | Tolerance::AtLeast => 1.0 + (model - paper).abs() / (paper.abs() * 0.1).max(0.01),
        }
    }
}

impl std::fmt::Display for Tolerance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Tolerance::Relative(share) => write!(f, "+-{:.0} %", share * 100.0),
            Tolerance::Absolute(far) => write!(f, "+-{far}"),
            Tolerance::AtMost => f.write_str("at most"),
            Tolerance::AtLeast => f.write_str("at least"),
        }
    }
}

/// A number of the study.
#[derive(Clone, Copy, Debug)]
pub struct PaperNumber {
    /// Its name.
    pub name: &'static str,
    /// What it is, with its unit.
    pub about: &'static str,
    /// The study's.
    pub paper: f64,
    /// How near is near enough.
    pub tolerance: Tolerance,
    /// Where it comes from.
    pub source: PaperSource,
}

/// A number of the study beside that of a load.
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// The study's.
    pub number: PaperNumber,
    /// The load's; `None` if the load was too short or too small to have it.
    pub model: Option<f64>,
}

impl Comparison {
    /// True if the load's lies within the tolerance.
    pub fn is_met(&self) -> bool {
        self.model.is_some_and(|model| self.number.tolerance.distance(model, self.number.paper) <= 1.0)
    }
}

/// Every number of [`PAPER`] beside that of `numbers` with its name.
pub fn compare(numbers: &BTreeMap<&'static str, f64>) -> Vec<Comparison> {
    PAPER.iter().map(|&number| Comparison { number, model: numbers.get(number.name).copied() }).collect()
}

const fn number(
    source: PaperSource,
    name: &'static str,
    about: &'static str,
    paper: f64,
    tolerance: Tolerance,
) -> PaperNumber {
    PaperNumber { name, about, paper, tolerance, source }
}

const fn printed(name: &'static str, about: &'static str, paper: f64, tolerance: Tolerance) -> PaperNumber {
    number(PaperSource::Printed, name, about, paper, tolerance)
}

const fn derived(name: &'static str, about: &'static str, paper: f64, tolerance: Tolerance) -> PaperNumber {
    number(PaperSource::Derived, name, about, paper, tolerance)
}

const TENTH: Tolerance = Tolerance::Relative(0.1);
const FIFTH: Tolerance = Tolerance::Relative(0.2);
const fn points(count: f64) -> Tolerance {
    Tolerance::Absolute(count / 100.0)
}

/// Numbers of the study that events alone can show. Printed ones are met within a tenth, derived ones within a fifth,
/// shares within the points that figure's row has.
pub const PAPER: &[PaperNumber] = &[
    printed("core_io_tb", "gets and flushes, TB (figure 2)", 47.0, TENTH),
    printed("hdfs_io_tb", "all of HDFS, TB (figure 2)", 71.0, TENTH),
    printed("local_io_tb", "local file systems, TB (figure 2)", 101.0, TENTH),
    printed("disk_io_tb", "disks below 30 GB of cache, TB (figure 2)", 97.0, TENTH),
    printed("core_read_share", "share of reads in core I/O (figure 2)", 0.99, points(0.5)),
    printed("hdfs_read_share", "share of reads in HDFS I/O (figure 2)", 0.79, points(3.0)),
    printed("local_read_share", "share of reads in local I/O (figure 2)", 0.55, points(3.0)),
    printed("disk_read_share", "share of reads in disk I/O (figure 2)", 0.36, points(3.0)),
    printed("log_over_flush", "log bytes over flushed bytes (4.1)", 10.0, TENTH),
    printed("compaction_over_flush", "bytes that compactions write over flushed bytes (4.1)", 17.0, TENTH),
    derived("flush_tb", "flushed, TB", 0.53, FIFTH),
    derived("log_tb", "logged, TB", 5.3, FIFTH),
    derived("compaction_tb", "written by compactions, TB", 9.0, FIFTH),
    derived("compaction_read_tb", "read by compactions, TB", 9.7, FIFTH),
    derived("get_read_tb", "read by gets, TB", 46.5, FIFTH),
    printed("hdfs_read_tb", "read from HDFS, TB (4.1)", 56.0, TENTH),
    printed("disk_read_tb", "read from disks below 30 GB of cache, TB (4.1)", 35.0, TENTH),
    derived("compaction_share_of_writes", "compaction's share of written bytes", 0.607, FIFTH),
    derived("distinct_read_tb", "different data read, TB", 14.5, FIFTH),
    derived("distinct_written_tb", "different data written, TB", 14.8, FIFTH),
    derived("both_tb", "data read and written, TB", 2.8, FIFTH),
    printed("accessed_tb", "data read or written, TB (figure 4)", 26.5, TENTH),
    printed("core_data_tb", "data under gets and flushes that remains, TB (figure 3)", 3.9, TENTH),
    printed("prefetch_meta_io_over_data", "I/O over data of PrefetchMeta (figure 4)", 15.0, TENTH),
    printed("keywords_io_over_data", "I/O over data of Keywords (figure 4)", 1.1, TENTH),
    printed("files", "files that appear (figure 5)", 862e3, TENTH),
    printed("least_share_below_15mb", "least share of a family's files below 15 MB (4.3)", 0.88, Tolerance::AtLeast),
    printed("message_meta_file_mb", "mean file of MessageMeta, MB (figure 5)", 293.0, TENTH),
    printed("log_file_mb", "mean log file, MB (figure 5)", 218.0, TENTH),
    derived("log_files", "log files", 24_300.0, FIFTH),
    derived("log_file_seconds", "seconds that one log file lasts", 265.0, FIFTH),
    printed("small_files_share", "created files below 16 MB (4.3)", 0.94, points(2.0)),
    printed("medium_files_share", "created files of 16 to 64 MB (4.3)", 0.02, points(1.0)),
    printed("large_files_share", "created files of 64 MB and more, logs with them (4.3)", 0.04, points(1.0)),
    printed("large_data_share", "their share of the data (4.3)", 0.89, points(3.0)),
    printed("small_dead_in_a_minute", "small files that live less than a minute (figure 6)", 0.17, points(3.0)),
    printed(
        "small_older_than_6_hours",
        "small files that live above six hours: very few (figure 6)",
        0.05,
        Tolerance::AtMost,
    ),
    printed(
        "medium_older_than_8_hours",
        "medium files that live above eight hours: half (figure 6)",
        0.5,
        points(10.0),
    ),
    printed("large_dead", "large files that are removed, of all, logs with them (figure 6)", 0.14, points(3.0)),
    printed(
        "same_data_4_minutes",
        "reads of what was read within 4 minutes: almost none (figure 7)",
        0.03,
        Tolerance::AtMost,
    ),
    printed("same_data_32_minutes", "reads of what was read within 32 minutes (figure 7)", 0.26, points(3.0)),
    printed("within_1kb_1_minute", "reads within 1 KB of one in the last minute (figure 7)", 0.25, points(3.0)),
    printed("lines_1kb_64kb_apart", "lines of 1 KB and 64 KB are near (figure 7)", 0.03, Tolerance::AtMost),
    printed("read_once_share", "read data that is read once (figure 8)", 0.737, points(2.0)),
    printed("read_64_times_share", "read data that is read 64 times or more (figure 8)", 0.011, points(0.3)),
    printed("reads_of_once_read_share", "reads that go to data read once (figure 8)", 0.19, points(2.0)),
    derived("reads_a_read_byte", "reads of a byte that is read", 3.88, FIFTH),
    derived("reads_a_reread_byte", "reads of a byte that is read again", 11.9, FIFTH),
    derived("lru_10gb", "hits of LRU, 10 GB a machine", 0.295, points(4.0)),
    printed("lru_30gb", "hits of LRU, 30 GB (table 1)", 0.454, points(4.0)),
    printed("lru_90gb", "hits of LRU, 90 GB (figure 11)", 0.63, points(4.0)),
    derived("lru_250gb", "hits of LRU, 250 GB", 0.80, points(4.0)),
    derived("read_page_rounding", "read bytes in whole pages over read bytes", 1.10, FIFTH),
    derived("write_page_rounding", "written bytes in whole pages over written bytes", 1.38, FIFTH),
    derived("get_read_kb", "bytes of a get's read, KB", 50.0, FIFTH),
    printed("calls_per_second", "calls a second of one machine (5.2e9 in all)", 806.0, TENTH),
];
