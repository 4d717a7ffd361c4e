//! The order of a file's user times begins anew after a truncate to nothing, a restore, an undo.

use frieze_base::{Reason, Rng};
use frieze_wire::message::View;
use frieze_wire::txn::{Op, SetXattr, Settle, Target};

use super::{SimMachine, TestConnection};

/// A table: its text, and its content after each change.
#[derive(Clone)]
struct Sheet {
    path: String,
    text: String,
    states: Vec<(u64, String)>,
}

fn bind(client: &mut TestConnection, plugin: &str) {
    client.mkdir("/s");
    let (target, name) = (Target::path("/s"), b"user.frieze.time".to_vec());
    client.txn(Op::SetXattr(SetXattr { target, name, value: plugin.as_bytes().to_vec(), flags: 0 })).unwrap();
}

fn cut(client: &mut TestConnection, path: &str, at: Option<u64>, user: i64) -> Result<String, Reason> {
    let read = client.read(path, View { at, user_at: Some(user) });
    read.map(|bytes| String::from_utf8(bytes).unwrap()).map_err(|fault| fault.reason)
}

fn time(row: &str) -> i64 {
    row.trim_end().parse().expect("a row of one number")
}

/// What a table of `text` shows at a user time, by its text alone.
fn expected(text: &str, user: i64) -> Result<String, Reason> {
    match text {
        "" => Err(Reason::NoUserTime),
        text => Ok(text.split_inclusive('\n').take_while(|row| time(row) <= user).collect()),
    }
}

fn newest(text: &str) -> i64 {
    text.lines().map(time).max().unwrap_or(0)
}

/// A restored state and one that was undone are as good as one that was written: the text alone decides.
#[test]
fn a_table_shows_its_text_by_user_time_however_it_came_about() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let machine = SimMachine::new(7);
        let mut client = machine.serve();
        bind(&mut client, "csv:1,unit=ns");
        client.make("/s/0");
        let mut sheets = vec![Sheet { path: "/s/0".into(), text: String::new(), states: Vec::new() }];
        for _ in 0..50 {
            let index = rng.below(sheets.len() as u64) as usize;
            if sheets.len() < 4 && rng.chance(8) && !sheets[index].states.is_empty() {
                let (at, text) = rng.choose(&sheets[index].states).clone();
                let path = format!("/s/{}", sheets.len());
                let stamp = client.clone_tree(&sheets[index].path, at, &path).unwrap().stamp;
                sheets.push(Sheet { path, states: vec![(stamp, text.clone())], text });
                continue;
            }
            let sheet = &mut sheets[index];
            let path = sheet.path.clone();
            let stamp = match rng.below(10) {
                0 | 1 => {
                    sheet.text.clear();
                    client.truncate(&path, 0)
                }
                2 | 3 if !sheet.states.is_empty() => {
                    let (at, text) = rng.choose(&sheet.states).clone();
                    let stamp = client.restore(&path, at, false).unwrap().stamp;
                    // 0: nothing differed. But its times may have.
                    if stamp == 0 {
                        continue;
                    }
                    sheet.text = text;
                    stamp
                }
                _ => {
                    // A table that begins anew begins anywhere.
                    let first = if sheet.text.is_empty() { rng.below(30) as i64 } else { newest(&sheet.text) };
                    let mut last = first;
                    let mut more = String::new();
                    for _ in 0..rng.between(1, 4) {
                        last += rng.below(3) as i64;
                        more += &format!("{last}\n");
                    }
                    let file = client.open(&path).unwrap();
                    let (stamp, _) = client.write(&file, None, more.as_bytes()).unwrap();
                    sheet.text += &more;
                    if last > 0 {
                        // One row that runs backwards is refused, whatever came before.
                        let row = format!("{}\n", last - 1);
                        let refused = client.write(&file, None, row.as_bytes()).unwrap_err();
                        assert_eq!(refused.reason, Reason::BackwardUserTime, "seed {seed}: {}", sheet.text);
                    }
                    stamp
                }
            };
            sheet.states.push((stamp, sheet.text.clone()));
            if rng.chance(12) {
                client.fsync();
                let (session, seq) = (client.session, client.seq);
                drop(client);
                client = machine.serve();
                (client.session, client.seq) = (session, seq);
            }
        }
        for sheet in &sheets {
            for user in -1..=newest(&sheet.text) + 1 {
                let found = cut(&mut client, &sheet.path, None, user);
                assert_eq!(found, expected(&sheet.text, user), "seed {seed}, {} now, at {user}", sheet.path);
                let Some((at, text)) = sheet.states.get(rng.below(sheet.states.len().max(1) as u64) as usize) else {
                    continue;
                };
                let found = cut(&mut client, &sheet.path, Some(*at), user);
                assert_eq!(found, expected(text, user), "seed {seed}, {} at {at}, at {user}", sheet.path);
            }
        }
    }
}

