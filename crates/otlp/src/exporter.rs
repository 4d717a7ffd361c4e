//! The thread that sends spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use frieze_trace::{Span, SpanQueue};
use prost::Message;
use ureq::Agent;

use crate::messages::{
    ExportRequest, ExportResponse, Resource, ResourceSpans, ScopeSpans, SpanLibrary, SpanMessage, text,
};

/// Spans of one post at most, as the SDKs of OpenTelemetry have it.
const BATCH_SPANS_MAX: usize = 512;
/// How long the first span of a batch waits for more.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// Time for one post. A collector that takes longer is slow, and its answer is not awaited.
const POST_TIMEOUT: Duration = Duration::from_secs(2);
/// Time until the next attempt after one that failed: twice as long each time, between these.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How often an idle exporter looks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Largest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Where spans go, and which process they are of.
#[derive(Clone, Debug)]
pub struct OtlpSettings {
    /// `http://HOST:PORT` or `https://HOST:PORT` of a collector, usually port 4318, or the whole URL of its traces.
    pub url: String,
    /// Attributes of the process: `service.name`, `service.instance.id` and others.
    pub resource: Vec<(&'static str, String)>,
    /// Version of the program.
    pub version: String,
}

/// An exporter that cannot begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OtlpError {
    /// The URL of the collector is none.
    #[error("{url}: expected a URL such as http://127.0.0.1:4318")]
    Url {
        /// The text that was given.
        url: String,
    },
    /// The system refuses a thread.
    #[error("no thread for the exporter: {error}")]
    Thread {
        /// The system's words.
        error: String,
    },
}

/// Sends the spans of a queue until it is finished or dropped.
#[derive(Debug)]
pub struct OtlpExporter {
    is_ending: Arc<AtomicBool>,
    /// Ends the wait for the next attempt when it is dropped.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OtlpExporter {
    /// Begins to send.
    ///
    /// # Errors
    /// `Url`: name another one; `Thread`.
    pub fn start(settings: OtlpSettings, queue: SpanQueue) -> Result<OtlpExporter, OtlpError> {
        let url = traces_url(&settings.url)?;
        let is_ending = Arc::new(AtomicBool::new(false));
        let agent = Agent::config_builder()
            .timeout_global(Some(POST_TIMEOUT))
            .max_redirects(0)
            .http_status_as_error(false)
            .build()
            .into();
        let (running, ended) = channel();
        let sender = SpanSender { url, agent, settings, queue, is_ending: is_ending.clone(), ended };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(move || sender.run());
        let thread = thread.map_err(|error| OtlpError::Thread { error: error.to_string() })?;
        Ok(OtlpExporter { is_ending, running: Some(running), thread: Some(thread) })
    }

    /// Sends what is in the queue and ends. After an attempt that fails the rest is dropped: a collector that does not
    /// answer costs some seconds.
    pub fn finish(self) {}
}

impl Drop for OtlpExporter {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Release);
        self.running = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is in the log already.
            let _ = thread.join();
        }
    }
}

/// What a collector made of a post.
enum Posted {
    /// It accepted all but so many.
    Accepted { rejected: u64 },
    /// Another attempt may succeed.
    Again(String),
    /// No attempt will.
    Refused(String),
}

