//! Advice for a server of frieze and its programs, from a recorded load: what would help, by how much, how sure it is.
//!
//! Guarantees: every piece of advice has its numbers from this trace, by the code that the server runs; topics that
//! promise nothing are named too; nothing is changed.
//! Leaves to others: words of the command, and where the numbers of the present server come from.

use frieze_tier::MemoryDemand;

use crate::facts::{LoadFacts, ProgramFacts};
use crate::server::{ServerHits, ServerMemory, simulate_server};
use crate::workload::RecordedLoad;

/// What advice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdviceTopic {
    /// How much memory the server has.
    Memory,
    /// How it is divided between young and older records.
    YoungShare,
    /// Programs that wait for stable storage again and again.
    Syncs,
    /// Programs that write little pieces.
    SmallWrites,
    /// The history of files that live shortly.
    ShortLived,
    /// Images of old pages.
    Images,
}

impl AdviceTopic {
    /// All of them, in the order in which they are shown.
    pub const ALL: [AdviceTopic; 6] = [
        AdviceTopic::Memory,
        AdviceTopic::YoungShare,
        AdviceTopic::Syncs,
        AdviceTopic::SmallWrites,
        AdviceTopic::ShortLived,
        AdviceTopic::Images,
    ];

    /// Its word in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            AdviceTopic::Memory => "memory",
            AdviceTopic::YoungShare => "young share",
            AdviceTopic::Syncs => "syncs",
            AdviceTopic::SmallWrites => "small writes",
            AdviceTopic::ShortLived => "short-lived files",
            AdviceTopic::Images => "images",
        }
    }
}

/// How sure advice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// The trace is short, or its first half says otherwise.
    Low,
    /// Counted in this trace; another day may differ.
    Medium,
    /// The first half of a long trace says the same.
    High,
}

impl Confidence {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Confidence::Low => "low",
            Confidence::Medium => "medium",
            Confidence::High => "high",
        }
    }
}

/// What one topic promises.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// What it is about.
    pub topic: AdviceTopic,
    /// What to do, in words; `None`: there is nothing to gain.
    pub change: Option<String>,
    /// What it gains, or why there is nothing to gain.
    pub gain: String,
    /// The gain as a number: points of a share (0 to 100), or percent of waiting; 0 for none.
    pub points: f64,
    /// The command or setting that does it.
    pub command: Option<String>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why it is as sure as that.
    pub because: String,
}

/// The server that the advice is for.
#[derive(Clone, Copy, Debug)]
pub struct AdvisedServer {
    /// Memory for everything, bytes.
    pub memory_bytes: u64,
    /// Most that the machine could give, bytes.
    pub memory_bytes_max: u64,
    /// The part of the memory for records that young ones have now; `None`: the default.
    pub young_share: Option<f64>,
    /// The trace has one in so many files.
    pub one_in: u32,
}

/// More points of a share than this are worth a change.
const POINTS_WORTH: f64 = 3.0;
/// Programs that wait this part of all waiting for something are worth a word.
const WAITING_WORTH: f64 = 0.1;
/// A smaller trace or one of a shorter time is no base for sure advice.
const CALLS_MIN: usize = 10_000;
const SPAN_MIN_US: u64 = 3_600_000_000;
/// Points by which the first half may differ.
const POINTS_AGREE: f64 = 2.0;
/// A smaller write is a small one, on average.
const SMALL_WRITE_BYTES: u64 = 4096;
/// Bytes between two syncs below which they are frequent.
const BYTES_PER_SYNC: u64 = 64 << 10;
/// Calls of a program below which nothing is said of it.
const PROGRAM_CALLS_MIN: u64 = 1000;
/// Sizes of memory that are tried, times the present one.
const MEMORY_STEPS: [f64; 7] = [0.25, 0.5, 0.75, 1.5, 2.0, 4.0, 8.0];
/// Shares of young records that are tried.
const YOUNG_STEPS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// What helps this load at this server; a line for each topic.
///
/// # Cost
/// Two passes over the calls, each with some twenty memories at once.
pub fn advise(load: &RecordedLoad, facts: &LoadFacts, server: &AdvisedServer) -> Vec<Advice> {
    let half = load.clone().until(load.span_us() / 2);
    let loads = [load, &half];
    vec![
        memory(loads, server),
        young_share(loads, server),
        syncs(load, facts),
        small_writes(load, facts),
        short_lived(load, facts),
        images(load, facts),
    ]
}

