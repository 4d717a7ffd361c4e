//! The gateways of a cluster's servers, and leases among them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use frieze_client::{Client as Native, CreateMode, NodeId, OpenFlags, Target, mono};

use super::*;
use crate::lease_record::LeaseRecord;
use crate::lease_store::is_lease_record;
use crate::peer_gateways::session_of;

/// Three servers, each with a gateway and a directory.
struct ClusterGateways {
    dir: tempfile::TempDir,
    /// Of the data services: the same everywhere.
    data_port: u16,
    open: Vec<Option<(HdfsGateway, Server)>>,
    /// Where each server listens.
    listen: Vec<String>,
    /// Reads stored leases: one client, since a server of so little memory accepts few connections.
    looker: std::sync::OnceLock<Native>,
}

impl ClusterGateways {
    fn new() -> ClusterGateways {
        let data_port = free_everywhere();
        let (dir, looker) = (tempfile::tempdir().unwrap(), std::sync::OnceLock::new());
        let mut gateways = ClusterGateways { dir, data_port, open: Vec::new(), listen: Vec::new(), looker };
        for number in 0..3 {
            gateways.listen.push(format!("127.0.1.{}:{}", number + 1, free_everywhere()));
            gateways.open.push(None);
            gateways.start(number);
        }
        let client = gateways.looker();
        let begun = mono();
        let is_whole = || {
            let chains = client.cluster(None).unwrap().chains;
            let serving = |chain: &frieze_client::ClusterChain| {
                chain.waits.is_empty() && chain.targets.iter().filter(|target| target.state == "serving").count() == 3
            };
            !chains.is_empty() && chains.iter().all(serving)
        };
        while !is_whole() {
            assert!(mono().since_ns(begun) < 60_000_000_000, "the cluster does not become whole");
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        gateways
    }

    fn start(&mut self, number: usize) {
        let dir = self.dir.path().join(number.to_string());
        let settings = Settings {
            dir: dir.clone(),
            listen: vec![self.listen[number].clone()],
            join: if number == 0 || dir.exists() { String::new() } else { self.listen[0].clone() },
            name: format!("db{number}"),
            machine: format!("db{number}"),
            memory_bytes_max: 128 << 20,
            root_mode: Some(0o1777),
            lease: std::time::Duration::from_secs(1),
            ..Settings::default()
        };
        let server = Server::start(settings).unwrap();
        self.listen[number] = server.addresses()[0].clone();
        let client = Options {
            server: server.home(),
            in_process: Some(server.in_process()),
            command: session_of(server.node()),
            ..Options::default()
        };
        let options = HdfsOptions {
            data: format!("127.0.1.{}:{}", number + 1, self.data_port),
            notes: Some(dir.join("hdfs-leases")),
            ..options(&format!("127.0.1.{}:0", number + 1), Trust::Kernel)
        };
        let gateway = HdfsGateway::open(&options, server.secret_for(crate::TOKENS), client).unwrap();
        self.open[number] = Some((gateway, server));
    }

    fn stop(&mut self, number: usize) {
        let (gateway, server) = self.open[number].take().unwrap();
        drop(gateway);
        server.stop().unwrap();
    }

    fn connect(&self, number: usize) -> HadoopClient {
        connect_to(&self.open[number].as_ref().unwrap().0, "", 0)
    }

    /// How many notes of leases a file has.
    fn notes(&self, path: &str) -> usize {
        let names = self.looker().fs().list_xattr(&Target::path(path)).unwrap();
        names.iter().filter(|name| is_lease_record(name)).count()
    }

    /// Waits until the lease on a file is noted.
    fn await_note(&self, path: &str) {
        let begun = mono();
        while self.notes(path) == 0 {
            assert!(mono().since_ns(begun) < 60_000_000_000, "the lease on {path} is not noted");
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
    }

    fn looker(&self) -> &Native {
        self.looker.get_or_init(|| self.native("whoever looks".to_owned()))
    }

    /// A client of no gateway.
    fn native(&self, command: String) -> Native {
        let server = self.open.iter().flatten().next().unwrap().1.nearby();
        Native::connect(Options { server, command, ..Options::default() }).unwrap()
    }
}

impl Drop for ClusterGateways {
    fn drop(&mut self) {
        for (gateway, server) in self.open.drain(..).flatten() {
            drop(gateway);
            let _ = server.stop();
        }
    }
}

/// A port that is free at the addresses of all gateways. It lies below those that the system gives for port 0.
fn free_everywhere() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let port = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 30_000, "no port is free");
        if (1..=3).all(|host| std::net::TcpListener::bind(format!("127.0.1.{host}:{port}")).is_ok()) {
            return port;
        }
    }
}

