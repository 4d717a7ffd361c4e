//! Remote calls: `RpcHeader.proto`, `IpcConnectionContext.proto`, `ProtobufRpcEngine2.proto`.

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcRequestHeader {
    #[prost(int32, optional, tag = "1")]
    pub rpc_kind: Option<i32>,
    #[prost(int32, optional, tag = "2")]
    pub rpc_op: Option<i32>,
    #[prost(sint32, required, tag = "3")]
    pub call_id: i32,
    #[prost(bytes = "vec", required, tag = "4")]
    pub client_id: Vec<u8>,
    #[prost(sint32, optional, tag = "5")]
    pub retry_count: Option<i32>,
}

/// `RpcRequestHeader::rpc_kind`: a call whose parameters are a message.
pub const RPC_PROTOCOL_BUFFER: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcResponseHeader {
    #[prost(uint32, required, tag = "1")]
    pub call_id: u32,
    #[prost(int32, required, tag = "2")]
    pub status: i32,
    #[prost(uint32, optional, tag = "3")]
    pub server_ipc_version_num: Option<u32>,
    #[prost(string, optional, tag = "4")]
    pub exception_class_name: Option<String>,
    #[prost(string, optional, tag = "5")]
    pub error_msg: Option<String>,
    #[prost(int32, optional, tag = "6")]
    pub error_detail: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub client_id: Option<Vec<u8>>,
    #[prost(sint32, optional, tag = "8")]
    pub retry_count: Option<i32>,
}

/// `RpcResponseHeader::status`.
pub mod rpc_status {
    pub const SUCCESS: i32 = 0;
    pub const ERROR: i32 = 1;
    /// The connection ends after it.
    pub const FATAL: i32 = 2;
}

/// `RpcResponseHeader::error_detail`.
pub mod rpc_error {
    pub const APPLICATION: i32 = 1;
    pub const NO_SUCH_METHOD: i32 = 2;
    pub const NO_SUCH_PROTOCOL: i32 = 3;
    pub const INVALID_RPC_HEADER: i32 = 12;
    pub const DESERIALIZING_REQUEST: i32 = 13;
    pub const VERSION_MISMATCH: i32 = 14;
    pub const UNAUTHORIZED: i32 = 15;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RpcSasl {
    #[prost(uint32, optional, tag = "1")]
    pub version: Option<u32>,
    #[prost(int32, required, tag = "2")]
    pub state: i32,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub token: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "4")]
    pub auths: Vec<SaslAuth>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SaslAuth {
    #[prost(string, required, tag = "1")]
    pub method: String,
    #[prost(string, required, tag = "2")]
    pub mechanism: String,
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
    #[prost(string, optional, tag = "4")]
    pub server_id: Option<String>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub challenge: Option<Vec<u8>>,
}

/// `RpcSasl::state`.
pub mod sasl {
    pub const SUCCESS: i32 = 0;
    pub const NEGOTIATE: i32 = 1;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct UserInformation {
    #[prost(string, optional, tag = "1")]
    pub effective_user: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub real_user: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct IpcConnectionContext {
    #[prost(message, optional, tag = "2")]
    pub user_info: Option<UserInformation>,
    #[prost(string, optional, tag = "3")]
    pub protocol: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct RequestHeader {
    #[prost(string, required, tag = "1")]
    pub method_name: String,
    #[prost(string, required, tag = "2")]
    pub declaring_class_protocol_name: String,
    #[prost(uint64, required, tag = "3")]
    pub client_protocol_version: u64,
}
