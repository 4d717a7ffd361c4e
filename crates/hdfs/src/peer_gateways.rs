//! Leases at the gateways of other servers.
//!
//! A lease is known to one gateway. Every server knows that a file is being written: the session of the writer's
//! gateway holds the right to write there until the file is closed, or the session has ended. A gateway that needs a
//! file lists the sessions that may write it ([`frieze_client::Fs::writers`]), and queries each that belongs to a
//! gateway, over its data service, for the holder of the lease, and to end the lease if needed. A gateway that has
//! ended a lease writes nothing more under it. One that does not answer may: then the file is not free until its
//! session has ended, for with that the cluster refuses what it still sends (ADR 28).
//!
//! A writer that lost its gateway continues at another by the stored lease ([`crate::lease_takeover`]). So a client
//! that takes a file takes the stored leases too, and repeats both until neither is left, the stored ones first
//! ([`crate::file_writers`]).
//!
//! Guarantees: when a lease is revoked, at any gateway, nothing is written under it any more, and it does not continue
//! anywhere. Two clients that open a file to append at two gateways at the same time may both be refused; never do both
//! succeed.
//! Leaves to others: writers on mounts and through other gateways are not held up, as at one gateway; a single server
//! has no peers.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use frieze_client::{Client, Error, InodeId, NodeId, Target};
use prost::Message;

use crate::attributes::is_deleted;
use crate::blocks::{TokenMint, wall_ns};
use crate::framing::read_message;
use crate::leases::Revocation;
use crate::locations::BlockLocator;
use crate::proto::Token;
use crate::transfer::{self, QUESTION, VERSION};

/// A query from one gateway to another, signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseQuery {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub(crate) inode: u64,
    /// When to end the lease: 1 if its writer was silent for long, 2 always, 3 if the holder is `holder`.
    #[prost(uint32, tag = "2")]
    takes: u32,
    /// Random number of this query; the reply repeats it.
    #[prost(bytes = "vec", tag = "3")]
    nonce: Vec<u8>,
    /// Expiry, nanoseconds since 1970.
    #[prost(uint64, tag = "4")]
    expires_ns: u64,
    /// The holder for `takes` = 3.
    #[prost(string, tag = "5")]
    holder: String,
}

/// The reply to a query, signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseReply {
    /// That of the query.
    #[prost(bytes = "vec", tag = "1")]
    nonce: Vec<u8>,
    /// The session by which the gateway writes now.
    #[prost(uint64, tag = "2")]
    session: u64,
    /// The holder that keeps the lease; empty if there is none.
    #[prost(string, tag = "3")]
    holder: String,
    /// A lease ended by this query.
    #[prost(bool, tag = "4")]
    ended: bool,
}

impl LeaseQuery {
    /// When to end the lease; `None` for a number that this version does not know.
    pub(crate) fn revocation(&self) -> Option<Revocation<'_>> {
        match self.takes {
            0 => Some(Revocation::Nothing),
            1 => Some(Revocation::Silent),
            2 => Some(Revocation::Any),
            3 => Some(Revocation::Of(&self.holder)),
            _ => None,
        }
    }
}

/// The writer of a file at another gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteWriter {
    /// There is none.
    Nobody,
    /// There is none any more: its lease was ended.
    Ended,
    /// This one, which keeps its lease.
    Held(String),
    /// Unknown: a gateway does not answer, or writes of its server's former session may still arrive.
    Unknown(NodeId),
}

/// The command of the session of a server's gateway: gateways recognise each other's sessions by it.
pub fn session_of(node: NodeId) -> String {
    format!("{SESSION}{node}")
}

fn node_of(command: &str) -> Option<NodeId> {
    command.strip_prefix(SESSION)?.parse().ok()
}

const SESSION: &str = "hdfs-door of frieze serve, node ";

/// Asks the gateways of other servers.
pub(crate) struct PeerGateways {
    pub(crate) client: Client,
    pub(crate) locator: Arc<BlockLocator>,
    /// Signs queries and replies.
    pub(crate) mint: TokenMint,
}

impl PeerGateways {
    /// The query in a token; `None` if no gateway of this cluster signed it, or it has expired.
    pub(crate) fn verify(&self, token: &Token) -> Option<LeaseQuery> {
        self.mint.unseal(token).filter(|query: &LeaseQuery| wall_ns() < query.expires_ns)
    }