struct SpanSender {
    url: String,
    agent: Agent,
    settings: OtlpSettings,
    queue: SpanQueue,
    is_ending: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl SpanSender {
    fn run(&self) {
        let mut retry = RETRY_MIN;
        let mut is_logged = false;
        loop {
            let (batch, is_last) = self.collect();
            if batch.is_empty() {
                if is_last {
                    return;
                }
                continue;
            }
            let count = batch.len() as u64;
            let body = self.request(batch).encode_to_vec();
            loop {
                let words = match self.post(&body) {
                    Posted::Accepted { rejected } => {
                        let rejected = rejected.min(count);
                        self.queue.count_sent(count - rejected);
                        self.queue.count_dropped(rejected);
                        (retry, is_logged) = (RETRY_MIN, false);
                        break;
                    }
                    Posted::Refused(words) => {
                        self.queue.count_dropped(count);
                        log(&mut is_logged, &self.url, &words);
                        break;
                    }
                    Posted::Again(words) => words,
                };
                log(&mut is_logged, &self.url, &words);
                // Spans wait in the queue meanwhile.
                let goes_on = !is_last && self.ended.recv_timeout(retry) == Err(RecvTimeoutError::Timeout);
                if !goes_on {
                    // The process ends: there is no time for a collector that does not answer.
                    return self.drop_all(count);
                }
                retry = (retry * 2).min(RETRY_MAX);
            }
        }
    }

    /// Counts these spans and all in the queue as dropped.
    fn drop_all(&self, mut count: u64) {
        while self.queue.next(Duration::ZERO).is_ok() {
            count += 1;
        }
        self.queue.count_dropped(count);
    }

    fn has_ended(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// The spans of the next post, and whether there will be no more.
    fn collect(&self) -> (Vec<Span>, bool) {
        let mut batch = Vec::new();
        loop {
            let wait = match (self.has_ended(), batch.is_empty()) {
                (true, _) => Duration::ZERO,
                (false, true) => LOOK_EVERY,
                (false, false) => BATCH_DELAY,
            };
            match self.queue.next(wait) {
                Ok(span) => batch.push(span),
                Err(RecvTimeoutError::Disconnected) => return (batch, true),
                Err(RecvTimeoutError::Timeout) if self.has_ended() && wait.is_zero() => return (batch, true),
                Err(RecvTimeoutError::Timeout) if batch.is_empty() => {}
                Err(RecvTimeoutError::Timeout) => return (batch, false),
            }
            if batch.len() == BATCH_SPANS_MAX {
                return (batch, false);
            }
        }
    }

    fn request(&self, batch: Vec<Span>) -> ExportRequest {
        let attributes = self.settings.resource.iter().map(|(key, value)| text(key, value)).collect();
        let scope = SpanLibrary { name: "frieze".to_owned(), version: self.settings.version.clone() };
        let spans = batch.into_iter().map(SpanMessage::from).collect();
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        let resource_spans = vec![ResourceSpans { resource: Some(Resource { attributes }), scope_spans }];
        ExportRequest { resource_spans }
    }

    fn post(&self, body: &[u8]) -> Posted {
        let posted = self.agent.post(&self.url).header("Content-Type", "application/x-protobuf").send(body);
        let mut answer = match posted {
            Ok(answer) => answer,
            Err(error) => return Posted::Again(error.to_string()),
        };
        let status = answer.status().as_u16();
        match status {
            200..=299 => {
                // An answer that is none of the protocol does not undo the acceptance.
                let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().unwrap_or_default();
                let partial = ExportResponse::decode(read.as_slice()).ok().and_then(|answer| answer.partial_success);
                Posted::Accepted { rejected: partial.map_or(0, |partial| partial.rejected_spans.max(0) as u64) }
            }
            429 | 502..=504 => Posted::Again(format!("status {status}")),
            _ => Posted::Refused(format!("status {status}")),
        }
    }
}

/// Logs the first failure of a row of failures.
fn log(is_logged: &mut bool, url: &str, words: &str) {
    if !std::mem::replace(is_logged, true) {
        tracing::warn!("spans are not accepted at {url}: {words}; those that find the queue full are dropped");
    }
}

/// The URL of traces at a collector.
fn traces_url(given: &str) -> Result<String, OtlpError> {
    let wrong = || OtlpError::Url { url: given.to_owned() };
    let rest = ["http://", "https://"].iter().find_map(|scheme| given.strip_prefix(scheme)).ok_or_else(wrong)?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() || given.contains(char::is_whitespace) {
        return Err(wrong());
    }
    match path {
        "" => Ok(format!("{}/v1/traces", given.trim_end_matches('/'))),
        _ => Ok(given.to_owned()),
    }
}

#[cfg(test)]
mod tests;
