//! Traces of other programs, as they are written.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use frieze_trace::CallKind;
use frieze_trace::PathHasher;

use super::*;

/// An input of this text, imported.
struct Imported {
    rows: Vec<TraceRow>,
    manifest: Manifest,
    names: TraceNames,
}

fn settings(format: ImportFormat) -> ImportSettings {
    let hasher = PathHasher::new((1, 2));
    ImportSettings { format, hasher, under: None, blocks: None, zone_ns: 0, begin_ns: 0 }
}

fn imported_as(settings: &ImportSettings, content: &[u8]) -> Result<Imported, TraceFileError> {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    fs::write(&input, content).unwrap();
    let out = dir.path().join("trace");
    let mut trace = TraceWriter::create(&out, Manifest::new(settings.format.name()))?;
    let names = import(settings, &[input], &mut trace, &mut |_| {})?;
    let manifest = trace.finish(&names, &KindRules::built_in(), true)?;
    let reader = TraceReader::open(&out)?;
    Ok(Imported { rows: reader.rows()?, manifest, names: reader.names()? })
}

fn imported(format: ImportFormat, content: &str) -> Imported {
    imported_as(&settings(format), content.as_bytes()).unwrap()
}

impl Imported {
    fn path(&self, hash: Option<u64>) -> String {
        let text = hash.and_then(|hash| self.names.paths.get(&hash)?.text.clone());
        text.map_or_else(|| "-".to_owned(), |text| String::from_utf8(text).unwrap())
    }

    /// Call, path, second path, offset, bytes, result of each event.
    fn calls(&self) -> Vec<String> {
        let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let line = |row: &TraceRow| {
            let (path, path2) = (self.path(row.path), self.path(row.path2));
            format!("{} {path} {path2} {} {} {}", row.call.name(), number(row.offset), number(row.got), row.result)
        };
        self.rows.iter().map(line).collect()
    }

    fn note(&self, what: &str) -> u64 {
        self.manifest.notes.iter().filter(|note| note.what.contains(what)).map(|note| note.count).sum()
    }
}

