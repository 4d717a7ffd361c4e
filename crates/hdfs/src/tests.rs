//! The gateway with a server behind it, and a client that speaks Hadoop's protocols as the definitions say.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use frieze_client::{Admission, Options};
use frieze_node::{Server, Settings};
use frieze_testkit::local::LocalServer;
use prost::Message;

use super::{Error, HdfsGateway, HdfsOptions, Trust};
use crate::proto::*;
use crate::service::PROTOCOL;
use crate::transfer::{self, ChecksumKind, DataPacket, LENGTHS_BYTES, Lengths, packet, put_packet};

mod acls;
mod administration;
mod checksum_cache;
mod guarded_reader;
mod locations;
mod messages;
mod numbers;
mod peer_gateways;
mod quotas;
mod replicas;
mod restart;
mod snapshots;
mod trees;

const SUMS: ChecksumKind = ChecksumKind::Crc32c(512);

/// A server and its gateway.
struct HdfsFixture {
    gateway: HdfsGateway,
    local: LocalServer,
}

fn options(listen: &str, trust: Trust) -> HdfsOptions {
    let (listen, data) = (listen.to_owned(), "127.0.0.1:0".to_owned());
    HdfsOptions { listen, data, trust, notes: None, admission: Admission::new(4096) }
}

impl HdfsFixture {
    fn new() -> HdfsFixture {
        HdfsFixture::with(Settings::default())
    }

    fn with(settings: Settings) -> HdfsFixture {
        let local = LocalServer::at_port(settings);
        let server = local.server();
        // As `frieze serve` opens it; the gateways beside it below are asked over a socket.
        let client = Options { server: server.home(), in_process: Some(server.in_process()), ..Options::default() };
        let gateway = HdfsGateway::open(&options("127.0.0.1:0", Trust::Kernel), [7; 32], client).unwrap();
        HdfsFixture { gateway, local }
    }

    fn connect(&self) -> HadoopClient {
        connect_to(&self.gateway, "", 0)
    }

    fn connect_as(&self, user: &str, authentication: u8) -> HadoopClient {
        connect_to(&self.gateway, user, authentication)
    }

    fn stop(self) {
        drop(self.gateway);
        drop(self.local);
    }
}

fn connect_to(gateway: &HdfsGateway, user: &str, authentication: u8) -> HadoopClient {
    connect_by(gateway, PROTOCOL, user, authentication)
}

fn connect_by(gateway: &HdfsGateway, protocol: &str, user: &str, authentication: u8) -> HadoopClient {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.write_all(&[b'h', b'r', b'p', b'c', 9, 0, authentication]).unwrap();
    let mut client = HadoopClient { stream, next: 0 };
    if authentication != 0 {
        let negotiate = RpcSasl { state: sasl::NEGOTIATE, ..RpcSasl::default() };
        client.send(-33, &[negotiate.encode_length_delimited_to_vec()]);
        let (header, message) = client.receive();
        assert_eq!((header.call_id as i32, header.status), (-33, rpc_status::SUCCESS));
        assert_eq!(RpcSasl::decode(message.as_slice()).unwrap().state, sasl::SUCCESS);
    }
    let user_info = Some(UserInformation { effective_user: Some(user.to_owned()), real_user: None });
    let context = IpcConnectionContext { user_info, protocol: Some(protocol.to_owned()) };
    client.send(-3, &[context.encode_length_delimited_to_vec()]);
    client
}

/// A client of the name service.
struct HadoopClient {
    stream: TcpStream,
    next: i32,
}

/// Class and words of an exception.
type CallFailure = (String, String);

impl HadoopClient {
    fn send(&mut self, number: i32, messages: &[Vec<u8>]) {
        self.stream.write_all(&HadoopClient::frame(number, messages)).unwrap();
    }

    fn frame(number: i32, messages: &[Vec<u8>]) -> Vec<u8> {
        let header = RpcRequestHeader {
            rpc_kind: Some(2),
            rpc_op: Some(0),
            call_id: number,
            client_id: vec![7; 16],
            retry_count: Some(0),
        };
        let body = [header.encode_length_delimited_to_vec(), messages.concat()].concat();
        [(body.len() as u32).to_be_bytes().as_slice(), &body].concat()
    }

