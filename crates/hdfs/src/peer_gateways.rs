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

use frieze_client::{Error, InodeId, NodeId, Reason, SessionId, Target};
use prost::Message;

use crate::blocks::wall_ns;
use crate::data_service::read_message;
use crate::exception::Exception;
use crate::file_writes::close_file;
use crate::leases::{FileLease, LeaseHolder, Revocation, SOFT_NS, owned};
use crate::proto::Token;
use crate::service::{CallContext, Service};
use crate::transfer::{self, QUESTION, VERSION};

/// What one door asks another, signed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct LeaseQuery {
    /// The file.
    #[prost(uint64, tag = "1")]
    inode: u64,
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

impl Service {
    /// Checks that nobody writes a file, at any door. Who was silent for long is taken for gone.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException`.
    pub(crate) fn check_free(
        &self,
        context: CallContext<'_>,
        inode: u64,
        path: &str,
        client_name: &str,
    ) -> Result<(), Exception> {
        let wants = context.holder(client_name);
        self.leases.check_free(inode, path, &wants)?;
        self.check_free_elsewhere(inode, path, &wants)
    }

    fn check_free_elsewhere(&self, inode: u64, path: &str, wants: &str) -> Result<(), Exception> {
        match self.writer_elsewhere(inode, Revocation::Silent).map_err(|error| Exception::of(error, path))? {
            RemoteWriter::Nobody | RemoteWriter::Ended => Ok(()),
            other => Err(in_the_way(other, path, wants)),
        }
    }

    /// Who has a file at another door, or had it at one that ended a moment ago: he is about to go on.
    pub(crate) fn writer_elsewhere(&self, inode: u64, takes: Revocation<'_>) -> Result<RemoteWriter, Error> {
        if !self.client.has_others() {
            return Ok(RemoteWriter::Nobody);
        }
        let found = self.elsewhere(inode, takes)?;
        if !matches!(found, RemoteWriter::Nobody | RemoteWriter::Ended) {
            return Ok(found);
        }
        let notes = match self.leases.notes().of_file(inode) {
            Err(error) if is_gone(&error) => return Ok(RemoteWriter::Nobody),
            notes => notes?,
        };
        let now = wall_ns();
        let left = notes.into_iter().find(|note| note.left_ns != 0 && now.saturating_sub(note.left_ns) < SOFT_NS);
        Ok(left.map_or(found, |note| RemoteWriter::Held(note.holder)))
    }

    /// Makes a lease that was just given here the only one, or refuses.
    ///
    /// # Errors
    /// `AlreadyBeingCreatedException` if somebody has the file at another door, or is about to.
    pub(crate) fn claim(&self, lease: &FileLease, at: u64) -> Result<(), Exception> {
        if !self.client.has_others() {
            return Ok(());
        }
        let failed = |error| Exception::of(error, &lease.path);
        // First it is seen that somebody writes here, then it is looked who writes elsewhere. So of two who do that at one time one sees the other.
        lease.file.prepare_write(at, 1).map_err(failed)?;
        self.check_free_elsewhere(lease.inode, &lease.path, &lease.holder)?;
        match self.take_all(lease.inode, Revocation::Silent, Some(lease.id)).map_err(failed)? {
            RemoteWriter::Nobody => Ok(()),
            other => Err(in_the_way(other, &lease.path, &lease.holder)),
        }
    }

    /// Takes a file from everybody who has it by a lease, or had it and may go on. False: not all of them can be asked just now.
    pub(crate) fn take_from_all(&self, inode: u64) -> Result<bool, Error> {
        if !self.client.has_others() {
            return Ok(true);
        }
        // Who has the lease could note it again.
        self.elsewhere(inode, Revocation::Any)?;
        Ok(self.take_all(inode, Revocation::Any, None)? == RemoteWriter::Nobody)
    }

