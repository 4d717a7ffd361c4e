//! A server's own events in a trace, and what `what-if --as-server` predicts beside what that server counted.

use frieze_base::Rng;
use frieze_client::{Client, CreateMode, File, Options, Recorder, RingSettings, Target};
use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::patience;
use serde_json::Value;

use crate::served::Served;

/// Prediction and counters may differ by so much of all that was asked for.
const POINTS_MAX: f64 = 0.02;
const PART: u64 = 64 << 10;
/// Parts of a file.
const PARTS: u64 = 256;

/// Reads of a power law, of whole files and of what was just written, while files are written anew.
fn mixed_load(client: &Client, seed: u64) {
    let fs = client.fs();
    let create = |name: u64| fs.create(&Target::path(format!("/{name}")), 0o644, CreateMode::Exclusive).unwrap();
    let files: Vec<File> = (0..3).map(create).collect();
    let mut rng = Rng::new(seed);
    for file in &files {
        for part in 0..PARTS {
            file.write_at(part * PART, &random_bytes(part, PART as usize)).unwrap();
        }
        file.sync().unwrap();
    }
    let mut buffer = vec![0; PART as usize];
    let mut newest = (0, 0);
    for step in 0..6000 {
        let file = &files[rng.below(3) as usize];
        let offset = match rng.below(10) {
            0 => {
                newest = (rng.below(3) as usize, rng.below(PARTS * 16) * 4096);
                files[newest.0].write_at(newest.1, &random_bytes(step, rng.between(1, 12_000) as usize)).unwrap();
                continue;
            }
            1 => {
                files[newest.0].read_at(newest.1, &mut buffer[..4096]).unwrap();
                continue;
            }
            // The nearer the front, the more often.
            _ => {
                let bound = 1 + rng.below(PARTS * 16);
                let bound = 1 + rng.below(bound);
                rng.below(bound) * 4096
            }
        };
        file.read_at(offset, &mut buffer[..rng.between(1, 4) as usize * 4096]).unwrap();
        if step % 50 == 0 {
            files[newest.0].sync().unwrap();
        }
        if step % 1500 == 700 {
            for part in 0..PARTS {
                file.read_at(part * PART, &mut buffer).unwrap();
            }
        }
    }
    files.into_iter().for_each(|file| file.close().unwrap());
}

/// What was found in memory, of all that was asked for: young, wanted, scanned.
fn shares(hits: &Value) -> [f64; 3] {
    let number = |value: &Value| value.as_u64().unwrap() as f64;
    let asked = number(&hits["young_bytes"])
        + ["wanted", "scanned"]
            .map(|heat| number(&hits[heat]["hit_bytes"]) + number(&hits[heat]["missed_bytes"]))
            .iter()
            .sum::<f64>();
    [&hits["young_bytes"], &hits["wanted"]["hit_bytes"], &hits["scanned"]["hit_bytes"]].map(|of| number(of) / asked)
}

#[test]
fn what_a_server_finds_in_its_memory_is_predicted_within_two_points() {
    let settings = "young_bytes_max = 8388608\nold_bytes_max = 8388608\n";
    let mut server = Served::recorded(settings);
    let rings =
        RingSettings { bytes: 32 << 20, dir: server.local("rings"), program: "load".to_owned(), is_live: false };
    let trace = Some(Recorder::create(&rings).unwrap());
    let address = server.address.parse().unwrap();
    let client =
        Client::connect(Options { server: address, timeout: patience(), trace, ..Options::default() }).unwrap();
    mixed_load(&client, 7);
    drop(client);
    let status = server.json(&["status", "--json"]).remove(0);
    server.end(nix::sys::signal::Signal::SIGTERM);
    let saved = server.json(&["trace", "save", "trace", "--json", "--trace-dir", "rings"]).remove(0);
    assert!(saved["events"].as_u64() > Some(10_000), "{saved}");
    let found = server.json(&["what-if", "trace", "--as-server", "--json"]).remove(0);

    // What the events say is what the server says.
    let (counted, memory) = (&found["device"]["counted"], &status["memory"]);
    for (heat, hit, missed) in [
        ("wanted", "wanted_hit_bytes", "wanted_missed_bytes"),
        ("scanned", "scanned_hit_bytes", "scanned_missed_bytes"),
    ] {
        assert_eq!(counted[heat]["hit_bytes"], memory[hit], "{heat}: {found}\n{status}");
        assert_eq!(counted[heat]["missed_bytes"], memory[missed], "{heat}: {found}\n{status}");
    }
    assert_eq!((&found["young_bytes"], &found["old_bytes"]), (&(8 << 20).into(), &(8 << 20).into()), "{found}");
    let expected = shares(counted);
    assert!(expected.iter().all(|share| (0.02..0.9).contains(share)), "the load is mixed: {expected:?}");
    for (name, predicted) in [("device", &found["device"]["simulated"]), ("calls", &found["calls"])] {
        for (part, (predicted, counted)) in shares(predicted).into_iter().zip(expected).enumerate() {
            let points = (predicted - counted).abs();
            assert!(points <= POINTS_MAX, "{name}, part {part}: {predicted:.3} for {counted:.3}\n{found}");
        }
    }
    // Other memory is another prediction.
    let small = ["what-if", "trace", "--as-server", "--memory", "99M", "--young", "0.9", "--json"];
    let other = server.json(&small).remove(0);
    assert_eq!(other["memory"], "given");
    assert_ne!(other["calls"]["young_bytes"], found["calls"]["young_bytes"]);
    let text = server.ok(&["what-if", "trace", "--as-server"]);
    for words in ["as the recorded server had it", "predicted from the users' calls", "counted by the server"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn questions_about_a_server_that_cannot_be_answered_are_refused() {
    let server = Served::start();
    for (args, words) in [
        (vec!["--as-server", "--memory", "much"], "--memory much: give a size, such as 512M or 8G"),
        (vec!["--as-server", "--memory", "1M"], "are too little"),
        (vec!["--as-server", "--young", "2"], "--young 2: give a part of the memory, such as 0.25 or 25%"),
        (vec!["--as-server", "--sweep", "ram=1"], "cannot be used with"),
        (vec!["--young", "0.5"], "--as-server"),
    ] {
        let refused = server.fails(2, &[vec!["what-if", "nowhere"], args.clone()].concat());
        assert!(refused.contains(words), "{args:?}: {refused}");
    }
    let refused = server.fails(1, &["what-if", "nowhere", "--as-server"]);
    assert!(refused.contains("nowhere"), "{refused}");
}
