use frieze_base::Rng;

use super::*;
use crate::proto::UserInformation;

/// A message with its length in front.
fn delimited(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

fn header(number: i32) -> RpcRequestHeader {
    RpcRequestHeader {
        rpc_kind: Some(RPC_PROTOCOL_BUFFER),
        rpc_op: Some(0),
        call_id: number,
        client_id: (0..16).collect(),
        retry_count: Some(0),
    }
}

fn call_bytes() -> Vec<u8> {
    let method = RequestHeader {
        method_name: "getFileInfo".to_owned(),
        declaring_class_protocol_name: "org.apache.hadoop.hdfs.protocol.ClientProtocol".to_owned(),
        client_protocol_version: 1,
    };
    [delimited(&header(7)), delimited(&method), vec![3, 10, 1, b'/']].concat()
}

#[test]
fn the_greeting_says_version_and_proof() {
    assert_eq!(greeting(b"hrpc\x09\x00\x00"), Ok(Greeting::Simple));
    assert_eq!(greeting(b"hrpc\x09\x00\xdf"), Ok(Greeting::Sasl));
    assert_eq!(greeting(b"hrpc\x08\x00\x00"), Err(RpcError::Version { found: 8 }));
    assert_eq!(greeting(b"hrpc\x09\x00\x07"), Err(RpcError::Authentication { found: 7 }));
    assert_eq!(greeting(b"GET / H"), Err(RpcError::NotHadoop));
}

#[test]
fn a_frame_is_no_longer_than_it_may_be() {
    assert_eq!(frame_len([0, 0, 1, 0]), Ok(256));
    assert_eq!(frame_len((FRAME_BYTES_MAX as u32).to_be_bytes()), Ok(FRAME_BYTES_MAX));
    assert!(frame_len((FRAME_BYTES_MAX as u32 + 1).to_be_bytes()).is_err());
    assert!(frame_len([0xff; 4]).is_err(), "a negative one");
}

#[test]
fn a_client_id_is_no_longer_than_hadoops() {
    let long = RpcRequestHeader { client_id: vec![0; CLIENT_ID_BYTES_MAX + 1], ..header(7) };
    let bytes = [delimited(&long), call_bytes()].concat();
    assert!(matches!(frame(&bytes), Err((None, RpcError::Malformed { part: "header", .. }))));
}

#[test]
fn a_call_is_read_with_its_method_and_parameters() {
    let Ok(RpcFrame::Call(call)) = frame(&call_bytes()) else { panic!("it is a call") };
    assert_eq!((call.id.number, call.id.client.len(), call.retry), (7, 16, 0));
    assert_eq!((call.method.as_str(), call.parameters.as_slice()), ("getFileInfo", [10, 1, b'/'].as_slice()));
}

#[test]
fn frames_about_the_connection_have_call_numbers_of_their_own() {
    let context = IpcConnectionContext {
        user_info: Some(UserInformation { effective_user: Some("ann".to_owned()), real_user: None }),
        protocol: None,
    };
    let bytes = [delimited(&header(CALL_CONTEXT)), delimited(&context)].concat();
    assert_eq!(frame(&bytes), Ok(RpcFrame::Context(context)));
    assert_eq!(frame(&delimited(&header(CALL_PING))), Ok(RpcFrame::Ping));
    let negotiate = RpcSasl { state: sasl::NEGOTIATE, ..RpcSasl::default() };
    assert_eq!(frame(&[delimited(&header(CALL_SASL)), delimited(&negotiate)].concat()), Ok(RpcFrame::Negotiate));
    let initiate = RpcSasl { state: 2, ..RpcSasl::default() };
    assert_eq!(frame(&[delimited(&header(CALL_SASL)), delimited(&initiate)].concat()).unwrap_err().1, RpcError::Sasl);
    assert!(matches!(frame(&delimited(&header(-9))).unwrap_err().1, RpcError::Malformed { .. }));
    let old = RpcRequestHeader { rpc_kind: Some(1), ..header(1) };
    assert_eq!(frame(&delimited(&old)).unwrap_err().1, RpcError::Kind { kind: 1 });
}

#[test]
fn answers_are_the_bytes_that_hadoop_clients_read() {
    let id = CallId { client: vec![0xaa, 0xbb], number: 7 };
    let found = answer(&id, 0, &[8, 1]);
    // Length; header of 12 bytes: call 7, success, version 9, client, retry 0; answer of 2 bytes.
    let expected = [0, 0, 0, 16, 12, 8, 7, 16, 0, 24, 9, 58, 2, 0xaa, 0xbb, 64, 0, 2, 8, 1];
    assert_eq!(found, expected);
    let failed = CallError { detail: rpc_error::APPLICATION, is_fatal: false, class: "C", message: "m" };
    let expected = [0, 0, 0, 21, 20, 8, 7, 16, 1, 24, 9, 34, 1, b'C', 42, 1, b'm', 48, 1, 58, 2, 0xaa, 0xbb, 64, 0];
    assert_eq!(failure(&id, 0, failed), expected);
    // SASL is answered with success, for call -33: go on without.
    let expected = [0, 0, 0, 20, 14, 8, 0xdf, 0xff, 0xff, 0xff, 0x0f, 16, 0, 24, 9, 58, 0, 64, 1, 4, 8, 0, 16, 0];
    assert_eq!(go_on_simple(), expected);
}

#[test]
fn a_malformed_request_is_refused_as_by_hadoop() {
    assert_eq!(refusal(None, &RpcError::NotHadoop), None);
    let said = |error: RpcError| {
        let frame = refusal(None, &error).expect("it is answered");
        let header: RpcResponseHeader = next(&mut &frame[4..], "header").unwrap();
        assert_eq!((header.status, header.call_id), (rpc_status::FATAL, u32::MAX));
        (header.exception_class_name.unwrap(), header.error_detail.unwrap())
    };
    assert_eq!(said(RpcError::Version { found: 4 }).0, "org.apache.hadoop.ipc.RPC$VersionMismatch");
    assert_eq!(said(RpcError::Sasl).1, rpc_error::UNAUTHORIZED);
    assert_eq!(said(RpcError::Length { len: 9 }).1, rpc_error::INVALID_RPC_HEADER);
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let mut rng = Rng::new(0x4d_f5);
    let whole = call_bytes();
    for len in 0..whole.len() {
        assert!(frame(&whole[..len]).is_err(), "cut at {len}");
    }
    for _ in 0..100_000 {
        let mut bytes = whole.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.below(256) as u8;
        }
        let _ = frame(&bytes);
        let random: Vec<u8> = (0..rng.below(64)).map(|_| rng.below(256) as u8).collect();
        let _ = frame(&random);
    }
}