/// What a server with so much memory has for records.
fn records(server: &AdvisedServer, memory_bytes: u64) -> Option<ServerMemory> {
    let demand = MemoryDemand { total: Some(memory_bytes), ..MemoryDemand::default() };
    let shares = demand.divide().ok()?;
    let default = ServerMemory::of_shares(&shares);
    let all = default.young_bytes + default.old_bytes;
    Some(server.young_share.map_or(default, |share| ServerMemory::split(all, share)).shrunk(server.one_in))
}

/// Points of bytes that readers need not wait for.
fn served(hits: &ServerHits) -> f64 {
    hits.waited_share().map_or(100.0, |waited| 100.0 * (1.0 - waited))
}

fn nothing(topic: AdviceTopic, why: String, load: &RecordedLoad) -> Advice {
    let (confidence, because) = length(load);
    Advice { topic, change: None, gain: why, points: 0.0, command: None, confidence, because }
}

/// How sure a count over this trace is.
fn length(load: &RecordedLoad) -> (Confidence, String) {
    let minutes = load.span_us() as f64 / 60e6;
    let words = format!("{} calls in {}", load.calls().len(), minutes_in_words(minutes));
    match load.calls().len() < CALLS_MIN || load.span_us() < SPAN_MIN_US / 60 {
        true => (Confidence::Low, format!("only {words}")),
        false => (Confidence::Medium, words),
    }
}

/// How sure a gain is of which the first half of the trace gives another number.
fn agreement(load: &RecordedLoad, points: f64, of_half: f64) -> (Confidence, String) {
    let (confidence, words) = length(load);
    let differs = (points - of_half).abs() > POINTS_AGREE.max(points.abs() / 2.0);
    let because = format!("{words}; its first half alone gives {of_half:+.0} points");
    match confidence {
        Confidence::Low => (Confidence::Low, because),
        _ if differs => (Confidence::Low, because),
        _ if load.span_us() >= SPAN_MIN_US => (Confidence::High, because),
        _ => (Confidence::Medium, because),
    }
}

fn minutes_in_words(minutes: f64) -> String {
    match minutes {
        minutes if minutes < 2.0 => format!("{:.0} seconds", minutes * 60.0),
        minutes if minutes < 120.0 => format!("{minutes:.0} minutes"),
        minutes if minutes < 2880.0 => format!("{:.0} hours", minutes / 60.0),
        minutes => format!("{:.1} days", minutes / 1440.0),
    }
}

fn memory(loads: [&RecordedLoad; 2], server: &AdvisedServer) -> Advice {
    let topic = AdviceTopic::Memory;
    let now = server.memory_bytes;
    let steps = MEMORY_STEPS.map(|times| (now as f64 * times) as u64);
    let fits = |bytes: &u64| *bytes <= server.memory_bytes_max;
    let sizes: Vec<u64> = std::iter::once(now).chain(steps.into_iter().filter(fits)).collect();
    let sizes: Vec<(u64, ServerMemory)> =
        sizes.into_iter().filter_map(|bytes| Some((bytes, records(server, bytes)?))).collect();
    if sizes.first().is_none_or(|(bytes, _)| *bytes != now) {
        return nothing(topic, "the server has less memory than it needs".to_owned(), loads[0]);
    }
    let memories: Vec<ServerMemory> = sizes.iter().map(|(_, memory)| *memory).collect();
    let [whole, half] = loads.map(|load| simulate_server(load, &memories));
    if whole[0].asked_bytes() == 0 {
        return nothing(topic, "nothing is read".to_owned(), loads[0]);
    }
    let points = |at: usize| served(&whole[at]) - served(&whole[0]);
    let of_half = |at: usize| served(&half[at]) - served(&half[0]);
    let best = (1..sizes.len()).map(points).fold(0.0, f64::max);
    // The smallest size that gains nearly all, and the smallest that loses nothing.
    let more = (1..sizes.len()).filter(|at| sizes[*at].0 > now && points(*at) >= (best * 0.8).max(POINTS_WORTH));
    let less = (1..sizes.len()).filter(|at| sizes[*at].0 < now && points(*at) >= -0.5);
    let size = |at: usize| sizes[at].0;
    if let Some(at) = more.min_by_key(|at| size(*at)) {
        let (confidence, because) = agreement(loads[0], points(at), of_half(at));
        let (before, after) = (served(&whole[0]), served(&whole[at]));
        return Advice {
            topic,
            change: Some(format!("more memory: {}", mib(size(at)))),
            gain: format!("reads served without the device {before:.0} -> {after:.0} %"),
            points: points(at),
            command: Some(format!("frieze serve --memory {}", size(at) >> 20)),
            confidence,
            because,
        };
    }
    if let Some(at) = less.min_by_key(|at| size(*at)) {
        let (confidence, because) = agreement(loads[0], points(at), of_half(at));
        return Advice {
            topic,
            change: Some(format!("less memory: {} do as well", mib(size(at)))),
            gain: format!(
                "{} for other programs; reads lose {:.1} points",
                mib(now - size(at)),
                (-points(at)).max(0.0)
            ),
            points: points(at),
            command: Some(format!("frieze serve --memory {}", size(at) >> 20)),
            confidence,
            because,
        };
    }
    let most = sizes.iter().map(|(bytes, _)| *bytes).max().unwrap_or(now);
    nothing(topic, format!("{} serve {best:.1} points more than {}", mib(most), mib(now)), loads[0])
}