fn append(path: &str, holder: &str) -> AppendRequest {
    AppendRequest { src: path.to_owned(), client_name: holder.to_owned(), ..AppendRequest::default() }
}

fn is_closed(client: &mut HadoopClient, path: &str) -> bool {
    client.call::<ResultResponse>("isFileClosed", &path_of(path)).result
}

fn recovers(client: &mut HadoopClient, path: &str) -> bool {
    let recover = RecoverLeaseRequest { src: path.to_owned(), client_name: "other".to_owned() };
    client.call::<ResultResponse>("recoverLease", &recover).result
}

fn adds(path: &str) -> AddBlockRequest {
    AddBlockRequest { src: path.to_owned(), client_name: "w".to_owned(), ..AddBlockRequest::default() }
}

impl HadoopClient {
    fn inode(&mut self, path: &str) -> Option<u64> {
        self.info(path).unwrap().file_id
    }

    /// As Hadoop's clients ask: with the number of the file.
    fn add_block_of(&mut self, path: &str, holder: &str, previous: Option<ExtendedBlock>) -> LocatedBlock {
        let file_id = self.inode(path);
        let request =
            AddBlockRequest { previous, client_name: holder.to_owned(), file_id, src: path.to_owned(), ..adds(path) };
        self.call::<AddBlockResponse>("addBlock", &request).block.unwrap()
    }

    fn complete_of(&mut self, path: &str, holder: &str, last: Option<ExtendedBlock>) -> bool {
        let file_id = self.inode(path);
        let request = CompleteRequest { src: path.to_owned(), client_name: holder.to_owned(), last, file_id };
        self.call::<ResultResponse>("complete", &request).result
    }
}

