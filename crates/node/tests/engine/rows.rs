//! Rows of user time: tables and JSON lines, however their bytes were cut into writes.

use frieze_base::{Reason, Rng};
use frieze_wire::edit::CopyRange;
use frieze_wire::message::{List, Open, Reply, Request, View};
use frieze_wire::txn::{Grant, Op, SetAttr, SetXattr, Settle, Target};

use super::{SimMachine, TestConnection};

fn bind(client: &mut TestConnection, plugin: &str) {
    client.mkdir("/s");
    let name = b"user.frieze.time".to_vec();
    let op = SetXattr { target: Target::path("/s"), name, value: plugin.as_bytes().to_vec(), flags: 0 };
    client.txn(Op::SetXattr(op)).unwrap();
}

fn cut(client: &mut TestConnection, at: Option<u64>, user: i64) -> Result<String, Reason> {
    let read = client.read("/s/f", View { at, user_at: Some(user) });
    read.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|fault| fault.reason)
}

fn inode(client: &mut TestConnection) -> u64 {
    client.stat("/s/f", View::NOW).unwrap().attr.inode
}

/// Opens the file once more to write.
fn reopen(client: &mut TestConnection) -> Vec<u8> {
    client.open_session();
    let open = Open { target: Target::path("/s/f"), view: View::NOW, read: true, write: true, made_at: 0 };
    let Ok(Reply::Open(open)) = client.ask(Request::Open(open)) else { panic!("does not open") };
    let grant = Grant { inode: open.attr.inode, first: 0, count: 1 };
    // Refused while another session writes.
    let _ = client.txn(Op::Grant(grant));
    open.capability
}

/// What a file of `text` shows at a user time, by its text alone.
fn expected(text: &str, user: i64) -> Result<String, Reason> {
    let whole = &text[..text.rfind('\n').map_or(0, |last| last + 1)];
    let time = |line: &str| line.split(',').nth(1).and_then(|cell| cell.parse::<i64>().ok());
    let times: Vec<Option<i64>> = whole.lines().map(time).collect();
    if times.iter().flatten().next().is_none() {
        return Err(Reason::NoUserTime);
    }
    if times.iter().flatten().all(|time| *time > user) {
        return Ok(String::new());
    }
    let shown = times.iter().position(|time| time.is_some_and(|time| time > user)).unwrap_or(times.len());
    Ok(whole.split_inclusive('\n').take(shown).collect())
}

#[test]
fn rows_are_cut_alike_however_the_writes_split_them() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, "csv:t,unit=ns");
        let mut text = "name,t,more\n".to_owned();
        let mut time = 0i64;
        for row in 0..40 {
            time += rng.below(3) as i64;
            let line = match rng.below(8) {
                0 => "\n".to_owned(),
                1 => format!("\"a \"\"b\"\"\",{time},\r\n"),
                _ => format!("r{row},{time},{}\n", "x".repeat(rng.below(60) as usize)),
            };
            text += &line;
        }
        text.truncate(text.len() - rng.below(5) as usize);
        let mut file = client.make("/s/f");
        let mut states = Vec::new();
        let mut written = 0;
        while written < text.len() {
            let len = (1 + rng.below(120) as usize).min(text.len() - written);
            let piece = &text.as_bytes()[written..written + len];
            let offset = (rng.below(2) == 0).then_some(written as u64);
            let (stamp, _) = client.write(&file, offset, piece).unwrap();
            written += len;
            states.push((stamp, written));
            if rng.below(8) == 0 {
                let (session, seq) = (client.session, client.seq);
                drop(client);
                client = machine.serve();
                (client.session, client.seq) = (session, seq);
                file = reopen(&mut client);
            }
        }
        for _ in 0..60 {
            let user = rng.below(time as u64 + 3) as i64 - 1;
            assert_eq!(cut(&mut client, None, user), expected(&text, user), "seed {seed}, now, user time {user}");
            let (stamp, len) = states[rng.below(states.len() as u64) as usize];
            assert_eq!(
                cut(&mut client, Some(stamp), user),
                expected(&text[..len], user),
                "seed {seed}, after {len} bytes, user time {user}"
            );
        }
    }
}