    fn receive(&mut self) -> (RpcResponseHeader, Vec<u8>) {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut frame).unwrap();
        let mut rest = frame.as_slice();
        let header = RpcResponseHeader::decode_length_delimited(&mut rest).unwrap();
        let reply = if rest.is_empty() { Vec::new() } else { Vec::<u8>::from(split_delimited(rest)) };
        (header, reply)
    }

    fn ask(&mut self, method: &str, request: &impl Message) -> Result<Vec<u8>, CallFailure> {
        self.next += 1;
        self.ask_numbered(self.next, PROTOCOL, method, &request.encode_to_vec())
    }

    fn ask_numbered(
        &mut self,
        number: i32,
        protocol: &str,
        method: &str,
        request: &[u8],
    ) -> Result<Vec<u8>, CallFailure> {
        let header = RequestHeader {
            method_name: method.to_owned(),
            declaring_class_protocol_name: protocol.to_owned(),
            client_protocol_version: 1,
        };
        let mut delimited = Vec::new();
        prost::encoding::encode_varint(request.len() as u64, &mut delimited);
        delimited.extend(request);
        self.send(number, &[header.encode_length_delimited_to_vec(), delimited]);
        let (header, reply) = self.receive();
        match header.status {
            rpc_status::SUCCESS => {
                assert_eq!(header.call_id as i32, number);
                Ok(reply)
            }
            _ => Err((header.exception_class_name.unwrap(), header.error_msg.unwrap())),
        }
    }

    fn call<R: Message + Default>(&mut self, method: &str, request: &impl Message) -> R {
        let reply = self.ask(method, request).unwrap_or_else(|refused| panic!("{method}: {refused:?}"));
        R::decode(reply.as_slice()).unwrap()
    }

    fn refused(&mut self, method: &str, request: &impl Message) -> String {
        let (class, _) = self.ask(method, request).expect_err("it is refused");
        class.rsplit('.').next().unwrap().to_owned()
    }

    fn info(&mut self, path: &str) -> Option<HdfsFileStatus> {
        self.call::<GetFileInfoResponse>("getFileInfo", &path_of(path)).fs
    }

    fn create(&mut self, path: &str, holder: &str) -> HdfsFileStatus {
        self.call::<CreateResponse>("create", &create(path, holder)).fs.unwrap()
    }

    fn add_block(&mut self, path: &str, holder: &str, previous: Option<ExtendedBlock>) -> LocatedBlock {
        let request = AddBlockRequest {
            src: path.to_owned(),
            client_name: holder.to_owned(),
            previous,
            ..AddBlockRequest::default()
        };
        self.call::<AddBlockResponse>("addBlock", &request).block.unwrap()
    }

    fn complete(&mut self, path: &str, holder: &str, last: Option<ExtendedBlock>) -> bool {
        let request = CompleteRequest { src: path.to_owned(), client_name: holder.to_owned(), last, file_id: None };
        self.call::<ResultResponse>("complete", &request).result
    }

    /// Writes a file of one block.
    fn write(&mut self, path: &str, data: &[u8]) {
        self.create(path, "w");
        let block = self.add_block(path, "w", None);
        let mut transfer = Transfer::write(&block);
        assert_eq!(transfer.put(0, 0, data, true), status::SUCCESS);
        assert!(self.complete(path, "w", Some(of_len(&block, data.len()))));
    }

    fn locations(&mut self, path: &str) -> LocatedBlocks {
        let request = GetBlockLocationsRequest { src: path.to_owned(), offset: 0, length: u64::MAX };
        self.call::<GetBlockLocationsResponse>("getBlockLocations", &request).locations.unwrap()
    }

    fn read(&mut self, path: &str) -> Vec<u8> {
        let located = self.locations(path);
        located
            .blocks
            .iter()
            .flat_map(|block| Transfer::read(block, 0, block.b.as_ref().unwrap().num_bytes.unwrap()).unwrap().1)
            .collect()
    }
}

