//! Reading the past: the table of cases of the design, §4, at the door of the command.

use crate::served::{Served, lines_of_json};

const GONE: &str = "no such file or directory";

#[test]
fn before_it_was_made_and_after_it_was_removed_a_file_does_not_exist() {
    let server = Served::start();
    let before = server.now();
    server.put("/f", "x");
    let during = server.now();
    server.ok(&["rm", "/f"]);
    let after = server.now();
    for at in [&before, &after] {
        assert_eq!(server.fails(1, &["cat", "/f", "--at", at]), format!("frieze: cat: /f: {GONE}\n"));
        assert_eq!(server.fails(1, &["stat", "/f", "--at", at]), format!("frieze: stat: /f: {GONE}\n"));
        assert!(server.names_at("/", at).is_empty());
    }
    assert_eq!(server.cat_at("/f", &during), "x");
    assert_eq!(server.names_at("/", &during), ["f"]);
}

#[test]
fn what_was_removed_renamed_replaced_or_cut_is_there_under_its_name_of_then() {
    let server = Served::start();
    server.ok(&["mkdir", "-p", "/parent/d"]);
    for name in ["removed", "renamed", "replaced", "cut"] {
        server.put(&format!("/parent/d/{name}"), format!("{name} then"));
    }
    let then = server.now();
    server.ok(&["rm", "/parent/d/removed"]);
    server.ok(&["mv", "/parent/d/renamed", "/elsewhere"]);
    server.put("/new", "new");
    server.ok(&["mv", "/new", "/parent/d/replaced"]);
    server.put("/parent/d/cut", "c");
    server.ok(&["mv", "/parent", "/other-parent"]);

    let check = |server: &Served| {
        assert_eq!(server.names_at("/parent/d", &then), ["cut", "removed", "renamed", "replaced"]);
        for name in ["removed", "renamed", "replaced", "cut"] {
            assert_eq!(server.cat_at(&format!("/parent/d/{name}"), &then), format!("{name} then"));
        }
        assert_eq!(
            server.fails(1, &["ls", "/other-parent", "--at", &then]),
            format!("frieze: ls: /other-parent: {GONE}\n")
        );
        assert_eq!(
            server.ok(&["cat", "/elsewhere", "/other-parent/d/replaced", "/other-parent/d/cut"]),
            "renamed thennewc"
        );
    };
    check(&server);

    // A whole tree comes back from one instant, and what was there meanwhile stays readable.
    let before_copy = server.now();
    server.ok(&["cp", "-r", "--at", &then, "/parent/d", "/back"]);
    assert_eq!(server.ok(&["cat", "/back/removed", "/back/cut"]), "removed thencut then");
    assert!(!server.names_at("/", &before_copy).contains(&"back".to_owned()));
    check(&server);
}

#[test]
fn an_instant_equal_to_a_stamp_holds_that_write_and_the_one_before_does_not() {
    let server = Served::start();
    server.put("/f", "one");
    assert_eq!(server.run_with(&["put", "--append", "-", "/f"], b"two").ok(), "");
    let versions = server.json(&["log", "--json", "--reverse", "/f"]);
    let writes: Vec<u64> = versions
        .iter()
        .filter(|version| version["kind"] == "write")
        .map(|version| u64::from_str_radix(version["stamp"].as_str().unwrap().trim_start_matches("hlc-"), 16).unwrap())
        .collect();
    let [first, second] = writes[..] else { panic!("two writes: {versions:?}") };
    let at = |stamp: u64| server.cat_at("/f", &format!("hlc-{stamp:016x}"));
    assert_eq!(at(first), "one");
    assert_eq!(at(first - 1), "");
    assert_eq!(at(second - 1), "one");
    assert_eq!(at(second), "onetwo");
}