/// A file of the clone test: its text, and what it held after each of its writes.
struct Sheet {
    path: String,
    text: String,
    states: Vec<(u64, String)>,
    newest: i64,
}

fn cut_of(client: &mut TestConnection, path: &str, at: Option<u64>, user: i64) -> Result<String, Reason> {
    let read = client.read(path, View { at, user_at: Some(user) });
    read.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|fault| fault.reason)
}

fn opened(client: &mut TestConnection, path: &str) -> Vec<u8> {
    let open = Open { target: Target::path(path), view: View::NOW, read: true, write: true, made_at: 0 };
    let Ok(Reply::Open(open)) = client.ask(Request::Open(open)) else { panic!("does not open") };
    client.txn(Op::Grant(Grant { inode: open.attr.inode, first: 0, count: 1 })).unwrap();
    open.capability
}

#[test]
fn a_clone_reads_by_user_time_as_a_file_that_was_written_so_would() {
    for seed in 0..80 {
        let mut rng = Rng::new(seed);
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, "csv:t,unit=ns");
        client.make("/s/0");
        let first = Sheet { path: "/s/0".into(), text: String::new(), states: Vec::new(), newest: 0 };
        let mut sheets = vec![first];
        for step in 0..40 {
            let index = rng.below(sheets.len() as u64) as usize;
            if step > 4 && sheets.len() < 6 && rng.chance(4) && !sheets[index].states.is_empty() {
                // A clone of any state of any of them, clones included.
                let (at, text) = rng.choose(&sheets[index].states).clone();
                let path = format!("/s/{}", sheets.len());
                let done = client.clone_tree(&sheets[index].path, at, &path).unwrap();
                let times = text.lines().filter_map(|line| line.split(',').nth(1)?.parse().ok());
                let newest = times.max().unwrap_or(0);
                sheets.push(Sheet { path, states: vec![(done.stamp, text.clone())], text, newest });
                continue;
            }
            let sheet = &mut sheets[index];
            let mut more = if sheet.text.is_empty() { "name,t\n".to_owned() } else { String::new() };
            for _ in 0..rng.below(4) {
                sheet.newest += rng.below(3) as i64;
                more += &if rng.chance(6) { "\n".to_owned() } else { format!("r,{}\n", sheet.newest) };
            }
            // Perhaps the last row is ended by the next write, of whichever file.
            if rng.chance(4) && more.len() > 9 {
                more.pop();
            }
            if !sheet.text.ends_with('\n') && !sheet.text.is_empty() {
                more.insert(0, '\n');
            }
            if more.is_empty() {
                continue;
            }
            let file = opened(&mut client, &sheet.path);
            let (stamp, _) = client.write(&file, None, more.as_bytes()).unwrap();
            sheet.text += &more;
            sheet.states.push((stamp, sheet.text.clone()));
        }
        let restarted = rng.chance(2);
        if restarted {
            client.fsync();
            drop(client);
            client = machine.serve();
        }
        for sheet in &sheets {
            for user in -1..=sheet.newest + 1 {
                let (found, wanted) = (cut_of(&mut client, &sheet.path, None, user), expected(&sheet.text, user));
                assert_eq!(found, wanted, "seed {seed}, {} now, user time {user}: {:?}", sheet.path, sheet.text);
                let Some((at, text)) = sheet.states.get(rng.below(sheet.states.len().max(1) as u64) as usize) else {
                    continue;
                };
                let (found, wanted) = (cut_of(&mut client, &sheet.path, Some(*at), user), expected(text, user));
                assert_eq!(found, wanted, "seed {seed}, {} at {at}, user time {user}: {text:?}", sheet.path);
            }
        }
    }
}