fn split_delimited(mut rest: &[u8]) -> &[u8] {
    let len = prost::encoding::decode_varint(&mut rest).unwrap();
    assert_eq!(len as usize, rest.len());
    rest
}

fn path_of(path: &str) -> PathRequest {
    PathRequest { path: path.to_owned() }
}

fn create(path: &str, holder: &str) -> CreateRequest {
    CreateRequest {
        src: path.to_owned(),
        masked: Some(FsPermission { perm: 0o644 }),
        client_name: holder.to_owned(),
        create_flag: 1 | create_flag::OVERWRITE,
        create_parent: true,
        replication: 1,
        block_size: 1 << 20,
        ..CreateRequest::default()
    }
}

fn mkdirs(path: &str) -> MkdirsRequest {
    let masked = Some(FsPermission { perm: 0o755 });
    MkdirsRequest { src: path.to_owned(), masked, create_parent: true, unmasked: None }
}

fn of_len(block: &LocatedBlock, len: usize) -> ExtendedBlock {
    ExtendedBlock { num_bytes: Some(len as u64), ..block.b.clone().unwrap() }
}

/// A connection to the data service.
struct Transfer(TcpStream);

impl Transfer {
    fn connect(block: &LocatedBlock) -> Transfer {
        let id = block.locs[0].id.as_ref().unwrap();
        let address = (id.ip_addr.as_str(), id.xfer_port as u16).to_socket_addrs().unwrap().next().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Transfer(stream)
    }

    fn base(block: &LocatedBlock) -> Option<ClientOperationHeader> {
        let base_header = Some(BaseHeader { block: block.b.clone(), token: block.block_token.clone() });
        Some(ClientOperationHeader { base_header, client_name: "t".to_owned() })
    }

    fn begin(&mut self, operation: u8, request: &impl Message) -> BlockOpResponse {
        self.0.write_all(&[&[0, 28, operation], request.encode_length_delimited_to_vec().as_slice()].concat()).unwrap();
        self.message()
    }

    fn message<M: Message + Default>(&mut self) -> M {
        let len = self.byte();
        let len = if len & 0x80 == 0 { len } else { len & 0x7f | self.byte() << 7 };
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        M::decode(bytes.as_slice()).unwrap()
    }

    fn byte(&mut self) -> usize {
        let mut byte = [0];
        self.0.read_exact(&mut byte).unwrap();
        byte[0].into()
    }

    fn asks_to_write(block: &LocatedBlock) -> OpWriteBlock {
        OpWriteBlock {
            header: Transfer::base(block),
            targets: Vec::new(),
            stage: stage::SETUP_CREATE,
            pipeline_size: 1,
            min_bytes_rcvd: 0,
            max_bytes_rcvd: 0,
            latest_generation_stamp: 0,
            requested_checksum: Some(Checksum { kind: checksum::CRC32C, bytes_per_checksum: 512 }),
        }
    }

    fn write(block: &LocatedBlock) -> Transfer {
        let mut transfer = Transfer::connect(block);
        let response = transfer.begin(80, &Transfer::asks_to_write(block));
        assert_eq!((response.status, response.first_bad_link.as_deref()), (status::SUCCESS, Some("")));
        transfer
    }

    fn packet(seqno: i64, at: u64, data: &[u8], is_last: bool) -> Vec<u8> {
        let header = PacketHeader {
            offset_in_block: at as i64,
            seqno,
            last_packet_in_block: is_last,
            data_len: data.len() as i32,
            sync_block: None,
        };
        let mut bytes = Vec::new();
        put_packet(&header, data, SUMS, &mut bytes);
        bytes
    }

    /// Sends a packet and gives the status of its acknowledgement.
    fn put(&mut self, seqno: i64, at: u64, data: &[u8], is_last: bool) -> i32 {
        self.0.write_all(&Transfer::packet(seqno, at, data, is_last)).unwrap();
        self.acknowledged(seqno)
    }

    fn acknowledged(&mut self, seqno: i64) -> i32 {
        let ack: PipelineAck = self.message();
        assert_eq!((ack.seqno, ack.reply.len()), (seqno, 1));
        ack.reply[0]
    }