    /// The signed reply to a query: the holder that keeps the lease, and whether one lost it.
    pub(crate) fn reply(&self, query: &LeaseQuery, session: u64, (holder, ended): (String, bool)) -> Token {
        self.mint.seal(&LeaseReply { nonce: query.nonce.clone(), session, holder, ended })
    }

    /// Queries the other gateways for a file. Leases to be ended have ended when this returns.
    pub(crate) fn writer_of(&self, inode: u64, takes: Revocation<'_>) -> Result<RemoteWriter, Error> {
        if !self.client.has_others() {
            return Ok(RemoteWriter::Nobody);
        }
        let writers = match self.client.fs().writers(&Target::inode(InodeId(inode))) {
            // A removed file cannot be written.
            Err(error) if is_deleted(&error) => return Ok(RemoteWriter::Nobody),
            writers => writers?,
        };
        let own = self.client.session()?;
        let mut answers: Vec<(NodeId, Option<LeaseReply>)> = Vec::new();
        let mut unknown = None;
        for writer in writers.iter().filter(|writer| writer.session != own) {
            let Some(node) = node_of(&writer.command) else { continue };
            if !answers.iter().any(|(context, _)| *context == node) {
                // A former session of this server has no gateway to query.
                let answer = if node == self.locator.node { None } else { self.ask(node, inode, takes) };
                answers.push((node, answer));
            }
            match answers.iter().find(|(context, _)| *context == node) {
                Some((_, Some(answer))) if !answer.holder.is_empty() => {
                    return Ok(RemoteWriter::Held(answer.holder.clone()));
                }
                Some((_, Some(answer))) if answer.session == writer.session.0 => {}
                // No reply; or the server was restarted, and writes of its former session may still arrive until that
                // has ended.
                _ => unknown = Some(node),
            }
        }
        let has_ended = answers.iter().flat_map(|(_, answer)| answer).any(|answer| answer.ended);
        Ok(match unknown {
            Some(node) => RemoteWriter::Unknown(node),
            None if has_ended => RemoteWriter::Ended,
            None => RemoteWriter::Nobody,
        })
    }

    fn ask(&self, node: NodeId, inode: u64, takes: Revocation<'_>) -> Option<LeaseReply> {
        let place = self.locator.data_address_of(node)?;
        match self.ask_at(place, inode, takes) {
            Ok(answer) => Some(answer),
            Err(error) => {
                let inode = InodeId(inode);
                tracing::warn!(%node, %place, %inode, "a gateway does not answer which client writes a file: {error}");
                None
            }
        }
    }

    fn ask_at(&self, place: SocketAddr, inode: u64, takes: Revocation<'_>) -> io::Result<LeaseReply> {
        let is_none = || io::Error::new(io::ErrorKind::InvalidData, "that is no reply of a gateway of this cluster");
        let nonce = drawn()?.to_vec();
        let expires_ns = wall_ns().saturating_add(ANSWER_MAX.as_nanos() as u64);
        let (takes, holder) = match takes {
            Revocation::Nothing => (0, ""),
            Revocation::Silent => (1, ""),
            Revocation::Any => (2, ""),
            Revocation::Of(holder) => (3, holder),
        };
        let question = LeaseQuery { inode, takes, nonce, expires_ns, holder: holder.to_owned() };
        let stream = TcpStream::connect_timeout(&place, CONNECT_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut request = VERSION.to_be_bytes().to_vec();
        request.push(QUESTION);
        request.extend(self.mint.seal(&question).encode_length_delimited_to_vec());
        (&stream).write_all(&request)?;
        let answer = read_message(&mut BufReader::new(&stream))?;
        let answer = transfer::message::<Token>(&answer, "reply of a gateway").map_err(|_| is_none())?;
        let answer: LeaseReply = self.mint.unseal(&answer).ok_or_else(is_none)?;
        if answer.nonce == question.nonce { Ok(answer) } else { Err(is_none()) }
    }
}

fn drawn() -> io::Result<[u8; 16]> {
    let mut nonce = [0; 16];
    // So few bytes are never cut short (getrandom(2)).
    rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()))?;
    Ok(nonce)
}

/// Timeouts of a query: to connect, and to answer, which may have to wait for a write in progress.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_recognises_sessions_of_gateways_by_their_command() {
        assert_eq!(node_of(&session_of(NodeId(31))), Some(NodeId(31)));
        for command in ["frieze put a b", "hdfs-door of frieze serve, node ", "webhdfs-door of frieze serve, node 3"] {
            assert_eq!(node_of(command), None, "{command}");
        }
    }
}