#[test]
fn a_query_closes_the_present_and_the_future_is_refused() {
    let server = Served::start();
    server.put("/f", "x");
    assert_eq!(server.cat_at("/f", "now"), "x");
    assert_eq!(server.cat_at("/f", "0s-ago"), "x");
    let refused = server.fails(1, &["cat", "/f", "--at", "2100-01-01T00:00:00Z"]);
    assert!(refused.starts_with("frieze: cat: ") && refused.contains("future"), "{refused}");
    assert_eq!(refused.lines().count(), 1);
}

#[test]
fn before_the_first_instant_nothing_is_kept() {
    let server = Served::start();
    server.put("/f", "x");
    let refused = server.fails(1, &["cat", "/f", "--at", "1999-01-01T00:00:00Z"]);
    assert!(refused.contains("lies before the earliest instant"), "{refused}");
}

#[test]
fn a_table_is_put_over_itself_and_a_refused_put_changes_nothing() {
    let server = Served::start();
    server.ok(&["mkdir", "/t"]);
    server.ok(&["time", "bind", "/t", "csv:t"]);
    let put = |rows: &str| server.run_with(&["put", "-", "/t/a"], format!("t,v\n{rows}").as_bytes());
    assert_eq!(put("2024-01-02T00:00:00Z,1\n").status, 0);
    // Its times begin before those of the one that was there.
    assert_eq!(put("2024-01-01T00:00:00Z,2\n").status, 0);
    assert_eq!(server.ok(&["cat", "/t/a"]), "t,v\n2024-01-01T00:00:00Z,2\n");
    let refused = put("2024-01-05T00:00:00Z,3\n2024-01-04T00:00:00Z,4\n");
    assert!(refused.status == 1 && refused.err.starts_with("frieze: put: /t/a: "), "{}", refused.err);
    assert_eq!(server.ok(&["cat", "/t/a"]), "t,v\n2024-01-01T00:00:00Z,2\n", "what was refused");
    // Others write at once.
    let row = b"2024-01-03T00:00:00Z,5\n";
    assert_eq!(server.run_with(&["put", "--append", "-", "/t/a"], row).ok(), "");
    let backward: &[u8] = b"t,v\n2024-01-02T00:00:00Z,1\n2024-01-01T00:00:00Z,1\n";
    for rows in [b"t,v\nyesterday,1\n", backward] {
        for how in
            [&["put", "-", "/t/new"][..], &["put", "--append", "-", "/t/new"], &["put", "--atomic", "-", "/t/new"]]
        {
            let refused = server.run_with(how, rows);
            assert!(refused.status == 1 && refused.err.contains("/t/new: "), "{how:?}: {}", refused.err);
        }
    }
    // Onto a file that is there and empty, too.
    server.run_with(&["put", "-", "/t/empty"], b"").ok();
    assert_eq!(server.run_with(&["put", "-", "/t/empty"], backward).status, 1);
    assert_eq!(server.run_with(&["put", "--append", "-", "/t/empty"], b"t,v\n2024-01-03T00:00:00Z,5\n").ok(), "");
    server.ok(&["rm", "/t/empty"]);
    // Replaced is a name: what leads to it stays, and so does how its times are read.
    server.ok(&["ln", "-s", "/t/a", "/link"]);
    let refused = server.run_with(&["put", "-", "/link"], b"t,v\n2024-01-01T00:00:00Z,6\n");
    assert!(refused.status == 1 && refused.err.contains("name the file itself"), "{}", refused.err);
    server.ok(&["time", "unbind", "/t"]);
    let refused = put("2024-01-01T00:00:00Z,7\n");
    assert!(refused.status == 1 && refused.err.contains("bind the directory to it"), "{}", refused.err);
    assert!(server.ok(&["cat", "/link"]).ends_with("2024-01-03T00:00:00Z,5\n"));
    assert_eq!(server.ok(&["ls", "/t"]).lines().count(), 1, "no empty file, nothing beside it");
}

