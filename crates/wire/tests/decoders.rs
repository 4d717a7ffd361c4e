//! Any bytes in the place of a frame, a message or a text between processes: a value or an error, never a panic or
//! memory that the bytes do not justify. Seeds are the golden bytes.

use std::fmt::Debug;

use frieze_harness::{Inputs, check_stable, check_text, fuzz};
use frieze_wire::acl::Acl;
use frieze_wire::control::{DecisionProto, StoredCluster};
use frieze_wire::forget::{decode_ids, encode_ids};
use frieze_wire::message::{Refusal, ReplyBody, RequestBody, Txn};
use frieze_wire::peer::PeerBody;
use frieze_wire::quota::{Quota, format_quota, parse_quota};
use frieze_wire::txn::{Batch, Outcome, Transaction};
use frieze_wire::writers::{format_writers, parse_writers};
use frieze_wire::{FRAME_HEADER_BYTES, FrameHeader};
use prost::Message;

frieze_harness::count_allocations!();

/// Golden bytes whose names begin with one of `names`.
fn golden(names: &[&str]) -> Vec<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let bytes = |hex: &str| {
        let digits: Vec<u8> = hex.bytes().filter_map(digit).collect();
        digits.as_chunks().0.iter().map(|&[high, low]| high << 4 | low).collect()
    };
    let lines = include_str!("testdata/golden.txt").lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(name, _)| names.iter().any(|start| name.starts_with(start))).map(|(_, hex)| bytes(hex)).collect()
}

fn message<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    check_stable(bytes, |bytes| M::decode(bytes).ok(), M::encode_to_vec)
}

/// Bytes 76..80 of a header are the checksum of those before.
fn seal_header(bytes: &mut Vec<u8>) {
    bytes.resize(FRAME_HEADER_BYTES, 0);
    let crc = frieze_base::crc32c(&bytes[..76]);
    bytes[76..].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn any_bytes_are_a_frame_header_or_refused() {
    fuzz!(Inputs::from(golden(&["header"])).resealed(seal_header), |bytes: &[u8]| {
        let decode = |bytes: &[u8]| FrameHeader::decode(bytes.first_chunk()?).ok();
        check_stable(bytes, decode, |header| header.encode().to_vec());
    });
}

#[test]
fn any_bytes_are_a_request_or_refused() {
    fuzz!(golden(&["request."]), |bytes: &[u8]| {
        message::<RequestBody>(bytes);
    });
}

#[test]
fn any_bytes_are_a_reply_or_refused() {
    fuzz!(golden(&["reply.", "refusal"]), |bytes: &[u8]| {
        message::<ReplyBody>(bytes);
        message::<Refusal>(bytes).map(|refusal| frieze_base::Fault::from(refusal).to_string());
    });
}

#[test]
fn any_bytes_are_a_message_of_a_server_or_refused() {
    fuzz!(golden(&["told."]), |bytes: &[u8]| {
        message::<PeerBody>(bytes);
    });
}

#[test]
fn any_bytes_are_a_transaction_or_refused() {
    fuzz!(golden(&["op.", "txn.", "batch", "outcome"]), |bytes: &[u8]| {
        message::<Transaction>(bytes);
        message::<Txn>(bytes);
        message::<Batch>(bytes);
        message::<Outcome>(bytes).map(Outcome::into_result);
    });
}

#[test]
fn any_bytes_are_a_decision_or_refused() {
    fuzz!(golden(&["decision.", "control_state"]), |bytes: &[u8]| {
        message::<DecisionProto>(bytes);
        message::<StoredCluster>(bytes);
    });
}

#[test]
fn any_bytes_are_an_access_list_or_refused() {
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let (owner, group, other) = (entry(1, 6, u32::MAX), entry(4, 4, u32::MAX), entry(32, 0, u32::MAX));
    let (user, mask) = (entry(2, 7, 1000), entry(16, 5, u32::MAX));
    let version = 2u32.to_le_bytes().to_vec();
    let short = [version.clone(), owner.clone(), group.clone(), other.clone()].concat();
    let long = [version, owner, user, group, entry(8, 1, 27), mask, other].concat();
    fuzz!([short, long], |bytes: &[u8]| {
        if let Some(acl) = check_stable(bytes, |bytes| Acl::read(bytes).ok()?, Acl::encode) {
            assert!(acl.mode() <= 0o777 && !acl.to_string().is_empty());
            assert_eq!(acl.clone().with_mode(acl.mode()).mode(), acl.mode());
        }
    });
}

#[test]
fn any_bytes_are_ids_or_refused() {
    let seeds = [encode_ids(1..300), encode_ids([5, 1 << 40, u64::MAX].into_iter())];
    fuzz!(seeds, |bytes: &[u8]| {
        check_stable(bytes, decode_ids, |ids| encode_ids(ids.iter().copied()));
    });
}

#[test]
fn any_text_is_a_list_of_writers_or_none() {
    fuzz!(["7 1000 host frieze put a  b\n8 0  \n", ""], |bytes: &[u8]| {
        let parsed = parse_writers(bytes);
        if let Some(writers) = parsed {
            // A character that ends a line or a word is written as another one: from then on the text stays.
            let text = format_writers(&writers);
            let again = parse_writers(text.as_bytes()).expect("the text of writers is a list of writers");
            assert_eq!((again.len(), format_writers(&again)), (writers.len(), text));
        }
    });
}

#[test]
fn any_text_is_a_quota_or_none() {
    fuzz!(["files=10 bytes=20", "files=3 bytes=10 of files=1000", " bytes=2  files=1 "], |bytes: &[u8]| {
        check_text(bytes, |text| Quota::parse(text.as_bytes()).ok());
        check_stable(bytes, parse_quota, |usage| format_quota(usage).into_bytes());
    });
}
