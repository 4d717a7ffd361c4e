//! The command as a user runs it: the built binary against a server of its own.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "command/served.rs"]
#[expect(dead_code, reason = "the other end-to-end tests use the rest of it")]
mod served;

#[path = "command/as_server.rs"]
mod as_server;
#[path = "command/attributes.rs"]
mod attributes;
#[path = "command/everyday.rs"]
mod everyday;
#[path = "command/failures.rs"]
mod failures;
#[path = "command/mounts.rs"]
mod mounts;
#[path = "command/notified.rs"]
mod notified;
#[path = "command/past.rs"]
mod past;
#[path = "command/restarts.rs"]
mod restarts;
#[path = "command/retention.rs"]
mod retention;
#[path = "command/sharing.rs"]
mod sharing;
#[path = "command/traced.rs"]
mod traced;
