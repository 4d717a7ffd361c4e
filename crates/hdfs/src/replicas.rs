//! What clients ask a place of blocks about its replica: Hadoop's `ClientDatanodeProtocol`, at the port of the name service.
//!
//! A reader of HDFS asks by it how far a block is that is being written. Here the name service tells the length of an open file as it is,
//! and says that its last block is complete; so its clients do not ask, and whoever does is answered from the lease. Who asks names the
//! block as the user (`blk_N_G`), which is not looked up: the number, which only who was told of the block has, is the right.

use frieze_client::mono;

use crate::blocks::required;
use crate::exception::Exception;
use crate::proto::{DatanodeLocalInfo, GetDatanodeInfoResponse, GetReplicaVisibleLengthRequest, NumberResponse};
use crate::retries::Answer;
use crate::rpc::Call;
use crate::service::{Service, unknown, with};

/// The protocol.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// True if that is the user of a connection by this protocol: it says which block it is about.
pub(crate) fn is_block(user: &str) -> bool {
    user.strip_prefix("blk_").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_'))
}

impl Service {
    /// Answers a call of this protocol.
    pub(crate) fn answer_of_replica(&self, call: &Call) -> Answer {
        match call.method.as_str() {
            "getReplicaVisibleLength" => with(call, |request| self.visible_length(&request)),
            "getDatanodeInfo" => with(call, |()| {
                let local_info = DatanodeLocalInfo {
                    software_version: concat!("frieze ", env!("CARGO_PKG_VERSION")).to_owned(),
                    config_version: String::new(),
                    uptime_s: mono().since_ns(self.began) / 1_000_000_000,
                };
                Ok(GetDatanodeInfoResponse { local_info })
            }),
            method => Err(unknown(method, PROTOCOL)),
        }
    }

    /// How many bytes of a block that is being written readers see.
    fn visible_length(&self, request: &GetReplicaVisibleLengthRequest) -> Result<NumberResponse, Exception> {
        let named = required(request.block.clone())?;
        let length = self.leases.received(named.block_id).ok_or_else(|| {
            Exception::no_replica(format!(
                "Replica not found for {}: this door has no writer of that block; a block that is complete is as long as its location says",
                named.block_id
            ))
        })?;
        Ok(NumberResponse { number: length })
    }
}