#[test]
fn strace_is_followed_through_reads_seeks_dup_fork_and_renames() {
    let trace = imported(
        ImportFormat::Strace,
        r#"100 1700000000.000001 openat(AT_FDCWD</src>, "a.c", O_RDONLY|O_CLOEXEC) = 3</src/a.c> <0.000010>
100 1700000000.000002 read(3</src/a.c>, "int, main(\")\\", 4096) = 100 <0.000007>
100 1700000000.000003 read(3</src/a.c>,  <unfinished ...>
101 1700000000.000004 openat(AT_FDCWD</src>, "../src/./new.o", O_WRONLY|O_CREAT|O_TRUNC, 0644) = 4</src/new.o> <0.1>
100 1700000000.000005 <... read resumed>"x"..., 4096) = 50 <0.000002>
100 1700000000.000006 dup(3</src/a.c>) = 5</src/a.c> <0.000001>
100 1700000000.000007 read(5</src/a.c>, "x", 10) = 10 <0.000001>
100 1700000000.000008 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD) = 102 <0.0001>
102 1700000000.000009 read(3</src/a.c>, "x", 10) = 10 <0.000001>
100 1700000000.000010 lseek(3</src/a.c>, 7, SEEK_SET) = 7 <0.000001>
100 1700000000.000011 pread64(3</src/a.c>, "x", 20, 4000) = 20 <0.000001>
100 1700000000.000012 read(3</src/a.c>, "", 5) = 0 <0.000001>
101 1700000000.000013 write(4</src/new.o>, "x", 512) = 512 <0.000001>
101 1700000000.000014 writev(4</src/new.o>, [{iov_base="ab", iov_len=2}, {iov_base="c", iov_len=1}], 2) = 3 <0.000001>
101 1700000000.000015 close(4</src/new.o>) = 0 <0.000001>
101 1700000000.000016 rename("/src/new.o", "/src/old.o") = 0 <0.000001>
101 1700000000.000017 newfstatat(AT_FDCWD</src>, "missing", 0x7ffe, 0) = -1 ENOENT (No such file) <0.1>
101 1700000000.000018 unlinkat(AT_FDCWD</src>, "old.o", 0) = 0 <0.000001>
101 1700000000.000019 read(0</dev/pts/0<char 136:0>>, "x", 1024) = 1 <0.000001>
101 1700000000.000020 read(7<socket:[1234]>, "x", 1024) = 1 <0.000001>
101 1700000000.000021 mmap(NULL, 100, PROT_READ, MAP_PRIVATE, 3</src/a.c>, 0) = 0x7f <0.000001>
101 1700000000.000022 --- SIGCHLD {si_signo=SIGCHLD} ---
101 1700000000.000023 +++ exited with 0 +++
100 1700000000.000024 write(9</src/log>, "x", 5) = 5 <0.000001>
100 1700000000.000025 fsync(3</src/a.c>) = 0 <0.5>
"#,
    );
    let expected = [
        "open /src/a.c - - - 0",
        "read /src/a.c - 0 100 0",
        "read /src/a.c - 100 50 0",
        "create /src/new.o - - - 0",
        "read /src/a.c - 150 10 0",
        "read /src/a.c - 160 10 0",
        "seek - - 7 - 0",
        "read /src/a.c - 4000 20 0",
        "read /src/a.c - 7 0 0",
        "write /src/new.o - 0 512 0",
        "write /src/new.o - 512 3 0",
        "close - - - - 0",
        "rename /src/new.o /src/old.o - - 0",
        "stat /src/missing - - - 1",
        "unlink /src/old.o - - - 0",
        "write /src/log - - 5 0",
        "sync - - - - 0",
    ];
    assert_eq!(trace.calls(), expected);
    let made = trace.rows[3].inode;
    assert!(made.is_some() && trace.rows[12].inode == made && trace.rows[14].inode == made, "a rename keeps the file");
    assert_eq!(trace.rows[1].duration_ns, Some(7_000));
    assert_eq!(trace.rows[2].start_ns, 1_700_000_000_000_003_000, "from its begin");
    assert_eq!(trace.rows[16].duration_ns, Some(500_000_000));
    assert_eq!((trace.note("mmap"), trace.note("not known"), trace.note("before the trace")), (1, 1, 2));
}

#[test]
fn strace_keeps_a_directory_and_counts_the_rest() {
    let under = ImportSettings { under: Some(b"/mnt/f".to_vec()), ..settings(ImportFormat::Strace) };
    let text = r#"1700000000.1 openat(AT_FDCWD</mnt/f>, "a", O_RDONLY) = 3</mnt/f/a> <0.1>
1700000000.2 openat(AT_FDCWD</mnt/f>, "/etc/passwd", O_RDONLY) = 4</etc/passwd> <0.1>
1700000000.3 stat("/mnt/food", {st_mode=S_IFREG|0644, st_size=5, ...}) = 0 <0.1>
"#;
    let trace = imported_as(&under, text.as_bytes()).unwrap();
    assert_eq!(trace.calls(), ["open /a - - - 0"]);
    assert_eq!(trace.note("outside the wanted directory"), 2);
}

