//! What is asked and answered about what happened, the oldest or the newest first.

use frieze_wire::message::{Log, LogReply, Reply, Request, Version, VersionKind, View};
use frieze_wire::timeline::{
    AFTER_OUTSIDE, AWAIT_MS_MAX, AwaitChange, AwaitChangeReply, CELL_US, Difference, Story, StoryReply,
};
use frieze_wire::txn::Target;

use super::AT;
use super::replies::{difference, forgotten, session};

pub(super) fn requests(target: &Target, view: View) -> Vec<(&'static str, Request)> {
    let log = Log { target: target.clone(), view, after: AT, count_max: 10, upto: AT + 9, newest_first: false };
    let story = Story {
        target: target.clone(),
        view,
        after: AT,
        upto: AT + 1,
        recursive: true,
        count_max: 10,
        newest_first: false,
        cell_us: 0,
    };
    vec![
        ("log", Request::Log(log.clone())),
        ("log.newest", Request::Log(Log { newest_first: true, ..log })),
        ("story", Request::Story(story.clone())),
        ("story.cells", Request::Story(Story { cell_us: CELL_US, ..story.clone() })),
        ("story.newest", Request::Story(Story { newest_first: true, ..story })),
        ("await_change", Request::AwaitChange(AwaitChange { after: AT, wait_ms: AWAIT_MS_MAX })),
    ]
}

pub(super) fn replies() -> Vec<(&'static str, Reply)> {
    let log = LogReply {
        versions: vec![Version {
            kind: VersionKind::Punch as i32,
            stamp: AT,
            user_time: Some(-1),
            session: 42,
            uid: 1000,
            offset: 4096,
            len: 100,
            name: b"b.txt".to_vec(),
        }],
        forgotten: Some(forgotten()),
        more: true,
        sessions: vec![session()],
        after: 0,
    };
    let story = StoryReply {
        events: vec![difference()],
        upto: AT,
        hidden: true,
        sessions: vec![session()],
        forgotten: Some(forgotten()),
        left_out: true,
        after: 0,
    };
    vec![
        ("log", Reply::Log(log.clone())),
        ("log.newest", Reply::Log(LogReply { after: AT - 1, ..log })),
        ("story", Reply::Story(story.clone())),
        ("story.newest", Reply::Story(StoryReply { after: AT - 1, ..story.clone() })),
        (
            "story.outside",
            Reply::Story(StoryReply { events: vec![Difference { outside: AFTER_OUTSIDE, ..difference() }], ..story }),
        ),
        ("await_change", Reply::AwaitChange(AwaitChangeReply { upto: AT })),
    ]
}
