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
    // Torn frames, images of another instant, seams, error.
    let user = line("read at a user time");
    assert!(user.ends_with("0 of 100                 0 of 10000          0          0"), "{user}");
    let system = line("read at a system time");
    assert!(system.contains("0 of 100                 0 of 10000 ") && system.ends_with(" mm"), "{system}");
    line("copied from the live files");
    server.stop().expect("the server stops cleanly");
}
