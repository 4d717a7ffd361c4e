//! Which name node is active: `HAServiceProtocol.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct HaServiceStateResponse {
    #[prost(int32, required, tag = "1")]
    pub state: i32,
}

/// `HAServiceStateResponse::state`: this name node is active.
pub const ACTIVE: i32 = 1;