#[test]
fn a_file_of_records_of_one_size_is_put_in_whole_records() {
    let server = Served::start();
    server.ok(&["mkdir", "/b"]);
    server.ok(&["time", "bind", "/b", "binary:unit=s,size=24"]);
    let record = |seconds: u64| [&seconds.to_le_bytes()[..], &[7; 16]].concat();
    // More than one piece of a copy, whose length is no multiple of 24.
    let bytes: Vec<u8> = (0..100_000).flat_map(record).collect();
    for how in
        [&["put", "-", "/b/put"][..], &["put", "--append", "-", "/b/appended"], &["put", "--atomic", "-", "/b/atomic"]]
    {
        assert_eq!(server.run_with(how, &bytes).ok(), "");
        let path = how[how.len() - 1];
        assert_eq!(server.run(&["cat", path, "--user-at", "@49999"]).bytes.len(), 50_000 * 24, "{path}");
    }
    let refused = server.run_with(&["put", "-", "/b/part"], &bytes[..100]);
    assert!(
        refused.status == 1 && refused.err.contains("ends in the midst of the record at offset 96"),
        "{}",
        refused.err
    );
    // The length of a record is not known: many of them do not count as one.
    server.ok(&["mkdir", "/u"]);
    server.ok(&["time", "bind", "/u", "binary:unit=s"]);
    let refused = server.run_with(&["put", "-", "/u/f"], &bytes[..9600]);
    assert!(refused.status == 1 && refused.err.contains("bind the directory with size=N"), "{}", refused.err);
}

#[test]
fn user_time_cuts_a_file_at_its_own_time() {
    let server = Served::start();
    server.ok(&["mkdir", "/sensors"]);
    server.ok(&["time", "bind", "/sensors", "binary:offset=0,width=8,order=little,signed=false,epoch=unix,unit=s"]);
    let shown = server.ok(&["time", "show", "/sensors"]);
    assert!(shown.starts_with("/sensors: binary:offset=0,width=8"), "{shown}");
    let record = |seconds: u64, letter: u8| [&seconds.to_le_bytes()[..], &[letter; 8]].concat();
    for (seconds, letter) in [(100, b'a'), (200, b'b'), (200, b'c'), (300, b'd')] {
        assert_eq!(server.run_with(&["put", "--append", "-", "/sensors/s"], &record(seconds, letter)).ok(), "");
    }
    let letters = |u: &str| {
        let said = server.run(&["cat", "/sensors/s", "--user-at", u]);
        assert_eq!(said.status, 0, "{said:?}");
        said.bytes.chunks(16).map(|record| record[8] as char).collect::<String>()
    };
    assert_eq!(letters("@99"), "", "before the first: an empty prefix");
    assert_eq!(letters("@100"), "a");
    assert_eq!(letters("@199"), "a", "in a gap: the state before");
    assert_eq!(letters("@200"), "abc", "all records of that time");
    assert_eq!(letters("@1000"), "abcd");

    let backward = server.run_with(&["put", "--append", "-", "/sensors/s"], &record(250, b'x'));
    assert_eq!(backward.status, 1);
    assert!(
        backward.err.contains("/sensors/s")
            && backward.err.contains("1970-01-01T00:04:10Z, before 1970-01-01T00:05:00Z"),
        "{}",
        backward.err
    );
    assert_eq!(letters("@1000"), "abcd", "a refused record leaves nothing");

    server.put("/plain", "no time");
    let refused = server.fails(1, &["cat", "/plain", "--user-at", "@100"]);
    assert!(refused.starts_with("frieze: cat: /plain: ") && refused.contains("user time"), "{refused}");

    let log = server.json(&["log", "--json", "/sensors/s"]);
    assert!(log.iter().any(|version| version["user_time"] == "1970-01-01T00:05:00Z"), "{log:?}");
}

