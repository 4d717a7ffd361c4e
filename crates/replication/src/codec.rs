//! Conversion of messages between chain members: wire format to and from the core's types.

use frieze_base::{ChainEpoch, ChainId, Fault, Reason, Seq};
use frieze_chain::{ForwardedRecord, Message, RequestId};
use frieze_hlc::Hlc;
use frieze_wire::frame::PAYLOAD_BYTES_MAX;
use frieze_wire::message::Durability;
use frieze_wire::peer::{
    ChainAck, ChainAsk, ChainAskKind, ChainClean, ChainGreet, ChainKeep, ChainOffer, ChainPromise, ChainRecord,
    CloseAfter, ServerMessage,
};

/// A received message about a chain.
pub(crate) struct ChainMessage {
    pub(crate) chain: ChainId,
    pub(crate) epoch: ChainEpoch,
    pub(crate) content: ChainContent,
}

/// Its content: for the core, or for the driver.
pub(crate) enum ChainContent {
    Message(Message),
    Persist(u64),
    Persisted(u64),
    CloseAfter(CloseAfter),
    ClosedAfter(CloseAfter),
    /// A kind that only newer servers have.
    Unknown,
}

/// A message in wire format.
pub(crate) fn to_wire(chain: ChainId, epoch: ChainEpoch, message: Message) -> ServerMessage {
    let (chain, epoch) = (chain.0, epoch.0);
    match message {
        Message::Record(record) => ServerMessage::ChainRecord(ChainRecord {
            epoch,
            sync: record.durability == Durability::Sync,
            acked: record.acked.0,
            ..ChainRecord::from(&record.header)
        }),
        Message::Promise { follows, at } => {
            ServerMessage::ChainPromise(ChainPromise { chain, epoch, follows, at: at.0 })
        }
        Message::Ack { upto, closed, held } => {
            ServerMessage::ChainAck(ChainAck { chain, epoch, upto, closed: closed.0, held })
        }
        Message::Greet { held, promised } => {
            ServerMessage::ChainGreet(ChainGreet { chain, epoch, held, promised: promised.0 })
        }
        Message::Offer { epochs } => {
            let epochs = epochs.iter().flat_map(|(epoch, last)| [epoch.0, *last]).collect();
            ServerMessage::ChainOffer(ChainOffer { chain, epoch, epochs })
        }
        Message::Keep { upto } => ServerMessage::ChainKeep(ChainKeep { chain, epoch, upto }),
        Message::AskClean { request } => {
            ServerMessage::ChainClean(ChainClean { chain, epoch, request: request.0, upto: None })
        }
        Message::Clean { request, upto } => {
            ServerMessage::ChainClean(ChainClean { chain, epoch, request: request.0, upto: Some(upto) })
        }
        Message::AskClose { at } => ask(ChainId(chain), ChainEpoch(epoch), ChainAskKind::Close(at.0)),
    }
}

/// A request of the driver, or its response, in wire format.
pub(crate) fn ask(chain: ChainId, epoch: ChainEpoch, ask: ChainAskKind) -> ServerMessage {
    ServerMessage::ChainAsk(ChainAsk { chain: chain.0, epoch: epoch.0, ask: Some(ask) })
}

/// Decodes a message; `None` if it is not about a chain.
///
/// # Errors
/// `BadFrame` for a message that no correct member sends.
pub(crate) fn from_wire(message: ServerMessage, payload_len: usize) -> Result<Option<ChainMessage>, Fault> {
    if payload_len > 0 && !matches!(message, ServerMessage::ChainRecord(_)) {
        return Err(malformed(format!("{payload_len} bytes beside a message that has none")));
    }
    let decoded =
        |chain, epoch, content| Ok(Some(ChainMessage { chain: ChainId(chain), epoch: ChainEpoch(epoch), content }));
    match message {
        ServerMessage::ChainRecord(record) => {
            let message = Message::Record(Box::new(forwarded(&record, payload_len)?));
            decoded(record.chain, record.epoch, ChainContent::Message(message))
        }
        ServerMessage::ChainPromise(ChainPromise { chain, epoch, follows, at }) => {
            decoded(chain, epoch, ChainContent::Message(Message::Promise { follows, at: Hlc(at) }))
        }
        ServerMessage::ChainAck(ChainAck { chain, epoch, upto, closed, held }) => {
            decoded(chain, epoch, ChainContent::Message(Message::Ack { upto, closed: Hlc(closed), held }))
        }
        ServerMessage::ChainGreet(ChainGreet { chain, epoch, held, promised }) => {
            decoded(chain, epoch, ChainContent::Message(Message::Greet { held, promised: Hlc(promised) }))
        }
        ServerMessage::ChainOffer(ChainOffer { chain, epoch, epochs }) => {
            let (pairs, rest) = epochs.as_chunks();
            let rises = pairs.is_sorted_by(|&[epoch, last], &[next, later]| epoch < next && last < later);
            if !rest.is_empty() || !rises || pairs.len() > OFFER_MAX {
                return Err(malformed("an offer whose epochs and numbers do not rise".to_owned()));
            }
            let epochs = pairs.iter().map(|&[epoch, last]| (ChainEpoch(epoch), last)).collect();
            decoded(chain, epoch, ChainContent::Message(Message::Offer { epochs }))
        }
        ServerMessage::ChainKeep(ChainKeep { chain, epoch, upto }) => {
            decoded(chain, epoch, ChainContent::Message(Message::Keep { upto }))
        }
        ServerMessage::ChainClean(ChainClean { chain, epoch, request, upto }) => {
            let request = RequestId(request);
            let message = match upto {
                None => Message::AskClean { request },
                Some(upto) => Message::Clean { request, upto },
            };
            decoded(chain, epoch, ChainContent::Message(message))
        }
        ServerMessage::ChainAsk(ChainAsk { chain, epoch, ask }) => {
            let content = match ask {
                Some(ChainAskKind::Close(at)) => ChainContent::Message(Message::AskClose { at: Hlc(at) }),
                Some(ChainAskKind::Persist(n)) => ChainContent::Persist(n),
                Some(ChainAskKind::Persisted(n)) => ChainContent::Persisted(n),
                Some(ChainAskKind::CloseAfter(after)) => ChainContent::CloseAfter(after),
                Some(ChainAskKind::ClosedAfter(after)) => ChainContent::ClosedAfter(after),
                None => ChainContent::Unknown,
            };
            decoded(chain, epoch, content)
        }
        _ => Ok(None),
    }
}

fn forwarded(record: &ChainRecord, payload_len: usize) -> Result<ForwardedRecord, Fault> {
    let expected = if record.punch { 0 } else { record.len as usize };
    if payload_len != expected {
        return Err(malformed(format!("record {} of {expected} bytes came with {payload_len}", record.n)));
    }
    let sound = record.n > 0
        && record.len > 0
        && (record.punch || record.len <= PAYLOAD_BYTES_MAX)
        && record.version > 0
        && record.stamp > 0
        && record.session > 0
        && record.seq > 0;
    let Some(header) = record.header().filter(|header| sound && header.part < u8::MAX) else {
        return Err(malformed(format!("record {} of chain {} cannot be", record.n, record.chain)));
    };
    let durability = if record.sync { Durability::Sync } else { Durability::Async };
    Ok(ForwardedRecord { header, durability, acked: Seq(record.acked) })
}

pub(crate) fn malformed(what: String) -> Fault {
    Fault::new(Reason::BadFrame, format!("malformed frame: {what}"))
}

/// Most configurations in an offer; a replica keeps fewer.
const OFFER_MAX: usize = 4096;
