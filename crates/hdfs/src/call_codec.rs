//! Parameters and results of a call.

use prost::Message;

use crate::exception::{Exception, malformed};
use crate::retry_cache::CallResult;
use crate::rpc::Call;

/// The exception for a method that the protocol does not have.
pub(crate) fn unknown(method: &str, protocol: &str) -> Exception {
    Exception::no_such_method(format!("Unknown method {method} called on {protocol} protocol."))
}

/// Decodes the parameters of a call, and encodes its result.
pub(crate) fn with<Q: Message + Default, R: Message>(
    call: &Call,
    answer: impl FnOnce(Q) -> Result<R, Exception>,
) -> CallResult {
    let request = Q::decode(call.parameters.as_slice()).map_err(|error| malformed(&call.method, &error))?;
    Ok(answer(request)?.encode_to_vec())
}