#[test]
fn an_answer_from_the_past_says_which_instant_it_used() {
    let server = Served::start();
    server.put("/f", "x");
    let at = server.now();
    let item = &server.json(&["ls", "--json", "/", "--at", &at])[0];
    assert_eq!(item["answered"]["at"], at.as_str());
    assert_eq!((&item["answered"]["stable"], &item["answered"]["incomplete"]), (&true.into(), &false.into()));
    let precision = &item["answered"]["precision_us"];
    assert!(precision.is_u64() || precision.is_null(), "{precision}");

    let said = server.run(&["cat", "-v", "/f", "--at", &at]);
    assert_eq!((said.status, said.out().as_str()), (0, "x"));
    assert!(
        said.err.starts_with(&format!("frieze: cat: as of {at} ("))
            && (said.err.contains("precise to") || said.err.contains("unknown precision")),
        "{}",
        said.err
    );
}

#[test]
fn a_time_without_a_zone_is_local_and_the_utc_used_is_printed() {
    let server = Served::start();
    server.put("/f", "x");
    let mut command = server.command(&["now", "--at", "2026-01-02T03:04:05"]);
    let said = command.env("TZ", "<+02>-2").output().unwrap();
    assert_eq!(said.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(said.stderr).unwrap(),
        "frieze: now: 2026-01-02T03:04:05 in the zone of this machine is 2026-01-02T01:04:05.000000Z\n"
    );
}

#[test]
fn a_log_names_every_change_and_finds_what_was_removed() {
    let server = Served::start();
    server.put("/f", "hello");
    let then = server.now();
    let text = server.ok(&["log", "/f"]);
    assert!(text.starts_with("TIME "), "{text}");
    assert!(
        text.lines().any(|line| line.contains(" write ") && line.contains(" 0 ") && line.contains(" 5 ")),
        "{text}"
    );
    let kinds = |args: &[&str]| -> Vec<String> {
        server.json(args).iter().map(|version| version["kind"].as_str().unwrap().to_owned()).collect()
    };
    let all = kinds(&["log", "--json", "/f"]);
    assert!(all.contains(&"make".to_owned()) && all.contains(&"write".to_owned()), "{all:?}");
    assert_eq!(all.last().map(String::as_str), Some("make"), "the newest comes first: {all:?}");
    assert_eq!(kinds(&["log", "--json", "-n", "1", "/f"]), all[..1]);
    let reverse: Vec<String> = all.iter().rev().cloned().collect();
    assert_eq!(kinds(&["log", "--json", "--reverse", "/f"]), reverse);
    assert_eq!(kinds(&["log", "--json", "--reverse", "-n", "1", "/f"]), reverse[..1]);
    assert!(kinds(&["log", "--json", "--from", &then, "/f"]).is_empty());

    server.ok(&["rm", "/f"]);
    let found = server.run(&["log", "/f"]);
    assert!(found.status == 0 && found.err.starts_with("frieze: log: /f was removed at 2"), "{found:?}");
    assert!(found.out().contains(" make ") && found.out().contains(" unnamed "), "{found:?}");
    assert_eq!(server.fails(1, &["log", "/g"]), "frieze: log: /g: there is and was no such file or directory\n");
    assert!(!kinds(&["log", "--json", "/f", "--at", &then]).is_empty());
}

#[test]
fn a_snapshot_is_a_name_for_an_instant() {
    let server = Served::start();
    server.put("/f", "v1");
    let then = server.now();
    let created = server.json(&["snapshot", "create", "--json", "before-upgrade"]);
    server.put("/f", "v2");
    assert_eq!(server.cat_at("/f", "before-upgrade"), "v1");
    server.ok(&["snapshot", "create", "earlier", "--at", &then]);
    assert_eq!(server.cat_at("/f", "earlier"), "v1");
    let listed = server.json(&["snapshot", "list", "--json"]);
    assert_eq!(listed[0]["name"], "before-upgrade");
    assert_eq!(listed[0]["at"], created[0]["at"]);
    assert_eq!(listed[1]["at"], then.as_str());
    assert_eq!(
        server.fails(1, &["snapshot", "create", "earlier"]),
        "frieze: snapshot: earlier: a snapshot has that name\n"
    );
    for name in ["2026", "hlc-1", "a/b", "5m-ago", "yesterday"] {
        let refused = server.fails(2, &["snapshot", "create", name]);
        assert!(refused.contains("cannot name a snapshot"), "{refused}");
    }
    server.ok(&["snapshot", "delete", "before-upgrade"]);
    assert_eq!(server.fails(1, &["snapshot", "delete", "gone"]), "frieze: snapshot: gone: no such snapshot\n");
    let refused = server.fails(1, &["cat", "/f", "--at", "before-upgrade"]);
    assert!(refused.contains("before-upgrade"), "{refused}");
}

