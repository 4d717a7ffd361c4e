//! Bytes of files: `CREATE`, `APPEND`, `OPEN`, and `GETFILECHECKSUM`, which reads them.
//!
//! Each has two steps, as in HDFS: the first is answered with where the bytes are (307, or with `noredirect=true` in JSON), the
//! second moves them. Both are here; the second has `data=true`. A moving name of an instant is an exact one from the first
//! step on.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use frieze_hdfs::proto::{AppendRequest, CreateRequest, FsPermission, create_flag};
use frieze_hdfs::{Calls, Exception, Who, Writing};
use hyper::Method;
use hyper::body::{Body, Incoming};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::json;

use crate::asked::{Asked, PREFIX, invalid};
use crate::json;
use crate::ops::existing;
use crate::reply::Reply;

/// Bytes of a file that are read or written at once, and most of it that is in memory.
const PIECE_BYTES: usize = 512 << 10;
/// Of a file whose writer does not say: what HDFS has.
const BLOCK_BYTES: u64 = 128 << 20;
/// What a path of a URL escapes.
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

/// What moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Append,
    Open,
    Checksum,
}

/// Which of them a request is.
pub(crate) fn kind_of(asked: &Asked) -> Option<Kind> {
    match (&asked.method, asked.op.as_str()) {
        (&Method::PUT, "CREATE") => Some(Kind::Create),
        (&Method::POST, "APPEND") => Some(Kind::Append),
        (&Method::GET, "OPEN") => Some(Kind::Open),
        (&Method::GET, "GETFILECHECKSUM") => Some(Kind::Checksum),
        _ => None,
    }
}

/// Answers one of them: with the bytes, or with where they are.
pub(crate) async fn answer(
    calls: &Calls,
    who: &Who,
    asked: &Asked,
    host: &str,
    kind: Kind,
    body: Incoming,
) -> Result<Reply, Exception> {
    if !asked.flag("data", false)? {
        return first_step(calls, who, asked, host, kind);
    }
    match kind {
        Kind::Create => {
            let writing = calls.create(who, &create_request(asked)?)?;
            receive(writing, asked, body).await?;
            Ok(Reply::made(format!("webhdfs://{host}{}", escaped(&asked.path))))
        }
        Kind::Append => {
            let request = AppendRequest { src: asked.path.clone(), client_name: client_name(), flag: None };
            let writing = calls.append(who, &request)?;
            receive(writing, asked, body).await?;
            Ok(Reply::done())
        }
        Kind::Open => open(calls, who, asked),
        Kind::Checksum => Ok(Reply::json(&json::checksum(&calls.checksum(who, &asked.path)?))),
    }
}

/// Where the bytes are: here.
fn first_step(calls: &Calls, who: &Who, asked: &Asked, host: &str, kind: Kind) -> Result<Reply, Exception> {
    let path = match kind {
        Kind::Create => {
            create_request(asked)?;
            asked.path.clone()
        }
        _ => {
            existing(calls, who, &asked.path)?;
            calls.pinned(who, &asked.path)?
        }
    };
    let query = [asked.raw_query.as_str(), "data=true"].join("&");
    let location = format!("http://{host}{PREFIX}{}?{query}", escaped(&path));
    if asked.flag("noredirect", false)? {
        return Ok(Reply::json(&json!({ "Location": location })));
    }
    Ok(Reply::redirect(location))
}

fn create_request(asked: &Asked) -> Result<CreateRequest, Exception> {
    let mut flags = if asked.flag("overwrite", false)? { create_flag::OVERWRITE } else { 0 };
    for name in asked.text("createflag").unwrap_or_default().split(',').filter(|name| !name.is_empty()) {
        flags |= match name.trim().to_ascii_lowercase().as_str() {
            "create" => create_flag::CREATE,
            "overwrite" => create_flag::OVERWRITE,
            "append" => create_flag::APPEND,
            // Whatever is acknowledged is in the file; what else there is of flags is about disks that are not chosen here.
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
        src: asked.path.clone(),
        masked: Some(FsPermission { perm: asked.permission(0o644)? }),
        client_name: client_name(),
        create_flag: flags | create_flag::CREATE,
        create_parent: asked.flag("createparent", true)?,
        replication: asked.number("replication")?.unwrap_or(1),
        block_size: asked.number("blocksize")?.unwrap_or(BLOCK_BYTES),
        unmasked: asked.unmasked()?,
        ec_policy_name: asked.text("ecpolicy").map(str::to_owned),
        storage_policy: asked.text("storagepolicy").map(str::to_owned),
    })
}

/// Each transfer is a writer of its own.
fn client_name() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("WebHDFS_{}", LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

/// Puts what comes into a file, and closes it. What came of a body that breaks off is in it.
async fn receive(mut writing: Writing, asked: &Asked, mut body: Incoming) -> Result<(), Exception> {
    let mut pending = BytesMut::new();
    let mut received = 0;
    let broken = loop {
        match next_piece(&mut body).await {
            Ok(Some(piece)) => {
                received += piece.len();
                pending.extend_from_slice(&piece);
                if pending.len() >= PIECE_BYTES {
                    writing.put(&pending)?;
                    pending.clear();
                }
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    if !pending.is_empty() {
        writing.put(&pending)?;
    }
    writing.close()?;
    match broken {
        None => Ok(()),
        Some(error) => Err(Exception::io(format!(
            "{}: the body of the request broke off: the {received} bytes that came are in the file: {error}",
            asked.path
        ))),
    }
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    loop {
        match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => return Ok(None),
            Some(frame) => {
                // What comes behind chunks, and is no bytes, is passed over.
                if let Ok(piece) = frame?.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

fn open(calls: &Calls, who: &Who, asked: &Asked) -> Result<Reply, Exception> {
    let reading = calls.read(who, &asked.path)?;
    let size = reading.size();
    let mut at = asked.number::<u64>("offset")?.unwrap_or(0);
    if at > size {
        return Err(Exception::end_of_file(format!(
            "Offset={at} out of the range [0, {size}]; OPEN, path={}",
            asked.path
        )));
    }
    let len = asked.number::<u64>("length")?.unwrap_or(u64::MAX).min(size - at);
    let end = at + len;
    let mut room = BytesMut::new();
    Ok(Reply::bytes(len, move || {
        let count = PIECE_BYTES.min((end - at) as usize);
        // The room of pieces that have been sent is used again.
        room.resize(count, 0);
        reading.fill(at, &mut room)?;
        at += count as u64;
        Ok(Some(room.split().freeze()))
    }))
}

fn escaped(path: &str) -> String {
    utf8_percent_encode(path, ESCAPED).to_string()
}