#[test]
fn what_is_written_to_a_clone_may_not_lie_before_what_it_was_cloned_from() {
    for (plugin, old, new) in [("csv:2,unit=ns", "r,5\n", "r,4\n"), ("json:/t,unit=ns", "{\"t\":5}", "{\"t\":4}")] {
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, plugin);
        let file = client.make("/s/f");
        let (then, _) = client.write(&file, None, old.as_bytes()).unwrap();
        // What comes to the origin later is nothing to the clone.
        client.write(&file, None, old.replace('5', "9").as_bytes()).unwrap();
        client.clone_tree("/s/f", then, "/s/c").unwrap();
        client.clone_tree("/s/c", 0, "/s/cc").unwrap();
        for path in ["/s/c", "/s/cc"] {
            let clone = opened(&mut client, path);
            let fault = client.write(&clone, None, new.as_bytes()).unwrap_err();
            assert_eq!(fault.reason, Reason::BackwardUserTime, "{plugin}: {fault}");
            client.write(&clone, None, old.replace('5', "6").as_bytes()).unwrap();
            assert_eq!(cut_of(&mut client, path, None, 5).unwrap(), old, "{plugin}");
            assert_eq!(cut_of(&mut client, path, None, 6).unwrap(), [old, &old.replace('5', "6")].concat(), "{plugin}");
            assert_eq!(cut_of(&mut client, path, None, 4).unwrap(), "", "{plugin}");
        }
        let open = |client: &mut TestConnection, user: i64| {
            let view = View { at: None, user_at: Some(user) };
            client.stat("/s/c", view).unwrap().answered.user_time_open
        };
        assert_eq!((open(&mut client, 5), open(&mut client, 6)), (false, true), "{plugin}");
    }
}

#[test]
fn a_clone_whose_origin_forgot_says_so_at_user_times_and_keeps_its_bytes() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    client.write(&file, None, b"1\n").unwrap();
    let (then, _) = client.write(&file, Some(0), b"2\n").unwrap();
    client.clone_tree("/s/f", then, "/s/c").unwrap();
    client.write(&file, None, b"3\n").unwrap();
    let before = client.server.newest().0;
    assert_eq!(cut_of(&mut client, "/s/c", None, 1).unwrap(), "1\n");
    client.forget("/s/f", before);
    assert_eq!(cut_of(&mut client, "/s/c", None, 1), Err(Reason::HistoryExpired));
    assert_eq!(client.read("/s/c", View::NOW).unwrap(), b"2\n");
    let view = View { at: None, user_at: Some(1) };
    let list = List { target: Target::path("/s"), view, with_attrs: true, ..List::default() };
    let Ok(Reply::List(listed)) = client.ask(Request::List(list)) else { panic!("a listing goes on") };
    assert_eq!(listed.entries.len(), 2);
}

#[test]
fn what_is_copied_into_a_file_with_user_time_passes_its_plug_in() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    client.write(&file, None, b"1\n2\n").unwrap();
    let (into, plain) = (client.make("/s/g"), client.make("/plain"));
    let copy = |source: &[u8], target: &[u8]| {
        let (source, target) = (source.to_vec(), target.to_vec());
        Request::CopyRange(CopyRange { source, target, len: 4, ..CopyRange::default() })
    };
    // Not shared: the client writes the bytes, and their times are found as they arrive.
    assert_eq!(client.edit(copy(&file, &into)).unwrap_err().reason, Reason::Unsupported);
    assert_eq!(client.edit(copy(&file, &plain)).unwrap().len, 4);
    assert_eq!(cut_of(&mut client, "/plain", None, 2), Err(Reason::NoUserTime));
}

