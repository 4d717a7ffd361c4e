//! What a place of blocks is asked about its replica.

use super::*;
use crate::replicas::PROTOCOL as REPLICAS;

#[test]
fn a_block_that_is_being_written_is_as_long_as_what_was_acknowledged() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.create("/f", "w");
    let block = client.add_block("/f", "w", None);
    let place = block.locs[0].id.as_ref().unwrap();
    assert_eq!(place.ipc_port, u32::from(opened.gateway.address().port()), "who tells of it is asked where names are");
    let mut transfer = Transfer::write(&block);
    assert_eq!(transfer.put(0, 0, &bytes(1000), false), status::SUCCESS);
    let named = block.b.clone().unwrap();
    // As Hadoop's client connects: the user is the block.
    let user = format!("blk_{}_{}", named.block_id, named.generation_stamp);
    let mut replica = connect_by(&opened.gateway, REPLICAS, &user, 0);
    let ask = GetReplicaVisibleLengthRequest { block: block.b.clone() }.encode_to_vec();
    let length = replica.ask_numbered(1, REPLICAS, "getReplicaVisibleLength", &ask).unwrap();
    assert_eq!(NumberResponse::decode(length.as_slice()).unwrap().number, 1000);
    let info = replica.ask_numbered(2, REPLICAS, "getDatanodeInfo", &[]).unwrap();
    let info = GetDatanodeInfoResponse::decode(info.as_slice()).unwrap().local_info;
    assert!(info.software_version.starts_with("frieze "), "{info:?}");
    let (class, _) = replica.ask_numbered(3, REPLICAS, "shutdownDatanode", &[]).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.ipc.RpcNoSuchMethodException");
    assert_eq!(transfer.put(1, 1000, &[], true), status::SUCCESS);
    assert!(client.complete("/f", "w", Some(of_len(&block, 1000))));
    let (class, words) = replica.ask_numbered(4, REPLICAS, "getReplicaVisibleLength", &ask).unwrap_err();
    assert!(class.ends_with("ReplicaNotFoundException") && words.contains("complete"), "{class}: {words}");
    // A user that is the name of a block has no account: calls about names are refused.
    let look = path_of("/f").encode_to_vec();
    let (class, words) = replica.ask_numbered(5, PROTOCOL, "getFileInfo", &look).unwrap_err();
    assert!(class.ends_with("AuthorizationException"), "{class}: {words}");
    assert_eq!(replica.stream.read(&mut [0]).unwrap(), 0, "and closed");
    opened.stop();
}
