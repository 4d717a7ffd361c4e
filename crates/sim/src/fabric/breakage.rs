//! Rules of transfers that are broken on purpose: the judge has to notice every one.

/// A way to break a client, the server, or the provider of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricBreak {
    /// A slot is lent again before the reply to its request, if no other is free.
    SlotReusedEarly,
    /// Slots stay in use after the server could not finish a transfer.
    AbandonedStaysOpen,
    /// A slot stays in use though its read was refused after bytes had been written into it.
    RefusedStaysOpen,
    /// The memory of slots is freed before their registrations are closed.
    MemoryFreedFirst,
    /// Slots go to the next connection with their keys.
    KeyOutlivesConnection,
    /// The payload of a read that landed in slots that were closed since is taken to be empty.
    ClosedSlotIsEmpty,
    /// The client does not compare the checksum of what landed.
    LandedUnchecked,
    /// A request that the server could not fetch the payload of is not sent again.
    DemotionDropsRequest,
    /// A write that is sent again by TCP has another number.
    RedoIsNew,
    /// A write whose fetched bytes do not match their checksum fails for good.
    DamageIsFinal,
    /// A transfer does not keep its room after its wait has ended.
    RoomReusedEarly,
    /// The room of a transfer that failed never returns.
    FailedRoomLost,
    /// A payload is said to have landed once its transfers were begun.
    ReplyBeforeCompletion,
    /// The server does not compare the checksum of what it fetched.
    FetchedUnchecked,
    /// The context of a transfer is that of the next one: a second completion ends another transfer.
    ContextReusedAtOnce,
    /// A wait for a transfer has no limit.
    NoTimeout,
    /// After the first failure of a payload its other transfers are not waited for.
    FirstFailureEndsWait,
    /// The server makes no transfers any more with a client, which receives no word of it.
    DownUnannounced,
    /// An endpoint with a transfer that never ended stays open.
    StuckStaysOpen,
    /// A reply that the server holds for those behind it stays held if the last of them is a refusal of a fetch.
    RefusalStaysHeld,
    /// The provider accepts keys of closed registrations.
    ClosedKeyAccepted,
}

impl FabricBreak {
    /// All of them.
    pub const ALL: &[FabricBreak] = &[
        FabricBreak::SlotReusedEarly,
        FabricBreak::AbandonedStaysOpen,
        FabricBreak::RefusedStaysOpen,
        FabricBreak::MemoryFreedFirst,
        FabricBreak::KeyOutlivesConnection,
        FabricBreak::ClosedSlotIsEmpty,
        FabricBreak::LandedUnchecked,
        FabricBreak::DemotionDropsRequest,
        FabricBreak::RedoIsNew,
        FabricBreak::DamageIsFinal,
        FabricBreak::RoomReusedEarly,
        FabricBreak::FailedRoomLost,
        FabricBreak::ReplyBeforeCompletion,
        FabricBreak::FetchedUnchecked,
        FabricBreak::ContextReusedAtOnce,
        FabricBreak::NoTimeout,
        FabricBreak::FirstFailureEndsWait,
        FabricBreak::DownUnannounced,
        FabricBreak::StuckStaysOpen,
        FabricBreak::RefusalStaysHeld,
        FabricBreak::ClosedKeyAccepted,
    ];
}