/// Every shape of table, every unit, every precision: at a row's own time it is shown, a nanosecond before it is not.
#[test]
fn what_a_row_says_is_where_it_is_found_to_the_nanosecond() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let (unit, digits) = *rng.choose(&[("ns", 0u32), ("us", 3), ("ms", 6), ("s", 9)]);
        let is_table = rng.below(2) == 0;
        let mut client = SimMachine::new(7).serve();
        bind(&mut client, &format!("{},unit={unit}", if is_table { "csv:t" } else { "jsonl:/t" }));
        let mut text = if is_table { "t,v\n".to_owned() } else { String::new() };
        let mut ns = 1_700_000_000_000_000_000 + rng.below(1 << 60) as i64;
        let mut rows = Vec::new();
        for row in 0..20 {
            ns += 1 + rng.below(3) as i64;
            let scale = 10i64.pow(digits);
            let plain = match digits {
                0 => ns.to_string(),
                _ => format!("{}.{:0width$}", ns / scale, ns % scale, width = digits as usize),
            };
            let number = match rng.below(4) {
                // The point behind the first digit.
                0 => {
                    let (first, rest) = (&ns.to_string()[..1], &ns.to_string()[1..]);
                    format!("{first}.{rest}e{}", 18 - digits)
                }
                1 => format!("{ns}E-{digits}"),
                _ => plain,
            };
            text += &if is_table { format!("{number},{row}\n") } else { format!("{{\"v\":{row},\"t\":{number}}}\n") };
            rows.push((ns, text.len()));
        }
        let file = client.make("/s/f");
        client.write(&file, None, text.as_bytes()).unwrap();
        for (ns, len) in rows {
            let shown = [ns - 1, ns].map(|user| cut(&mut client, None, user).unwrap().len());
            assert!(
                shown[0] < len && shown[1] == len,
                "seed {seed}, unit {unit}, at {ns} of {text}: {shown:?}, not {len}"
            );
        }
    }
}

/// Records of one size are rows: whatever writes they came in, each is shown from its own time on.
#[test]
fn records_of_one_size_are_cut_at_each_ones_time() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, "binary:offset=4,width=8,unit=ns,size=24");
        let mut file = client.make("/s/f");
        let (mut times, mut time) = (Vec::new(), 0i64);
        while times.len() < 60 {
            let mut piece = Vec::new();
            for _ in 0..1 + rng.below(9) {
                time += rng.below(3) as i64;
                times.push(time);
                // Line breaks and spaces are bytes as others are.
                piece.extend_from_slice(b"\n \n ");
                piece.extend_from_slice(&time.to_le_bytes());
                piece.extend_from_slice(&[rng.below(256) as u8; 12]);
            }
            let offset = (rng.below(2) == 0).then_some((times.len() * 24 - piece.len()) as u64);
            client.write(&file, offset, &piece).unwrap();
            if rng.below(8) == 0 {
                let (session, seq) = (client.session, client.seq);
                drop(client);
                client = machine.serve();
                (client.session, client.seq) = (session, seq);
                file = reopen(&mut client);
            }
        }
        for user in -1..time + 2 {
            let shown = times.iter().filter(|time| **time <= user).count() * 24;
            let found = client.read("/s/f", View { at: None, user_at: Some(user) }).unwrap();
            assert_eq!(found.len(), shown, "seed {seed}, user time {user}");
        }
    }
}

