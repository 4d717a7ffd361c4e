//! The name service: connections with a greeting, the user, and calls.
//!
//! A client program has one connection for all its threads and sends call after call without waiting. Short calls are
//! answered by the thread that reads them, and answers to calls that arrived together are sent together: passing a call
//! to another thread costs more than the call. A pool of threads, shared by all connections, answers the others, and
//! all calls whose answer may wait for another server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use frieze_client::{AcceptedConnection, Caller, ConnectionHandler, Guest, LogThrottle, NOBODY};

use crate::accounts::{Account, Trust, account};
use crate::error::Error;
use crate::exception::Exception;
use crate::framing::{read_frame, read_or_end};
use crate::guarded_reader::{self, PROOF_MAX};
use crate::proto::rpc_error;
use crate::remote_user::RemoteUser;
use crate::replicas;
use crate::rpc::{self, Call, CallError, CallId, Greeting, RpcFrame};
use crate::service::{PROTOCOL, Service};

/// Threads of the pool. Each may wait for the server.
const THREADS: usize = 32;
/// Calls waiting for the pool; connections wait beyond it.
const QUEUE_MAX: usize = 1024;
/// A client with a user sends a ping once a minute, and closes an unused connection after ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// A client that does not read its answers for this long is disconnected.
const SEND_MAX: Duration = Duration::from_secs(30);

/// Calls that the reading thread answers: each reads or changes a few names.
const SOON: &[&str] = &[
    "addBlock",
    "complete",
    "create",
    "getBlockLocations",
    "getFileInfo",
    "getFileLinkInfo",
    "getListing",
    "getLocatedFileInfo",
    "getServerDefaults",
    "isFileClosed",
    "mkdirs",
    "renewLease",
];
/// Bytes read at once of a client that sends many calls together.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of answers that wait for those to the next calls.
const HELD_BYTES_MAX: usize = 64 << 10;

/// Serves remote calls.
pub(crate) struct NameService {
    trust: Trust,
    service: Arc<Service>,
    queue: Mutex<Option<SyncSender<QueuedCall>>>,
    refused: LogThrottle,
}

/// A call in the queue of the pool.
struct QueuedCall {
    user: Arc<RemoteUser>,
    call: Call,
    writer: Arc<ReplyWriter>,
}

/// The sending half of a connection.
struct ReplyWriter(Mutex<TcpStream>);

impl NameService {
    /// Starts the pool.
    pub(crate) fn start(service: &Arc<Service>, trust: Trust) -> Result<NameService, Error> {
        let (sender, receiver) = sync_channel::<QueuedCall>(QUEUE_MAX);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..THREADS {
            let (service, receiver) = (service.clone(), receiver.clone());
            thread::Builder::new()
                .name("hdfs-call".to_owned())
                .spawn(move || answer_all(&service, &receiver))
                .map_err(|source| Error::System { doing: "start a thread", source })?;
        }
        Ok(NameService {
            trust,
            service: service.clone(),
            queue: Mutex::new(Some(sender)),
            refused: LogThrottle::default(),
        })
    }

