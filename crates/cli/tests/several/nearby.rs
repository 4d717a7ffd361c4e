//! A client that came by TCP goes on over the socket in the server's directory, and back when that leads nowhere.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use frieze_client::{ByteRange, Client, CreateMode, OpenFlags, Options, PayloadPart, Target};
use frieze_node::{Server, Settings};

fn serve(dir: &Path) -> Server {
    let listen = vec!["127.0.0.1:0".to_owned()];
    let settings = Settings {
        dir: dir.to_owned(),
        listen,
        segment_bytes: 8 << 20,
        reserve_bytes: 16 << 20,
        ..Settings::default()
    };
    Server::start(settings).unwrap()
}

fn connect(server: &Server, prefers_socket: bool) -> Client {
    let addresses = server.addresses();
    assert_eq!(addresses.len(), 1, "the socket is not announced: {addresses:?}");
    let server = addresses[0].parse().unwrap();
    Client::connect(Options { server, prefers_socket, timeout: Duration::from_secs(1), ..Options::default() }).unwrap()
}

fn is_answered(client: &Client) -> bool {
    client.fs().stat(&Target::path("/")).is_ok()
}

#[test]
fn a_client_that_prefers_the_socket_needs_no_tcp_port() {
    let dir = tempfile::tempdir().unwrap();
    let first = serve(dir.path());
    let (near, far) = (connect(&first, true), connect(&first, false));
    assert_eq!(near.hello().uid, far.hello().uid);
    assert!(is_answered(&near) && is_answered(&far));
    first.stop().unwrap();
    // At another port, which the clients do not know.
    let second = serve(dir.path());
    assert!(is_answered(&near));
    assert!(!is_answered(&far));
    drop((near, far));
    second.stop().unwrap();
}

#[test]
fn without_the_socket_or_with_that_of_another_server_the_client_uses_tcp() {
    let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (server, other) = (serve(dir.path()), serve(other_dir.path()));
    let client = connect(&server, true);
    client.fs().mkdir(&Target::path("/here"), 0o700).unwrap();
    let socket = dir.path().join("socket");
    fs::remove_file(&socket).unwrap();
    let without = connect(&server, true);
    fs::rename(other_dir.path().join("socket"), &socket).unwrap();
    let misled = connect(&server, true);
    for client in [&client, &without, &misled] {
        client.fs().stat(&Target::path("/here")).unwrap();
    }
    drop((client, without, misled));
    server.stop().unwrap();
    other.stop().unwrap();
}

fn connect_within(server: &Server) -> Client {
    let (timeout, in_process) = (Duration::from_secs(20), Some(server.in_process()));
    Client::connect(Options { server: server.home(), in_process, timeout, ..Options::default() }).unwrap()
}

#[test]
fn a_client_in_the_servers_process_does_what_any_client_does() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let (near, far) = (connect_within(&server), connect(&server, false));
    assert_eq!(near.hello().uid, far.hello().uid);
    let create =
        |client: &Client, name| client.fs().create(&Target::path(name), 0o600, CreateMode::OpenExisting).unwrap();
    // Small writes together, pieces of a mebibyte, one call: complete, and visible to a client over a socket.
    let bytes: Vec<u8> = (0..3_500_000u32).map(|i| (i % 251) as u8).collect();
    let file = create(&near, "/wide");
    file.write_at(0, &bytes).unwrap();
    let mut pieces = bytes.chunks(1 << 20);
    let streamed = create(&near, "/streamed");
    let (written, _) = streamed
        .write_stream::<frieze_client::Error>(0, 4, |buffer| {
            buffer.extend_from_slice(pieces.next().unwrap_or_default());
            Ok(pieces.len() > 0)
        })
        .unwrap();
    assert_eq!(written, bytes.len() as u64);
    let many = create(&near, "/many");
    let mut number = 0u64;
    many.write_many::<frieze_client::Error>(32, |buffer| {
        buffer.extend_from_slice(&bytes[number as usize * 1000..][..1000]);
        number += 1;
        Ok((number <= 1000).then(|| (number - 1) * 1000))
    })
    .unwrap();
    // On stable storage before it is answered: by another thread.
    file.sync().unwrap();
    for client in [&near, &far] {
        for (name, len) in [("/wide", bytes.len()), ("/streamed", bytes.len()), ("/many", 1_000_000)] {
            let file = client.fs().open(&Target::path(name), OpenFlags::READ).unwrap();
            let mut read = Vec::new();
            let count = file
                .read_stream::<frieze_client::Error>(ByteRange::new(0, u64::MAX >> 1), 4, |piece| {
                    read.extend_from_slice(piece);
                    Ok(())
                })
                .unwrap();
            assert_eq!(count, len as u64);
            assert!(read == bytes[..len], "{name}");
            // Most of what is large is not read, but told where it lies.
            let (mut handed, mut lying, mut payload, mut lots) = (Vec::new(), 0, Vec::new(), Vec::new());
            while file.read_ranges(handed.len() as u64, 1 << 20, &mut payload, &mut lots).unwrap() > 0 {
                let mut read = payload.as_slice();
                if lots.is_empty() {
                    lots.push(PayloadPart::Read(read.len()));
                }
                for lot in &lots {
                    match lot {
                        PayloadPart::Read(len) => handed.extend_from_slice(read.split_off(..*len).unwrap()),
                        PayloadPart::File(lies) => {
                            let from = handed.len();
                            handed.resize(from + lies.len, 0);
                            let file = lies.file.as_fd().try_clone_to_owned().unwrap();
                            fs::File::from(file).read_exact_at(&mut handed[from..], lies.offset).unwrap();
                            lying += lies.len;
                        }
                    }
                }
            }
            assert!(handed == bytes[..len], "{name}");
            let is_near = std::ptr::eq(client, &near);
            assert_eq!(lying > len / 2, is_near && name != "/many", "{name}: {lying}");
            let mut wide = vec![0; len];
            assert_eq!(file.read_at(0, &mut wide).unwrap(), len);
            assert!(wide == bytes[..len], "{name}");
        }
    }
    // What is refused is refused in the same words.
    let refused = |client: &Client| client.fs().stat(&Target::path("/nobody")).unwrap_err().to_string();
    assert_eq!(refused(&near), refused(&far));
    for file in [file, streamed, many] {
        file.close().unwrap();
    }
    drop((near, far));
    server.stop().unwrap();
}

#[test]
fn a_server_stops_though_a_client_in_its_process_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(dir.path());
    let client = connect_within(&server);
    assert!(is_answered(&client));
    let goes_on = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut answered = 0;
            while goes_on.load(std::sync::atomic::Ordering::Acquire) {
                answered += u32::from(is_answered(&client));
            }
            answered
        });
        client.end_within(Duration::from_millis(500));
        server.stop().unwrap();
        // Nothing of it is left: another one takes its directory.
        let next = serve(dir.path());
        next.stop().unwrap();
        goes_on.store(false, std::sync::atomic::Ordering::Release);
        asks.join().unwrap();
    });
    assert!(!is_answered(&client));
}