#[test]
fn a_file_has_one_writer_at_all_gateways_and_its_lease_is_recovered_at_any() {
    let mut gateways = ClusterGateways::new();
    let (mut here, mut there) = (gateways.connect(1), gateways.connect(2));
    here.create("/f", "w");
    let block = here.add_block("/f", "w", None);
    let mut transfer = Transfer::write(&block);
    assert_eq!(transfer.put(0, 0, b"four", false), status::SUCCESS);
    assert!(!is_closed(&mut there, "/f"));
    assert_eq!(there.refused("append", &append("/f", "other")), "AlreadyBeingCreatedException");
    assert_eq!(
        there.refused("create", &CreateRequest { create_flag: 1, ..create("/f", "other") }),
        "AlreadyBeingCreatedException"
    );
    let truncate = TruncateRequest { src: "/f".to_owned(), new_length: 0, client_name: "other".to_owned() };
    assert_eq!(there.refused("truncate", &truncate), "AlreadyBeingCreatedException");
    // The writer continues: a query alone changes nothing.
    assert_eq!(transfer.put(1, 4, b"five", false), status::SUCCESS);
    assert!(recovers(&mut there, "/f"));
    assert!(is_closed(&mut there, "/f"));
    assert_eq!(transfer.put(2, 8, b"late", false), status::ERROR);
    assert_eq!(here.refused("addBlock", &adds("/f")), "LeaseExpiredException");
    assert_eq!(there.read("/f"), b"fourfive");
    // Another one goes on where it ended.
    there.call::<AppendResponse>("append", &append("/f", "other"));
    assert_eq!(here.refused("append", &append("/f", "w")), "AlreadyBeingCreatedException");
    let block = there.add_block("/f", "other", None);
    assert_eq!(Transfer::write(&block).put(0, 0, b"!", true), status::SUCCESS);
    assert!(there.complete("/f", "other", Some(of_len(&block, 1))));
    assert_eq!(here.read("/f"), b"fourfive!");
    here.call::<AppendResponse>("append", &append("/f", "w"));
    assert!(here.complete("/f", "w", None));
    // Of two concurrent claims at two gateways at most one succeeds.
    let (barrier, mut let_in) = (Barrier::new(2), 0);
    for _ in 0..20 {
        let both = std::thread::scope(|scope| {
            [(&mut here, "w"), (&mut there, "other")]
                .map(|(client, holder)| {
                    scope.spawn(|| {
                        barrier.wait();
                        client.ask("append", &append("/f", holder)).map(drop).map_err(|(class, words)| {
                            assert!(class.ends_with("AlreadyBeingCreatedException"), "{class}: {words}");
                        })
                    })
                })
                .map(|asks| asks.join().unwrap().is_ok())
        });
        assert_ne!(both, [true, true]);
        let_in += both.iter().filter(|&&is_in| is_in).count();
        if both[0] {
            assert!(here.complete("/f", "w", None));
        }
        if both[1] {
            assert!(there.complete("/f", "other", None));
        }
    }
    assert!(let_in > 0);
    gateways.stop(0);
    gateways.start(0);
    assert_eq!(here.read("/f"), b"fourfive!");
}

#[test]
fn a_writer_continues_after_a_restart_unless_its_file_was_taken_at_another_gateway() {
    let mut gateways = ClusterGateways::new();
    let mut here = gateways.connect(1);
    let mut blocks = Vec::new();
    let paths = ["/kept", "/recovered", "/appended"];
    for path in paths {
        here.create(path, "w");
        let block = here.add_block(path, "w", None);
        assert_eq!(Transfer::write(&block).put(0, 0, b"four", true), status::SUCCESS);
        blocks.push(block);
    }
    gateways.stop(1);
    let mut there = gateways.connect(2);
    assert!(!is_closed(&mut there, "/kept"), "its writer is about to go on");
    assert_eq!(there.refused("append", &append("/kept", "other")), "AlreadyBeingCreatedException");
    assert!(recovers(&mut there, "/recovered"));
    assert!(recovers(&mut there, "/appended"));
    there.call::<AppendResponse>("append", &append("/appended", "other"));
    assert!(there.complete("/appended", "other", None));
    gateways.start(1);
    let mut here = gateways.connect(1);
    for path in ["/recovered", "/appended"] {
        let file_id = here.inode(path);
        let adds = AddBlockRequest { file_id, ..adds(path) };
        assert_eq!(here.refused("addBlock", &adds), "LeaseExpiredException", "{path}");
    }
    let more = here.add_block_of("/kept", "w", Some(of_len(&blocks[0], 4)));
    assert_eq!(Transfer::write(&more).put(0, 0, b"five", true), status::SUCCESS);
    assert_eq!(there.refused("append", &append("/kept", "other")), "AlreadyBeingCreatedException");
    assert!(here.complete("/kept", "w", Some(of_len(&more, 4))));
    assert_eq!(there.read("/kept"), b"fourfive");
    // What was appended to goes on over a restart as well, and of what is closed no note is left.
    here.call::<AppendResponse>("append", &append("/kept", "w"));
    let block = here.add_block("/kept", "w", None);
    assert_eq!(Transfer::write(&block).put(0, 0, b"six", true), status::SUCCESS);
    gateways.stop(1);
    gateways.start(1);
    let mut here = gateways.connect(1);
    assert!(here.complete_of("/kept", "w", Some(of_len(&block, 3))));
    assert_eq!(there.read("/kept"), b"fourfivesix");
    assert_eq!(gateways.notes("/kept"), 0);
}