#[test]
fn any_bytes_are_a_frame_of_a_call_or_refused() {
    let context = [delimited(&header(CALL_CONTEXT)), vec![0]].concat();
    let sasl = RpcSasl { version: Some(0), state: sasl::NEGOTIATE, token: None, auths: Vec::new() };
    let seeds = [call_bytes(), context, [delimited(&header(CALL_SASL)), delimited(&sasl)].concat()];
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        match frame(bytes) {
            Ok(RpcFrame::Call(call)) => {
                assert!(call.id.number >= 0 && call.parameters.len() < bytes.len());
                answer(&call.id, call.retry, &call.parameters);
            }
            Ok(_) => {}
            Err((id, error)) => drop(refusal(id.as_ref(), &error)),
        }
        if let Some(first) = bytes.first_chunk() {
            drop(greeting(first));
        }
        if let Some(first) = bytes.first_chunk() {
            assert!(frame_len(*first).is_ok_and(|len| len <= FRAME_BYTES_MAX) || frame_len(*first).is_err());
        }
    });
}

#[test]
fn any_bytes_are_a_message_that_its_length_precedes_or_refused() {
    frieze_harness::fuzz!([call_bytes(), vec![0xff, 0xff, 0xff, 0x7f]], |bytes: &[u8]| {
        let mut rest = bytes;
        while let Ok(message) = crate::framing::read_message(&mut rest) {
            assert!(message.len() < bytes.len());
        }
        for len in [0, 7, FRAME_BYTES_MAX] {
            let frame = crate::framing::read_frame(&mut &*bytes, len);
            assert_eq!(frame.is_ok(), len <= bytes.len());
        }
    });
}