#[test]
fn a_file_is_restored_onto_itself_from_the_past() {
    let server = Served::start();
    let good: Vec<u8> = (0..3 << 20).map(|i: u32| (i >> 3) as u8).collect();
    let local = server.local_file("good", &good);
    server.ok(&["put", &local, "/f"]);
    let then = server.now();
    server.put("/f", "spoiled");
    let spoiled = server.now();
    server.ok(&["cp", "--at", &then, "/f", "/f"]);
    assert!(server.run(&["cat", "/f"]).bytes == good);
    assert_eq!(server.cat_at("/f", &spoiled), "spoiled");
    let same = server.fails(1, &["cp", "/f", "/f"]);
    assert!(same.contains("is the same file"), "{same}");
    assert!(server.run(&["cat", "/f"]).bytes == good);
}

#[test]
fn a_hundred_instants_give_what_was_written_then() {
    let server = Served::start();
    let mut recorded = Vec::new();
    server.ok(&["mkdir", "-p", "/a/b"]);
    for i in 0..100 {
        let text = format!("state {i} {}", "x".repeat(i * 7));
        server.put("/a/b/f", &text);
        recorded.push((server.now(), text));
    }
    let check = |path: &str| {
        for (at, text) in &recorded {
            assert_eq!(&server.cat_at(path, at), text, "at {at}");
        }
    };
    check("/a/b/f");
    server.ok(&["rm", "/a/b/f"]);
    server.ok(&["mv", "/a", "/z"]);
    check("/a/b/f");
    let items = lines_of_json(&server.ok(&["log", "--json", "/a/b/f", "--at", &recorded[99].0]));
    assert!(items.iter().filter(|version| version["kind"] == "write").count() >= 100);
}

#[test]
fn rows_are_cut_at_user_time_and_late_rows_show_from_their_arrival() {
    let server = Served::start();
    server.ok(&["mkdir", "/flights"]);
    server.ok(&["time", "bind", "/flights", "csv:when"]);
    let rows = |from: &str, rows: &str, to: &str| {
        server.run_with(&["put", "--append", "-", to], format!("{from}{rows}").as_bytes())
    };
    rows("when,what\n", "1970-01-01T00:01:00Z,a\n1970-01-01T00:02:00Z,b\n", "/flights/f.csv").ok();
    rows("", "1970-01-01T00:03:00Z,c\n", "/flights/f.csv").ok();
    let before = server.now();
    rows("when,what\n", "1970-01-01T00:01:30Z,late\n", "/flights/late.csv").ok();
    let shown = |arguments: &[&str]| server.ok(&[&["cat"], arguments].concat());
    assert_eq!(shown(&["/flights/f.csv", "--user-at", "@90"]), "when,what\n1970-01-01T00:01:00Z,a\n");
    assert_eq!(shown(&["/flights/f.csv", "--user-at", "@59"]), "");
    assert_eq!(shown(&["/flights/late.csv", "--user-at", "@90"]), "when,what\n1970-01-01T00:01:30Z,late\n");
    let unknown = server.fails(1, &["cat", "/flights/late.csv", "--at", &before, "--user-at", "@90"]);
    assert!(unknown.contains("/flights/late.csv"), "{unknown}");
    let backward = rows("", "1970-01-01T00:02:59Z,d\n", "/flights/f.csv");
    assert_eq!(backward.status, 1);
    for words in ["offset 79", "1970-01-01T00:02:59Z", "1970-01-01T00:03:00Z"] {
        assert!(backward.err.contains(words), "{words} is missing: {}", backward.err);
    }
}