    /// Reads a range of a block: where what came begins, and what came; or the status it was refused with.
    fn read(block: &LocatedBlock, offset: u64, len: u64) -> Result<(u64, Vec<u8>), i32> {
        Transfer::connect(block).read_on(block, offset, len).map(|read| read.unwrap())
    }

    /// The same over this connection; or what was wrong with a packet.
    fn read_on(
        &mut self,
        block: &LocatedBlock,
        offset: u64,
        len: u64,
    ) -> Result<Result<(u64, Vec<u8>), transfer::PacketError>, i32> {
        let request = OpReadBlock { header: Transfer::base(block), offset, len, send_checksums: Some(true) };
        let response = self.begin(81, &request);
        if response.status != status::SUCCESS {
            return Err(response.status);
        }
        let begins = response.read_op_checksum_info.unwrap().chunk_offset;
        let mut all = Vec::new();
        loop {
            let mut lengths = [0; LENGTHS_BYTES];
            self.0.read_exact(&mut lengths).unwrap();
            let lengths = Lengths::read(lengths).unwrap();
            let mut bytes = vec![0; lengths.header + lengths.body];
            self.0.read_exact(&mut bytes).unwrap();
            let (header, body) = bytes.split_at(lengths.header);
            let DataPacket { header, data, .. } = match packet(header, body, SUMS) {
                Ok(packet) => packet,
                Err(error) => return Ok(Err(error)),
            };
            assert_eq!(header.offset_in_block as u64, begins + all.len() as u64);
            assert!(data.is_empty() || header.offset_in_block % 512 == 0, "a packet begins with a span");
            all.extend(data);
            if header.last_packet_in_block {
                return Ok(Ok((begins, all)));
            }
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn a_file_is_written_and_read_and_listed() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    assert!(client.call::<ResultResponse>("mkdirs", &mkdirs("/a/b")).result);
    let data = bytes(700_001);
    client.write("/a/b/f", &data);
    let found = client.info("/a/b/f").unwrap();
    assert_eq!((found.file_type, found.length), (file_type::FILE, data.len() as u64));
    assert!(client.read("/a/b/f") == data);
    let request = GetListingRequest { src: "/a/b".to_owned(), start_after: Vec::new(), need_location: false };
    let listed = client.call::<GetListingResponse>("getListing", &request).dir_list.unwrap();
    assert_eq!((listed.partial_listing[0].path.as_slice(), listed.partial_listing.len()), (b"f".as_slice(), 1));
    let block = &client.locations("/a/b/f").blocks[0];
    assert_eq!(Transfer::read(block, 1000, 30), Ok((512, data[512..1536].to_vec())), "whole spans of checksums");
    assert_eq!(Transfer::read(block, 700_000, 1).unwrap().1, data[699_904..]);
    assert_eq!(Transfer::read(block, 700_000, 2), Err(status::ERROR_INVALID));
    assert_eq!(client.info("/none"), None);
    opened.stop();
}

#[test]
fn acknowledged_bytes_are_in_the_file_once_however_often_they_are_sent() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    let mut transfer = Transfer::write(&block);
    let data = bytes(2000);
    assert_eq!(transfer.put(-1, 0, &[], false), status::SUCCESS, "a sign of life");
    assert_eq!(transfer.put(0, 0, &data[..700], false), status::SUCCESS);
    assert!(client.read("/f") == data[..700]);
    assert_eq!(transfer.put(1, 512, &data[512..2000], false), status::SUCCESS, "from the beginning of the span again");
    assert!(client.read("/f") == data);
    let mut other = data.clone();
    other[600] ^= 1;
    assert_eq!(transfer.put(2, 512, &other[512..1024], false), status::SUCCESS);
    assert!(client.read("/f") == data, "what is in the file stays");
    assert_eq!(transfer.put(3, 2000, &[], true), status::SUCCESS);
    let next = client.add_block("/f", "w", Some(of_len(&block, 2000)));
    assert_eq!(next.offset, 2000);
    assert!(client.complete("/f", "w", Some(of_len(&block, 2000))), "the block that was begun is not wanted");
    assert!(client.read("/f") == data);
    opened.stop();
}

#[test]
fn the_checksum_of_a_block_is_that_of_its_bytes() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    let data = bytes(1_000_001);
    client.write("/f", &data);
    let block = client.locations("/f").blocks.remove(0);
    let ask = |block: &LocatedBlock, kind, len: usize| {
        let header = BaseHeader { block: Some(of_len(block, len)), token: block.block_token.clone() };
        let options = BlockChecksumOptions { block_checksum_type: Some(kind), stripe_length: Some(0) };
        let request = OpBlockChecksum { header: Some(header), block_checksum_options: Some(options) };
        let response = Transfer::connect(block).begin(85, &request);
        response.checksum_response.ok_or(response.status)
    };
    for len in [data.len(), 513, 0] {
        let crc = ask(&block, 2, len).unwrap();
        assert_eq!(crc.block_checksum, frieze_base::crc32c(&data[..len]).to_be_bytes(), "{len}");
        assert_eq!((crc.bytes_per_crc, crc.crc_type), (512, Some(checksum::CRC32C)));
        let crcs: Vec<u8> = data[..len].chunks(512).flat_map(|span| frieze_base::crc32c(span).to_be_bytes()).collect();
        assert_eq!(ask(&block, 1, len).unwrap().block_checksum, md5::compute(crcs).to_vec(), "{len}");
    }
    assert_eq!(ask(&block, 7, 1), Err(status::ERROR_UNSUPPORTED));
    let forged = LocatedBlock { block_token: Some(Token::default()), ..block };
    assert_eq!(ask(&forged, 1, 1), Err(status::ERROR_ACCESS_TOKEN));
    opened.stop();
}