#[test]
fn a_writer_continues_at_another_gateway_and_not_at_its_former_one() {
    let mut gateways = ClusterGateways::new();
    let data = bytes(3000);
    let (mut here, mut there) = (gateways.connect(1), gateways.connect(2));
    here.create("/f", "w");
    let first = here.add_block("/f", "w", None);
    let mut transfer = Transfer::write(&first);
    assert_eq!(transfer.put(0, 0, &data[..1000], false), status::SUCCESS);
    gateways.await_note("/f");
    // No other gateway continues it, nor does this one continue others.
    let ask = |holder: &str| UpdateBlockForPipelineRequest { block: first.b.clone(), client_name: holder.to_owned() };
    assert_eq!(there.refused("updateBlockForPipeline", &ask("other")), "LeaseExpiredException");
    assert_eq!(transfer.put(1, 1000, &data[1000..1500], false), status::SUCCESS);
    let (renewed, mut moved) = restart::recover(&mut there, &first, 1500);
    assert_eq!(moved.put(2, 1500, &data[1500..2000], true), status::SUCCESS);
    assert_eq!(transfer.put(2, 1500, b"late", false), status::ERROR, "the gateway that it left writes nothing more");
    let second = there.add_block("/f", "w", Some(of_len(&renewed, 2000)));
    assert_eq!(Transfer::write(&second).put(0, 0, &data[2000..2500], true), status::SUCCESS);
    // Its server ends for good; the third one goes on.
    drop((here, transfer));
    gateways.stop(2);
    let mut third = gateways.connect(0);
    let (renewed, mut moved) = restart::recover(&mut third, &second, 500);
    assert_eq!(moved.put(1, 500, &data[2500..], true), status::SUCCESS);
    assert!(third.complete("/f", "w", Some(of_len(&renewed, 1000))));
    assert!(third.read("/f") == data);
    assert_eq!(gateways.notes("/f"), 0);
    // A user that may write a file may set its attributes, but no gateway continues a lease that none has signed.
    let (file, name) = (Target::path("/f"), b"user.frieze.lease.0000000000000001");
    let own = gateways.native("who forges".to_owned());
    let (inode, holder) = (third.inode("/f").unwrap(), "other of 0".to_owned());
    let forged = LeaseRecord { id: 1, inode, holder, start: Some(0), ..LeaseRecord::default() };
    let token = Token { identifier: forged.encode_to_vec(), password: vec![0; 32], ..Token::default() };
    for bytes in [token.encode_to_vec(), forged.encode_to_vec()] {
        own.fs().set_xattr(&file, name, &bytes, frieze_client::XattrMode::Any).unwrap();
        assert_eq!(third.refused("updateBlockForPipeline", &ask("other")), "LeaseExpiredException");
    }
}

