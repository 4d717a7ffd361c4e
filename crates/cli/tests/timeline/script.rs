//! Scripts of commands with what they print: `testdata/timeline.txt`, rewritten by `UPDATE_EXPECT=1`.
//!
//! A line `$ WORDS` runs `frieze WORDS`; `$ T0 = now` keeps an instant under a name, for `$T0` in later lines; a line
//! `$ put PATH TEXT` stores a text (`\n` in it ends a line). What changes from run to run is shown as TIME, STAMP,
//! SESSION, HOST, USER and AGE, and columns by two blanks.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::served::{Said, Served};

#[test]
fn commands_about_time_say_what_testdata_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/timeline.txt");
    let script = std::fs::read_to_string(&path).unwrap();
    let mut shown = String::new();
    let mut server = Served::start();
    let mut names = BTreeMap::new();
    for line in script.lines() {
        if line.starts_with('#') || line.is_empty() {
            shown.push_str(&format!("{line}\n"));
            if line.starts_with("# ===") {
                // A chapter begins with an empty file system.
                server = Served::start();
                names.clear();
            }
        } else if let Some(typed) = line.strip_prefix("$ ") {
            shown.push_str(&format!("{line}\n{}", perform(&server, typed, &mut names)));
        }
    }
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (number, (is, was)) in shown.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, was, "line {} of testdata/timeline.txt", number + 1);
    }
    assert_eq!(shown.lines().count(), expected.lines().count());
}

fn perform(server: &Served, typed: &str, names: &mut BTreeMap<String, String>) -> String {
    if let Some(name) = typed.strip_suffix(" = now") {
        names.insert(format!("${name}"), server.now());
        return String::new();
    }
    if let Some((path, text)) = typed.strip_prefix("put ").and_then(|rest| rest.split_once(' ')) {
        server.put(path, text.replace("\\n", "\n"));
        return String::new();
    }
    let words: Vec<&str> = typed.split(' ').map(|word| names.get(word).map_or(word, String::as_str)).collect();
    let said: Said = server.run(&words);
    let status = if said.status == 0 { String::new() } else { format!("[exit status {}]\n", said.status) };
    names.iter().fold(normal(&format!("{}{}{status}", said.err, said.out())), |text, (name, at)| {
        text.replace(at.as_str(), name)
    })
}

/// What is the same in every run.
fn normal(text: &str) -> String {
    let program = env!("CARGO_BIN_EXE_frieze");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut lines = String::new();
    // Empty lines divide the script.
    for line in text.replace(program, "frieze").lines().filter(|line| !line.is_empty()) {
        let mut columns: Vec<String> = Vec::new();
        // Columns are as wide as what is in them, which differs.
        for column in line.split("  ").map(str::trim).filter(|column| !column.is_empty()) {
            let words: Vec<String> = column.split(' ').map(|word| placeholder(word, host.trim(), &user)).collect();
            columns.push(words.join(" "));
        }
        lines.push_str(&columns.join("  "));
        lines.push('\n');
    }
    lines
}

fn placeholder(word: &str, host: &str, user: &str) -> String {
    let bare = word.trim_end_matches([',', ':', ')']).trim_start_matches('(');
    let tail = &word[word.find(bare).unwrap_or(0) + bare.len()..];
    let head = &word[..word.len() - tail.len() - bare.len()];
    let is_time = bare.len() == 27 && bare.ends_with('Z') && bare.starts_with("20");
    let kind = match bare {
        _ if is_time => "TIME",
        _ if bare.starts_with("hlc-") && bare.len() == 20 => "STAMP",
        _ if bare.len() == 19 && bare.bytes().all(|byte| byte.is_ascii_digit()) => "SESSION",
        _ if bare == host => "HOST",
        _ if bare == user => "USER",
        _ if bare.ends_with("ms") && bare.trim_end_matches("ms").bytes().all(|byte| byte.is_ascii_digit()) => "AGE",
        _ if bare.ends_with('s') && bare.trim_end_matches('s').parse::<f64>().is_ok() => "AGE",
        _ => return word.to_owned(),
    };
    format!("{head}{kind}{tail}")
}
