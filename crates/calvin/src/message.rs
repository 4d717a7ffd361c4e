//! What a scheduler is given, and what it asks of its driver.

use frieze_base::{LogIndex, Seq, SessionId};

use crate::error::RegistryError;
use crate::place::{ExecutionPlace, KeyAccess, Position, ShardId, Slot, TxnKey};
use crate::registry::RequestName;

/// What a slot says of a transaction to its other parts: a read just below the transaction's stamp, as the driver
/// encodes it. Short: whether a name is there, and which inode it has.
pub type SlotValue = Vec<u8>;

/// The part of a transaction that is read before it is executed. The rest is the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TxnEnvelope {
    /// Its name. Seq 0 names transactions of servers, which are not remembered.
    pub request: RequestName,
    /// Requests of the session below it are answered, and need not be remembered.
    pub acked: Seq,
}

/// The result of a trunk phase: which parts a transaction has, and what they touch. Without parts the trunk phase has
/// decided the outcome, and made the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TxnPlan {
    /// Parts in slots, each slot at most once.
    pub slots: Vec<SlotPart>,
    /// The part in the trunk, if directories change and slots have to agree.
    pub trunk: Option<TrunkPart>,
    /// The transaction ended this session, or found that there is none: its requests are forgotten.
    pub ends: Option<SessionId>,
}

/// A part in a slot. On a server that does not have the slot, keys and needs mean nothing, and may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotPart {
    /// The slot.
    pub slot: Slot,
    /// What the part reads or changes there.
    pub keys: Vec<(TxnKey, KeyAccess)>,
    /// Other parts need a value of this one.
    pub gives: bool,
    /// Slots of which this part needs a value.
    pub needs: Vec<Slot>,
}

/// A part in the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrunkPart {
    /// What the part reads or changes there: trunk phases that meet one of them wait.
    pub keys: Vec<(TxnKey, KeyAccess)>,
    /// Slots of which it needs a value.
    pub needs: Vec<Slot>,
}

/// What can happen to a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerInput {
    /// A committed entry, the one after the last.
    Entry {
        /// Its index.
        index: LogIndex,
        /// Its transactions.
        envelopes: Vec<TxnEnvelope>,
    },
    /// The trunk phase of [`SchedulerEffect::Prepare`] is done.
    Prepared {
        /// The transaction.
        position: Position,
        /// Its parts.
        plan: TxnPlan,
    },
    /// The trunk phase met a parked key ([`Scheduler::is_parked`]): it comes again when the key is free.
    ///
    /// [`Scheduler::is_parked`]: crate::Scheduler::is_parked
    Blocked {
        /// The transaction.
        position: Position,
        /// The key.
        key: TxnKey,
    },
    /// The values of [`SchedulerEffect::Read`].
    Values {
        /// The transaction.
        position: Position,
        /// The shard.
        shard: ShardId,
        /// Of each slot of the shard that gives one.
        values: Vec<(Slot, SlotValue)>,
    },
    /// Another server sent a value.
    Received {
        /// The transaction.
        position: Position,
        /// The slot.
        slot: Slot,
        /// Its value.
        value: SlotValue,
    },
    /// A part of [`SchedulerEffect::Run`] is executed.
    Done {
        /// The transaction.
        position: Position,
        /// Where.
        place: ExecutionPlace,
    },
    /// Time has passed.
    Tick,
}

/// What a scheduler asks of its driver, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulerEffect {
    /// Run the trunk phase now, against the trunk as it is; answer with [`SchedulerInput::Prepared`] or
    /// [`SchedulerInput::Blocked`].
    Prepare {
        /// The transaction.
        position: Position,
    },
    /// The request ran at an earlier position: its outcome is there.
    Again {
        /// The repeated transaction.
        position: Position,
        /// The first.
        first: Position,
    },
    /// The transaction does not run.
    Refuse {
        /// The transaction.
        position: Position,
        /// Why.
        error: RegistryError,
    },
    /// Read the values that this shard gives; answer with [`SchedulerInput::Values`].
    Read {
        /// The transaction.
        position: Position,
        /// The shard.
        shard: ShardId,
    },
    /// Send a value to every server that has another part of the transaction.
    Push {
        /// The transaction.
        position: Position,
        /// The slot.
        slot: Slot,
        /// Its value.
        value: SlotValue,
    },
    /// Ask any server that has the slot for its value, which is late.
    Ask {
        /// The transaction.
        position: Position,
        /// The slot.
        slot: Slot,
    },
    /// Execute the part; answer with [`SchedulerInput::Done`].
    Run {
        /// The transaction.
        position: Position,
        /// Where.
        place: ExecutionPlace,
        /// The values of all slots that parts of this server needed.
        values: Vec<(Slot, SlotValue)>,
    },
    /// Two servers say different things of one slot: the state of one of them is wrong. The driver stops this server.
    Diverged {
        /// The transaction.
        position: Position,
        /// The slot.
        slot: Slot,
    },
    /// Every part of this server is executed.
    Finished {
        /// The transaction.
        position: Position,
    },
}
