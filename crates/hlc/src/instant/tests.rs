use super::*;
use crate::UserTime;
use crate::format::format_instant;

const CASES: &str = include_str!("../../testdata/instants.txt");

fn now() -> Hlc {
    // Not the end of its microsecond, so that `now` and a time written as this microsecond differ.
    Hlc(Hlc::first_of_micros(1_795_255_200_000_000).0 + 7)
}

/// What the test file calls the meaning of an instant.
fn meaning(parsed: Result<Instant, Error>) -> String {
    match parsed {
        Err(Error::NotInstant { wrong, instead, .. }) => {
            format!("! {wrong}; {}", if instead == FORMS { "FORMS" } else { &instead })
        }
        Err(other) => format!("an error of another kind: {other}"),
        Ok(Instant::LastWhole) => "last-whole".to_owned(),
        Ok(Instant::Named(name)) => format!("snapshot {name}"),
        Ok(instant) => match instant.resolve(now()).expect("all but snapshots and last-whole resolve") {
            stamp if stamp == now() => "now".to_owned(),
            stamp if stamp == Hlc::last_of_micros(stamp.micros()) => format!("exact {}", format_instant(stamp)),
            stamp => stamp.to_string(),
        },
    }
}

#[test]
fn every_written_form_means_what_the_table_says() {
    let berlin = jiff::tz::TimeZone::get("Europe/Berlin").unwrap();
    let mut cases = 0;
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<&str> = line.split('|').collect();
        let (text, in_path) = (parts[0].strip_suffix(' ').unwrap_or(parts[0]), parts[1].trim());
        let in_command = parts.get(2).map_or(in_path, |part| part.trim());
        assert_eq!(meaning(Instant::parse(text, ZonePolicy::Refuse)), in_path, "in a path: {text}");
        assert_eq!(meaning(Instant::parse_in(text, Some(&berlin))), in_command, "in a command: {text}");
        cases += 1;
    }
    assert!(cases > 70, "only {cases} cases were found");
}

#[test]
fn a_zone_is_what_the_variable_of_a_process_says() {
    let at = |zone: Option<&str>| Instant::parse_in_zone("2026-11-21T10:00:00", &Zone::of_variable(zone)).unwrap();
    let utc = |text: &str| Instant::parse(text, ZonePolicy::Refuse).unwrap();
    assert_eq!(at(Some("")), utc("2026-11-21T10:00:00Z"));
    assert_eq!(at(Some("Asia/Tokyo")), utc("2026-11-21T01:00:00Z"));
    assert_eq!(at(Some(":Asia/Tokyo")), utc("2026-11-21T01:00:00Z"));
    assert_eq!(at(Some("JST-9")), utc("2026-11-21T01:00:00Z"));
    assert_eq!(at(None), at(Some("no such zone")));
}

#[test]
fn an_instant_prints_as_a_text_that_parses_to_itself() {
    for text in ["now", "yesterday", "last-whole", "5m-ago", "90m-ago", "1us-ago", "0us-ago", "3h-ago", "v1", "hlc-1f"]
    {
        let instant = Instant::parse(text, ZonePolicy::Refuse).unwrap();
        assert_eq!(Instant::parse(&instant.to_string(), ZonePolicy::Refuse).as_ref(), Ok(&instant), "{text}");
    }
}

#[test]
fn only_instants_whose_meaning_moves_are_links() {
    let moving = |text: &str| Instant::parse(text, ZonePolicy::Refuse).unwrap().is_moving();
    for text in ["now", "5m-ago", "yesterday", "last-whole"] {
        assert!(moving(text), "{text}");
    }
    for text in ["2026-11-21T10:00:00Z", "@5", "hlc-1f", "before-upgrade"] {
        assert!(!moving(text), "{text}");
    }
}

#[test]
fn a_message_names_what_was_written_and_what_to_write_instead() {
    let message = Instant::parse("5min-ago", ZonePolicy::Refuse).unwrap_err().to_string();
    assert_eq!(
        message,
        "\"5min-ago\" is not an instant: the unit \"min\" is not known; write one of us ms s m h d w (m is a minute), \
         as in 5m-ago"
    );
    let long = Instant::parse(&"9".repeat(5000), ZonePolicy::Refuse).unwrap_err().to_string();
    assert!(long.len() < 600, "a hostile text is cut: {} bytes", long.len());
}

#[test]
fn no_text_makes_the_parser_panic_and_no_instant_passes_for_a_name() {
    let mut rng = frieze_base::Rng::new(7);
    let alphabet: Vec<char> = "0123456789-:TZ@.+ hlcagowmsduy/é[]\0".chars().collect();
    for _ in 0..50_000 {
        let len = rng.below(24);
        let text: String = (0..len).map(|_| *rng.choose(&alphabet)).collect();
        if let Ok(Instant::Named(name)) = Instant::parse(&text, ZonePolicy::Refuse) {
            assert!(!looks_like_instant(&name) && check_snapshot_name(&name).is_ok(), "{name:?}");
        }
        let _ = UserTime::parse(&text, ZonePolicy::Refuse);
    }
}

#[test]
fn a_snapshot_name_never_collides_with_an_instant() {
    for name in ["before-upgrade", "Montag", "x", "a b", "v-1", &"n".repeat(255)] {
        assert_eq!(check_snapshot_name(name), Ok(()), "{name}");
    }
    for name in [
        "",
        "now",
        "yesterday",
        "last-whole",
        "5m-ago",
        "2026",
        "@5",
        "hlc-1",
        "user-x",
        ".",
        "..",
        "a/b",
        "a\nb",
        "-x",
    ] {
        assert!(check_snapshot_name(name).is_err(), "{name:?}");
    }
    assert!(check_snapshot_name(&"n".repeat(256)).is_err());
    let message = check_snapshot_name("2026").unwrap_err().to_string();
    assert_eq!(
        message,
        "\"2026\" cannot name a snapshot: it begins like an instant (a digit, @ or hlc-); choose a name that begins \
         with a letter, such as before-upgrade"
    );
}

#[test]
fn every_stamp_has_a_date() {
    assert_eq!(format_instant(Hlc::ZERO), "1970-01-01T00:00:00.000000Z");
    assert_eq!(format_instant(Hlc::MAX), "2112-09-17T23:53:47.370495Z");
}

#[test]
fn any_text_is_an_instant_that_prints_and_parses_back_or_an_error() {
    // The table of instants, its first column.
    let table = include_str!("../../testdata/instants.txt");
    let mut seeds: Vec<&str> = table.lines().filter_map(|line| line.split(" | ").next()).collect();
    seeds.extend(["2026-11-21T10:00:00.5Z", "@1439845200.1", "-1500ns", "5 min ago", "yesterday", "hlc-12"]);
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        for zone in [ZonePolicy::Refuse, ZonePolicy::Local] {
            frieze_harness::check_text(bytes, |text| Instant::parse(text, zone).ok());
        }
    });
}