    fn converse(&self, accepted: AcceptedConnection, writer: &Arc<ReplyWriter>) -> io::Result<()> {
        let AcceptedConnection { stream, peer, local, mut guest } = accepted;
        let stream = &stream;
        stream.set_write_timeout(Some(PROOF_MAX))?;
        let (reached, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
        let mut reader = guarded_reader::reader(stream);
        let mut greeting = [0; rpc::GREETING_BYTES];
        reader.read_exact(&mut greeting)?;
        let greeting = match rpc::greeting(&greeting) {
            Ok(greeting) => greeting,
            Err(error) => return writer.refuse(None, &error),
        };
        let mut is_simple = greeting == Greeting::Simple;
        let mut user: Option<Arc<RemoteUser>> = None;
        let mut is_of_block = false;
        let mut held = Vec::new();
        loop {
            if !held.is_empty() && (held.len() > HELD_BYTES_MAX || !has_frame(reader.buffer())) {
                writer.send(&held)?;
                held.clear();
            }
            guarded_reader::rest(&mut reader)?;
            let mut prefix = [0; 4];
            if !read_or_end(&mut reader, &mut prefix)? {
                return Ok(());
            }
            let frame = match rpc::frame_len(prefix) {
                // Closed without an answer, as Hadoop's own servers do: a client without a user waits for none.
                Ok(len) if user.is_none() && len > rpc::CONTEXT_BYTES_MAX => {
                    tracing::debug!(len, "a Hadoop client sends too much before it says who it is");
                    return Ok(());
                }
                Ok(len) => read_frame(&mut reader, len)?,
                Err(error) => return writer.refuse(None, &error),
            };
            let is_large = frame.len() > guarded_reader::SMALL_BYTES;
            let frame = rpc::frame(&frame);
            if user.is_some() && (is_large || reader.buffer().len() > guarded_reader::SMALL_BYTES / 2) {
                guarded_reader::resize(&mut reader, BUFFER_BYTES)?;
            }
            if !held.is_empty() && !matches!(frame, Ok(RpcFrame::Call(_) | RpcFrame::Ping)) {
                // Answers to earlier calls are sent before the refusal.
                writer.send(&held)?;
                held.clear();
            }
            match frame {
                Err((id, error)) => return writer.refuse(id.as_ref(), &error),
                Ok(RpcFrame::Ping) => {}
                Ok(RpcFrame::Negotiate) if !is_simple => {
                    is_simple = true;
                    writer.send(&rpc::go_on_simple())?;
                }
                Ok(RpcFrame::Context(context)) if is_simple && user.is_none() => {
                    let protocol = context.protocol.unwrap_or_default();
                    if ![PROTOCOL, replicas::PROTOCOL].contains(&protocol.as_str()) {
                        tracing::debug!(protocol, "a Hadoop client of a protocol that is not served");
                    }
                    let claimed = context.user_info.unwrap_or_default().effective_user;
                    if protocol == replicas::PROTOCOL && claimed.as_deref().is_some_and(replicas::is_block) {
                        // The user is the one that the kernel reports; such a connection makes no other calls.
                        let nobody = Caller { uid: NOBODY, gid: NOBODY, groups: Vec::new() };
                        let account = account(guest.proof, None, self.trust);
                        let account = account.unwrap_or(Account { name: claimed.unwrap_or_default(), caller: nobody });
                        admit(&mut guest, &reader, stream, &account)?;
                        user = Some(Arc::new(RemoteUser { account, reached, peer }));
                        is_of_block = true;
                        continue;
                    }
                    match account(guest.proof, claimed.as_deref(), self.trust) {
                        Ok(account) => {
                            admit(&mut guest, &reader, stream, &account)?;
                            user = Some(Arc::new(RemoteUser { account, reached, peer }));
                        }
                        Err(exception) => return self.refuse_connection(writer, &exception),
                    }
                }
                Ok(RpcFrame::Call(call)) if is_of_block && call.protocol != replicas::PROTOCOL => {
                    let words = format!("a connection for one block makes no calls of {}", call.protocol);
                    return self.refuse_connection(writer, &Exception::authorization(words));
                }
                Ok(RpcFrame::Call(call)) => match &user {
                    Some(user) if SOON.contains(&call.method.as_str()) && self.service.names.client.is_alone() => {
                        held.extend(answer(&self.service, user, &call));
                    }
                    Some(user) => {
                        let job = QueuedCall { user: user.clone(), call, writer: writer.clone() };
                        if self.queue().is_none_or(|queue| queue.send(job).is_err()) {
                            return Ok(());
                        }
                    }
                    None => {
                        let words = "a call before it is said who calls";
                        return self.refuse_connection(writer, &Exception::authorization(words));
                    }
                },
                Ok(RpcFrame::Negotiate | RpcFrame::Context(_)) => {
                    let words = "it is said already who calls, or how";
                    return self.refuse_connection(writer, &Exception::authorization(words));
                }
            }
        }
    }

    /// Sends an exception and ends the connection. Logged at a limited rate: a client may return as often as it likes.
    fn refuse_connection(&self, writer: &ReplyWriter, exception: &Exception) -> io::Result<()> {
        if let Some(count) = self.refused.happened() {
            tracing::info!(count, "Hadoop clients are turned away; the last: {}", exception.message);
        }
        writer.refuse_connection(exception)
    }

    fn queue(&self) -> Option<SyncSender<QueuedCall>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ConnectionHandler for NameService {
    const NAME: &'static str = "hdfs-name";

    fn serve(&self, accepted: AcceptedConnection) {
        let Ok(back) = accepted.stream.try_clone() else { return };
        let writer = Arc::new(ReplyWriter(Mutex::new(back)));
        if let Err(error) = self.converse(accepted, &writer) {
            tracing::debug!("a connection of a Hadoop client ended: {error}");
        }
    }

    fn stop(&self) {
        // Without a queue the threads of the pool end.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The user of the connection is known.
fn admit(
    guest: &mut Guest,
    reader: &guarded_reader::GuardedReader<'_>,
    stream: &TcpStream,
    account: &Account,
) -> io::Result<()> {
    guest.belongs_to(account.caller.uid)?;
    stream.set_write_timeout(Some(SEND_MAX))?;
    guarded_reader::admit(reader, SILENCE_MAX)
}

fn answer_all(service: &Service, receiver: &Mutex<Receiver<QueuedCall>>) {
    loop {
        let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(QueuedCall { user, call, writer }) = job else { return };
        if let Err(error) = writer.send(&answer(service, &user, &call)) {
            tracing::debug!("an answer to a Hadoop client is lost: {error}");
        }
    }
}

/// The frame that answers a call.
fn answer(service: &Service, user: &RemoteUser, call: &Call) -> Vec<u8> {
    match service.answer(user, call) {
        Ok(reply) => rpc::answer(&call.id, call.retry, &reply),
        Err(exception) => {
            tracing::debug!(method = call.method, user = user.account.name, "{exception}");
            let (class, message) = (exception.class, exception.message.as_str());
            rpc::failure(
                &call.id,
                call.retry,
                CallError { detail: detail_of(&exception), is_fatal: false, class, message },
            )
        }
    }
}

fn detail_of(exception: &Exception) -> i32 {
    if exception.class == Exception::no_such_method("").class {
        rpc_error::NO_SUCH_METHOD
    } else if exception.class == Exception::no_such_protocol("").class {
        rpc_error::NO_SUCH_PROTOCOL
    } else {
        rpc_error::APPLICATION
    }
}

impl ReplyWriter {
    fn send(&self, frame: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(frame)
    }

    fn refuse(&self, id: Option<&CallId>, error: &rpc::RpcError) -> io::Result<()> {
        tracing::debug!("a Hadoop client is turned away: {error}");
        rpc::refusal(id, error).map_or(Ok(()), |frame| self.send(&frame))
    }

    fn refuse_connection(&self, exception: &Exception) -> io::Result<()> {
        let none = CallId { client: Vec::new(), number: -1 };
        let (class, message) = (exception.class, exception.message.as_str());
        self.send(&rpc::failure(
            &none,
            -1,
            CallError { detail: rpc_error::UNAUTHORIZED, is_fatal: true, class, message },
        ))
    }
}

/// True if the next frame is complete. One of an impossible length never is.
fn has_frame(here: &[u8]) -> bool {
    here.split_first_chunk().is_some_and(|(prefix, rest)| rpc::frame_len(*prefix).is_ok_and(|len| rest.len() >= len))
}