#[test]
fn bytes_that_fail_their_checksum_or_leave_a_gap_are_refused() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    for (name, at, turned, expected) in
        [("/sum", 512, true, status::ERROR_CHECKSUM), ("/gap", 1024, false, status::ERROR)]
    {
        client.create(name, "w");
        let block = client.add_block(name, "w", None);
        let mut transfer = Transfer::write(&block);
        assert_eq!(transfer.put(0, 0, &bytes(512), false), status::SUCCESS);
        let mut second = Transfer::packet(1, at, &bytes(512), false);
        *second.last_mut().unwrap() ^= u8::from(turned);
        transfer.0.write_all(&second).unwrap();
        assert_eq!(transfer.acknowledged(1), expected);
        assert!(client.complete(name, "w", Some(of_len(&block, 512))));
        assert!(client.read(name) == bytes(512));
    }
    opened.stop();
}

#[test]
fn an_abandoned_block_leaves_no_bytes() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    assert_eq!(Transfer::write(&block).put(0, 0, &bytes(3000), false), status::SUCCESS);
    let b = block.b.clone();
    client.call::<()>(
        "abandonBlock",
        &AbandonBlockRequest { b, src: "/f".to_owned(), holder: "w".to_owned(), file_id: None },
    );
    let again = client.add_block("/f", "w", None);
    assert_eq!(again.offset, 0);
    let mut late = Transfer::connect(&block);
    assert_eq!(late.begin(80, &Transfer::asks_to_write(&block)).status, status::ERROR, "the first attempt is over");
    assert_eq!(Transfer::write(&again).put(0, 0, b"short", true), status::SUCCESS);
    assert!(client.complete("/f", "w", Some(of_len(&again, 5))));
    assert_eq!(client.read("/f"), b"short");
    opened.stop();
}

