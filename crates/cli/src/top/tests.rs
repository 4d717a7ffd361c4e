//! Screens of samples that are made by hand, as `testdata/top.txt` shows them: `UPDATE_EXPECT=1` rewrites it.

use std::path::Path;

use frieze_client::Trouble;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::page::MetricsText;
use super::sample::{Chains, ServerSample};
use super::*;

/// A page of metrics of a server that has answered so many reads.
fn page(reads: u64, slow: u64, cpu_s: u64) -> MetricsText {
    let mut text = format!(
        "frieze_build_info{{version=\"0.1.0\"}} 1\nfrieze_uptime_seconds {uptime}\nprocess_cpu_seconds_total {cpu_s}\n\
         process_resident_memory_bytes 1073741824\nfrieze_memory_max_bytes 4294967296\nfrieze_disk_capacity_bytes \
         1099511627776\nfrieze_disk_free_bytes 439804651110\nfrieze_log_bytes 322122547200\n\
         frieze_dirty_bytes 3145728\n\
         frieze_dirty_age_seconds 0.12\nfrieze_connections 12\nfrieze_sessions 7\nfrieze_clock_error_seconds 0.0003\n\
         frieze_clock_ahead_seconds 0\nfrieze_chain_dirty_bytes{{chain=\"0\"}} 4096\n\
         frieze_chain_dirty_bytes{{chain=\"1\"}} 0\n",
        uptime = 273_600 + cpu_s,
    );
    for (kind, count, seconds) in
        [("read", reads, reads as f64 * 0.0003), ("write", reads / 4, reads as f64 * 0.0005), ("list", 9, 0.001)]
    {
        text += &format!("frieze_request_duration_seconds_count{{kind=\"{kind}\"}} {count}\n");
        text += &format!("frieze_request_duration_seconds_sum{{kind=\"{kind}\"}} {seconds}\n");
        text += &format!("frieze_request_received_bytes_total{{kind=\"{kind}\"}} {}\n", count * 900);
        text += &format!("frieze_request_sent_bytes_total{{kind=\"{kind}\"}} {}\n", count * 65_536);
        let quick = count - slow.min(count);
        for (end, upto) in [("0.00025", quick / 2), ("0.001", quick), ("0.5", count), ("+Inf", count)] {
            text += &format!("frieze_request_duration_seconds_bucket{{kind=\"{kind}\",le=\"{end}\"}} {upto}\n");
        }
    }
    text += &format!("frieze_requests_refused_total{{kind=\"read\"}} {}\n", slow / 10);
    MetricsText::parse(&text)
}

fn server(name: &str, state: &str, page: Option<&MetricsText>) -> ServerSample {
    let mut server = ServerSample {
        name: name.to_owned(),
        address: format!("{name}:7470"),
        state: state.to_owned(),
        leads: name == "db1",
        clock_offset_s: (state == "up").then_some(if name == "db2" { -0.000_31 } else { 0.0 }),
        heads: Some(3),
        chains: Some(8),
        lease_left_s: (state == "up").then_some(1.6),
        ..ServerSample::default()
    };
    if let Some(page) = page {
        server.add_page(page);
    }
    server
}

fn sample(taken_s: f64, servers: Vec<ServerSample>) -> Sample {
    Sample {
        taken_s,
        time: "2026-11-21T10:22:01.123456Z".to_owned(),
        server: "db1:7470".to_owned(),
        cluster: "7f3a90b2".to_owned(),
        leader: Some("db1".to_owned()),
        health: "healthy".to_owned(),
        troubles: Vec::new(),
        live_bytes: Some(128 << 30),
        chains: Chains { count: 8, whole: 8, uncommitted_bytes: Some(4096.0), ..Chains::default() },
        servers,
    }
}

