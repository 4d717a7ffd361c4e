//! Bytes of files: `CREATE`, `APPEND`, `OPEN`, and `GETFILECHECKSUM`, which reads them.
//!
//! Each has two steps, as in HDFS: the first is answered with the location of the bytes (307, or with `noredirect=true`
//! in JSON), the second transfers them. Both are here; the second has `data=true`. From the first step on, a moving
//! instant is an exact one.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use frieze_client::CallKind;
use frieze_hdfs::proto::{AppendRequest, CreateRequest, FsPermission, create_flag};
use frieze_hdfs::{Calls, Exception, RemoteUser, WriteHandle};
use hyper::Method;
use hyper::body::{Body, Incoming};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::json;
use crate::ops::existing;
use crate::recorded::recorded;
use crate::reply::HttpReply;
use crate::web_request::{PREFIX, WebRequest, invalid};

/// Bytes read or written at once, and most bytes of a file in memory.
const PIECE_BYTES: usize = 512 << 10;
/// Default block size, as in HDFS.
const BLOCK_BYTES: u64 = 128 << 20;
/// Characters that are escaped in the path of a URL.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'%')
    .add(b'\\');

/// An operation on bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferKind {
    Create,
    Append,
    Open,
    Checksum,
}

/// The operation of a request, if it is one of them.
pub(crate) fn kind_of(web_request: &WebRequest) -> Option<TransferKind> {
    match (&web_request.method, web_request.op.as_str()) {
        (&Method::PUT, "CREATE") => Some(TransferKind::Create),
        (&Method::POST, "APPEND") => Some(TransferKind::Append),
        (&Method::GET, "OPEN") => Some(TransferKind::Open),
        (&Method::GET, "GETFILECHECKSUM") => Some(TransferKind::Checksum),
        _ => None,
    }
}

/// Answers one: with the bytes, or with their location.
pub(crate) async fn answer(
    calls: &Calls,
    user: &RemoteUser,
    web_request: &WebRequest,
    host: &str,
    kind: TransferKind,
    body: Incoming,
) -> Result<HttpReply, Exception> {
    if !web_request.flag("data", false)? {
        return recorded(calls, CallKind::Stat, |_| first_step(calls, user, web_request, host, kind));
    }
    match kind {
        TransferKind::Create => {
            let writing = recorded(calls, CallKind::Create, |_| calls.create(user, &create_request(web_request)?))?;
            receive(calls, writing, web_request, body).await?;
            Ok(HttpReply::made(format!("webhdfs://{host}{}", escaped(&web_request.path))))
        }
        TransferKind::Append => {
            let request = AppendRequest { src: web_request.path.clone(), client_name: client_name(), flag: None };
            let writing = recorded(calls, CallKind::Open, |_| calls.append(user, &request))?;
            receive(calls, writing, web_request, body).await?;
            Ok(HttpReply::done())
        }
        TransferKind::Open => open(calls, user, web_request),
        TransferKind::Checksum => Ok(HttpReply::json(&json::checksum(&calls.checksum(user, &web_request.path)?))),
    }
}

/// The location of the bytes: this gateway.
fn first_step(
    calls: &Calls,
    user: &RemoteUser,
    web_request: &WebRequest,
    host: &str,
    kind: TransferKind,
) -> Result<HttpReply, Exception> {
    let path = match kind {
        TransferKind::Create => {
            create_request(web_request)?;
            web_request.path.clone()
        }
        _ => {
            existing(calls, user, &web_request.path)?;
            calls.pinned(user, &web_request.path)?
        }
    };
    let query = [web_request.raw_query.as_str(), "data=true"].join("&");
    let location = format!("http://{host}{PREFIX}{}?{query}", escaped(&path));
    if web_request.flag("noredirect", false)? {
        return Ok(HttpReply::json(&json!({ "Location": location })));
    }
    Ok(HttpReply::redirect(location))
}