#[test]
fn extended_attributes_are_the_same_at_every_gateway() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/f", b"x");
    let xattr = |name: &str, value: Option<&[u8]>| XAttr {
        namespace: xattr_namespace::USER,
        name: name.to_owned(),
        value: value.map(<[u8]>::to_vec),
    };
    let set = |value: &[u8], flag| SetXAttrRequest {
        src: "/f".to_owned(),
        xattr: Some(xattr("a", Some(value))),
        flag: Some(flag),
    };
    assert_eq!(client.refused("setXAttr", &set(b"0", xattr_flag::REPLACE)), "IOException");
    client.call::<()>("setXAttr", &set(b"1", xattr_flag::CREATE));
    assert_eq!(client.refused("setXAttr", &set(b"2", xattr_flag::CREATE)), "IOException");
    client.call::<()>("setXAttr", &set(b"3", xattr_flag::CREATE | xattr_flag::REPLACE));
    let own = frieze_client::Client::connect(Options { server: opened.local.server().nearby(), ..Options::default() })
        .unwrap();
    assert_eq!(own.fs().get_xattr(&frieze_client::Target::path("/f"), b"user.a").unwrap(), b"3");
    let listed = client.call::<XAttrsResponse>("listXAttrs", &path_of("/f")).xattrs;
    assert_eq!(listed, [xattr("a", None)]);
    let get = |xattrs: Vec<XAttr>| XAttrsRequest { src: "/f".to_owned(), xattrs };
    for asked in [Vec::new(), vec![xattr("a", None)]] {
        let found = client.call::<XAttrsResponse>("getXAttrs", &get(asked)).xattrs;
        assert_eq!(found, [xattr("a", Some(b"3"))]);
    }
    assert_eq!(client.refused("getXAttrs", &get(vec![xattr("b", None)])), "IOException");
    client.call::<()>("removeXAttr", &set(b"", 0));
    assert_eq!(client.refused("removeXAttr", &set(b"", 0)), "IOException");
    own.close().unwrap();
    opened.stop();
}

#[test]
fn a_gateway_in_safe_mode_refuses_changes_until_it_leaves_it() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/f", b"x");
    let set = |client: &mut HadoopClient, action| {
        client.call::<ResultResponse>("setSafeMode", &SetSafeModeRequest { action }).result
    };
    const LEAVE: i32 = 1;
    assert!(!set(&mut client, SAFEMODE_GET));
    assert!(set(&mut client, SAFEMODE_ENTER) && set(&mut client, SAFEMODE_GET));
    assert_eq!(client.refused("create", &create("/g", "w")), "SafeModeException");
    assert_eq!(client.refused("mkdirs", &mkdirs("/d")), "SafeModeException");
    assert_eq!(client.read("/f"), b"x");
    if frieze_harness::requirements::root() {
        let mut other = opened.connect_as("daemon", 0);
        let leave = SetSafeModeRequest { action: LEAVE };
        assert_eq!(other.refused("setSafeMode", &leave), "AccessControlException");
    }
    assert!(!set(&mut client, LEAVE));
    client.write("/g", b"y");
    opened.stop();
}

#[test]
fn a_token_is_good_for_its_block_and_right_alone() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/one", b"one");
    client.write("/two", b"two");
    let (one, two) = (client.locations("/one").blocks.remove(0), client.locations("/two").blocks.remove(0));
    let mixed = LocatedBlock { block_token: two.block_token.clone(), ..one.clone() };
    assert_eq!(Transfer::read(&mixed, 0, 3), Err(status::ERROR_ACCESS_TOKEN));
    let mut forged = one.clone();
    forged.block_token.as_mut().unwrap().identifier[1] ^= 1;
    assert_eq!(Transfer::read(&forged, 0, 3), Err(status::ERROR_ACCESS_TOKEN));
    let mut to_write = Transfer::connect(&one);
    assert_eq!(to_write.begin(80, &Transfer::asks_to_write(&one)).status, status::ERROR, "it is to read");
    assert_eq!(Transfer::read(&one, 0, 3).unwrap().1, b"one");
    opened.stop();
}

