//! Calls about one replica: Hadoop's `ClientDatanodeProtocol`, at the port of the name service.
//!
//! A reader of HDFS uses it to get the length of a block that is being written. Here the name service reports the
//! current length of an open file, and its last block as complete; so its clients do not ask, and other callers get the
//! length from the lease. The user of such a connection is the name of a block (`blk_N_G`): the account is the one that
//! the kernel reports, and needs the right to read the file.

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

/// True if this is the user of a connection by this protocol: the name of a block.
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

/// The bytes of an open block that readers see.
fn visible_length(
    names: &FileNames,
    leases: &Leases,
    context: CallContext<'_>,
    request: &GetReplicaVisibleLengthRequest,
) -> Result<NumberResponse, Exception> {
    let block = required(request.block.clone())?.block_id;
    let Some((inode, number)) = leases.received(block) else {
        return Err(Exception::no_replica(format!(
            "Replica not found for {block}: this gateway has no writer of that block; the length of a complete one \
             is in its location"
        )));
    };
    let may = names.fs(context).access(&Target::inode(InodeId(inode)), READ);
    may.map_err(|error| Exception::of(error, &format!("block {block}")))?;
    Ok(NumberResponse { number })
}

const READ: u32 = 4;
