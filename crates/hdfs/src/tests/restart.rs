//! Writers whose server is restarted.

use super::*;

/// A server that keeps its directory, and a gateway that notes leases in it.
struct RestartedServer {
    gateway: Option<HdfsGateway>,
    local: LocalServer,
}

impl RestartedServer {
    fn new() -> RestartedServer {
        let mut restarted = RestartedServer { gateway: None, local: LocalServer::at_port(Settings::default()) };
        restarted.open();
        restarted
    }

    fn leases(&self) -> std::path::PathBuf {
        self.local.path("data").join("hdfs-leases")
    }

    fn open(&mut self) {
        let server = self.local.server();
        let client = Options { server: server.home(), in_process: Some(server.in_process()), ..Options::default() };
        let options = HdfsOptions { notes: Some(self.leases()), ..options("127.0.0.1:0", Trust::Kernel) };
        self.gateway = Some(HdfsGateway::open(&options, [7; 32], client).unwrap());
    }

    fn close(&mut self) {
        self.gateway = None;
        self.local.stop();
    }

    fn restart(&mut self) -> HadoopClient {
        self.close();
        self.local.start();
        self.open();
        self.connect()
    }

    fn connect(&self) -> HadoopClient {
        connect_to(self.gateway.as_ref().unwrap(), "", 0)
    }

    fn stored(&self) -> usize {
        std::fs::read_dir(self.leases()).unwrap().count()
    }
}

fn generation(block: &LocatedBlock) -> u64 {
    block.b.as_ref().unwrap().generation_stamp
}

/// As a client that has lost its connection, of whose block so much was acknowledged.
pub(super) fn recover(client: &mut HadoopClient, block: &LocatedBlock, acknowledged: u64) -> (LocatedBlock, Transfer) {
    let ask = UpdateBlockForPipelineRequest { block: block.b.clone(), client_name: "w".to_owned() };
    let renewed = client.call::<BlockResponse>("updateBlockForPipeline", &ask).block.unwrap();
    let mut transfer = Transfer::connect(&renewed);
    let recovery = OpWriteBlock {
        stage: stage::SETUP_STREAMING_RECOVERY,
        latest_generation_stamp: generation(&renewed),
        pipeline_size: 1,
        min_bytes_rcvd: acknowledged,
        max_bytes_rcvd: acknowledged,
        ..Transfer::asks_to_write(&renewed)
    };
    let begun = transfer.begin(80, &recovery);
    assert_eq!(begun.status, status::SUCCESS, "{begun:?}");
    let update =
        UpdatePipelineRequest { client_name: "w".to_owned(), old_block: block.b.clone(), new_block: renewed.b.clone() };
    client.call::<()>("updatePipeline", &update);
    (renewed, transfer)
}

#[test]
fn a_writer_continues_when_its_server_is_restarted() {
    let mut kept = RestartedServer::new();
    let mut client = kept.connect();
    let data = bytes(4000);
    client.create("/f", "w");
    let first = client.add_block("/f", "w", None);
    assert_eq!(Transfer::write(&first).put(0, 0, &data[..1000], true), status::SUCCESS);
    let second = client.add_block("/f", "w", Some(of_len(&first, 1000)));
    let mut transfer = Transfer::write(&second);
    assert_eq!(transfer.put(0, 0, &data[1000..2000], false), status::SUCCESS);
    let mut client = kept.restart();
    // No other client gets the file meanwhile.
    let append = AppendRequest { src: "/f".to_owned(), client_name: "other".to_owned(), ..AppendRequest::default() };
    assert_eq!(client.refused("append", &append), "AlreadyBeingCreatedException");
    assert_eq!(
        client.refused("create", &CreateRequest { create_flag: 1, ..create("/f", "other") }),
        "AlreadyBeingCreatedException"
    );
    let (renewed, mut transfer) = recover(&mut client, &second, 1000);
    assert!(generation(&renewed) > generation(&second));
    // It sends again what it did not see acknowledged.
    assert_eq!(transfer.put(1, 512, &data[1512..2500], false), status::SUCCESS);
    // And once more, with another block.
    let mut client = kept.restart();
    let (renewed, mut transfer) = recover(&mut client, &renewed, 1500);
    assert_eq!(transfer.put(2, 1500, &data[2500..3000], true), status::SUCCESS);
    let third = client.add_block("/f", "w", Some(of_len(&renewed, 2000)));
    let mut client = kept.restart();
    let (third, mut transfer) = recover(&mut client, &third, 0);
    assert_eq!(transfer.put(3, 0, &data[3000..], true), status::SUCCESS);
    assert!(client.complete("/f", "w", Some(of_len(&third, 1000))));
    assert!(client.read("/f") == data);
    assert_eq!(kept.stored(), 0, "what is closed is not noted any more");
    kept.close();
}

#[test]
fn what_was_taken_from_a_writer_stays_taken_over_a_restart() {
    let mut kept = RestartedServer::new();
    let mut client = kept.connect();
    for path in ["/recovered", "/removed", "/replaced", "/left", "/own"] {
        client.create(path, "w");
        let block = client.add_block(path, "w", None);
        let mut transfer = Transfer::write(&block);
        assert_eq!(transfer.put(0, 0, b"four", false), status::SUCCESS);
        if path == "/left" {
            // What lies behind its writer is not told from what it wrote: it begins anew.
            let abandon = AbandonBlockRequest {
                b: block.b.clone(),
                src: path.to_owned(),
                holder: "w".to_owned(),
                ..AbandonBlockRequest::default()
            };
            client.call::<()>("abandonBlock", &abandon);
        }
    }
    let mut client = kept.restart();
    assert_eq!(kept.stored(), 4);
    let recover = RecoverLeaseRequest { src: "/recovered".to_owned(), client_name: "other".to_owned() };
    assert!(client.call::<ResultResponse>("recoverLease", &recover).result);
    client.call::<ResultResponse>("delete", &DeleteRequest { src: "/removed".to_owned(), recursive: false });
    client.create("/replaced", "other");
    assert_eq!(kept.stored(), 1, "of another's lease that is young nothing is noted yet");
    let mut client = kept.restart();
    let add = |path: &str| AddBlockRequest {
        src: path.to_owned(),
        client_name: "w".to_owned(),
        ..AddBlockRequest::default()
    };
    for path in ["/recovered", "/removed", "/replaced", "/left"] {
        assert_eq!(client.refused("addBlock", &add(path)), "LeaseExpiredException", "{path}");
    }
    client.add_block("/own", "w", None);
    let append =
        AppendRequest { src: "/recovered".to_owned(), client_name: "w".to_owned(), ..AppendRequest::default() };
    client.call::<AppendResponse>("append", &append);
    kept.close();
}
