//! Two of three servers are lost for good: the third answers for the past, names and bytes, by every door.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt;
use std::process::Output;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use frieze_client::Options;
use frieze_hlc::Hlc;
use nix::mount::{MntFlags, umount2};

use super::*;

/// What the file holds at the instant, and what it holds later.
const THEN: &[u8] = b"hello";
const NOW: &[u8] = b"good bye";

fn frieze(server: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frieze"));
    command.args(["--server", server, "--timeout", "20"]).args(args).stdin(Stdio::null()).output().unwrap()
}

/// The answer to a `GET` of the Hadoop client's protocol over HTTP.
pub(super) fn http(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A port that is free now. No client that asks for any port gets it: those lie above.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(22_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 30_000, "no port is free");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

#[test]
fn the_last_of_three_servers_answers_for_the_past_by_every_gateway() {
    let mut cluster = ServedCluster::of(2);
    let webhdfs = format!("127.0.0.1:{}", free_port());
    let settings = format!("{SETTINGS}webhdfs = \"{webhdfs}\"\n");
    std::fs::write(cluster.directory.path().join("2.toml"), settings).unwrap();
    cluster.grow();
    cluster.await_whole(2);
    let client = cluster.client(0);
    write(&client, "/f", THEN);
    let at = client.now().unwrap();
    write(&client, "/f", NOW);

    // Mounted from a server that is lost later, before anything is.
    let mountpoint = cluster.directory.path().join("old");
    std::fs::DirBuilder::new().mode(0o755).create(&mountpoint).unwrap();
    let mount = std::path::Path::new("/dev/fuse").exists().then(|| {
        let mounted = frieze(&cluster.addresses[0], &["mount", mountpoint.to_str().unwrap()]);
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        Unmounted(mountpoint.clone())
    });
    if mount.is_some() {
        assert_eq!(std::fs::read(mountpoint.join("f")).unwrap(), NOW);
    }

    // No client reads at that instant: it closes by itself.
    let third = cluster.client(2);
    eventually("the instant closes although nobody asks for it", || {
        (third.status().ok()?.stable >= at.0).then_some(())
    });
    cluster.kill(0);
    cluster.kill(1);

    // A client of before, and one that comes now and has no session.
    for client in [client, cluster.client(2)] {
        let fs = client.fs().at(at);
        let page = fs.list(&Target::path("/"), b"", 0, true).unwrap();
        assert_eq!(page.entries.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [b"f"]);
        let file = fs.open(&Target::path("/f"), OpenFlags::READ).unwrap();
        let mut bytes = [0; 16];
        let count = file.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], file.answered().incomplete), (THEN, false));
    }
    let unvouched = eventually("the lease of the server that is left ends", || {
        let page = third.fs().at(at).list(&Target::path("/"), b"", 0, false).ok()?;
        page.answered.without_lease.then_some(page.answered)
    });
    assert!(Hlc(unvouched.executed) >= at && !unvouched.incomplete, "{unvouched:?}");

    let (server, instant) = (&cluster.addresses[2], at.to_string());
    let cat = frieze(server, &["cat", "--at", &instant, "/f"]);
    let words = String::from_utf8_lossy(&cat.stderr).into_owned();
    assert_eq!((cat.stdout, cat.status.success()), (THEN.to_vec(), true), "{words}");
    assert!(words.contains("cannot vouch for later ones") && !words.contains("gap"), "{words}");
    // An instant whose meaning moves needs no leader for the present time.
    let listed = frieze(server, &["ls", "--at", &instant, "/"]);
    assert_eq!(listed.stdout, b"f\n", "{}", String::from_utf8_lossy(&listed.stderr));
    // The newest instant that was whole is the newest that can be read; the log ends there.
    let newest = frieze(server, &["cat", "--at", "last-whole", "/f"]);
    assert_eq!(newest.stdout, NOW, "{}", String::from_utf8_lossy(&newest.stderr));
    for asked in [&["log", "--json", "/f"][..], &["log", "--json", "--at", &instant, "/f"], &["log", "--json", "/"]] {
        let log = frieze(server, asked);
        let words = String::from_utf8_lossy(&log.stderr).into_owned();
        assert!(log.status.success() && words.contains("the cluster has no leader"), "{asked:?}: {words}");
        assert!(log.stdout.iter().filter(|byte| **byte == b'\n').count() >= 2, "{asked:?}");
    }
    let earlier = frieze(server, &["log", "--json", "--at", &instant, "--to", &instant, "/f"]);
    let all = frieze(server, &["log", "--json", "--at", &instant, "/f"]);
    assert!(earlier.status.success() && earlier.stdout.len() < all.stdout.len(), "what came later is left out");
    let now = frieze(server, &["now"]);
    assert!(now.status.success() && String::from_utf8_lossy(&now.stderr).contains("cannot be read before"), "{now:?}");
    let copy = cluster.directory.path().join("copy");
    let got = frieze(server, &["get", "--at", &instant, "/f", copy.to_str().unwrap()]);
    assert!(got.status.success(), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(std::fs::read(&copy).unwrap(), THEN);

    let opened = http(&webhdfs, &format!("/webhdfs/v1/.at/{instant}/f?op=OPEN&data=true&user.name=root"));
    assert!(opened.starts_with("HTTP/1.1 200") && opened.ends_with("hello"), "{opened}");

    if let Some(_mount) = &mount {
        assert_eq!(std::fs::read(mountpoint.join(".at").join(&instant).join("f")).unwrap(), THEN);
        let past = cluster.directory.path().join("past");
        std::fs::DirBuilder::new().mode(0o755).create(&past).unwrap();
        let mounted = frieze(server, &["mount", "--at", &instant, past.to_str().unwrap()]);
        assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
        let _past = Unmounted(past.clone());
        assert_eq!(std::fs::read(past.join("f")).unwrap(), THEN);
    }

    // Without a leader the present is unknown, and nothing can be changed.
    let impatient = Client::connect(Options {
        server: server.parse().unwrap(),
        timeout: Duration::from_secs(2),
        ..Options::default()
    })
    .unwrap();
    assert!(impatient.fs().stat(&Target::path("/f")).is_err());
    assert!(impatient.fs().mkdir(&Target::path("/d"), 0o755).is_err());
    // It is refused soon, with what can be read.
    let patient = Options { timeout: Duration::from_secs(4), ..impatient.options().clone() };
    let patient = Client::connect(patient).unwrap();
    let ahead = patient.now().unwrap();
    let refused = patient.fs().at(ahead).stat(&Target::path("/f")).unwrap_err();
    assert!(refused.to_string().contains("no majority"), "{refused}");

    // The machine is started again, and no leader is there to decide its role in the chains.
    drop(mount);
    let stable = Hlc(patient.clock().unwrap().stable);
    for signal in [nix::sys::signal::Signal::SIGKILL, nix::sys::signal::Signal::SIGTERM] {
        let mut last = cluster.servers[2].take().unwrap();
        last.signal(signal);
        last.wait();
        cluster.start_again(2);
        let server = &cluster.addresses[2];
        let cat = frieze(server, &["cat", "--at", &instant, "/f"]);
        let words = String::from_utf8_lossy(&cat.stderr).into_owned();
        assert_eq!((cat.stdout, cat.status.success()), (THEN.to_vec(), true), "{signal}: {words}");
        let known = Hlc(cluster.client(2).clock().unwrap().stable);
        assert!(at <= known && known <= stable, "{signal}: {at} {known} {stable}");
        let newest = frieze(server, &["cat", "--at", &known.to_string(), "/f"]);
        assert!(newest.status.success(), "{signal}: {}", String::from_utf8_lossy(&newest.stderr));
    }
}

/// A mount that is taken out of the tree when the test is over.
pub(super) struct Unmounted(pub(super) std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
