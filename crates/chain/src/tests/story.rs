//! The stories in `testdata/`, see [`frieze_testkit::story`]. Stamps are small numbers.

use frieze_base::{ChainEpoch, ChainId, ChunkId, InodeId, Reason, SegmentId, Seq, SessionId};
use frieze_hlc::{Hlc, UserTime};
use frieze_testkit::stories;
use frieze_testkit::story::StoryCommand;
use frieze_wire::chain::{Configuration, RecordHeader};
use frieze_wire::message::Durability;

use crate::{
    AppendToken, LogEnd, Moment, Replica, ReplicaEffect, ReplicaInput, RequestId, RequestOutcome, RequestState,
    Settings, WriteRequest,
};

stories! {
    {
        let mut replica = Replica::new(ChainId(3), ChainEpoch(1), Settings::default());
        move |command: &str| run(&mut replica, command)
    };
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

fn run(replica: &mut Replica, command: &str) -> Vec<String> {
    let words = StoryCommand::parse(command, &["sync"]);
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
                chunk: chunk(&words),
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

fn input(words: &StoryCommand<'_>) -> ReplicaInput {
    let request = || RequestId(words.need("r"));
    let token = || AppendToken(words.need("append"));
    match words.verb {
        "write" => ReplicaInput::Write(WriteRequest {
            request: request(),
            header: RecordHeader {
                session: SessionId(words.number("s").unwrap_or(1)),
                seq: Seq(words.need("seq")),
                epoch: ChainEpoch(words.number("epoch").unwrap_or(1)),
                chunk: chunk(words),
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
            durability: if words.has("sync") { Durability::Sync } else { Durability::Async },
            chunk_version: words.number("version").unwrap_or(0),
            newest_user_time: words.number("newest").map(|time| UserTime(time as i64)),
            times_after: Hlc(words.number("times-after").unwrap_or(0)),
        }),
        "appended" => ReplicaInput::Appended { token: token(), end: end(words) },
        "append-failed" => ReplicaInput::AppendFailed { token: token(), reason: Reason::NoSpace },
        "persisted" => ReplicaInput::Persisted { through: end(words) },
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

fn chunk(command: &StoryCommand<'_>) -> ChunkId {
    let default = ChunkId { inode: InodeId(7), index: 0 };
    command.text("chunk").map_or(default, |text| text.parse().expect("the value is a chunk"))
}

fn end(command: &StoryCommand<'_>) -> LogEnd {
    let (segment, offset) =
        command.text("end").and_then(|text| text.split_once(':')).expect("an end is SEGMENT:OFFSET");
    let number = |text: &str| text.parse().expect("a number");
    LogEnd { segment: SegmentId(number(segment)), offset: number(offset) }
}