/// A cluster of three after some seconds of load.
fn cluster() -> Screen {
    let mut screen = Screen::new();
    let mut reads = 1_000_000;
    for second in 0..12_u64 {
        reads += 700 + 90 * (second * 5 % 12);
        let pages = [page(reads, 40 + 10 * second, 100 + second), page(reads / 2, 0, 50 + second / 2)];
        let servers = vec![
            server("db1", "up", Some(&pages[0])),
            server("db2", "up", Some(&pages[1])),
            server("db3", "up", Some(&pages[1])),
        ];
        screen.on_sample(Ok(sample(second as f64, servers)));
    }
    screen
}

/// The same where a server is lost and another exports no metrics.
fn cluster_in_trouble() -> Screen {
    let mut screen = cluster();
    let mut without = server("db2", "up", None);
    without.trouble = Some("no metrics at db2:9470: Connection refused".to_owned());
    let servers =
        vec![server("db1", "up", Some(&page(1_030_000, 5_000, 113))), without, server("db3", "offline", None)];
    let trouble = Trouble {
        what: "8 chains have 2 of 3 copies: db3 is away since 10:21:58".to_owned(),
        remedy: "start db3, or 'frieze cluster declare-dead db3' if its disks are lost".to_owned(),
    };
    let chains = Chains { count: 8, whole: 0, waiting: 1, catch_up_bytes: 5 << 20, ..Chains::default() };
    let health = "degraded".to_owned();
    screen.on_sample(Ok(Sample { troubles: vec![trouble], chains, health, ..sample(12.0, servers) }));
    screen
}

/// A lone server without metrics.
fn lone() -> Screen {
    let mut screen = Screen::new();
    let server = ServerSample {
        name: "127.0.0.1:7470".to_owned(),
        address: "127.0.0.1:7470".to_owned(),
        state: "up".to_owned(),
        trouble: Some("no metrics at 127.0.0.1:9470: Connection refused".to_owned()),
        capacity_bytes: Some(1e11),
        free_bytes: Some(1e9),
        clock_error_s: Some(f64::INFINITY),
        ..ServerSample::default()
    };
    for second in 0..2 {
        let lone = Sample { cluster: String::new(), leader: None, live_bytes: None, ..sample(0.0, Vec::new()) };
        screen.on_sample(Ok(Sample { taken_s: f64::from(second), servers: vec![server.clone()], ..lone }));
    }
    screen
}

fn press(screen: &mut Screen, code: KeyCode) {
    screen.on_key(KeyEvent::new(code, KeyModifiers::NONE));
}

