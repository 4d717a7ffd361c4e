//! Clients that continue at another location of a block.

use super::*;

/// The same block at another gateway.
fn at(block: &LocatedBlock, gateway: &HdfsGateway) -> LocatedBlock {
    let mut block = block.clone();
    block.locs[0].id.as_mut().unwrap().xfer_port = gateway.data_address().port().into();
    block
}

impl HdfsFixture {
    /// Another gateway of the same file system, as a server beside this one has it.
    fn beside(&self, secret: [u8; 32]) -> HdfsGateway {
        let client = Options { server: self.local.server().nearby(), ..Options::default() };
        HdfsGateway::open(&options("127.0.0.1:0", Trust::Kernel), secret, client).unwrap()
    }
}

#[test]
fn a_block_that_is_sent_over_several_connections_is_written_once() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    let mut ways: Vec<Transfer> = (0..3).map(|_| Transfer::write(&block)).collect();
    let data = bytes(3000);
    assert_eq!(ways[0].put(0, 0, &data[..512], false), status::SUCCESS);
    assert_eq!(ways[0].put(1, 512, &data[512..1024], false), status::SUCCESS);
    for way in &mut ways[1..] {
        assert_eq!(way.put(0, 0, &data[..512], false), status::SUCCESS);
        assert!(client.read("/f") == data[..1024], "what is there stays");
    }
    assert_eq!(ways[2].put(1, 512, &data[512..], true), status::SUCCESS);
    assert_eq!(ways[1].put(1, 512, &data[512..], true), status::SUCCESS);
    assert_eq!(ways[0].put(2, 1024, &data[1024..], true), status::SUCCESS);
    assert!(client.complete("/f", "w", Some(of_len(&block, 3000))));
    assert!(client.read("/f") == data);
    opened.stop();
}

#[test]
fn a_writer_continues_at_another_location_when_its_connection_breaks() {
    let opened = HdfsFixture::new();
    let other = opened.beside([7; 32]);
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    assert_eq!(block.locs.len(), 2, "a client ends where it has no other place");
    assert_ne!(block.storage_ids[0], block.storage_ids[1]);
    let data = bytes(4000);
    let mut late = Transfer::write(&block);
    // Over the gateway that has no lease: it hands on.
    let mut first = Transfer::write(&at(&block, &other));
    assert_eq!(first.put(0, 0, &data[..1000], false), status::SUCCESS);
    assert!(client.read("/f") == data[..1000], "what is acknowledged is there");
    drop(other);
    assert!(first.0.read(&mut [0]).is_ok_and(|count| count == 0), "the connection ends with its gateway");
    let ask = UpdateBlockForPipelineRequest { block: block.b.clone(), client_name: "w".to_owned() };
    let renewed = client.call::<BlockResponse>("updateBlockForPipeline", &ask).block.unwrap();
    let generation = |block: &LocatedBlock| block.b.as_ref().unwrap().generation_stamp;
    assert!(generation(&renewed) > generation(&block));
    let recovery = |stage| OpWriteBlock {
        stage,
        latest_generation_stamp: generation(&renewed),
        pipeline_size: 1,
        min_bytes_rcvd: 1000,
        max_bytes_rcvd: 2000,
        ..Transfer::asks_to_write(&renewed)
    };
    let mut second = Transfer::connect(&renewed);
    assert_eq!(second.begin(80, &recovery(stage::SETUP_STREAMING_RECOVERY)).status, status::SUCCESS);
    let update =
        UpdatePipelineRequest { client_name: "w".to_owned(), old_block: block.b.clone(), new_block: renewed.b.clone() };
    client.call::<()>("updatePipeline", &update);
    assert_eq!(late.put(0, 0, &data[..1200], false), status::ERROR, "the first attempt is over");
    // It sends again what it did not see acknowledged.
    assert_eq!(second.put(1, 512, &data[512..2000], false), status::SUCCESS);
    assert_eq!(second.put(2, 2000, &data[2000..], true), status::SUCCESS);
    assert!(client.complete("/f", "w", Some(of_len(&renewed, 4000))));
    assert!(client.read("/f") == data);
    opened.stop();
}

#[test]
fn a_writer_gets_a_further_location_to_which_nothing_is_copied() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    let mut ask = GetAdditionalDatanodeRequest {
        src: "/f".to_owned(),
        blk: block.b.clone(),
        existings: vec![block.locs[1].clone()],
        excludes: Vec::new(),
        num_additional_nodes: 1,
        client_name: "w".to_owned(),
        file_id: None,
    };
    let more = client.call::<BlockResponse>("getAdditionalDatanode", &ask).block.unwrap();
    assert_eq!((&more.locs[0], more.locs.len(), more.storage_ids.len()), (&block.locs[1], 2, 2));
    assert_eq!(more.locs[1], block.locs[0]);
    let copy = |block: &LocatedBlock| {
        let request = OpTransferBlock { header: Transfer::base(block) };
        Transfer::connect(block).begin(86, &request).status
    };
    assert_eq!(copy(&more), status::SUCCESS);
    assert_eq!(copy(&LocatedBlock { block_token: Some(Token::default()), ..more }), status::ERROR_ACCESS_TOKEN);
    ask.excludes = vec![block.locs[0].clone()];
    assert_eq!(client.refused("getAdditionalDatanode", &ask), "IOException", "there is no further one");
    let request = AddBlockRequest {
        src: "/f".to_owned(),
        client_name: "w".to_owned(),
        exclude_nodes: vec![block.locs[0].clone()],
        ..AddBlockRequest::default()
    };
    let next = client.call::<AddBlockResponse>("addBlock", &request).block.unwrap();
    assert_eq!(next.locs, block.locs[1..], "who was not reached is not told again");
    opened.stop();
}

#[test]
fn a_reader_continues_at_any_gateway_with_the_same_secret() {
    let opened = HdfsFixture::new();
    let (other, stranger) = (opened.beside([7; 32]), opened.beside([8; 32]));
    let mut client = opened.connect();
    client.write("/f", b"the same");
    let block = client.locations("/f").blocks.remove(0);
    assert_eq!(Transfer::read(&at(&block, &other), 0, 8).unwrap().1, b"the same");
    assert_eq!(Transfer::read(&at(&block, &stranger), 0, 8), Err(status::ERROR_ACCESS_TOKEN));
    drop((other, stranger));
    opened.stop();
}