#[test]
fn recovering_a_lease_also_ends_a_takeover_in_progress() {
    let gateways = ClusterGateways::new();
    let (mut here, mut there, mut third) = (gateways.connect(0), gateways.connect(1), gateways.connect(2));
    // Numbers of its own: calls of one program under one number are one call.
    let mut beside = HadoopClient { next: 1_000_000, ..gateways.connect(1) };
    let barrier = Barrier::new(2);
    let mut went_on = 0;
    let paths: Vec<String> = (0..60).map(|number| format!("/f{number}")).collect();
    let mut blocks = Vec::new();
    for path in &paths {
        here.create(path, "w");
        let block = here.add_block(path, "w", None);
        assert_eq!(Transfer::write(&block).put(0, 0, b"four", false), status::SUCCESS);
        blocks.push(block);
    }
    for (late, (path, block)) in paths.iter().zip(&blocks).enumerate() {
        gateways.await_note(path);
        let ask = UpdateBlockForPipelineRequest { block: block.b.clone(), client_name: "w".to_owned() };
        let answered = AtomicBool::new(false);
        let (moved, recovered) = std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                barrier.wait();
                let moved = there.ask("updateBlockForPipeline", &ask).is_ok();
                answered.store(true, Ordering::Release);
                moved
            });
            barrier.wait();
            // From together with it until after it.
            let rounds = if late % 4 == 0 { usize::MAX } else { late * 10_000 };
            for _ in (0..rounds).take_while(|_| !answered.load(Ordering::Acquire)) {
                std::thread::yield_now();
            }
            // At a third gateway, or the very one.
            let recovered = recovers(if late % 8 < 4 { &mut third } else { &mut beside }, path);
            (moves.join().unwrap(), recovered)
        });
        assert!(recovered);
        went_on += usize::from(moved);
        // Wherever it was when the lease was recovered, and whether it had gone on by then: it is over.
        for gateway in [&mut here, &mut there, &mut third] {
            assert_eq!(gateway.refused("updateBlockForPipeline", &ask), "LeaseExpiredException", "{path}");
        }
        assert_eq!(gateways.notes(path), 0, "{path}");
        third.call::<AppendResponse>("append", &append(path, "other"));
    }
    assert!(went_on >= paths.len() / 4, "it goes on where nobody has recovered the lease before");
}

#[test]
fn a_file_that_a_silent_gateway_may_still_write_is_neither_free_nor_closed() {
    let gateways = ClusterGateways::new();
    let mut there = gateways.connect(2);
    for (path, node) in [("/silent", NodeId(9)), ("/before", gateways.open[2].as_ref().unwrap().1.node())] {
        // A session as that server's gateway had it, and no gateway.
        let gone = gateways.native(session_of(node));
        let file = gone.fs().create(&Target::path(path), 0o666, CreateMode::Exclusive).unwrap();
        file.write_at(0, b"four").unwrap();
        assert!(!is_closed(&mut there, path));
        assert!(!recovers(&mut there, path));
        let (class, words) = there.ask("append", &append(path, "other")).unwrap_err();
        assert!(
            class.ends_with("AlreadyBeingCreatedException") && words.contains("does not answer"),
            "{class}: {words}"
        );
        // Its session ends.
        drop(file);
        gone.close().unwrap();
        assert!(recovers(&mut there, path));
        assert!(is_closed(&mut there, path));
        there.call::<AppendResponse>("append", &append(path, "other"));
    }
    // A writer without a gateway is not held up, and holds up no other.
    let own = gateways.native("a program".to_owned());
    let file = own.fs().create(&Target::path("/own"), 0o666, CreateMode::Exclusive).unwrap();
    file.write_at(0, b"four").unwrap();
    let writers = own.fs().writers(&Target::path("/own")).unwrap();
    assert_eq!(writers.iter().map(|writer| writer.command.as_str()).collect::<Vec<_>>(), ["a program"]);
    assert!(recovers(&mut there, "/own"));
    there.call::<AppendResponse>("append", &append("/own", "other"));
    assert_eq!(own.fs().writers(&Target::path("/own")).unwrap().len(), 2);
    file.write_at(4, b"five").unwrap();
    assert!(own.fs().open(&Target::path("/own"), OpenFlags::READ).is_ok());
}

#[test]
fn a_query_that_no_gateway_of_the_cluster_signed_gets_no_reply() {
    let opened = HdfsFixture::new();
    let mut stream = TcpStream::connect(opened.gateway.data_address()).unwrap();
    let token = Token { identifier: vec![8, 1, 16, 2], password: vec![7; 32], ..Token::default() };
    stream.write_all(&[&[0, 28, 120], token.encode_length_delimited_to_vec().as_slice()].concat()).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"");
    opened.stop();
}
