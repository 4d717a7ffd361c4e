//! The thread of a mount that settles the files that programs have closed.

use std::thread;
use std::time::Duration;

use frieze_client::Client;

/// Starts it. It ends when the client is closed.
///
/// # Errors
/// If the system has no thread to give.
pub(crate) fn watch(client: Client) -> std::io::Result<()> {
    let settle = move || while client.settle_closed(MOMENT) {};
    thread::Builder::new().name("frieze-settle".to_owned()).spawn(settle).map(drop)
}

/// How long a closed file waits for others. Until then the server computes its length from the bytes themselves, which
/// costs a request for the length a little more.
const MOMENT: Duration = Duration::from_millis(5);
