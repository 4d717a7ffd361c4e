//! The console: a web page of the file system, at any instant.
//!
//! ```text
//! frieze serve --dir /srv/frieze --console 127.0.0.1:9880
//! frieze console login                      prints a link that signs a browser in, once
//! ```
//!
//! A request arrives on a connection with its own thread (`frieze_httpd`). [`gateway`] checks the page that makes it
//! and the user that is signed in ([`sign_in`]), and [`pages`] answers it with a page that is rendered here: one file
//! for each page, templates beside them. Every page works without scripts; `assets/*.js` add the slider, its heat, the
//! plots of the cluster and the film of the wave.
//!
//! Guarantees: a page shows what its user may see, and a change is made with the rights of its user: the server checks
//! both, and the page shows the plan of a change before it is made. No page of another origin can use a signed-in
//! browser. Names and contents of files never become part of a page's code (`askama` escapes, the policy of contents
//! forbids everything from elsewhere). Everything a page shows is bounded.
//! Leaves to others: HTTP (`httpd`), rights, history and bytes (the server, through `client`), starting (`cli`).
//! ADR 0090 has the decisions.

mod assets;
mod error;
mod frame;
mod gateway;
mod listen;
mod pages;
mod paths;
mod preview;
mod query;
mod reply;
mod sign_in;
mod visit;
mod words;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use frieze_client::{Acceptor, Admission, Client, Options};

pub use crate::error::ConsoleError;
use crate::gateway::Gateway;
pub use crate::gateway::{LINKS, LOGOUT};
pub use crate::listen::{Audience, DEFAULT_ADDRESS};

/// Where the console listens.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// Where it listens, as `HOST:PORT`.
    pub listen: String,
    /// Which browsers may reach it.
    pub audience: Audience,
    /// The connection limits of the server that this is a gateway of.
    pub admission: Admission,
}

/// An open console. Dropped, it is closed, and all its users are signed out.
pub struct Console {
    acceptor: Acceptor,
}

impl Console {
    /// Opens the console of the server that `client` names. It is ready when this returns.
    ///
    /// # Errors
    /// `NotBuilt`: build it where there is Node. `Listen`, `Beyond`: choose another address. `Client`: the server does
    /// not answer.
    pub fn open(options: &ConsoleOptions, client: Options) -> Result<Console, ConsoleError> {
        if cfg!(without_node) {
            return Err(ConsoleError::NotBuilt);
        }
        let listener = listen::listen(&options.listen, options.audience)?;
        let host = options.listen.rsplit_once(':').map_or("", |(host, _)| host).to_ascii_lowercase();
        let gateway = Gateway::new(Client::connect(client)?, host, options.audience);
        let acceptor = Acceptor::start(listener, Arc::new(gateway), options.admission.clone());
        Ok(Console { acceptor: acceptor.map_err(|source| ConsoleError::System { doing: "start a thread", source })? })
    }

    /// Where it listens, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }
}

#[cfg(test)]
frieze_harness::count_allocations!();
