//! The stories in `testdata/`, see [`frieze_testkit::story`]. Stamps are small numbers.

use frieze_base::{LogIndex, Reason, SegmentId};
use frieze_hlc::Hlc;
use frieze_testkit::stories;
use frieze_testkit::story::StoryCommand;

use crate::{DataEnd, Metalog, MetalogEffect, MetalogInput, MetalogSettings};

stories! {
    {
        let mut log = Metalog::new(MetalogSettings {
            segment_bytes: 512,
            body_bytes_max: 2000,
            in_flight_max: 3,
            closing_max: 1,
            spare_max: 1,
        });
        move |command: &str| run(&mut log, command)
    };
    a_batch_is_committed_then_durable,
    a_failed_append_gives_its_place_to_the_next,
    a_failed_device_takes_nothing_more,
    closing_an_instant,
    limits_are_kept_when_full,
    segments_follow_each_other,
    the_first_entry_fails,
}

fn run(log: &mut Metalog, command: &str) -> Vec<String> {
    let words = StoryCommand::parse(command, &[]);
    let (number, need) = (|name: &str| words.number(name), |name: &str| words.need(name));
    let index = |name: &str| LogIndex(need(name));
    let input = match words.verb {
        "propose" => MetalogInput::Propose {
            body: vec![7; number("len").unwrap_or(10) as usize],
            count: number("count").unwrap_or(1) as u32,
            data_end: DataEnd { segment: SegmentId(1), offset: number("data").unwrap_or(0) },
        },
        "appended" => MetalogInput::Appended { index: index("entry") },
        "append-failed" => MetalogInput::AppendFailed { index: index("entry"), reason: Reason::NoSpace },
        "persisted" => MetalogInput::Persisted { index: index("entry") },
        "device-failed" => MetalogInput::DeviceFailed { reason: Reason::InputOutput },
        "truncate" => MetalogInput::Truncate { through: index("entry") },
        "close" => MetalogInput::Close { at: Hlc(need("instant")) },
        "show" => {
            let segments: Vec<String> = log.segments().map(|segment| segment.to_string()).collect();
            return vec![format!(
                "last {}, committed {}, durable {}, newest {}, closed {}, segments {}",
                log.last(),
                log.committed(),
                log.durable(),
                log.newest().0,
                log.closed().0,
                segments.join(" "),
            )];
        }
        verb => panic!("no input is called {verb}"),
    };
    let mut out = Vec::new();
    log.step(Hlc(number("at").unwrap_or(0)), input, &mut out);
    if out.is_empty() { vec!["nothing".to_owned()] } else { out.iter().map(show).collect() }
}

fn show(effect: &MetalogEffect) -> String {
    match effect {
        MetalogEffect::Append { index, stamp, roll, segment, offset, bytes } => {
            let roll = roll.as_ref().map_or_else(String::new, |new| {
                let from = new.recycle.map_or("new".to_owned(), |old| format!("from {old}"));
                format!(", after making segment {} ({from}, {} bytes)", new.segment, new.bytes)
            });
            format!("append {index}, stamp {}: {} bytes at {segment}:{offset}{roll}", stamp.0, bytes.len())
        }
        MetalogEffect::Refused(fault) => format!("refused, {:?}: {fault}", fault.reason),
        MetalogEffect::Withdrawn { index, fault } => format!("withdrawn {index}, {:?}: {fault}", fault.reason),
        MetalogEffect::Committed { index } => format!("committed {index}"),
        MetalogEffect::Durable { index } => format!("durable {index}"),
        MetalogEffect::Failed(fault) => format!("failed, {:?}: {fault}", fault.reason),
        MetalogEffect::Erase { segment, offset, len } => format!("erase {len} bytes at {segment}:{offset}"),
        MetalogEffect::Remove { segment } => format!("remove {segment}"),
        MetalogEffect::Closed { at } => format!("closed {}", at.0),
    }
}