#[test]
fn a_file_has_one_writer_until_its_lease_is_recovered() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "first");
    let block = client.add_block("/f", "first", None);
    let mut transfer = Transfer::write(&block);
    assert_eq!(transfer.put(0, 0, b"first", false), status::SUCCESS);
    let append = AppendRequest { src: "/f".to_owned(), client_name: "second".to_owned(), flag: None };
    assert_eq!(client.refused("append", &append), "AlreadyBeingCreatedException");
    let plain = CreateRequest { create_flag: 1, ..create("/f", "second") };
    assert_eq!(client.refused("create", &plain), "AlreadyBeingCreatedException");
    assert!(!client.call::<ResultResponse>("isFileClosed", &path_of("/f")).result);
    let recover = RecoverLeaseRequest { src: "/f".to_owned(), client_name: "second".to_owned() };
    assert!(client.call::<ResultResponse>("recoverLease", &recover).result);
    assert_eq!(transfer.put(1, 5, b"late", false), status::ERROR, "its lease is gone");
    let done = CompleteRequest { src: "/f".to_owned(), client_name: "first".to_owned(), last: None, file_id: None };
    assert_eq!(client.refused("complete", &done), "LeaseExpiredException");
    let stat = client.call::<AppendResponse>("append", &append).stat.unwrap();
    assert_eq!(stat.length, 5);
    let block = client.add_block("/f", "second", None);
    assert_eq!(Transfer::write(&block).put(0, 0, b"second", true), status::SUCCESS);
    assert!(client.complete("/f", "second", Some(of_len(&block, 6))));
    assert_eq!(client.read("/f"), b"firstsecond");
    opened.stop();
}

#[test]
fn a_client_of_a_very_long_name_gets_no_lease() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    let class = client.refused("create", &create("/f", &"x".repeat(2000)));
    assert!(class.ends_with("IllegalArgumentException"), "{class}");
    client.create("/g", &"x".repeat(900));
    opened.stop();
}

/// The name of a client is no secret: another user with that name gets no token for the file, and cannot close it.
#[test]
fn a_lease_belongs_to_its_user_whatever_name_others_use() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "holder");
    let block = client.add_block("/f", "holder", None);
    // Only root may speak for others; anybody else is turned away when it says the name.
    if frieze_harness::requirements::root() {
        let mut other = opened.connect_as("daemon", 0);
        let add =
            AddBlockRequest { src: "/f".to_owned(), client_name: "holder".to_owned(), ..AddBlockRequest::default() };
        assert_eq!(other.refused("addBlock", &add), "LeaseExpiredException");
        let done =
            CompleteRequest { src: "/f".to_owned(), client_name: "holder".to_owned(), last: None, file_id: None };
        assert_eq!(other.refused("complete", &done), "LeaseExpiredException");
    }
    assert_eq!(Transfer::write(&block).put(0, 0, b"mine", true), status::SUCCESS);
    assert!(client.complete("/f", "holder", Some(of_len(&block, 4))));
    assert_eq!(client.read("/f"), b"mine");
    opened.stop();
}

#[test]
fn the_past_is_read_by_name_and_never_changed() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/d/f", b"v1");
    let now = frieze_client::Client::connect(Options { server: opened.local.server().nearby(), ..Options::default() })
        .unwrap();
    let at = now.now().unwrap();
    client.write("/d/f", b"v2 is longer");
    let old = format!("/.at/{at}/d/f");
    assert_eq!(client.read(&old), b"v1");
    assert_eq!(client.info(&old).unwrap().length, 2);
    assert_eq!(client.read(&format!("/d/.at/{at}/f")), b"v1");
    assert_eq!(client.read("/d/f"), b"v2 is longer");
    assert_eq!(client.refused("create", &create(&old, "w")), "SnapshotAccessControlException");
    assert_eq!(client.refused("mkdirs", &mkdirs(&format!("/.at/{at}/x"))), "SnapshotAccessControlException");
    let delete = DeleteRequest { src: old, recursive: true };
    assert_eq!(client.refused("delete", &delete), "SnapshotAccessControlException");
    assert_eq!(client.refused("getFileInfo", &path_of("/.at/@x/d")), "InvalidPathException");
    assert_eq!(client.info("/.at/never-saved/d"), None);
    let moving = client.read("/.at/now/d/f");
    client.write("/d/f", b"v3");
    assert_eq!(client.read("/.at/now/d/f"), moving, "one program, one meaning");
    now.close().unwrap();
    opened.stop();
}

