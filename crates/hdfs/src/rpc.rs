//! Hadoop's remote calls as bytes: the greeting of a connection, requests, answers. No sockets here.
//!
//! A connection begins with seven bytes: `hrpc`, a version, a class of service, an authentication method. Then, in both
//! directions, frames: a length of four bytes, big-endian, and messages that a varint with their length precedes. A
//! request holds a header and a body, whose kind the header's call number tells: a call (the name of the method, then
//! its parameters), or a message of the connection itself.
//!
//! Guarantees: any bytes yield a value or an [`RpcError`] with the name that Hadoop's servers give it; no announced
//! length is trusted.

use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

use crate::proto::{
    IpcConnectionContext, RPC_PROTOCOL_BUFFER, RequestHeader, RpcRequestHeader, RpcResponseHeader, RpcSasl, rpc_error,
    rpc_status, sasl,
};

/// Bytes of the greeting.
pub(crate) const GREETING_BYTES: usize = 7;
/// The version of the protocol that Hadoop has spoken since 2.0.
pub(crate) const VERSION: u8 = 9;
/// Longest frame. Hadoop's default is 128 MiB, for block reports; a client's longest call names a few paths.
pub(crate) const FRAME_BYTES_MAX: usize = 4 << 20;
/// Longest frame before the user is known: the context of a connection names a user and a protocol.
pub(crate) const CONTEXT_BYTES_MAX: usize = 4 << 10;
/// Call numbers of the connection itself: its context, a message of SASL, a ping.
pub(crate) const CALL_CONTEXT: i32 = -3;
/// Bytes of a client's id; Hadoop's are 16 random bytes. Results are kept under it.
const CLIENT_ID_BYTES_MAX: usize = 16;
const CALL_PING: i32 = -4;
const CALL_SASL: i32 = -33;

/// The authentication method of the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The client names its user.
    Simple,
    /// The client asks for the server's methods first.
    Sasl,
}

/// A frame from a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RpcFrame {
    /// The user.
    Context(IpcConnectionContext),
    /// The question for authentication methods.
    Negotiate,
    /// A ping.
    Ping,
    /// A call.
    Call(Call),
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    /// The client, and the number of the call there.
    pub(crate) id: CallId,
    /// Earlier attempts; negative if the client does not count.
    pub(crate) retry: i32,
    /// The protocol.
    pub(crate) protocol: String,
    /// The method.
    pub(crate) method: String,
    /// Its parameters, encoded.
    pub(crate) parameters: Vec<u8>,
}

/// The permanent name of a call: a repetition has the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId {
    /// The random id of the client program.
    pub(crate) client: Vec<u8>,
    /// The number of the call.
    pub(crate) number: i32,
}

/// Why bytes are no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RpcError {
    /// The client speaks another protocol.
    #[error("the connection does not begin with hrpc")]
    NotHadoop,
    /// Another version of the protocol.
    #[error("Server IPC version {VERSION} cannot communicate with client version {found}")]
    Version {
        /// The version of the client.
        found: u8,
    },
    /// An unknown authentication method.
    #[error("unknown way to authenticate: {found}")]
    Authentication {
        /// The method of the client.
        found: u8,
    },
    /// A frame that is too long, or of negative length.
    #[error("a frame of {len} bytes: at most {FRAME_BYTES_MAX} are read")]
    Length {
        /// The length.
        len: u32,
    },
    /// A header, or a body about the connection, that cannot be decoded.
    #[error("malformed {part} of a request: {why}")]
    Malformed {
        /// Which part.
        part: &'static str,
        /// The decoder's reason.
        why: String,
    },
    /// Parameters of an obsolete kind.
    #[error("calls of kind {kind} are not served, only protocol buffers")]
    Kind {
        /// The kind.
        kind: i32,
    },
    /// A kind of authentication that is not served.
    #[error("only simple authentication is served")]
    Sasl,
}

