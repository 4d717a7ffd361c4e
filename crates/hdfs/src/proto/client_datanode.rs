//! Calls about one replica: `ClientDatanodeProtocol.proto`.

use crate::proto::hdfs::{DatanodeLocalInfo, ExtendedBlock};

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetReplicaVisibleLengthRequest {
    #[prost(message, optional, tag = "1")]
    pub block: Option<ExtendedBlock>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetDatanodeInfoResponse {
    #[prost(message, required, tag = "1")]
    pub local_info: DatanodeLocalInfo,
}