    /// Takes what is noted of leases on a file, but for this one's, and the leases, until there are neither. In this order, a round without either is
    /// the last: who goes on by a note is seen to write before he takes it.
    fn take_all(&self, inode: u64, takes: Revocation<'_>, but: Option<u64>) -> Result<RemoteWriter, Error> {
        for _ in 0..ROUNDS_MAX {
            let notes = match self.leases.notes().of_file(inode) {
                Err(error) if is_gone(&error) => return Ok(RemoteWriter::Nobody),
                notes => notes?,
            };
            let noted: Vec<u64> = notes.iter().map(|note| note.id).filter(|id| Some(*id) != but).collect();
            for id in &noted {
                self.leases.notes().take(inode, *id)?;
            }
            // Somebody may have gone on at this very door, too.
            let has_ended_here = but.is_none() && self.end_here(inode);
            match self.elsewhere(inode, takes)? {
                RemoteWriter::Nobody if noted.is_empty() && !has_ended_here => return Ok(RemoteWriter::Nobody),
                RemoteWriter::Nobody | RemoteWriter::Ended => {}
                kept => return Ok(kept),
            }
        }
        // There was something in every round: that there is nothing now nobody can say.
        Ok(RemoteWriter::Ended)
    }

    /// Ends the lease that this door has given on a file. True if there was one.
    fn end_here(&self, inode: u64) -> bool {
        let Some(lease) = self.leases.end(inode) else { return false };
        settle(lease);
        true
    }

    /// Who has a file at another door; what is to be given up is, when this returns.
    pub(crate) fn elsewhere(&self, inode: u64, takes: Revocation<'_>) -> Result<RemoteWriter, Error> {
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
                let answer = if node == self.node { None } else { self.ask(node, inode, takes) };
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
        let place = self.data_place_of(node)?;
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
        request.extend(self.between_doors.seal(&question).encode_length_delimited_to_vec());
        (&stream).write_all(&request)?;
        let answer = read_message(&mut BufReader::new(&stream))?;
        let answer = transfer::message::<Token>(&answer, "answer of a door").map_err(|_| is_none())?;
        let answer: LeaseReply = self.between_doors.unseal(&answer).ok_or_else(is_none)?;
        if answer.nonce == question.nonce { Ok(answer) } else { Err(is_none()) }
    }

    /// Answers another door; `None` if none of this cluster's asks, or it comes too late.
    pub(crate) fn answer_door(&self, token: &Token) -> Option<Token> {
        let question: LeaseQuery =
            self.between_doors.unseal(token).filter(|question: &LeaseQuery| wall_ns() < question.expires_ns)?;
        let takes = match question.takes {
            0 => Revocation::Nothing,
            1 => Revocation::Silent,
            2 => Revocation::Any,
            3 => Revocation::Of(&question.holder),
            _ => return None,
        };
        let session = self.client.session().unwrap_or(SessionId(0)).0;
        let (holder, ended) = match self.leases.query(question.inode, takes) {
            LeaseHolder::Nobody => (String::new(), false),
            LeaseHolder::By(holder) => (holder, false),
            LeaseHolder::Ended(lease) => {
                tracing::info!(path = lease.path, holder = lease.holder, "another door takes a file from its writer");
                settle(lease);
                (String::new(), true)
            }
        };
        Some(self.between_doors.seal(&LeaseReply { nonce: question.nonce, session, holder, ended }))
    }
}

/// Closes what was taken from its writer.
fn settle(lease: Arc<FileLease>) {
    let path = lease.path.clone();
    if let Err(exception) = close_file(lease, None) {
        tracing::warn!(path, "what was taken from its writer is not settled yet: {exception}");
    }
}

/// Why a file is not free.
fn in_the_way(found: RemoteWriter, path: &str, wants: &str) -> Exception {
    match found {
        RemoteWriter::Held(holder) => owned(path, wants, &holder),
        RemoteWriter::Unknown(node) => Exception::already_being_created(format!(
            "Failed to CREATE_FILE {path} for {wants} because it may still be written through server {node}, whose door does not answer or was \
             restarted just now: try again when it answers, or in a minute"
        )),
        RemoteWriter::Nobody | RemoteWriter::Ended => Exception::already_being_created(format!(
            "Failed to CREATE_FILE {path} for {wants} because others open and leave it all the time: try again"
        )),
    }
}

/// Nothing can be written to what is gone.
pub(crate) fn is_gone(error: &Error) -> bool {
    [Reason::NotFound, Reason::StaleHandle].contains(&error.reason())
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

/// Somebody else takes and leaves the same file again and again.
const ROUNDS_MAX: u32 = 8;

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