#[test]
fn screens_are_as_testdata_shows_them() {
    let mut away = cluster();
    away.on_sample(Err(anyhow::anyhow!("db1:7470 does not answer: Connection refused")));
    let mut help = cluster();
    press(&mut help, KeyCode::Char('?'));
    let mut by_server = cluster_in_trouble();
    [KeyCode::Tab, KeyCode::Right, KeyCode::Char('r'), KeyCode::Char(' ')]
        .into_iter()
        .for_each(|code| press(&mut by_server, code));
    let mut text = String::new();
    for (what, screen, width, height) in [
        ("a cluster", &cluster(), 120, 30),
        ("the same on a small terminal", &cluster(), 80, 24),
        ("the same on a tiny one", &cluster(), 40, 10),
        ("a server is lost, servers sorted by state, paused", &by_server, 120, 30),
        ("no server answers any more", &away, 80, 24),
        ("a lone server without metrics", &lone(), 80, 24),
        ("help", &help, 80, 24),
        ("before the first sample", &Screen::new(), 80, 2),
    ] {
        text += &format!("== {what}, {width} x {height}\n{}\n", lines_of(screen, width, height).unwrap().join("\n"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/top.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "UPDATE_EXPECT=1 cargo test -p frieze-cli --bin frieze top rewrites testdata/top.txt:\n{text}"
    );
}

#[test]
fn every_size_is_drawn() {
    let mut help = cluster_in_trouble();
    press(&mut help, KeyCode::Char('?'));
    for screen in [&cluster(), &cluster_in_trouble(), &lone(), &help, &Screen::new()] {
        for width in [1, 2, 7, 20, 40, 79, 80, 81, 119, 200, 400] {
            for height in [1, 2, 3, 4, 5, 6, 8, 10, 14, 15, 24, 60] {
                lines_of(screen, width, height).unwrap();
            }
        }
    }
}

#[test]
fn rates_are_of_the_interval_and_survive_a_restart() {
    let at = |taken_s, reads, slow| sample(taken_s, vec![server("db1", "up", Some(&page(reads, slow, 10)))]);
    let rates = Rates::between(&at(10.0, 1000, 0), &at(12.0, 3000, 0));
    let of = |rates: &Rates, kind: &str| rates.operations.as_ref().unwrap().iter().find(|op| op.kind == kind).cloned();
    let read = of(&rates, "read").unwrap();
    assert_eq!((read.per_s, read.count), (1000.0, 3000.0));
    assert!((read.mean_s.unwrap() - 0.0003).abs() < 1e-9, "{read:?}");
    // Half of them took up to 0.25 ms, the others up to 1 ms.
    assert_eq!(read.p50_s, Some(0.000_25));
    assert!((read.p99_s.unwrap() - 0.000_985).abs() < 1e-9, "{read:?}");
    let list = of(&rates, "list").unwrap();
    assert_eq!((list.per_s, list.mean_s, list.p99_s), (0.0, None, None));
    // The counters begin anew with the process.
    let restarted = Rates::between(&at(10.0, 1000, 0), &at(12.0, 40, 0));
    assert_eq!(of(&restarted, "read").unwrap().per_s, 20.0);
    // A server that is only in one of two samples has no rate.
    let joined = Rates::between(&sample(10.0, vec![]), &at(12.0, 40, 0));
    assert_eq!(joined.operations, Some(vec![]));
    assert_eq!(joined.servers[0].per_s, None);
}

#[test]
fn keys_sort_scroll_and_end() {
    let mut screen = cluster();
    let first = |screen: &Screen| {
        let lines = lines_of(screen, 80, 24).unwrap();
        let titles = lines.iter().position(|line| line.starts_with("OPERATION")).unwrap();
        lines[titles + 1].split(' ').next().unwrap().to_owned()
    };
    assert_eq!(first(&screen), "read");
    press(&mut screen, KeyCode::Char('r'));
    assert_eq!(first(&screen), "list");
    press(&mut screen, KeyCode::Left);
    press(&mut screen, KeyCode::Char('r'));
    assert_eq!(first(&screen), "write", "by name, descending");
    // Scrolling ends at the last row.
    (0..50).for_each(|_| press(&mut screen, KeyCode::Down));
    lines_of(&screen, 80, 24).unwrap();
    press(&mut screen, KeyCode::Home);
    press(&mut screen, KeyCode::Char('?'));
    press(&mut screen, KeyCode::Char('q'));
    assert!(!screen.has_ended, "a key closes the help");
    press(&mut screen, KeyCode::Char('q'));
    assert!(screen.has_ended);
    let mut other = Screen::new();
    other.on_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(other.has_ended);
}

#[test]
fn a_paused_screen_stays_and_a_server_that_is_back_is_shown() {
    let mut screen = cluster();
    press(&mut screen, KeyCode::Char(' '));
    let shown = screen.latest.as_ref().unwrap().0.taken_s;
    screen.on_sample(Ok(sample(99.0, vec![])));
    assert_eq!(screen.latest.as_ref().unwrap().0.taken_s, shown);
    screen.on_sample(Err(anyhow::anyhow!("it is away")));
    assert!(screen.away.is_some(), "a paused screen says so too");
    press(&mut screen, KeyCode::Char(' '));
    screen.on_sample(Ok(sample(100.0, vec![])));
    assert!(screen.away.is_none());
    assert_eq!(screen.latest.as_ref().unwrap().0.taken_s, 100.0);
}
