//! The trace of a run: a hash that two runs of one seed share, and sentences for the developer of a failing replay.

use std::fmt::Write;

use prost::Message;

use crate::exchange::{ClientRequest, ConnId, MachineResponse};

/// The trace of a run.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    time_us: u64,
    /// The last lines, if they are kept.
    lines: Option<Vec<String>>,
}

/// FNV-1a's prime and start: the hash has to be stable, not strong.
const PRIME: u64 = 0x0000_0100_0000_01b3;
const START: u64 = 0xcbf2_9ce4_8422_2325;

impl Trace {
    /// A trace that keeps its lines, or only their hash.
    pub(crate) fn new(keep: bool) -> Trace {
        Trace { hash: START, time_us: 0, lines: keep.then(Vec::new) }
    }

    /// The hash so far.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The lines kept.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }

    /// Simulated time went on.
    pub(crate) fn at(&mut self, time_us: u64) {
        self.time_us = time_us;
        // Of all that is mixed in the most frequent: its bytes at once.
        self.hash = (self.hash ^ time_us).wrapping_mul(PRIME);
    }

    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }

    /// An event with numbers; its sentence is built only if sentences are kept.
    pub(crate) fn numbers(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        for number in numbers {
            self.mix(&number.to_le_bytes());
        }
        self.keep(words);
    }

    /// Something that is neither request nor answer.
    pub(crate) fn line(&mut self, words: impl FnOnce() -> String) {
        let words = words();
        self.mix(words.as_bytes());
        self.keep(|| words);
    }

    /// A sentence of the trace, which is not part of its hash.
    pub(crate) fn words(&mut self, words: String) {
        self.keep(|| words);
    }

    fn keep(&mut self, words: impl FnOnce() -> String) {
        let time_us = self.time_us;
        if let Some(lines) = &mut self.lines {
            let mut line = format!("{:>12} ", time_us);
            line.push_str(&words());
            lines.push(line);
        }
    }

    /// A request reached the server.
    pub(crate) fn request(&mut self, conn: ConnId, ask: &ClientRequest) {
        self.mix(&conn.0.to_le_bytes());
        self.mix(&ask.header.encode());
        self.mix(&ask.body.encode_to_vec());
        self.mix(&frieze_base::crc32c(&ask.payload).to_le_bytes());
        self.keep(|| {
            let header = &ask.header;
            let mut line = format!("-> c{} r{} ", conn.0, header.request_id);
            if header.seq.0 != 0 {
                write!(line, "s{:x}/{} ", header.session.0 & 0xff_ffff, header.seq).expect("strings do not fail");
            }
            if let Some(request) = &ask.body.request {
                write!(line, "{request:?}").expect("strings do not fail");
            }
            if let Some(handle) = &ask.handle {
                write!(line, " through inode {}", handle.inode).expect("strings do not fail");
            }
            if !ask.payload.is_empty() {
                write!(line, " +{} bytes", ask.payload.len()).expect("strings do not fail");
            }
            line
        });
    }

    /// The server answered.
    pub(crate) fn answer(&mut self, answer: &MachineResponse) {
        self.mix(&answer.conn.0.to_le_bytes());
        self.mix(&answer.header.request_id.to_le_bytes());
        match &answer.result {
            Ok(reply) => {
                let body = frieze_wire::message::ReplyBody { reply: Some(reply.clone()) };
                self.mix(&body.encode_to_vec());
            }
            Err(fault) => self.mix(&(fault.reason as u32).to_le_bytes()),
        }
        self.mix(&answer.payload_crc.to_le_bytes());
        self.keep(|| {
            let bytes = answer.payload.len();
            format!("<- c{} r{} {:?} +{bytes} bytes", answer.conn.0, answer.header.request_id, answer.result)
        });
    }
}
