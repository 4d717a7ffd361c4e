//! What a row of the table says of a request: what it sees, where it is answered, what its answer waits for.

use frieze_base::Seq;
use frieze_wire::frame::FrameHeader;
use frieze_wire::message::Read;

use crate::session::capability::claims_past;

/// What a row says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestClass<'a> {
    /// Name in metrics; `None`: the request waits for an event, however long.
    pub metric: Option<&'static str>,
    /// What of the present the answer says.
    pub(crate) sees: Sees<'a>,
    /// True if the answer may say bytes or lengths of files as they were at an instant.
    pub(crate) sees_instants: bool,
    /// Where it may be answered.
    pub(crate) place: AnswerPlace,
    /// What the answer tells of, as far as the handler does not find it on the way.
    pub(crate) gated_on: GatedOn<'a>,
    /// True if the answer may begin to leave before all of it is read.
    pub may_stream: bool,
}

/// What of the present an answer says. The past does not change: no answer about it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees<'a> {
    /// Nothing.
    Nothing,
    /// Names and attributes: it waits until no cache can show an older state.
    Names,
    /// Bytes or lengths of any files, too: it needs a lease on the chains.
    Bytes,
    /// Lengths of the files that its handler finds.
    Lengths,
    /// Bytes of the file of this capability, if that is of the present: what it says is proven where the bytes are
    /// read.
    BytesBy(&'a [u8]),
    /// The same of a range.
    Range(&'a Read),
}

/// Where a request may be answered in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerPlace {
    /// At each server that has what it needs.
    Anywhere,
    /// At the leader of the metalog, which orders changes and knows what sessions hold.
    Leader,
}

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatedOn<'a> {
    /// What its handler looks up.
    Found,
    /// The inode of this capability.
    Capability(&'a [u8]),
    /// Every change: it looks at whole trees.
    Everything,
}

impl<'a> RequestClass<'a> {
    /// A request that sees nothing, unless it is numbered: then it changes something, and waits for what it changed.
    pub(crate) fn plain(metric: &'static str, header: &FrameHeader) -> RequestClass<'a> {
        let sees = if header.seq == Seq(0) { Sees::Nothing } else { Sees::Names };
        RequestClass::seeing(metric, sees)
    }

    /// A request that sees this of the present: at the leader, if that is anything.
    pub(crate) fn seeing(metric: &'static str, sees: Sees<'a>) -> RequestClass<'a> {
        let place = if sees == Sees::Nothing { AnswerPlace::Anywhere } else { AnswerPlace::Leader };
        let gated_on = GatedOn::Found;
        RequestClass { metric: Some(metric), sees, sees_instants: false, place, gated_on, may_stream: false }
    }

    /// A request about names as they are now, if `is_now`.
    pub(crate) fn names(metric: &'static str, is_now: bool) -> RequestClass<'a> {
        RequestClass::seeing(metric, if is_now { Sees::Names } else { Sees::Nothing })
    }

    /// A request about files as they are now, if `is_now`, of which it sees this; or at an instant.
    pub(crate) fn files(metric: &'static str, is_now: bool, sees: Sees<'a>) -> RequestClass<'a> {
        RequestClass::seeing(metric, if is_now { sees } else { Sees::Nothing }).with_instants()
    }

    /// A look at bytes by a capability, which says whether it is of the past: it sees this, if it is not.
    pub(crate) fn bytes(metric: &'static str, capability: &'a [u8], sees: Sees<'a>) -> RequestClass<'a> {
        let sees = if claims_past(capability) { Sees::Nothing } else { sees };
        RequestClass::seeing(metric, sees).anywhere().gated(GatedOn::Capability(capability)).with_instants()
    }

    pub(crate) fn with_instants(self) -> RequestClass<'a> {
        RequestClass { sees_instants: true, ..self }
    }

    pub(crate) fn anywhere(self) -> RequestClass<'a> {
        RequestClass { place: AnswerPlace::Anywhere, ..self }
    }

    pub(crate) fn at_leader(self) -> RequestClass<'a> {
        RequestClass { place: AnswerPlace::Leader, ..self }
    }

    pub(crate) fn gated(self, gated_on: GatedOn<'a>) -> RequestClass<'a> {
        RequestClass { gated_on, ..self }
    }

    /// A request that waits for an event: no metric says how long it took.
    pub(crate) fn waiting(self) -> RequestClass<'a> {
        RequestClass { metric: None, ..self }
    }

    pub(crate) fn streams(self, may_stream: bool) -> RequestClass<'a> {
        RequestClass { may_stream, ..self }
    }

    /// True if the answer tells of what is now.
    pub(crate) fn is_of_now(&self) -> bool {
        self.sees != Sees::Nothing
    }
}

/// True if a read says that a file is open and asks for nothing: no byte lies there.
pub(crate) fn is_claim(ask: &Read) -> bool {
    ask.len == 0 && ask.offset == u64::MAX
}
