//! Transfers of blocks: `datatransfer.proto`.

use crate::proto::hdfs::{BlockChecksumOptions, DatanodeInfo, ExtendedBlock};
use crate::proto::security::Token;

#[derive(Clone, PartialEq, prost::Message)]
pub struct BaseHeader {
    #[prost(message, optional, tag = "1")]
    pub block: Option<ExtendedBlock>,
    #[prost(message, optional, tag = "2")]
    pub token: Option<Token>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientOperationHeader {
    #[prost(message, optional, tag = "1")]
    pub base_header: Option<BaseHeader>,
    #[prost(string, required, tag = "2")]
    pub client_name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpReadBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    #[prost(uint64, required, tag = "3")]
    pub len: u64,
    #[prost(bool, optional, tag = "4")]
    pub send_checksums: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Checksum {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(uint32, required, tag = "2")]
    pub bytes_per_checksum: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpWriteBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
    #[prost(message, repeated, tag = "2")]
    pub targets: Vec<DatanodeInfo>,
    #[prost(int32, required, tag = "4")]
    pub stage: i32,
    #[prost(uint32, required, tag = "5")]
    pub pipeline_size: u32,
    #[prost(uint64, required, tag = "6")]
    pub min_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "7")]
    pub max_bytes_rcvd: u64,
    #[prost(uint64, required, tag = "8")]
    pub latest_generation_stamp: u64,
    #[prost(message, optional, tag = "9")]
    pub requested_checksum: Option<Checksum>,
}

/// `OpWriteBlock::stage`.
pub mod stage {
    pub const SETUP_STREAMING_RECOVERY: i32 = 3;
    pub const CLOSE_RECOVERY: i32 = 5;
    pub const SETUP_CREATE: i32 = 6;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpTransferBlock {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ClientOperationHeader>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpBlockChecksum {
    #[prost(message, optional, tag = "1")]
    pub header: Option<BaseHeader>,
    #[prost(message, optional, tag = "2")]
    pub block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct OpBlockChecksumResponse {
    #[prost(uint32, required, tag = "1")]
    pub bytes_per_crc: u32,
    #[prost(uint64, required, tag = "2")]
    pub crc_per_block: u64,
    #[prost(bytes = "vec", required, tag = "3")]
    pub block_checksum: Vec<u8>,
    #[prost(int32, optional, tag = "4")]
    pub crc_type: Option<i32>,
    #[prost(message, optional, tag = "5")]
    pub block_checksum_options: Option<BlockChecksumOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PacketHeader {
    #[prost(sfixed64, required, tag = "1")]
    pub offset_in_block: i64,
    #[prost(sfixed64, required, tag = "2")]
    pub seqno: i64,
    #[prost(bool, required, tag = "3")]
    pub last_packet_in_block: bool,
    #[prost(sfixed32, required, tag = "4")]
    pub data_len: i32,
    #[prost(bool, optional, tag = "5")]
    pub sync_block: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PipelineAck {
    #[prost(sint64, required, tag = "1")]
    pub seqno: i64,
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub reply: Vec<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadOpChecksumInfo {
    #[prost(message, optional, tag = "1")]
    pub checksum: Option<Checksum>,
    #[prost(uint64, required, tag = "2")]
    pub chunk_offset: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct BlockOpResponse {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
    #[prost(string, optional, tag = "2")]
    pub first_bad_link: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub checksum_response: Option<OpBlockChecksumResponse>,
    #[prost(message, optional, tag = "4")]
    pub read_op_checksum_info: Option<ReadOpChecksumInfo>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
}

/// `BlockOpResponse::status`, `PipelineAck::reply`.
pub mod status {
    pub const SUCCESS: i32 = 0;
    pub const ERROR: i32 = 1;
    pub const ERROR_CHECKSUM: i32 = 2;
    pub const ERROR_INVALID: i32 = 3;
    pub const ERROR_EXISTS: i32 = 4;
    pub const ERROR_ACCESS_TOKEN: i32 = 5;
    pub const CHECKSUM_OK: i32 = 6;
    pub const ERROR_UNSUPPORTED: i32 = 7;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientReadStatus {
    #[prost(int32, required, tag = "1")]
    pub status: i32,
}