#[test]
fn hadoop_s_logs_are_calls_on_names_and_bytes_of_blocks() {
    let audit = imported(
        ImportFormat::HdfsAudit,
        "2026-11-28 12:00:00,123 INFO FSNamesystem.audit: allowed=true\tugi=alice (auth:SIMPLE)\t\
         ip=/10.0.0.1\tcmd=create\tsrc=/a b\tdst=null\tperm=x\tproto=rpc\n\
         2026-11-28 12:00:01,000 INFO FSNamesystem.audit: allowed=true\tugi=alice (auth:SIMPLE)\t\
         ip=/10.0.0.1\tcmd=rename (options=[TO_TRASH])\tsrc=/a b\tdst=/c\tperm=x\n\
         2026-11-28 12:00:02,000 INFO FSNamesystem.audit: allowed=false\tugi=bob\tip=/10.0.0.2\tcmd=delete\t\
         src=/c\tdst=null\n\
         2026-11-28 12:00:02,000 INFO FSNamesystem.audit: allowed=true\tugi=hdfs\tip=/10.0.0.2\t\
         cmd=datanodeReport\tsrc=null\n\
         another line\n",
    );
    assert_eq!(audit.calls(), ["create /a b - - - 0", "rename /a b /c - - 0", "unlink /c - - - 9"]);
    assert_eq!(audit.rows[0].start_ns, 1_795_867_200_123_000_000);
    assert_eq!(audit.rows[0].inode, audit.rows[1].inode);
    let users: Vec<_> = audit.names.actors.values().filter_map(|actor| actor.program.clone()).collect();
    assert!(users.contains(&"alice".to_owned()) && users.contains(&"bob".to_owned()), "{users:?}");
    assert_eq!((audit.note("administrators"), audit.note("no audit")), (1, 1));

    let line = "2026-11-28 12:00:00,500 INFO DataNode.clienttrace: src: /10.0.0.1:9866, dest: /10.0.0.2:4242, \
                bytes: 104, \
                op: HDFS_READ, cliID: DFSClient_1, offset: 64, srvID: s, blockid: BP-1:blk_1073741825_1001, \
                duration(ns): 250000000\n";
    let bytes = imported(ImportFormat::ClientTrace, line);
    assert_eq!(bytes.calls(), ["read - - 64 104 0"]);
    assert_eq!((bytes.rows[0].start_ns, bytes.note("blocks without a file")), (1_795_867_200_250_000_000, 1));
    let dir = tempfile::tempdir().unwrap();
    let blocks = dir.path().join("fsck");
    fs::write(
        &blocks,
        "/data <dir>\n/data/f 200 bytes, replicated: replication=3, 2 block(s):  OK\n0. BP-1:blk_1073741824_1000 \
         len=128 \
         Live_repl=3\n1. BP-1:blk_1073741825_1001 len=72 Live_repl=3\n",
    )
    .unwrap();
    let with_files = ImportSettings { blocks: Some(blocks.clone()), ..settings(ImportFormat::ClientTrace) };
    assert_eq!(imported_as(&with_files, line.as_bytes()).unwrap().calls(), ["read /data/f - 192 104 0"]);
    fs::write(&blocks, "nothing\n").unwrap();
    let refused = imported_as(&with_files, line.as_bytes()).err().unwrap().to_string();
    assert!(refused.contains("hdfs fsck / -files -blocks"), "{refused}");
}

#[test]
fn htfs_is_followed_by_its_streams() {
    let path = data_encoding::BASE64.encode(b"hdfs://name:8020/hbase/WALs/x");
    let trace = imported(
        ImportFormat::Htfs,
        &format!(
            "4711,1,1000,500,6,-1,3,#{path},#dHJ1ZQ==,4096,3,268435456\n\
             4711,2,2000,10,1,3,null,64,4096\n\
             4711,3,3000,10,45,3,null,100\n\
             4711,4,4000,10,43,3,null\n\
             4711,5,5000,10,48,3,null\n\
             4711,6,6000,10,4,-1,4,#{path},4096\n\
             4711,7,7000,10,32,4,50,1000,0,50\n\
             4711,8,8000,10,36,4,20,0,20\n\
             4711,9,9000,10,14,-1,#dHJ1ZQ==,#{path},#dHJ1ZQ==\n\
             4711,10,9500,10,49,-1,null,#eA==\n\
             no call\n"
        ),
    );
    let wal = "/hbase/WALs/x";
    let expected = [
        format!("create {wal} - - - 0"),
        format!("write {wal} - 0 4096 0"),
        format!("write {wal} - 4096 100 0"),
        format!("sync {wal} - - - 0"),
        format!("close {wal} - - - 0"),
        format!("open {wal} - - - 0"),
        format!("read {wal} - 1000 50 0"),
        format!("read {wal} - 0 20 0"),
        format!("unlink {wal} - - - 0"),
    ];
    assert_eq!(trace.calls(), expected);
    assert_eq!((trace.rows[1].count, trace.rows[0].start_ns), (64, 1000));
    assert_eq!(trace.names.paths[&trace.rows[0].path.unwrap()].kind.clone().unwrap().kind, "log");
}

