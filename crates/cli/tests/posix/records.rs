//! Records of user time through a mount: what a program wrote with one write(2) is one record, wherever it lies, and
//! why one was refused is told.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;

use rustix::fs::getxattr;

use crate::{MountedServer, mount_server};

const FIRST: u64 = 1_700_000_000;

/// 24 bytes, the last eight of which look like a time of much later.
fn record(number: u64) -> Vec<u8> {
    [FIRST + number, number * 7, FIRST + number + 100_000].iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn bind(mounted: &MountedServer, name: &str, plugin: &str) {
    mounted.server.ok(&["mkdir", name]);
    mounted.server.ok(&["time", "bind", name, plugin]);
}

/// Why the last write of a file was refused, if it was.
fn refused(mounted: &MountedServer, name: &str) -> Option<String> {
    let mut words = vec![0; 4096];
    let len = getxattr(mounted.path(name), "user.frieze.refused", &mut words).ok()?;
    words.truncate(len);
    Some(String::from_utf8(words).unwrap())
}

#[test]
fn a_record_is_what_was_written_at_once_wherever_it_lies() {
    let Some(mounted) = mount_server() else { return };
    let json = |number: u64| format!("{{\"t\":{},\"v\":\"{}\"}}\n", FIRST + number, "x".repeat(41)).into_bytes();
    bind(&mounted, "/b", "binary:offset=0,width=8,unit=s");
    bind(&mounted, "/s", "binary:offset=0,width=8,size=24,unit=s");
    bind(&mounted, "/j", "json:/t");
    type Make<'a> = &'a dyn Fn(u64) -> Vec<u8>;
    for (name, append, make) in [
        ("b/plain", false, &record as Make<'_>),
        ("b/appended", true, &record),
        ("s/plain", false, &record),
        ("j/plain", false, &json),
    ] {
        let mut file = OpenOptions::new().create(true).write(true).append(append).open(mounted.path(name)).unwrap();
        let mut whole = Vec::new();
        for number in 0..500 {
            let record = make(number);
            // A part of it would be another record.
            assert_eq!(file.write(&record).unwrap(), record.len(), "record {number} of {name}");
            whole.extend(record);
        }
        // Through the pages of the kernel, from the beginning, and by the time of every 50th.
        assert!(fs::read(mounted.path(name)).unwrap() == whole, "{name}");
        let (directory, file) = name.split_once('/').unwrap();
        for number in (0..500).step_by(50) {
            let shown = fs::read(mounted.path(&format!("{directory}/.at/user-@{}/{file}", FIRST + number))).unwrap();
            let len: usize = (0..=number).map(|number| make(number).len()).sum();
            assert!(shown == whole[..len], "{name} at record {number}: {} bytes of {len}", shown.len());
        }
    }
    // One that is written over lies where it lay.
    let file = OpenOptions::new().write(true).open(mounted.path("b/plain")).unwrap();
    assert_eq!(file.write_at(&record(600), 24 * 170).unwrap(), 24);
    assert_eq!(fs::read(mounted.path("b/plain")).unwrap()[24 * 170..24 * 171], record(600)[..]);
}

#[test]
fn a_long_run_of_records_is_cut_between_them() {
    let Some(mounted) = mount_server() else { return };
    bind(&mounted, "/s", "binary:offset=0,width=8,size=24,unit=s");
    let whole: Vec<u8> = (0..100_000).flat_map(record).collect();
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(mounted.path("s/f")).unwrap();
    // 2.4 MB, from wherever it lies in memory: the kernel sends at most 1 MiB at once.
    for from in [0, 1, 4095] {
        let unaligned = [vec![0; from], whole.clone()].concat();
        if from > 0 {
            file = OpenOptions::new().create(true).append(true).open(mounted.path(&format!("s/f{from}"))).unwrap();
        }
        let mut left = &unaligned[from..];
        while !left.is_empty() {
            let written = file.write(left).unwrap();
            assert!(written > 0 && written % 24 == 0, "{written}");
            left = &left[written..];
        }
        let name = if from > 0 { format!("s/f{from}") } else { "s/f".to_owned() };
        assert!(fs::read(mounted.path(&name)).unwrap() == whole);
    }
}

#[test]
fn the_reason_of_a_refused_row_shows_until_a_row_is_accepted() {
    let Some(mounted) = mount_server() else { return };
    bind(&mounted, "/s", "csv:t,unit=s");
    fs::write(mounted.path("s/f"), "t,v\n5,a\n").unwrap();
    assert_eq!(refused(&mounted, "s/f"), None);
    let mut file = OpenOptions::new().append(true).open(mounted.path("s/f")).unwrap();
    assert_eq!(file.write(b"4,b\n").unwrap_err().kind(), ErrorKind::InvalidInput);
    let words = refused(&mounted, "s/f").unwrap();
    assert!(words.contains("row at offset 8") && words.contains("of the row above it"), "{words}");
    assert_eq!(file.write(b"yesterday,b\n").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(refused(&mounted, "s/f").unwrap().contains("is not an RFC 3339 time"), "{:?}", refused(&mounted, "s/f"));
    // It is asked for by its name, and no copy takes it along.
    let mut names = vec![0; 4096];
    let len = rustix::fs::listxattr(mounted.path("s/f"), &mut names).unwrap();
    assert!(!String::from_utf8_lossy(&names[..len]).contains("refused"));
    file.write_all(b"6,b\n").unwrap();
    assert_eq!(refused(&mounted, "s/f"), None);
    assert_eq!(fs::read_to_string(mounted.path("s/f")).unwrap(), "t,v\n5,a\n6,b\n");
}

/// By a shell, as people do it: the table of before is in the past, and nowhere else.
#[test]
fn a_table_is_written_over_by_a_shell_and_takes_times_from_before_those_it_had() {
    let Some(mounted) = mount_server() else { return };
    bind(&mounted, "/t", "csv:t,unit=s");
    let shell = |words: &str| {
        let done = Command::new("sh").args(["-c", words]).current_dir(mounted.path("t")).output().unwrap();
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    // Wider than one chunk, each of which is on a chain of its own.
    let table = |first: u64, rows: u64| {
        let row = |n: u64| format!("{},{}\n", first + n, "x".repeat(1000));
        (0..rows).map(row).fold("t,v\n".to_owned(), |text, row| text + &row)
    };
    let shown = |text: &str, user: u64| -> String {
        let counts = |line: &str| line.split(',').next().unwrap().parse().is_ok_and(|time: u64| time > user);
        text.split_inclusive('\n').take_while(|line| !counts(line)).collect()
    };
    let stays = |at: &str, text: &str, user: u64| {
        let cat = mounted.server.ok(&["cat", "/t/a.csv", "--at", at, "--user-at", &format!("@{user}")]);
        assert!(cat == shown(text, user), "at {at}, at {user}: {} bytes", cat.len());
    };
    let mut before: Vec<(String, String)> = Vec::new();
    let ways = [
        "cat ../new > a.csv",
        "cp ../new a.csv",
        "truncate -s 0 a.csv && cat ../new >> a.csv",
        ": > a.csv; cp ../new a.csv",
    ];
    for (round, way) in ways.iter().cycle().take(6).enumerate() {
        // Each begins before the last one did, and ends within it.
        let text = table(FIRST - 100 * round as u64, 180);
        fs::write(mounted.path("new"), &text).unwrap();
        let (done, said) = shell(way);
        assert!(done, "{way}: {said} {:?}", refused(&mounted, "t/a.csv"));
        assert!(fs::read_to_string(mounted.path("t/a.csv")).unwrap() == text, "{way}");
        let first = FIRST - 100 * round as u64;
        assert_eq!(fs::read(mounted.path(&format!("t/.at/user-@{}/a.csv", first - 1))).unwrap(), b"", "{way}");
        for user in first..first + 181 {
            let found = fs::read_to_string(mounted.path(&format!("t/.at/user-@{user}/a.csv"))).unwrap();
            assert!(found == shown(&text, user), "{way}, at {user}: {} bytes", found.len());
        }
        before.push((mounted.server.ok(&["now"]).trim().to_owned(), text));
    }
    for (round, (at, text)) in before.iter().enumerate() {
        let first = FIRST - 100 * round as u64;
        for user in [first + 1, first + 90, first + 179] {
            stays(at, text, user);
        }
    }
    // Within one table rows go forwards as ever.
    let (done, _) = shell(&format!("echo {},late >> a.csv", FIRST - 1000));
    assert!(!done && refused(&mounted, "t/a.csv").is_some_and(|words| words.contains("before")));
    let (at, text) = before.last().unwrap();
    stays(at, text, FIRST);
    assert!(fs::read_to_string(mounted.path("t/a.csv")).unwrap() == *text);
}
