//! Events of a load as rows of a trace.

use std::hash::Hasher;

use frieze_base::FixedHasher;
use frieze_load::{FilePlace, LoadCall, LoadEvent, LoadFile, LoadPurpose};
use frieze_trace::{CallKind, EventFlags, Gateway};
use frieze_tracefile::{Purpose, TraceNames, TraceRow, TracedPath};

/// The study's first day, 7 June 2013, in ns since 1970: loads begin there.
const BEGIN_NS: i64 = 1_370_563_200_000_000_000;

/// Makes rows, and remembers the names of their paths.
#[derive(Debug, Default)]
pub(super) struct LoadRows {
    names: TraceNames,
}

impl LoadRows {
    pub(super) fn new() -> LoadRows {
        LoadRows::default()
    }

    /// The row of `event`.
    pub(super) fn row(&mut self, event: &LoadEvent<'_>) -> TraceRow {
        let call = call_kind(event.call);
        let mut row = TraceRow::new(BEGIN_NS + event.t_ns, call, Gateway::Library);
        row.inode = Some(event.file.number);
        row.stream = (event.stream != 0).then_some(event.stream);
        row.count = event.count;
        row.purpose = Some(purpose(event.purpose));
        if event.count > 1 {
            row.flags = EventFlags(row.flags.0 | EventFlags::COLLAPSED.0);
        }
        if call.moves_bytes() {
            (row.offset, row.asked, row.got) = (Some(event.offset), Some(event.len), Some(event.len));
        }
        row.path = Some(self.hash(event.file, event.place));
        row.path2 = event.to.map(|to| self.hash(event.file, to));
        row
    }

    /// The names of all rows.
    pub(super) fn into_names(self) -> TraceNames {
        self.names
    }

    fn hash(&mut self, file: LoadFile<'_>, place: FilePlace) -> u64 {
        // Unique without the text, so that a row costs no path: a file is only once at each place.
        let hash = hash_of(place as u64 + 1, &file.number.to_le_bytes());
        if !self.names.paths.contains_key(&hash) {
            let text = file.path(place).to_string().into_bytes();
            let parent = text.iter().rposition(|byte| *byte == b'/').map(|end| self.directory(&text[..end]));
            self.names.paths.insert(hash, TracedPath { text: Some(text), parent, kind: None });
        }
        hash
    }

    fn directory(&mut self, text: &[u8]) -> u64 {
        let Some(end) = text.iter().rposition(|byte| *byte == b'/') else { return frieze_trace::words::ROOT };
        let hash = hash_of(0, text);
        if !self.names.paths.contains_key(&hash) {
            let parent = Some(self.directory(&text[..end]));
            self.names.paths.insert(hash, TracedPath { text: Some(text.to_owned()), parent, kind: None });
        }
        hash
    }
}

/// Names of a load are no secret: its hashes have no key.
fn hash_of(seed: u64, bytes: &[u8]) -> u64 {
    let mut hasher = FixedHasher::default();
    hasher.write_u64(seed);
    hasher.write(bytes);
    hasher.finish().max(frieze_trace::words::ROOT + 1)
}

fn call_kind(call: LoadCall) -> CallKind {
    match call {
        LoadCall::Open => CallKind::Open,
        LoadCall::Create => CallKind::Create,
        LoadCall::Read => CallKind::Read,
        LoadCall::Write => CallKind::Write,
        LoadCall::Close => CallKind::Close,
        LoadCall::Rename => CallKind::Rename,
        LoadCall::Unlink => CallKind::Unlink,
    }
}

fn purpose(purpose: LoadPurpose) -> Purpose {
    match purpose {
        LoadPurpose::Read => Purpose::Read,
        LoadPurpose::Log => Purpose::Log,
        LoadPurpose::Flush => Purpose::Flush,
        LoadPurpose::Compaction => Purpose::Compaction,
    }
}

#[cfg(test)]
mod tests {
    use frieze_load::{LoadError, LoadSize, MessagesLoad, MessagesParameters};
    use frieze_tracefile::{KindRules, Manifest, TraceReader, TraceWriter};

    use super::*;

    fn written(dir: &std::path::Path, seed: u64) -> Manifest {
        let size = LoadSize { scale: 1.0 / 3000.0, days: 0.5, seed };
        let load = MessagesLoad::new(MessagesParameters::built_in(), size).unwrap();
        let mut writer = TraceWriter::create(dir, Manifest::new("messages")).unwrap();
        let mut rows = LoadRows::new();
        load.run(|event| -> Result<(), LoadError> {
            writer.push(rows.row(event)).unwrap();
            Ok(())
        })
        .unwrap();
        writer.finish(&rows.into_names(), &KindRules::built_in(), true).unwrap()
    }

    #[test]
    fn a_trace_reads_back_with_families_logs_and_purposes() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = written(dir.path(), 1);
        let reader = TraceReader::open(dir.path()).unwrap();
        let rows = reader.rows().unwrap();
        assert_eq!(rows.len() as u64, manifest.events);
        assert!(rows.is_sorted_by_key(|row| row.start_ns), "events are in the order of time");
        assert!(rows.iter().all(|row| row.inode.is_some() && row.path.is_some() && row.purpose.is_some()));
        let names = reader.names().unwrap();
        let rules = KindRules::built_in();
        let kind = |hash: u64| rules.kind_of(names.paths[&hash].text.as_deref().unwrap());
        let reads = rows.iter().filter(|row| row.call == CallKind::Read);
        assert!(reads.clone().all(|row| kind(row.path.unwrap()).kind == "hfile"));
        assert!(reads.clone().any(|row| kind(row.path.unwrap()).family.as_deref() == Some("Actions")));
        let logs = rows.iter().filter(|row| row.purpose == Some(Purpose::Log));
        assert!(logs.clone().count() > 100 && logs.clone().all(|row| kind(row.path.unwrap()).kind == "log"));
        let (new, from) = (kind(rows.iter().find_map(|row| row.path2).unwrap()), CallKind::Rename);
        assert!(new.kind == "hfile" && rows.iter().any(|row| row.call == from));
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let dirs = [1, 1, 2].map(|seed| {
            let dir = tempfile::tempdir().unwrap();
            written(dir.path(), seed);
            dir
        });
        let file = |dir: &tempfile::TempDir| {
            std::fs::read(dir.path().join("events/hour=2013-06-07T03/part-0.parquet")).unwrap()
        };
        assert_eq!(file(&dirs[0]), file(&dirs[1]));
        assert_ne!(file(&dirs[0]), file(&dirs[2]));
    }
}
