//! Writers at the other doors of the cluster: who asks to write a file, or to take it from somebody, asks them too.
//!
//! A lease is known to one door. That somebody writes a file every server knows: the session of his door holds the right to write there
//! until the file is closed, or the session has ended. So whoever wants a file asks which sessions may write it
//! ([`frieze_client::Fs::writers`]), and of each that is a door's asks that door, over its data service, who has the lease, and to give it
//! up if that is wanted. A door that gave it up writes nothing more under it. One that does not answer may: then the file is not
//! free until its session has ended, for with that the cluster refuses what it still sends (ADR 28).
//!
//! A writer whose door is gone goes on at another by what is noted of its lease ([`crate::lease_takeover`]). So who takes a file from
//! somebody takes the notes too, and asks again until he has found neither note nor lease, the note first.
//!
//! Guarantees: when a lease is taken from somebody, at whatever door, nothing is written under it any more, nor does it go on
//! anywhere. Two that open a file to append at two doors at one time may both be refused; never are both let in.
//! Leaves to others: who writes on a mount or through another door is not held up, as at one door; a server that is alone has nobody to ask.

use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use frieze_client::{Client, Error, InodeId, NodeId, Target};
use prost::Message;

use crate::attributes::is_gone;
use crate::blocks::{TokenMint, wall_ns};
use crate::framing::read_message;
use crate::leases::Revocation;
use crate::locations::BlockLocator;
use crate::proto::Token;
use crate::transfer::{self, QUESTION, VERSION};

/// What one door asks another, signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseQuery {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub(crate) inode: u64,
    /// The lease is to be given up: 1 if nothing was heard of its writer for long, 2 in any case, 3 if that is `holder`.
    #[prost(uint32, tag = "2")]
    takes: u32,
    /// Drawn for this question; the answer says it again.
    #[prost(bytes = "vec", tag = "3")]
    nonce: Vec<u8>,
    /// When it is too late to answer, nanoseconds since 1970.
    #[prost(uint64, tag = "4")]
    expires_ns: u64,
    /// From whom it is to be taken.
    #[prost(string, tag = "5")]
    holder: String,
}

/// What it is answered, signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseReply {
    /// That of the question.
    #[prost(bytes = "vec", tag = "1")]
    nonce: Vec<u8>,
    /// The session that the door writes by now.
    #[prost(uint64, tag = "2")]
    session: u64,
    /// Who has the lease, and keeps it; empty if nobody does, any more.
    #[prost(string, tag = "3")]
    holder: String,
    /// Somebody had it until now.
    #[prost(bool, tag = "4")]
    ended: bool,
}

impl LeaseQuery {
    /// When the lease is to be given up; `None` for a number that this version does not know.
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

/// Who has a file at another door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteWriter {
    /// Nobody.
    Nobody,
    /// Nobody any more: somebody had it, and has given it up.
    Ended,
    /// This one, and keeps it.
    Held(String),
    /// It cannot be known: that server's door does not answer, or what it was before a restart may still be heard of.
    Unknown(NodeId),
}

/// How the session of a server's door calls itself: by this the doors know each other's.
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
    /// The query in a token; `None` if no gateway of this cluster signed it, or it comes too late.
    pub(crate) fn verify(&self, token: &Token) -> Option<LeaseQuery> {
        self.mint.unseal(token).filter(|query: &LeaseQuery| wall_ns() < query.expires_ns)
    }

    /// The signed reply to a query: the holder that keeps the lease, and whether one lost it.
    pub(crate) fn reply(&self, query: &LeaseQuery, session: u64, (holder, ended): (String, bool)) -> Token {
        self.mint.seal(&LeaseReply { nonce: query.nonce.clone(), session, holder, ended })
    }

    /// Who has a file at another door; what is to be given up is, when this returns.
    pub(crate) fn writer_of(&self, inode: u64, takes: Revocation<'_>) -> Result<RemoteWriter, Error> {
        if !self.client.has_others() {
            return Ok(RemoteWriter::Nobody);
        }
        let writers = match self.client.fs().writers(&Target::inode(InodeId(inode))) {
            // Nothing can be written to what is gone.
            Err(error) if is_gone(&error) => return Ok(RemoteWriter::Nobody),
            writers => writers?,
        };
        let own = self.client.session()?;
        let mut answers: Vec<(NodeId, Option<LeaseReply>)> = Vec::new();
        let mut unknown = None;
        for writer in writers.iter().filter(|writer| writer.session != own) {
            let Some(node) = node_of(&writer.command) else { continue };
            if !answers.iter().any(|(context, _)| *context == node) {
                // What this server was before is nobody to be asked.
                let answer = if node == self.locator.node { None } else { self.ask(node, inode, takes) };
                answers.push((node, answer));
            }
            match answers.iter().find(|(context, _)| *context == node) {
                Some((_, Some(answer))) if !answer.holder.is_empty() => {
                    return Ok(RemoteWriter::Held(answer.holder.clone()));
                }
                Some((_, Some(answer))) if answer.session == writer.session.0 => {}
                // It does not answer; or it was restarted, and what it sent before may still come until that session has ended.
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
        let place = self.locator.data_place_of(node)?;
        match self.ask_at(place, inode, takes) {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::warn!(%node, %place, "a door does not say who writes inode {}: {error}", InodeId(inode));
                None
            }
        }
    }

    fn ask_at(&self, place: SocketAddr, inode: u64, takes: Revocation<'_>) -> io::Result<LeaseReply> {
        let is_none = || io::Error::new(io::ErrorKind::InvalidData, "that is no answer of a door of this cluster");
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
        let answer = transfer::message::<Token>(&answer, "answer of a door").map_err(|_| is_none())?;
        let answer: LeaseReply = self.mint.unseal(&answer).ok_or_else(is_none)?;
        if answer.nonce == question.nonce { Ok(answer) } else { Err(is_none()) }
    }
}

fn drawn() -> io::Result<[u8; 16]> {
    let mut nonce = [0; 16];
    // So few are never cut short (getrandom(2)).
    rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty()))?;
    Ok(nonce)
}

/// How long another door has to take a connection, and to answer: it may have to wait for a write that is under way.
const CONNECT_MAX: Duration = Duration::from_secs(2);
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_s_session_is_known_by_what_it_calls_itself() {
        assert_eq!(node_of(&session_of(NodeId(31))), Some(NodeId(31)));
        for command in ["frieze put a b", "hdfs-door of frieze serve, node ", "webhdfs-door of frieze serve, node 3"] {
            assert_eq!(node_of(command), None, "{command}");
        }
    }
}