#[test]
fn a_write_of_parts_of_records_is_refused_with_its_offset_and_leaves_nothing() {
    let mut client = SimMachine::new(7).serve();
    bind(&mut client, "binary:unit=ns,size=16");
    let file = client.make("/s/f");
    let record = |time: u64| [time.to_le_bytes(), [7; 8]].concat();
    client.write(&file, None, &[record(1), record(2)].concat()).unwrap();
    for (offset, len, words) in [
        (None, 24, "a write of 24 bytes at offset 32 ends in the midst of the record at offset 48"),
        (Some(32), 8, "ends in the midst of the record at offset 32"),
        (Some(24), 16, "begins in the midst of the record at offset 16"),
    ] {
        let fault = client.write(&file, offset, &record(3).repeat(2)[..len]).unwrap_err();
        assert!(fault.reason == Reason::InvalidArgument && fault.message.contains(words), "{words:?}: {fault}");
    }
    let fault = client.write(&file, None, &[record(5), record(4)].concat()).unwrap_err();
    assert!(fault.reason == Reason::BackwardUserTime && fault.message.contains("offset 48"), "{fault}");
    assert_eq!(client.read("/s/f", View::NOW).unwrap().len(), 32);
    client.write(&file, None, &record(3)).unwrap();
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_line() {
    for (plugin, text) in [
        ("csv:t", "\u{feff}t,v\r\n5,1\r\n"),
        ("csv:t", "\u{feff}\"t\",\"v\"\r\n5,1\r\n"),
        ("csv:1,header=true", "\u{feff}t,v\n5,1\n"),
        ("csv:1", "\u{feff}5,1\n"),
        ("jsonl:/t", "\u{feff}{\"t\":5}\n"),
        ("json:/t", "\u{feff}{\"t\":5}"),
    ] {
        let mut client = SimMachine::new(7).serve();
        bind(&mut client, plugin);
        let file = client.make("/s/f");
        client.write(&file, None, text.as_bytes()).unwrap_or_else(|fault| panic!("{plugin}, {text:?}: {fault}"));
        assert_eq!(cut(&mut client, None, 5_000_000_000).as_deref(), Ok(text), "{plugin}");
    }
}

#[test]
fn rows_about_a_leap_second_are_in_order() {
    let mut client = SimMachine::new(7).serve();
    bind(&mut client, "csv:t");
    let file = client.make("/s/f");
    let text = "t\n2016-12-31T23:59:59.900Z\n2016-12-31T23:59:60.500Z\n2017-01-01T00:00:00.100Z\n";
    client.write(&file, None, text.as_bytes()).unwrap();
    assert_eq!(cut(&mut client, None, 1_483_228_799_999_999_999).unwrap().lines().count(), 3);
}

#[test]
fn a_row_that_runs_backwards_takes_its_write_with_it() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    bind(&mut client, "csv:when,delimiter=semicolon,zone=utc");
    let file = client.make("/s/f");
    client.write(&file, None, b"id;when\n1;2020-01-01 00:00:00\n2;2020-01-01T00:00:05Z\n").unwrap();
    let before = client.read("/s/f", View::NOW).unwrap();
    let fault = client.write(&file, None, b"3;2020-01-01 00:00:06\n4;2020-01-01 00:00:04\n").unwrap_err();
    assert_eq!(fault.reason, Reason::BackwardUserTime);
    for words in ["offset 75", "2020-01-01T00:00:04Z", "2020-01-01T00:00:06Z"] {
        assert!(fault.message.contains(words), "{words} is missing: {fault}");
    }
    let fault = client.write(&file, None, b"3;2020-01-01 00:00:01\n").unwrap_err();
    assert!(fault.reason == Reason::BackwardUserTime && fault.message.contains("offset 53"), "{fault}");
    assert_eq!(client.read("/s/f", View::NOW).unwrap(), before, "nothing of a refused write is there");
    // A row begun in one write and ended in another counts for the other, and so does its refusal.
    client.write(&file, None, b"3;2020-01-01 00:0").unwrap();
    let fault = client.write(&file, None, b"0:01\n").unwrap_err();
    assert!(fault.reason == Reason::BackwardUserTime && fault.message.contains("offset 53"), "{fault}");
    client.write(&file, None, b"0:07\n").unwrap();
    assert!(client.read("/s/f", View::NOW).unwrap().ends_with(b"3;2020-01-01 00:00:07\n"));
}