/// Parses the first bytes of a connection.
///
/// # Errors
/// `NotHadoop`, `Version`, `Authentication`.
pub(crate) fn greeting(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, RpcError> {
    let [h, r, p, c, version, _, authentication] = *bytes;
    if [h, r, p, c] != *b"hrpc" {
        return Err(RpcError::NotHadoop);
    }
    if version != VERSION {
        return Err(RpcError::Version { found: version });
    }
    match authentication {
        0 => Ok(Greeting::Simple),
        0xDF => Ok(Greeting::Sasl),
        found => Err(RpcError::Authentication { found }),
    }
}

/// The length of the frame that follows.
///
/// # Errors
/// `Length`.
pub(crate) fn frame_len(prefix: [u8; 4]) -> Result<usize, RpcError> {
    let len = u32::from_be_bytes(prefix);
    if len as usize > FRAME_BYTES_MAX { Err(RpcError::Length { len }) } else { Ok(len as usize) }
}

/// Parses a frame. An error comes with the call that it is about, if that could be parsed.
pub(crate) fn frame(mut bytes: &[u8]) -> Result<RpcFrame, (Option<CallId>, RpcError)> {
    let header: RpcRequestHeader = next(&mut bytes, "header").map_err(|error| (None, error))?;
    if header.client_id.len() > CLIENT_ID_BYTES_MAX {
        let why = format!("a client id of {} bytes: at most {CLIENT_ID_BYTES_MAX}", header.client_id.len());
        return Err((None, RpcError::Malformed { part: "header", why }));
    }
    let id = CallId { client: header.client_id, number: header.call_id };
    body(&mut bytes, &id, header.rpc_kind, header.retry_count).map_err(|error| (Some(id), error))
}

fn body(bytes: &mut &[u8], id: &CallId, kind: Option<i32>, retry: Option<i32>) -> Result<RpcFrame, RpcError> {
    match id.number {
        CALL_CONTEXT => Ok(RpcFrame::Context(next(bytes, "connection context")?)),
        CALL_PING => Ok(RpcFrame::Ping),
        CALL_SASL => {
            let message: RpcSasl = next(bytes, "authentication")?;
            if message.state == sasl::NEGOTIATE { Ok(RpcFrame::Negotiate) } else { Err(RpcError::Sasl) }
        }
        number if number < 0 => {
            Err(RpcError::Malformed { part: "header", why: format!("there is no call number {number}") })
        }
        _ => {
            let kind = kind.unwrap_or(RPC_PROTOCOL_BUFFER);
            if kind != RPC_PROTOCOL_BUFFER {
                return Err(RpcError::Kind { kind });
            }
            let header: RequestHeader = next(bytes, "method")?;
            Ok(RpcFrame::Call(Call {
                id: id.clone(),
                retry: retry.unwrap_or(-1),
                protocol: header.declaring_class_protocol_name,
                method: header.method_name,
                parameters: take(bytes, "parameters")?.to_vec(),
            }))
        }
    }
}

/// A frame with the result of a call.
pub(crate) fn answer(id: &CallId, retry: i32, reply: &[u8]) -> Vec<u8> {
    let header = RpcResponseHeader {
        call_id: id.number as u32,
        status: rpc_status::SUCCESS,
        server_ipc_version_num: Some(VERSION.into()),
        client_id: Some(id.client.clone()),
        retry_count: Some(retry),
        ..RpcResponseHeader::default()
    };
    framed(&header, Some(reply))
}

/// The failure of a call, or of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallError<'a> {
    /// One of [`rpc_error`].
    pub(crate) detail: i32,
    /// The connection ends after it.
    pub(crate) is_fatal: bool,
    /// Name of the Java class.
    pub(crate) class: &'a str,
    /// The message.
    pub(crate) message: &'a str,
}

/// A frame with the failure of a call.
pub(crate) fn failure(id: &CallId, retry: i32, failed: CallError<'_>) -> Vec<u8> {
    let header = RpcResponseHeader {
        call_id: id.number as u32,
        status: if failed.is_fatal { rpc_status::FATAL } else { rpc_status::ERROR },
        server_ipc_version_num: Some(VERSION.into()),
        exception_class_name: Some(failed.class.to_owned()),
        error_msg: Some(failed.message.to_owned()),
        error_detail: Some(failed.detail),
        client_id: Some(id.client.clone()),
        retry_count: Some(retry),
    };
    framed(&header, None)
}

/// A frame that refuses a malformed request; the connection ends after it. `None` for a client of another protocol.
pub(crate) fn refusal(id: Option<&CallId>, error: &RpcError) -> Option<Vec<u8>> {
    let (class, detail) = match error {
        RpcError::NotHadoop => return None,
        RpcError::Version { .. } => ("org.apache.hadoop.ipc.RPC$VersionMismatch", rpc_error::VERSION_MISMATCH),
        RpcError::Authentication { .. } | RpcError::Sasl => {
            ("org.apache.hadoop.security.AccessControlException", rpc_error::UNAUTHORIZED)
        }
        RpcError::Length { .. } | RpcError::Kind { .. } => (RPC_SERVER_EXCEPTION, rpc_error::INVALID_RPC_HEADER),
        RpcError::Malformed { .. } => (RPC_SERVER_EXCEPTION, rpc_error::DESERIALIZING_REQUEST),
    };
    let none = CallId { client: Vec::new(), number: -1 };
    let failed = CallError { detail, is_fatal: true, class, message: &error.to_string() };
    Some(failure(id.unwrap_or(&none), -1, failed))
}

/// The reply to [`RpcFrame::Negotiate`]: no authentication.
pub(crate) fn go_on_simple() -> Vec<u8> {
    let id = CallId { client: Vec::new(), number: CALL_SASL };
    let message = RpcSasl { version: Some(0), state: sasl::SUCCESS, token: None, auths: Vec::new() };
    answer(&id, -1, &message.encode_to_vec())
}

fn framed(header: &RpcResponseHeader, reply: Option<&[u8]>) -> Vec<u8> {
    let reply_len = reply.map_or(0, |reply| reply.len() + 10);
    let mut bytes = Vec::with_capacity(4 + header.encoded_len() + 10 + reply_len);
    bytes.extend([0; 4]);
    header.encode_length_delimited(&mut bytes).expect("a vector grows");
    if let Some(reply) = reply {
        encode_varint(reply.len() as u64, &mut bytes);
        bytes.extend(reply);
    }
    let len = (bytes.len() - 4) as u32;
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// The next message, which its length precedes.
pub(crate) fn next<M: Message + Default>(bytes: &mut &[u8], part: &'static str) -> Result<M, RpcError> {
    let message = take(bytes, part)?;
    M::decode(message).map_err(|error| RpcError::Malformed { part, why: error.to_string() })
}

/// The next bytes, which their length precedes.
fn take<'b>(bytes: &mut &'b [u8], part: &'static str) -> Result<&'b [u8], RpcError> {
    let malformed = |why: &str| RpcError::Malformed { part, why: why.to_owned() };
    let len = decode_varint(bytes).map_err(|error| malformed(&error.to_string()))?;
    let len = usize::try_from(len).ok().filter(|&len| len <= bytes.len());
    let (taken, rest) = bytes.split_at(len.ok_or_else(|| malformed("it is longer than its frame"))?);
    *bytes = rest;
    Ok(taken)
}

const RPC_SERVER_EXCEPTION: &str = "org.apache.hadoop.ipc.RpcServerException";

#[cfg(test)]
mod tests;
