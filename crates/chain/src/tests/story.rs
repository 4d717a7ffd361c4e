//! Runs the stories in `testdata/`: a line that starts with `>` is an input, the lines below it are the effects.
//!
//! Stamps are small numbers. `UPDATE_EXPECT=1` rewrites what the lines below an input say; read the difference.

use std::collections::BTreeMap;
use std::path::PathBuf;

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Reason, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;

use crate::{
    AppendToken, LogEnd, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, RequestOutcome, RequestState,
    Settings, WriteRequest,
};

macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_story_in_testdata_runs() {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata");
            let files = std::fs::read_dir(folder).expect("testdata is there").count();
            assert_eq!(files, [$(stringify!($name)),*].len(), "a story without a test tells nothing");
        }
    };
}

stories! {
    a_write_is_answered_when_it_is_committed,
    a_retry_runs_once,
    numbers_below_the_floor_are_refused,
    closing_an_instant,
    a_failed_append_leaves_nothing,
    a_failed_device_answers_everybody,
    another_configuration_is_refused,
    a_group_has_one_stamp,
    user_time_never_runs_backwards,
    recovery_goes_on_from_the_last_record,
    limits_are_kept_when_full,
    bad_requests,
}

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.txt"));
    let written = std::fs::read_to_string(&path).expect("the story is there");
    let output = run_story(&written);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &output).expect("the story can be rewritten");
        return;
    }
    assert!(output == written, "{name} is output differently:\n{output}\nUPDATE_EXPECT=1 rewrites it");
}

/// The story with every input's effects as they are now.
fn run_story(written: &str) -> String {
    let mut replica = Replica::new(ChainId(3), ChainEpoch(1), Settings::default());
    let mut output = String::new();
    for line in written.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.is_empty() || line.starts_with('#') {
                output += &format!("{line}\n");
            }
            continue;
        };
        output += &format!("{line}\n");
        for effect in run(&mut replica, command) {
            output += &format!("  {effect}\n");
        }
    }
    output
}

fn run(replica: &mut Replica, command: &str) -> Vec<String> {
    let words = Words::of(command);
    match words.verb {
        "limits" => {
            let default = Settings::default();
            let limit = |name, default| words.number(name).unwrap_or(default);
            let settings = Settings {
                in_flight_max: limit("in_flight", default.in_flight_max as u64) as usize,
                remembered_max: limit("remembered", default.remembered_max),
                retries_max: limit("retries", default.retries_max as u64) as usize,
                closing_max: limit("closing", default.closing_max as u64) as usize,
            };
            *replica = Replica::new(ChainId(3), ChainEpoch(1), settings);
            Vec::new()
        }
        "show" => vec![format!(
            "epoch {}, last {}, clean {}, newest {}, closed {}, now reads {}",
            replica.epoch(),
            replica.last(),
            replica.clean(),
            replica.newest().0,
            replica.closed().0,
            if replica.now_cut() == Hlc::MAX { "everything".to_owned() } else { replica.now_cut().0.to_string() },
        )],
        "readable" => vec![format!("{}", replica.is_readable_at(Hlc(words.need("at"))))],
        "remembered" => vec![match replica.outcome_of(SessionId(words.need("s")), Seq(words.need("seq"))) {
            None => "nothing".to_owned(),
            Some(RequestOutcome { part, state: RequestState::InFlight }) => format!("part {part}, in flight"),
            Some(RequestOutcome { part, state: RequestState::Done(done) }) => {
                format!("part {part}, done {} at {}+{}", done.stamp.0, done.chunk, done.offset)
            }
        }],
        "sessions" => vec![replica.sessions().map(|session| session.to_string()).collect::<Vec<_>>().join(" ")],
        "replay" => {
            let record = RecordHeader {
                epoch: ChainEpoch(words.number("epoch").unwrap_or(1)),
                n: words.need("n"),
                stamp: Hlc(words.need("at")),
                session: SessionId(words.number("s").unwrap_or(1)),
                seq: Seq(words.need("seq")),
                part: words.number("part").unwrap_or(0) as u8,
                chunk: words.chunk(),
                offset: words.number("offset").unwrap_or(0) as u32,
                ..RecordHeader::ZERO
            };
            vec![match replica.replay(&record) {
                Ok(0) => "taken".to_owned(),
                Ok(missing) => format!("taken, {missing} missing before it"),
                Err(error) => format!("left out, {:?}: {error}", error.reason()),
            }]
        }
        _ => {
            let at = Moment { hlc: Hlc(words.number("at").unwrap_or(0)), ..Moment::default() };
            let mut out = Vec::new();
            replica.step(at, input(&words), &mut out);
            if out.is_empty() { vec!["nothing".to_owned()] } else { out.iter().map(show).collect() }
        }
    }
}