#[test]
fn a_row_without_a_time_is_refused_with_words() {
    let cases: [(&str, &[u8], &str); 15] = [
        ("csv:t", b"a,b\n1,2\n", "names no column \"t\"; it names \"a\", \"b\""),
        ("csv:2", b"1\n", "the row has 1 columns, the time is in column 2"),
        ("csv:1", b"yesterday\n", "is not an RFC 3339 time with a zone"),
        ("csv:1", b"2020-01-01 00:00:00\n", "bind the directory with zone=utc"),
        ("csv:1", b"1,\"two\nlines\"\n", "a row has to be one line"),
        ("csv:1", b"9223372036854775807\n", "does not fit in 64 bits"),
        ("jsonl:/t", b"{\"t\":1}\n{\"u\":1}\n", "nothing stands at /t (row at offset 8"),
        ("jsonl:/t", b"{\"t\":1}\nnot json\n", "not one JSON document"),
        ("jsonl:/t", b"{\"t\":[]}\n", "neither a string nor a number"),
        ("csv:t", b"t,v\r1,2\r3,4\r", "its lines end with a carriage return alone"),
        ("csv:1", b"1,2\r3,4\r\n", "its lines end with a carriage return alone"),
        ("csv:t", b"\xff\xfet\0\n\0", "it is in UTF-16: convert it to UTF-8"),
        ("csv:1", b"0x10\n", "is not an RFC 3339 time with a zone"),
        ("csv:1", b"1e30\n", "a time of 1e30 s is out of range"),
        ("csv:1", &[b'9'; 1 << 20 | 1], "is longer than 1048576 bytes"),
    ];
    for (plugin, bytes, words) in cases {
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, plugin);
        let file = client.make("/s/f");
        let fault = client.write(&file, None, bytes).unwrap_err();
        assert!(fault.reason == Reason::InvalidArgument && fault.message.contains(words), "{words:?}: {fault}");
        assert_eq!(client.read("/s/f", View::NOW).unwrap(), b"", "nothing of a refused write is there");
    }
}

#[test]
fn rows_written_over_or_cut_off_are_read_at_their_stamps() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    bind(&mut client, "jsonl:/t,unit=ns");
    let file = client.make("/s/f");
    let (first, _) = client.write(&file, None, b"{\"t\":1}\n{\"t\":2}\n").unwrap();
    let (second, _) = client.write(&file, None, b"{\"t\":3}\n{\"t\":4}\n").unwrap();
    // A row in the middle is corrected: its time may not lie before the newest of the file.
    let backward = client.write(&file, Some(0), b"{\"t\":1}\n").unwrap_err();
    assert_eq!(backward.reason, Reason::BackwardUserTime);
    client.write(&file, Some(0), b"{\"t\":5}\n").unwrap();
    assert_eq!(cut(&mut client, None, 3).unwrap(), "{\"t\":1}\n{\"t\":2}\n{\"t\":3}\n");
    assert_eq!(cut(&mut client, None, 5).unwrap(), "{\"t\":5}\n{\"t\":2}\n{\"t\":3}\n{\"t\":4}\n");
    assert_eq!(
        cut(&mut client, Some(first), 3).unwrap(),
        "{\"t\":1}\n{\"t\":2}\n",
        "bitemporal: known then, of that time"
    );
    // All of it at once, up to the end: what was there before has the times of before.
    client.write(&file, Some(0), b"{\"t\":6}\n{\"t\":7}\n{\"t\":8}\n{\"t\":9}\n").unwrap();
    assert_eq!(cut(&mut client, None, 4).unwrap(), "{\"t\":1}\n{\"t\":2}\n{\"t\":3}\n{\"t\":4}\n");
    assert_eq!(cut(&mut client, None, 7).unwrap(), "{\"t\":5}\n{\"t\":2}\n{\"t\":3}\n{\"t\":4}\n");
    assert_eq!(cut(&mut client, None, 9).unwrap(), "{\"t\":6}\n{\"t\":7}\n{\"t\":8}\n{\"t\":9}\n");
    let size = SetAttr { target: Target::path("/s/f"), size: Some(8), ..SetAttr::default() };
    client.txn(Op::SetAttr(size)).unwrap();
    assert_eq!(client.read("/s/f", View::NOW).unwrap(), b"{\"t\":6}\n");
    assert_eq!(cut(&mut client, Some(second), 4).unwrap(), "{\"t\":1}\n{\"t\":2}\n{\"t\":3}\n{\"t\":4}\n");
}