#[test]
fn tables_of_disks_are_volumes_as_files() {
    let msr = imported(ImportFormat::Msr, "128166372003061629,hm,0,Read,383496192,32768,413\nbad\n");
    assert_eq!(msr.calls(), ["read /hm/0 - 383496192 32768 0"]);
    assert_eq!((msr.rows[0].start_ns, msr.rows[0].duration_ns), (1_172_163_600_306_162_900, Some(41_300)));
    let tencent = imported(ImportFormat::Tencent, "1538323200,12910952,128,0,1063\n1538323201,8,8,1,1063\n");
    assert_eq!(tencent.calls(), ["read /1063 - 6610407424 65536 0", "write /1063 - 4096 4096 0"]);
    let alibaba = imported(ImportFormat::Alibaba, "419,W,8792731648,16384,1577808144360767\n");
    assert_eq!(alibaba.calls(), ["write /419 - 8792731648 16384 0"]);
    assert_eq!(alibaba.manifest.absent, ["dur_ns", "stream", "path2", "actor", "view_ns", "purpose"]);
}

#[test]
fn what_is_no_line_of_the_format_is_refused_with_its_name() {
    for format in ImportFormat::ALL {
        for content in ["", "\u{0}\u{1}garbage\nof no format, at all\n", "1,2,3\n"] {
            let refused = imported_as(&settings(format), content.as_bytes()).err();
            let refused = refused.unwrap_or_else(|| panic!("{format:?} takes {content:?}")).to_string();
            assert!(refused.contains("input"), "{format:?}: {refused}");
        }
    }
}

#[test]
fn a_trace_goes_to_a_simulator_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("msr.csv");
    let line = |number: u64, disk: u64, offset: u64, bytes: u64, kind: &str| {
        format!("{},hm,{disk},{kind},{offset},{bytes},10\n", 128_166_372_000_000_000 + number * 10_000_000)
    };
    let text = [
        line(0, 0, 0, 8192, "Read"),
        line(1, 0, 4096, 1, "Read"),
        line(2, 1, 0, 4096, "Write"),
        line(3, 1, 0, 4096, "Read"),
        line(4, 0, 0, 4096, "Read"),
    ];
    fs::write(&source, text.concat()).unwrap();
    let trace_dir = dir.path().join("trace");
    let mut trace = TraceWriter::create(&trace_dir, Manifest::new("msr")).unwrap();
    let names = import(&settings(ImportFormat::Msr), &[source], &mut trace, &mut |_| {}).unwrap();
    trace.finish(&names, &KindRules::built_in(), true).unwrap();
    let reader = TraceReader::open(&trace_dir).unwrap();
    let exported = |name: &str, format, writes| {
        let to = dir.path().join(name);
        let count = export_blocks(&reader, &to, format, 4096, writes).unwrap();
        (count, fs::read(&to).unwrap())
    };
    let (count, bytes) = exported("oracle", ExportFormat::LibCacheSim, false);
    assert_eq!((count, bytes.len()), (5, 5 * 24));
    let field = |at: usize, from: usize, len: usize| &bytes[at * 24 + from..at * 24 + from + len];
    let next: Vec<i64> = (0..5).map(|at| i64::from_le_bytes(field(at, 16, 8).try_into().unwrap())).collect();
    assert_eq!(next, [4, 2, -1, -1, -1], "two blocks of the first read come again");
    assert_eq!(field(0, 4, 8), field(4, 4, 8));
    let (count, table) = exported("bench", ExportFormat::CacheBench, true);
    let table = String::from_utf8(table).unwrap();
    assert_eq!(count, 6);
    assert!(table.starts_with("key,op,size,op_count,key_size\n") && table.contains(",SET,4096,1,16\n"), "{table}");
    let again = imported_as(&settings(ImportFormat::LibCacheSim), &bytes).unwrap();
    assert_eq!(again.rows.len(), 5);
    let objects: BTreeMap<_, u32> = again.rows.iter().fold(BTreeMap::new(), |mut objects, row| {
        *objects.entry(row.inode).or_default() += 1;
        objects
    });
    assert_eq!(objects.values().copied().collect::<std::collections::BTreeSet<_>>(), [1, 2].into());
    let refused = export_blocks(&reader, &dir.path().join("oracle"), ExportFormat::LibCacheSim, 4096, false);
    assert!(refused.unwrap_err().to_string().contains("oracle"), "nothing is written over");
}

