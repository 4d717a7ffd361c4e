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
mod block_transfer;
mod checksum_cache;
mod fixture;
mod guarded_reader;
mod hadoop_client;
mod locations;
mod messages;
mod numbers;
mod peer_gateways;
mod quotas;
mod replicas;
mod restart;
mod snapshots;
mod trees;

use block_transfer::Transfer;
use fixture::{HdfsFixture, SUMS, bytes, connect_by, connect_to, options};
use hadoop_client::{CallFailure, HadoopClient, create, mkdirs, of_len, path_of};

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