#[test]
fn a_file_under_a_plug_in_has_one_writing_session_at_a_time() {
    let machine = SimMachine::new(7);
    let mut client = machine.serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    client.write(&file, None, b"1,a\n").unwrap();
    let first = (client.session, client.seq);
    client.session = frieze_base::SessionId(0);
    client.open_session();
    let other = reopen(&mut client);
    let refused = client.write(&other, None, b"2,b\n").unwrap_err();
    assert!(refused.reason == Reason::Busy && refused.message.contains("one writing session"), "{refused}");
    (client.session, client.seq) = first;
    let settle = Settle { inode: inode(&mut client), ..Settle::default() };
    client.txn(Op::Settle(settle)).unwrap();
    client.session = frieze_base::SessionId(0);
    client.open_session();
    let other = reopen(&mut client);
    client.write(&other, None, b"2,b\n").unwrap();
}

/// As an editor or a program leaves it that writes breaks between rows.
#[test]
fn the_last_row_counts_without_a_line_break_once_the_file_is_closed() {
    let rows = |shape: &str, times: &[i64]| -> String {
        let row = |time: &i64| if shape == "csv:t" { format!("{time},x") } else { format!("{{\"t\":{time}}}") };
        let head = if shape == "csv:t" { "t,v\n" } else { "" };
        head.to_owned() + &times.iter().map(row).collect::<Vec<_>>().join("\n")
    };
    for (shape, cuts) in [("csv:t", 1), ("csv:t", 3), ("jsonl:/t", 1), ("jsonl:/t", 3)] {
        let mut client = SimMachine::new(7).serve();
        bind(&mut client, &format!("{shape},unit=ns"));
        let file = client.make("/s/f");
        let (text, broken) = (rows(shape, &[5, 7, 9]), rows(shape, &[5, 7]) + "\n");
        let pieces = text.as_bytes().chunks(text.len().div_ceil(cuts));
        let last = pieces.map(|piece| client.write(&file, None, piece).unwrap().0).last().unwrap();
        // A writer may still continue the row.
        assert_eq!(cut(&mut client, None, 9).unwrap(), broken);
        let settle = Settle { inode: inode(&mut client), ..Settle::default() };
        let closed = client.txn(Op::Settle(settle)).unwrap().stamp;
        let check = |client: &mut TestConnection, at: Option<u64>| {
            assert_eq!(cut(client, at, 10).unwrap(), text, "{shape}");
            assert_eq!(cut(client, at, 9).unwrap(), text);
            assert_eq!(cut(client, at, 8).unwrap(), broken);
            assert_eq!(cut(client, at, 5).unwrap(), rows(shape, &[5]) + "\n");
            assert_eq!(cut(client, at, 4).unwrap(), "");
            assert_eq!(cut(client, Some(last), 9).unwrap(), broken, "it was open then");
        };
        check(&mut client, None);
        check(&mut client, Some(closed));
        client.clone_tree("/s/f", closed, "/s/c").unwrap();
        assert_eq!(cut_of(&mut client, "/s/c", None, 9).unwrap(), text);
        assert_eq!(cut_of(&mut client, "/s/c", None, 8).unwrap(), broken);
        // Another row begins after it, and what was answered stays.
        let file = reopen(&mut client);
        let earlier = rows(shape, &[8]).lines().last().unwrap().to_owned();
        let refused = client.write(&file, None, format!("\n{earlier}\n").as_bytes()).unwrap_err();
        assert_eq!(refused.reason, Reason::BackwardUserTime, "{refused}");
        client.write(&file, None, rows(shape, &[5, 7, 9, 11]).strip_prefix(&text).unwrap().as_bytes()).unwrap();
        assert_eq!(cut(&mut client, None, 9).unwrap(), text.clone() + "\n", "the row has its break");
        assert_eq!(cut(&mut client, None, 11).unwrap(), text.clone() + "\n", "the next one may go on");
        check(&mut client, Some(closed));
    }
    // The only one.
    let mut client = SimMachine::new(7).serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    client.write(&file, None, b"6,a").unwrap();
    assert_eq!(cut(&mut client, None, 6), Err(Reason::NoUserTime));
    let settle = Settle { inode: inode(&mut client), ..Settle::default() };
    client.txn(Op::Settle(settle)).unwrap();
    assert_eq!(cut(&mut client, None, 6).unwrap(), "6,a");
    assert_eq!(cut(&mut client, None, 5).unwrap(), "");
}