#[test]
fn a_copy_without_names_has_none_and_the_same_events() {
    let dir = tempfile::tempdir().unwrap();
    let source: PathBuf = dir.path().join("audit.log");
    let marked = "2026-11-28 12:00:00,123 INFO FSNamesystem.audit: allowed=true\tugi=marked-user (auth:SIMPLE)\t\
                  ip=/10.9.8.7\tcmd=open\tsrc=/marked-directory/marked.parquet\tdst=null\n";
    fs::write(&source, marked).unwrap();
    let whole = dir.path().join("whole");
    let mut trace = TraceWriter::create(&whole, Manifest::new("hdfs-audit")).unwrap();
    let names = import(&settings(ImportFormat::HdfsAudit), &[source], &mut trace, &mut |_| {}).unwrap();
    trace.finish(&names, &KindRules::built_in(), true).unwrap();
    let copy = dir.path().join("copy");
    let reader = TraceReader::open(&whole).unwrap();
    export_without_names(&reader, &copy, false).unwrap();
    let copied = TraceReader::open(&copy).unwrap();
    assert_eq!(copied.rows().unwrap(), reader.rows().unwrap());
    let kinds: Vec<_> = copied.names().unwrap().paths.into_values().filter_map(|path| path.kind).collect();
    assert!(kinds.iter().any(|kind| kind.kind == "table"), "{kinds:?}");
    let mut bytes = Vec::new();
    collect(&copy, &mut bytes);
    for word in ["marked", "10.9.8.7", "user"] {
        assert!(!bytes.windows(word.len()).any(|window| window == word.as_bytes()), "{word} is in the copy");
    }
    assert_eq!(copied.rows().unwrap()[0].call, CallKind::Open);
}

fn collect(dir: &Path, bytes: &mut Vec<u8>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, bytes),
            false => bytes.extend(fs::read(&path).unwrap()),
        }
    }
}

/// Any text as each format: read or refused, within memory.
#[test]
fn any_bytes_are_imported_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("input");
    let seeds = [
        b"100 1700000000.000001 openat(AT_FDCWD</src>, \"a.c\", O_RDONLY) = 3</src/a.c> <0.000010>\n".to_vec(),
        b"4711,1,1000,500,6,-1,3,#aGk,#dHJ1ZQ==,4096,3,268435456\n4711,2,2000,10,1,3,null,64,4096\n".to_vec(),
        b"2026-11-28 12:00:00,123 INFO FSNamesystem.audit: cmd=open\tsrc=/a\n".to_vec(),
        b"128166372003061629,hm,0,Read,383496192,32768,413\n".to_vec(),
        vec![7; 48],
    ];
    let inputs = frieze_harness::Inputs::from(seeds.to_vec()).with_buffers(8 << 20);
    frieze_harness::fuzz!(inputs, |bytes: &[u8]| {
        fs::write(&input, bytes).unwrap();
        for format in ImportFormat::ALL {
            let out = dir.path().join("trace");
            let mut trace = TraceWriter::create(&out, Manifest::new("any")).unwrap();
            let _ = import(&settings(format), std::slice::from_ref(&input), &mut trace, &mut |_| {});
            fs::remove_dir_all(&out).unwrap();
        }
    });
}
