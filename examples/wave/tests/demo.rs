//! The wave against a real server: what `make demo` promises holds wherever the tests run.

use std::process::Command;

use frieze_node::{Server, Settings};

#[test]
fn user_time_gives_the_wave_back_exactly_and_no_cut_is_torn() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings =
        Settings { dir: dir.path().join("data"), listen: vec!["127.0.0.1:0".to_owned()], ..Settings::default() };
    let server = Server::start(settings).expect("a server in an empty directory starts");
    let wave = Command::new(env!("CARGO_BIN_EXE_frieze-wave"))
        .args(["--films-only", "--seed", "5", "--server", &server.addresses()[0]])
        .arg("--out")
        .arg(dir.path().join("out"))
        .output()
        .expect("the wave runs");
    let (said, complained) = (String::from_utf8_lossy(&wave.stdout), String::from_utf8_lossy(&wave.stderr));
    assert!(wave.status.success(), "{said}{complained}");
    let line = |start: &str| {
        let found = said.lines().find(|line| line.starts_with(start));
        found.unwrap_or_else(|| panic!("no line starts with {start:?}:\n{said}{complained}"))
    };
    line("user-time film: error 0 (all 1000000 heights equal");
    line("system-time film: 0 torn frames of 100 against the stamps in the log, error 0.");
    line("copied film: ");
    server.stop().expect("the server stops cleanly");
}