#[test]
fn a_repeated_call_runs_once() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/f", b"x");
    let rename = RenameRequest { src: "/f".to_owned(), dst: "/g".to_owned() }.encode_to_vec();
    let first = client.ask_numbered(500, PROTOCOL, "rename", &rename).unwrap();
    assert_eq!(ResultResponse::decode(first.as_slice()).unwrap(), ResultResponse { result: true });
    let mut other = opened.connect();
    assert_eq!(other.ask_numbered(500, PROTOCOL, "rename", &rename), Ok(first), "over another connection");
    let anew = other.ask_numbered(501, PROTOCOL, "rename", &rename).unwrap();
    assert_eq!(ResultResponse::decode(anew.as_slice()).unwrap(), ResultResponse { result: false });
    opened.stop();
}

#[test]
fn unsupported_and_malformed_requests_are_refused_and_affect_no_other_client() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect_as("", 0xDF);
    assert_eq!(client.refused("setStoragePolicy", &()), "UnsupportedOperationException");
    assert_eq!(client.refused("noSuchMethod", &()), "RpcNoSuchMethodException");
    assert_eq!(
        client.ask_numbered(90, "another.Protocol", "x", &[]).unwrap_err().0,
        "org.apache.hadoop.ipc.RpcNoSuchProtocolException"
    );
    assert!(
        client
            .ask_numbered(91, PROTOCOL, "getListing", &[0xff; 9])
            .unwrap_err()
            .0
            .ends_with("InvalidProtocolBufferException")
    );
    assert_eq!(client.refused("getFileInfo", &path_of("relative")), "InvalidPathException");
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".as_slice(),
        b"hrpc\x09\x00\x00\xff\xff\xff\xff",
        b"hrpc\x09\x00\x00\x00\x00\x00\x02\xff\xff",
    ] {
        let mut stream = TcpStream::connect(opened.gateway.address()).unwrap();
        stream.write_all(garbage).unwrap();
        let mut said = Vec::new();
        // Closed, after a word or none; a reset says the same.
        let _ = stream.read_to_end(&mut said);
    }
    let mut stream = TcpStream::connect(opened.gateway.data_address()).unwrap();
    stream.write_all(&[0xff; 64]).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(client.info("/").is_some());
    opened.stop();
}

#[test]
fn a_connection_with_an_unknown_user_name_is_refused() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect_as("nobody-of-that-name", 0);
    let (header, _) = client.receive();
    assert_eq!((header.status, header.error_detail), (rpc_status::FATAL, Some(rpc_error::UNAUTHORIZED)));
    assert_eq!(header.exception_class_name.unwrap(), "org.apache.hadoop.security.authorize.AuthorizationException");
    opened.stop();
}

#[test]
fn the_gateway_listens_on_loopback_only_unless_names_are_trusted() {
    let options = options("0.0.0.0:0", Trust::Kernel);
    assert!(matches!(HdfsGateway::open(&options, [7; 32], Options::default()), Err(Error::Beyond { .. })));
    let options = HdfsOptions { data: "0.0.0.0:0".to_owned(), ..self::options("127.0.0.1:0", Trust::Kernel) };
    assert!(matches!(HdfsGateway::open(&options, [7; 32], Options::default()), Err(Error::Beyond { .. })));
}

#[test]
fn calls_before_one_that_ends_the_connection_are_answered() {
    let opened = HdfsFixture::new();
    let header = RequestHeader {
        method_name: "getFileInfo".to_owned(),
        declaring_class_protocol_name: PROTOCOL.to_owned(),
        client_protocol_version: 1,
    };
    let path = crate::proto::PathRequest { path: "/".to_owned() };
    let call = |number| {
        HadoopClient::frame(number, &[header.encode_length_delimited_to_vec(), path.encode_length_delimited_to_vec()])
    };
    // What follows at once is no frame of the protocol, or has a length that none has.
    for garbage in [vec![0, 0, 0, 2, 0xff, 0xff], vec![0xff; 8]] {
        let mut client = opened.connect();
        client.ask("getFileInfo", &path).unwrap();
        client.stream.write_all(&[call(100), call(101), garbage].concat()).unwrap();
        for number in [100, 101] {
            let (header, _) = client.receive();
            assert_eq!((header.call_id as i32, header.status), (number, rpc_status::SUCCESS));
        }
    }
}