fn input(words: &Words<'_>) -> ReplicaInput {
    let request = || RequestId(words.need("r"));
    let token = || AppendToken(words.need("append"));
    match words.verb {
        "write" => ReplicaInput::Write(WriteRequest {
            request: request(),
            header: RecordHeader {
                session: SessionId(words.number("s").unwrap_or(1)),
                seq: Seq(words.need("seq")),
                epoch: ChainEpoch(words.number("epoch").unwrap_or(1)),
                chunk: words.chunk(),
                offset: words.number("offset").unwrap_or(0) as u32,
                len: words.number("len").unwrap_or(100) as u32,
                part: words.number("part").unwrap_or(0) as u8,
                parts: words.number("parts").unwrap_or(1) as u8,
                user_time: words.number("user").map(|time| UserTime(time as i64)),
                uid: 1000,
                ..RecordHeader::ZERO
            },
            acked: Seq(words.number("acked").unwrap_or(0)),
            seen: Hlc(words.number("seen").unwrap_or(0)),
            file_offset: words.number("offset").unwrap_or(0),
            durability: if words.values.contains_key("sync") { Durability::Sync } else { Durability::Async },
            chunk_version: words.number("version").unwrap_or(0),
            newest_user_time: words.number("newest").map(|time| UserTime(time as i64)),
            times_after: Hlc(words.number("times-after").unwrap_or(0)),
        }),
        "appended" => ReplicaInput::Appended { token: token(), end: words.end() },
        "append-failed" => ReplicaInput::AppendFailed { token: token(), reason: Reason::NoSpace },
        "persisted" => ReplicaInput::Persisted { through: words.end() },
        "device-failed" => ReplicaInput::DeviceFailed { reason: Reason::InputOutput },
        "close" => ReplicaInput::Close { request: request(), at: Hlc(words.need("instant")) },
        "configure" => ReplicaInput::Configure(Configuration::alone(ChainEpoch(words.need("epoch")))),
        "end" => ReplicaInput::EndSession(SessionId(words.need("s"))),
        verb => panic!("no input is called {verb}"),
    }
}

fn show(effect: &ReplicaEffect) -> String {
    match effect {
        ReplicaEffect::Append { token, request, header: RecordHeader { n, epoch, version, stamp, .. } } => {
            format!("append {}: r {} is n {n}, version {version}, epoch {epoch}, stamp {}", token.0, request.0, stamp.0)
        }
        ReplicaEffect::Reply { request, result: Ok(done) } => {
            format!("r {}: done, stamp {} at {}+{}", request.0, done.stamp.0, done.chunk, done.offset)
        }
        ReplicaEffect::Reply { request, result: Err(fault) } => {
            format!("r {}: refused, {:?}: {fault}", request.0, fault.reason)
        }
        ReplicaEffect::Closed { request, at } => format!("r {}: closed {}", request.0, at.0),
        ReplicaEffect::AppendForwarded { .. }
        | ReplicaEffect::Send { .. }
        | ReplicaEffect::TailCut { .. }
        | ReplicaEffect::Supply { .. }
        | ReplicaEffect::Discard { .. }
        | ReplicaEffect::CaughtUp { .. }
        | ReplicaEffect::Ready { .. }
        | ReplicaEffect::Distrust { .. } => {
            panic!("a replica alone: {effect:?}")
        }
    }
}

/// A command: its verb, then pairs of a name and a value; `sync` stands alone.
struct Words<'a> {
    verb: &'a str,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(command: &'a str) -> Words<'a> {
        let mut words = command.split_whitespace();
        let verb = words.next().expect("a command has a verb");
        let mut values = BTreeMap::new();
        while let Some(name) = words.next() {
            let value = if name == "sync" { "" } else { words.next().expect("a name has a value") };
            values.insert(name, value);
        }
        Words { verb, values }
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.values.get(name).map(|text| text.parse().expect("the value is a number"))
    }

    fn need(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{} needs {name}", self.verb))
    }

    fn chunk(&self) -> ChunkId {
        let default = ChunkId { inode: InodeId(7), index: 0 };
        self.values.get("chunk").map_or(default, |text| text.parse().expect("the value is a chunk"))
    }

    fn end(&self) -> LogEnd {
        let (segment, offset) = self.values["end"].split_once(':').expect("an end is SEGMENT:OFFSET");
        let number = |text: &str| text.parse().expect("a number");
        LogEnd { segment: SegmentId(number(segment)), offset: number(offset) }
    }
}
