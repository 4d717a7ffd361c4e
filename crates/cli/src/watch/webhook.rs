//! Posts of changes to a URL, signed as Standard Webhooks has it (github.com/standard-webhooks/standard-webhooks).
//!
//! Guarantees: a post is sent until the receiver accepts it, so a receiver gets each change at least once, in order;
//! the id of a post is the same when it is sent again, and another one for another body: a watch that is started again
//! may have more to post from the same mark. Redirects are not followed: the signature is for one receiver.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use data_encoding::{BASE64, HEXLOWER};
use frieze_client::{Hlc, PrivateFile};
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ureq::Agent;

use crate::failure::UsageError;
use crate::path::FsPath;
use crate::run::CommandRun;

/// A receiver.
pub(super) struct Webhook {
    url: String,
    secret: Vec<u8>,
    agent: Agent,
    path: String,
    /// The last mark that the receiver has, and how many posts since.
    since: Hlc,
    count: u64,
    events: Vec<Value>,
    bytes: usize,
}

impl Webhook {
    /// Posts to `url` from the position `since` on.
    pub(super) fn new(url: &str, secret: &Path, path: &FsPath, since: Hlc) -> Result<Webhook> {
        if !["http://", "https://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(
                UsageError(format!("--webhook {url}: expected a URL that begins with https:// or http://")).into()
            );
        }
        let text = PrivateFile::read_secret(secret).with_context(|| format!("--secret {}", secret.display()))?.text;
        let text = text.trim();
        let secret_bytes = match text.strip_prefix("whsec_") {
            Some(encoded) => BASE64.decode(encoded.as_bytes()).ok(),
            None => Some(text.as_bytes().to_vec()),
        };
        let secret = secret_bytes.filter(|bytes| bytes.len() >= SECRET_BYTES_MIN).ok_or_else(|| {
            let shown = secret.display();
            UsageError(format!(
                "--secret {shown}: expected at least {SECRET_BYTES_MIN} characters, or whsec_ and base64"
            ))
        })?;
        let agent = Agent::config_builder()
            .timeout_global(Some(ANSWER_MAX))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .build()
            .new_agent();
        let path = path.to_string();
        Ok(Webhook { url: url.to_owned(), secret, agent, path, since, count: 0, events: Vec::new(), bytes: 0 })
    }

    /// One more change; posts what is there if it is much.
    pub(super) fn event(&mut self, run: &mut CommandRun, event: Value) -> Result<()> {
        self.bytes += event.to_string().len();
        self.events.push(event);
        if self.events.len() < EVENTS_MAX && self.bytes < BYTES_MAX {
            return Ok(());
        }
        self.post(run, None)
    }

    /// A mark: posts the changes before it. Without any the receiver hears of the mark with the next ones.
    pub(super) fn resolved(&mut self, run: &mut CommandRun, at: Hlc) -> Result<()> {
        if !self.events.is_empty() {
            self.post(run, Some(at))?;
        }
        (self.since, self.count) = (at, 0);
        Ok(())
    }

    fn post(&mut self, run: &mut CommandRun, resolved: Option<Hlc>) -> Result<()> {
        let events = std::mem::take(&mut self.events);
        self.bytes = 0;
        let resolved = resolved.map(|at| at.to_string());
        let body = json!({ "path": self.path, "events": events, "resolved": resolved }).to_string();
        let id = id_of(self.since, self.count, &body);
        self.count += 1;
        let (mut wait, mut said) = (WAIT_MIN, None);
        loop {
            let failure = match self.send(&id, &body) {
                Ok(status) if (200..300).contains(&status) => return Ok(()),
                Ok(410) => {
                    return Err(anyhow!("{} answers 410: the receiver wants no more; the watch ends", self.url));
                }
                Ok(status @ 300..400) => format!("it answers {status}: redirects are not followed, name the last URL"),
                Ok(status) => format!("it answers {status}"),
                Err(words) => words,
            };
            if said.as_ref() != Some(&failure) {
                run.say(&format!("{} does not accept changes: {failure}; trying again", self.url));
                said = Some(failure);
            }
            std::thread::park_timeout(wait);
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    fn send(&self, id: &str, body: &str) -> Result<u16, String> {
        #[expect(clippy::disallowed_methods, reason = "the receiver compares it with its own clock")]
        let now = std::time::SystemTime::now();
        let timestamp = now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signature = signature(&self.secret, id, timestamp, body);
        let post = self
            .agent
            .post(&self.url)
            .header("content-type", "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp.to_string())
            .header("webhook-signature", signature);
        post.send(body).map(|answer| answer.status().as_u16()).map_err(|error| match error {
            ureq::Error::Timeout(_) => format!("no answer within {} s", ANSWER_MAX.as_secs()),
            error => error.to_string(),
        })
    }
}

/// The id of a post: the mark before it, which post since then, and a digest of the body. It has no full stop, which
/// separates it from the rest in what is signed.
fn id_of(since: Hlc, count: u64, body: &str) -> String {
    let digest = HEXLOWER.encode(&Sha256::digest(body.as_bytes())[..DIGEST_BYTES]);
    format!("{since}-{count}-{digest}")
}

/// `v1,` and the HMAC-SHA256 of `id.timestamp.body` in base 64.
fn signature(secret: &[u8], id: &str, timestamp: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", BASE64.encode(&mac.finalize().into_bytes()))
}

/// Shortest secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;
/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Waits between attempts.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Bytes of a body's digest in an id.
const DIGEST_BYTES: usize = 12;
/// Most changes of one post, and about how many bytes of them.
const EVENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_body_from_the_same_mark_has_another_id() {
        let (first, again, longer) = (id_of(Hlc(7), 0, "a"), id_of(Hlc(7), 0, "a"), id_of(Hlc(7), 0, "ab"));
        assert_eq!(first, again);
        assert_ne!(first, longer);
        assert_ne!(first, id_of(Hlc(7), 1, "a"));
        assert!(!first.contains('.') && first.len() < 64, "{first}");
    }

    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        // The example of the specification.
        let secret = BASE64.decode(b"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let found = signature(&secret, id, 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(found, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