fn young_share(loads: [&RecordedLoad; 2], server: &AdvisedServer) -> Advice {
    let topic = AdviceTopic::YoungShare;
    let Some(now) = records(server, server.memory_bytes) else {
        return nothing(topic, "the server has less memory than it needs".to_owned(), loads[0]);
    };
    let all = now.young_bytes + now.old_bytes;
    let memories: Vec<ServerMemory> =
        std::iter::once(now).chain(YOUNG_STEPS.map(|share| ServerMemory::split(all, share))).collect();
    let [whole, half] = loads.map(|load| simulate_server(load, &memories));
    if whole[0].asked_bytes() == 0 {
        return nothing(topic, "nothing is read".to_owned(), loads[0]);
    }
    let points = |at: usize| served(&whole[at]) - served(&whole[0]);
    let best = (1..memories.len()).max_by(|one, other| points(*one).total_cmp(&points(*other))).unwrap_or(0);
    if points(best) < POINTS_WORTH {
        let share = 100.0 * memories[best].young_share();
        let why = format!("the best share, {share:.0} %, serves {:.1} points more", points(best).max(0.0));
        return nothing(topic, why, loads[0]);
    }
    let (confidence, because) = agreement(loads[0], points(best), served(&half[best]) - served(&half[0]));
    let young_bytes = memories[best].young_bytes * u64::from(server.one_in.max(1));
    Advice {
        topic,
        change: Some(format!(
            "{:.0} % of the memory for records to young ones, not {:.0} %",
            100.0 * memories[best].young_share(),
            100.0 * now.young_share()
        )),
        gain: format!("reads served without the device {:.0} -> {:.0} %", served(&whole[0]), served(&whole[best])),
        points: points(best),
        command: Some(format!("young_bytes_max = {young_bytes}")),
        confidence,
        because,
    }
}

/// The program for which `of` is largest, and its part of all waiting.
fn main_program(facts: &LoadFacts, of: impl Fn(&ProgramFacts) -> u64) -> Option<(&str, &ProgramFacts, f64)> {
    let (name, program) = facts.programs.iter().max_by_key(|(_, program)| of(program))?;
    let part = of(program) as f64 / facts.waited_ns().max(1) as f64;
    let name = match name.as_str() {
        "" => "a program that the trace does not name",
        // What calls a mount is not recorded.
        name if name.contains("frieze") && name.contains(" mount ") => "programs on the mount",
        name => name,
    };
    Some((name, program, part))
}