fn create_request(web_request: &WebRequest) -> Result<CreateRequest, Exception> {
    let mut flags = if web_request.flag("overwrite", false)? { create_flag::OVERWRITE } else { 0 };
    for name in web_request.text("createflag").unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
        flags |= match name.trim().to_ascii_lowercase().as_str() {
            "create" => create_flag::CREATE,
            "overwrite" => create_flag::OVERWRITE,
            "append" => create_flag::APPEND,
            // What is acknowledged is in the file; the other flags select disks, which frieze does not offer.
            "sync_block"
            | "lazy_persist"
            | "new_block"
            | "no_local_write"
            | "should_replicate"
            | "ignore_client_locality" => 0,
            other => return Err(invalid("createflag", other, "there is no such flag")),
        };
    }
    Ok(CreateRequest {
        src: web_request.path.clone(),
        masked: Some(FsPermission { perm: web_request.permission(0o644)? }),
        client_name: client_name(),
        create_flag: flags | create_flag::CREATE,
        create_parent: web_request.flag("createparent", true)?,
        replication: web_request.number("replication")?.unwrap_or(1),
        block_size: web_request.number("blocksize")?.unwrap_or(BLOCK_BYTES),
        unmasked: web_request.unmasked()?,
        ec_policy_name: web_request.text("ecpolicy").map(str::to_owned),
        storage_policy: web_request.text("storagepolicy").map(str::to_owned),
    })
}

/// Each transfer is a writer with a name of its own.
fn client_name() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("WebHDFS_{}", LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Writes a body into a file, and closes it. If the body breaks off, the file has the bytes that arrived.
async fn receive(
    calls: &Calls,
    mut writing: WriteHandle,
    web_request: &WebRequest,
    mut body: Incoming,
) -> Result<(), Exception> {
    let mut put = |bytes: &[u8]| {
        recorded(calls, CallKind::Append, |scope| {
            scope.range(0, bytes.len() as u64);
            writing.put(bytes)?;
            scope.moved_in_all(bytes.len() as u64);
            Ok(())
        })
    };
    let mut pending = BytesMut::new();
    let mut received = 0;
    let broken = loop {
        match next_piece(&mut body).await {
            Ok(Some(piece)) => {
                received += piece.len();
                pending.extend_from_slice(&piece);
                if pending.len() >= PIECE_BYTES {
                    put(&pending)?;
                    pending.clear();
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if !pending.is_empty() {
        put(&pending)?;
    }
    recorded(calls, CallKind::Close, |_| writing.close())?;
    match broken {
        None => Ok(()),
        Some(error) => Err(Exception::io(format!(
            "{}: the body of the request broke off: the {received} bytes that came are in the file: {error}",
            web_request.path
        ))),
    }
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(frame) => {
                // Trailers are discarded.
                if let Ok(piece) = frame?.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

fn open(calls: &Calls, user: &RemoteUser, web_request: &WebRequest) -> Result<HttpReply, Exception> {
    let reading = recorded(calls, CallKind::Open, |_| calls.read(user, &web_request.path))?;
    let calls = calls.clone();
    let size = reading.size();
    let mut at = web_request.number::<u64>("offset")?.unwrap_or(0);
    if at > size {
        return Err(Exception::end_of_file(format!(
            "Offset={at} out of the range [0, {size}]; OPEN, path={}",
            web_request.path
        )));
    }
    let len = web_request.number::<u64>("length")?.unwrap_or(u64::MAX).min(size - at);
    let end = at + len;
    let mut room = BytesMut::new();
    Ok(HttpReply::bytes(len, move || {
        let count = PIECE_BYTES.min((end - at) as usize);
        // The memory of sent pieces is reused.
        room.resize(count, 0);
        recorded(&calls, CallKind::Read, |scope| {
            scope.range(at, count as u64);
            reading.fill(at, &mut room)?;
            scope.moved_in_all(count as u64);
            Ok(())
        })?;
        at += count as u64;
        Ok(Some(room.split().freeze()))
    }))
}

fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}
