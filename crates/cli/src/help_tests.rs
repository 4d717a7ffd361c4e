//! The help of every command, as a reader sees it: `testdata/help.txt`, rewritten by `UPDATE_EXPECT=1`.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;

use crate::command_line;

/// Every command below `command`, parents first, with the words that are typed for it.
fn all(command: &clap::Command, typed: &str, out: &mut Vec<(String, clap::Command)>) {
    out.push((typed.to_owned(), command.clone()));
    for below in command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set()) {
        all(below, &format!("{typed} {}", below.get_name()), out);
    }
}

fn commands() -> Vec<(String, clap::Command)> {
    let mut command = command_line();
    command.build();
    let mut out = Vec::new();
    all(&command, "frieze", &mut out);
    // `bench` hands its arguments on, `--help` included.
    let bench = frieze_bench::BenchOptions::command().term_width(100);
    out.iter_mut().filter(|(typed, _)| typed == "frieze bench").for_each(|(_, command)| *command = bench.clone());
    out
}

#[test]
fn help_is_what_testdata_shows() {
    let mut text = String::new();
    for (typed, mut command) in commands() {
        let help = command.render_long_help().to_string();
        let help: Vec<&str> = help.lines().map(str::trim_end).collect();
        text.push_str(&format!("$ {typed} --help\n{}\n\n", help.join("\n")));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/help.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = text.lines().zip(expected.lines()).position(|(is, was)| is != was);
    assert!(
        text == expected,
        "help has changed from line {} of testdata/help.txt; UPDATE_EXPECT=1 cargo test -p frieze-cli rewrites it",
        differs.map_or(text.lines().count().min(expected.lines().count()), |line| line) + 1
    );
}

#[test]
fn every_command_has_a_paragraph_and_an_example() {
    for (typed, command) in commands() {
        assert!(command.get_about().is_some(), "{typed} says what it is for");
        let after = command.get_after_long_help().or(command.get_after_help());
        let after = after.map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example") || after.contains("JSON:") || after.contains("SPEC"), "{typed} shows how");
    }
}

#[test]
fn every_option_says_what_it_does() {
    for (typed, command) in commands() {
        for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
            assert!(option.get_help().is_some(), "{typed}: {} has help", option.get_id());
        }
    }
}

#[test]
fn no_letter_has_two_meanings() {
    for (typed, command) in commands() {
        let mut seen = BTreeSet::new();
        for letter in command.get_arguments().filter_map(clap::Arg::get_short) {
            assert!(seen.insert(letter), "{typed}: -{letter} is taken");
        }
    }
    command_line().debug_assert();
}