fn syncs(load: &RecordedLoad, facts: &LoadFacts) -> Advice {
    let topic = AdviceTopic::Syncs;
    let Some((name, program, part)) = main_program(facts, |program| program.syncs.waited_ns) else {
        return nothing(topic, "nothing waits for stable storage".to_owned(), load);
    };
    let per_sync = program.writes.bytes / program.syncs.calls.max(1);
    let percent = 100.0 * part;
    if part < WAITING_WORTH || per_sync >= BYTES_PER_SYNC || program.syncs.calls < PROGRAM_CALLS_MIN / 10 {
        let why = format!("{percent:.1} % of all waiting is for stable storage, {per_sync} bytes each time");
        return nothing(topic, why, load);
    }
    let (confidence, because) = length(load);
    Advice {
        topic,
        change: Some(format!("{name}: several writes before each sync")),
        gain: format!(
            "up to {percent:.0} % of all waiting: {} syncs, {per_sync} bytes each, {:.2} ms",
            program.syncs.calls,
            program.syncs.waited_ns as f64 / program.syncs.calls.max(1) as f64 / 1e6
        ),
        points: percent,
        command: Some("--durability async (the default), and one fsync where a batch ends".to_owned()),
        confidence,
        because,
    }
}

fn small_writes(load: &RecordedLoad, facts: &LoadFacts) -> Advice {
    let topic = AdviceTopic::SmallWrites;
    let waited = |program: &ProgramFacts| match program.writes.calls {
        0 => 0,
        calls if program.writes.bytes / calls < SMALL_WRITE_BYTES => program.writes.waited_ns,
        _ => 0,
    };
    let main = main_program(facts, waited)
        .filter(|(_, program, part)| *part >= WAITING_WORTH && program.writes.calls >= PROGRAM_CALLS_MIN);
    let Some((name, program, part)) = main else {
        return nothing(topic, "writes of programs are 4 KiB and larger on average, or few".to_owned(), load);
    };
    let size = program.writes.bytes / program.writes.calls.max(1);
    let (confidence, because) = length(load);
    Advice {
        topic,
        change: Some(format!("{name}: a buffer of 64 KiB in front of its writes of {size} bytes")),
        gain: format!("up to {:.0} % of all waiting: {} writes", 100.0 * part, program.writes.calls),
        points: 100.0 * part,
        command: None,
        confidence,
        because,
    }
}

fn short_lived(load: &RecordedLoad, facts: &LoadFacts) -> Advice {
    let topic = AdviceTopic::ShortLived;
    let part = facts.short_lived_bytes as f64 / facts.written_bytes.max(1) as f64;
    if part < WAITING_WORTH {
        let why = format!("{:.1} % of written bytes are of files that were removed within an hour", 100.0 * part);
        return nothing(topic, why, load);
    }
    let (directory, bytes) = facts.main_directory();
    let directory = String::from_utf8_lossy(&directory).into_owned();
    let a_day = bytes as f64 * 86_400e6 / load.span_us().max(1) as f64;
    let (confidence, because) = length(load);
    Advice {
        topic,
        change: Some(format!("forget the history of {directory}, once a day")),
        gain: format!(
            "{:.0} % of what is written, {} a day: files that were removed within an hour",
            100.0 * bytes as f64 / facts.written_bytes.max(1) as f64,
            mib(a_day as u64)
        ),
        points: 100.0 * part,
        command: Some(format!("frieze forget --before 1d-ago {}", quoted(&directory))),
        confidence,
        because,
    }
}

fn images(load: &RecordedLoad, facts: &LoadFacts) -> Advice {
    let topic = AdviceTopic::Images;
    let (past, present) = (facts.past_reads.calls, facts.present_reads.calls);
    if past > 0 || load.span_us() < 24 * SPAN_MIN_US {
        let why = match past {
            0 => "no read of the past, in a trace of less than a day".to_owned(),
            _ => format!("{past} of {} reads are of the past: images serve them", past + present),
        };
        return nothing(topic, why, load);
    }
    let (confidence, because) = length(load);
    Advice {
        topic,
        change: Some("no images of old pages".to_owned()),
        gain: "up to a tenth of the log's space; the first reads of old states will be slower".to_owned(),
        points: 0.0,
        command: Some("image_percent = 0".to_owned()),
        confidence: confidence.min(Confidence::Medium),
        because: format!("{because}, no read of the past among them"),
    }
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    match text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

fn mib(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 10 << 30 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} GiB", bytes >> 30),
    }
}
