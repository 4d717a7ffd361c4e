//! What clients ask a place of blocks about its replica: Hadoop's `ClientDatanodeProtocol`, at the port of the name service.
//!
//! A reader of HDFS asks by it how far a block is that is being written. Here the name service tells the length of an open file as it is,
//! and says that its last block is complete; so its clients do not ask, and whoever does is answered from the lease. Who asks names the
//! block as the user (`blk_N_G`): he is whom the kernel proves, or nobody, and has to have the right to read the file.

use frieze_client::{InodeId, Target, mono};

use crate::blocks::required;
use crate::call_codec::{unknown, with};
use crate::exception::Exception;
use crate::file_names::FileNames;
use crate::leases::Leases;
use crate::proto::{DatanodeLocalInfo, GetDatanodeInfoResponse, GetReplicaVisibleLengthRequest, NumberResponse};
use crate::remote_user::CallContext;
use crate::retry_cache::CallResult;
use crate::rpc::Call;
use frieze_base::MonoTime;

/// The protocol.
pub(crate) const PROTOCOL: &str = "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol";

/// True if that is the user of a connection by this protocol: it says which block it is about.
pub(crate) fn is_block(user: &str) -> bool {
    user.strip_prefix("blk_").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_'))
}

/// Answers a call of this protocol.
pub(crate) fn answer_of_replica(
    names: &FileNames,
    leases: &Leases,
    began: MonoTime,
    context: CallContext<'_>,
    call: &Call,
) -> CallResult {
    match call.method.as_str() {
        "getReplicaVisibleLength" => with(call, |request| visible_length(names, leases, context, &request)),
        "getDatanodeInfo" => with(call, |()| {
            let local_info = DatanodeLocalInfo {
                software_version: concat!("frieze ", env!("CARGO_PKG_VERSION")).to_owned(),
                config_version: String::new(),
                uptime_s: mono().since_ns(began) / 1_000_000_000,
            };
            Ok(GetDatanodeInfoResponse { local_info })
        }),
        method => Err(unknown(method, PROTOCOL)),
    }
}

/// How many bytes of a block that is being written readers see.
fn visible_length(
    names: &FileNames,
    leases: &Leases,
    context: CallContext<'_>,
    request: &GetReplicaVisibleLengthRequest,
) -> Result<NumberResponse, Exception> {
    let block = required(request.block.clone())?.block_id;
    let Some((inode, number)) = leases.received(block) else {
        return Err(Exception::no_replica(format!(
            "Replica not found for {block}: this door has no writer of that block; one that is complete is as long as its location says"
        )));
    };
    let may = names.fs(context).access(&Target::inode(InodeId(inode)), READ);
    may.map_err(|error| Exception::of(error, &format!("block {block}")))?;
    Ok(NumberResponse { number })
}

const READ: u32 = 4;
