//! The thread of a mount that keeps its question for recalls waiting at the server, and obeys the answers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use frieze_client::{Client, Error, Recaller, mono};

use crate::cache::KernelCache;
use crate::locking::Locking;

/// Starts it. It ends when the client is closed.
///
/// # Errors
/// If the system has no thread to give.
pub(crate) fn watch(client: Client, cache: Arc<KernelCache>, locking: Arc<Locking>) -> std::io::Result<()> {
    let recaller = client.recaller();
    let watch = move || obey(recaller, &client, &cache, &locking);
    thread::Builder::new().name("frieze-recalls".to_owned()).spawn(watch).map(drop)
}

fn obey(mut recaller: Recaller, client: &Client, cache: &KernelCache, locking: &Locking) {
    let (mut acked, mut life) = (0, 0);
    let mut pause = PAUSE_MIN;
    // Locks and open files that the server may not know of any more, or that it could not report.
    let mut is_behind = false;
    loop {
        let sent = mono();
        match recaller.ask(acked, life) {
            Ok(reply) => {
                let is_new = reply.life != life;
                // A server without contact for a lease gave the locks to other clients: they are claimed before
                // anything else.
                if cache.has_lapsed() {
                    locking.mark_unsure();
                    is_behind = true;
                }
                cache.take(&reply, sent, is_new);
                locking.served(&reply.locked);
                is_behind |= is_new;
                if is_behind {
                    is_behind = !(locking.ask_again(client) && client.claim_open_files());
                }
                if !is_behind {
                    life = reply.life;
                }
                if is_new || reply.number != 0 {
                    acked = reply.number;
                }
                pause = PAUSE_MIN;
            }
            Err(Error::Closed) => return locking.end(),
            Err(error) => {
                // The lease runs out meanwhile, and everything is claimed again.
                tracing::debug!(%error, "no answer about recalls");
                is_behind = true;
                recaller.pause(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(500);
