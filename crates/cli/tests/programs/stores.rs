//! Programs that trust a file system with what they keep: SQLite in each of its journal modes, git.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{mount_server, succeed};
use frieze_harness::requirements;
use frieze_testkit::bytes::random_bytes;

fn say(directory: &Path, program: &str, arguments: &[&str]) -> String {
    let output = succeed(Command::new(program).args(arguments).current_dir(directory));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn sqlite_keeps_its_tables_in_every_journal_mode() {
    if !requirements::program("sqlite3") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    for mode in ["delete", "truncate", "persist", "wal", "memory"] {
        let directory = mounted.mount.path(mode);
        fs::create_dir(&directory).unwrap();
        let sql = |sql: &str| say(&directory, "sqlite3", &["-cmd", ".timeout 20000", "db", sql]);
        let set = format!("pragma journal_mode={mode}; create table t(n integer primary key, text);");
        assert_eq!(sql(&set), format!("{mode}\n"));
        // Two processes at once: the locks of the file decide which is first.
        std::thread::scope(|scope| {
            for first in [0, 1000] {
                let sql = &sql;
                scope.spawn(move || {
                    for part in 0..5 {
                        let from = first + part * 200;
                        sql(&format!(
                            "begin immediate; with recursive c(n) as (select {from} union all select n + 1 from c \
                             where n + 1 < {from} + 200) insert into t select n, hex(zeroblob(n % 700)) from c; commit;"
                        ));
                    }
                });
            }
        });
        sql("begin; delete from t where n % 3 = 0; rollback; delete from t where n % 5 = 0; vacuum;");
        assert_eq!(sql("pragma integrity_check"), "ok\n", "{mode}");
        assert_eq!(sql("select count(*), sum(length(text)) from t"), sums(), "{mode}");
    }
}

/// What the table holds in the end, counted without a database.
fn sums() -> String {
    let kept: Vec<u64> = (0..2000).filter(|n| n % 5 != 0).collect();
    format!("{}|{}\n", kept.len(), kept.iter().map(|n| 2 * (n % 700)).sum::<u64>())
}

#[test]
fn git_keeps_a_history_and_a_clone_of_it() {
    if !requirements::program("git") {
        return;
    }
    let Some(mounted) = mount_server() else { return };
    let directory = mounted.mount.path("repository");
    fs::create_dir(&directory).unwrap();
    let git = |arguments: &[&str]| {
        let named = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"];
        say(&directory, "git", &[&named[..], arguments].concat())
    };
    git(&["init", "-q", "-b", "main"]);
    for commit in 0..10u64 {
        for file in 0..20u64 {
            let path = directory.join(format!("d{}/file-{file}", file % 4));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, random_bytes(commit * file, 500 + 100 * file as usize)).unwrap();
        }
        git(&["add", "."]);
        git(&["commit", "-q", "-m", &commit.to_string()]);
    }
    git(&["checkout", "-q", "-b", "side", "HEAD~3"]);
    git(&["mv", "d1", "renamed"]);
    git(&["commit", "-q", "-m", "renamed"]);
    git(&["checkout", "-q", "main"]);
    git(&["gc", "-q", "--prune=now"]);
    git(&["clone", "-q", "--no-local", ".", "../clone"]);
    git(&["clone", "-q", "--local", ".", "../linked"]);
    for at in [".", "../clone", "../linked"] {
        let found = git(&["-C", at, "fsck", "--full", "--strict"]);
        assert!(!found.contains("missing") && !found.contains("error"), "{at}: {found}");
        assert_eq!(git(&["-C", at, "rev-list", "--count", "HEAD"]), "10\n");
        assert_eq!(git(&["-C", at, "status", "--porcelain"]), "", "{at}");
    }
}