/// Every shape of table and record; what was read at an instant before is read again after.
#[test]
fn a_table_that_is_cut_to_nothing_takes_rows_that_are_older_than_those_of_before() {
    let record = |time: u64| [&time.to_le_bytes()[..], &[7; 8]].concat();
    let row = |time: u64| format!("{time}\n").into_bytes();
    let line = |time: u64| format!("{{\"t\":{time}}}\n").into_bytes();
    type Row<'a> = &'a dyn Fn(u64) -> Vec<u8>;
    let shapes: [(&str, Row<'_>); 5] = [
        ("csv:1,unit=ns", &row),
        ("jsonl:/t,unit=ns", &line),
        ("json:/t,unit=ns", &line),
        ("binary:unit=ns", &record),
        ("binary:unit=ns,size=16", &record),
    ];
    for (plugin, row) in shapes {
        let mut client = SimMachine::new(7).serve();
        bind(&mut client, plugin);
        let file = client.make("/s/f");
        let file_of = |times: &[u64]| times.iter().flat_map(|time| row(*time)).collect::<Vec<u8>>();
        for time in [50, 60, 70] {
            client.write(&file, None, &row(time)).unwrap();
        }
        let before = client.server.newest().0;
        let read =
            |client: &mut TestConnection, at, user: i64| client.read("/s/f", View { at, user_at: Some(user) }).unwrap();
        let then: Vec<_> = (0..80).map(|user| read(&mut client, Some(before), user)).collect();
        client.truncate("/s/f", 0);
        let empty = client.read("/s/f", View { at: None, user_at: Some(100) }).unwrap_err();
        assert_eq!(empty.reason, Reason::NoUserTime, "{plugin}: as one that was just made");
        // Twice, as programs do, and once more what was empty.
        client.truncate("/s/f", 0);
        for time in [10, 20, 65] {
            client.write(&file, None, &row(time)).unwrap();
        }
        let refused = client.write(&file, None, &row(64)).unwrap_err();
        assert_eq!(refused.reason, Reason::BackwardUserTime, "{plugin}: {refused}");
        for (user, times) in [(9, &[][..]), (10, &[10]), (19, &[10]), (20, &[10, 20]), (65, &[10, 20, 65])] {
            assert_eq!(read(&mut client, None, user), file_of(times), "{plugin} at {user}");
        }
        assert_eq!(read(&mut client, None, 60), file_of(&[10, 20]), "{plugin}: what was before is not found");
        let open = |client: &mut TestConnection, user: i64| {
            let view = View { at: None, user_at: Some(user) };
            client.stat("/s/f", view).unwrap().answered.user_time_open
        };
        assert_eq!((open(&mut client, 64), open(&mut client, 65)), (false, true), "{plugin}");
        for (user, shown) in then.iter().enumerate() {
            assert_eq!(read(&mut client, Some(before), user as i64), *shown, "{plugin} at {user} before");
        }
    }
}

#[test]
fn a_table_goes_on_from_what_was_restored_or_undone() {
    let mut client = SimMachine::new(7).serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    let (good, _) = client.write(&file, None, b"10\n20\n").unwrap();
    client.write(&file, None, b"90\n").unwrap();
    let bad = client.server.newest().0;
    client.restore("/s/f", good, false).unwrap();
    client.write(&file, None, b"30\n").unwrap();
    for (user, text) in [(9, ""), (10, "10\n"), (25, "10\n20\n"), (30, "10\n20\n30\n"), (90, "10\n20\n30\n")] {
        assert_eq!(cut(&mut client, "/s/f", None, user).unwrap(), text, "at {user}");
    }
    assert_eq!(cut(&mut client, "/s/f", Some(bad), 90).unwrap(), "10\n20\n90\n");
    let refused = client.write(&file, None, b"29\n").unwrap_err();
    assert_eq!(refused.reason, Reason::BackwardUserTime);
    // Another session overwrites it, and that is undone.
    let inode = client.inode("/s/f", View::NOW).unwrap();
    client.txn(Op::Settle(Settle { inode, ..Settle::default() })).unwrap();
    let first = (client.session, client.seq);
    client.session = frieze_base::SessionId(0);
    client.open_session();
    client.truncate("/s/f", 0);
    let other = client.open("/s/f").unwrap();
    client.write(&other, None, b"5\n6\n").unwrap();
    client.txn(Op::Settle(Settle { inode, ..Settle::default() })).unwrap();
    let sessions = [client.session.0];
    (client.session, client.seq) = first;
    client.undo(&sessions).unwrap();
    assert_eq!(client.read("/s/f", View::NOW).unwrap(), b"10\n20\n30\n");
    assert_eq!(cut(&mut client, "/s/f", None, 25).unwrap(), "10\n20\n");
    let file = client.open("/s/f").unwrap();
    let refused = client.write(&file, None, b"29\n").unwrap_err();
    assert_eq!(refused.reason, Reason::BackwardUserTime);
    client.write(&file, None, b"31\n").unwrap();
    assert_eq!(cut(&mut client, "/s/f", None, 31).unwrap(), "10\n20\n30\n31\n");
}

/// After a truncate in the middle of a table, nothing says which rows are left: new rows continue behind all it had.
#[test]
fn a_table_that_is_cut_shorter_goes_on_behind_the_rows_that_it_lost() {
    let mut client = SimMachine::new(7).serve();
    bind(&mut client, "csv:1,unit=ns");
    let file = client.make("/s/f");
    client.write(&file, None, b"10\n20\n").unwrap();
    client.write(&file, None, b"90\n").unwrap();
    client.truncate("/s/f", 6);
    let refused = client.write(&file, None, b"30\n").unwrap_err();
    assert_eq!(refused.reason, Reason::BackwardUserTime);
    client.write(&file, None, b"91\n").unwrap();
    assert_eq!(client.read("/s/f", View::NOW).unwrap(), b"10\n20\n91\n");
    assert_eq!(cut(&mut client, "/s/f", None, 91).unwrap(), "10\n20\n91\n");
}
