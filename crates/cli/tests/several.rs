//! Several mounts of one server show one truth, at once: names, attributes and bytes under cache grants, locks, and
//! what happens while the server is away. Without /dev/fuse each test says so and passes.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

#[path = "several/away.rs"]
mod away;
#[path = "several/directories.rs"]
mod directories;
#[path = "support/inside.rs"]
mod inside;
#[path = "several/locks.rs"]
mod locks;
#[path = "several/names.rs"]
mod names;
#[path = "several/nearby.rs"]
mod nearby;

use std::time::Duration;

pub(crate) use frieze_testkit::wait::{clock, pass};
pub(crate) use inside::LocalMounts;

/// Does what may need the server, and then, while there is none, what may not. What mounts cache they keep for three
/// seconds: on a machine so busy that the server takes one to stop, all of it is done again.
pub(crate) fn while_server_is_down(mounts: &mut LocalMounts, before: impl Fn(), meanwhile: impl Fn()) {
    let stops_in_time = |mounts: &mut LocalMounts| {
        before();
        let began = clock();
        mounts.stop_server();
        let is_in_time = clock() - began < Duration::from_secs(1);
        if is_in_time {
            meanwhile();
        }
        mounts.start_server();
        is_in_time
    };
    assert!((0..10).any(|_| stops_in_time(mounts)), "the server never stops within a second");
}
