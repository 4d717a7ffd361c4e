//! The flights against a real server, with a small table made here.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use frieze_base::Rng;
use frieze_node::{Server, Settings};

const HEADER: &str = "event_time,origin,flight\n";

fn tables(dir: &Path) {
    let mut rng = Rng::new(3);
    let mut packaged = HEADER.to_owned();
    for airport in ["EWR", "JFK", "LGA"] {
        let mut minute = 0;
        let mut text = HEADER.to_owned();
        for flight in 0..400 {
            minute += rng.below(3);
            let row = format!("2013-07-04T{:02}:{:02}:00Z,{airport},{flight}\n", 6 + minute / 60, minute % 60);
            text += &row;
            packaged += &row;
        }
        fs::write(dir.join(airport).with_extension("csv"), text).expect("a table is written");
    }
    fs::write(dir.join("packaged.csv"), packaged).expect("a table is written");
}

fn flights(dir: &Path, server: &Server, directory: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_frieze-flights"))
        .arg(dir)
        .args(["--questions", "60", "--server", &server.addresses()[0], "--directory", directory])
        .output()
        .expect("the flights run")
}

#[test]
fn every_answer_is_the_tables_own() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tables(dir.path());
    let settings =
        Settings { dir: dir.path().join("data"), listen: vec!["127.0.0.1:0".to_owned()], ..Settings::default() };
    let server = Server::start(settings).expect("a server in an empty directory starts");
    let ran = flights(dir.path(), &server, "/flights");
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{said}{complained}");
    for words in [
        "appended 1200 rows",
        "183 answers by user time, 180 by system time, 180 by both: all equal",
        "flight 401 is refused",
    ] {
        assert!(said.contains(words), "{words} is missing:\n{said}{complained}");
    }
    let late = flights(dir.path(), &server, "/flights");
    assert!(!late.status.success(), "the files are there already: they would hold every row twice");
    server.stop().expect("the server stops cleanly");
}
