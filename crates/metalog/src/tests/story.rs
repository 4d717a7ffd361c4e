//! Runs the stories in `testdata/`: a line that starts with `>` is an input, the lines below it are the effects.
//!
//! Stamps are small numbers. `UPDATE_EXPECT=1` rewrites what the lines below an input say; read the difference.

use std::path::PathBuf;

use frieze_base::{LogIndex, Reason, SegmentId};
use frieze_hlc::Hlc;

use crate::{DataEnd, Metalog, MetalogEffect, MetalogInput, MetalogSettings};

macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_story_in_testdata_is_told() {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata");
            let files = std::fs::read_dir(folder).expect("testdata is there").count();
            assert_eq!(files, [$(stringify!($name)),*].len(), "a story without a test tells nothing");
        }
    };
}

stories! {
    a_batch_is_committed_then_durable,
    a_failed_append_gives_its_place_to_the_next,
    a_failed_device_takes_nothing_more,
    closing_an_instant,
    limits_are_kept_when_full,
    segments_follow_each_other,
    the_first_entry_fails,
}

fn check(name: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/{name}.txt"));
    let written = std::fs::read_to_string(&path).expect("the story is there");
    let told = tell(&written);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &told).expect("the story can be rewritten");
        return;
    }
    assert!(told == written, "{name} is told differently:\n{told}\nUPDATE_EXPECT=1 rewrites it");
}

/// The story with every input's effects as they are now.
fn tell(written: &str) -> String {
    let settings =
        MetalogSettings { segment_bytes: 512, body_bytes_max: 2000, in_flight_max: 3, closing_max: 1, spare_max: 1 };
    let mut log = Metalog::new(settings);
    let mut told = String::new();
    for line in written.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.is_empty() || line.starts_with('#') {
                told += &format!("{line}\n");
            }
            continue;
        };
        told += &format!("{line}\n");
        for effect in run(&mut log, command) {
            told += &format!("  {effect}\n");
        }
    }
    told
}

fn run(log: &mut Metalog, command: &str) -> Vec<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let number = |name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        Some(words[place + 1].parse::<u64>().expect("the value is a number"))
    };
    let need = |name: &str| number(name).unwrap_or_else(|| panic!("{command:?} needs {name}"));
    let index = |name: &str| LogIndex(need(name));
    let input = match words[0] {
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
