//! What members of the metalog tell each other, one of each kind.

use frieze_wire::peer::ServerMessage;
use frieze_wire::peer::metalog::{
    MetalogClose, MetalogEntry, MetalogHeld, MetalogKind, MetalogMembers, MetalogMessage, MetalogPiece, MetalogState,
};

pub(super) fn messages() -> Vec<(&'static str, ServerMessage)> {
    vec![
        ("metalog-entries", ServerMessage::Metalog(entries())),
        ("metalog-question", ServerMessage::Metalog(question())),
        ("metalog-piece", ServerMessage::MetalogPiece(piece())),
        (
            "metalog-held",
            ServerMessage::MetalogHeld(MetalogHeld { transfer: 0x1234_5678_9abc_def1, next: 7, whole: true }),
        ),
        ("metalog-close", ServerMessage::MetalogClose(MetalogClose { at: 0x0605_0403_0201_0007 })),
    ]
}

/// With every field that a message of entries has, as the second part of one.
fn entries() -> MetalogMessage {
    let entry = |index, change, len| MetalogEntry { index, term: 5, change, len };
    MetalogMessage {
        kind: MetalogKind::Append as i32,
        term: 6,
        log_term: 5,
        index: 300,
        commit: 299,
        entries: vec![entry(301, false, 2_000_000), entry(302, true, 4)],
        parted: 9,
        part: 1,
        parts: 2,
        incarnation: 12,
        for_incarnation: 3,
        ..MetalogMessage::default()
    }
}

fn question() -> MetalogMessage {
    MetalogMessage {
        kind: MetalogKind::AskVote as i32,
        term: 8,
        log_term: 7,
        index: 20,
        commit: 19,
        commit_term: 6,
        reject: true,
        hint: 18,
        context: b"CampaignTransfer".to_vec(),
        returning: true,
        newest: 0x0605_0403_0201_0008,
        votes: true,
        ..MetalogMessage::default()
    }
}

fn piece() -> MetalogPiece {
    let members = MetalogMembers { voters: vec![1, 2, 3], learners: vec![4] };
    let state = MetalogState { index: 40, term: 3, stamp: 0x0605_0403_0201_0000, members };
    let message =
        MetalogMessage { kind: MetalogKind::Snapshot as i32, term: 4, state: Some(state), ..MetalogMessage::default() };
    MetalogPiece { transfer: 0x1234_5678_9abc_def1, number: 6, crc: 0xdead_beef, message: Some(message) }
}
