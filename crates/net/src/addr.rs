//! Where a server listens.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::Error;

/// The address of a server: `HOST:PORT` (a name, an IPv4 address or an IPv6 address in brackets) or `unix:/PATH`.
/// Prints as it parses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAddr {
    /// A TCP port of a host.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port; 0 lets a listener choose one.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl ServerAddr {
    /// Default address of a server.
    pub const DEFAULT: &'static str = "127.0.0.1:7470";

    /// True if only this machine can reach it: a Unix socket, a loopback address or `localhost`. Without keys a server
    /// listens nowhere else.
    pub fn is_loopback(&self) -> bool {
        match self {
            ServerAddr::Unix(_) => true,
            ServerAddr::Tcp { host, .. } => {
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }
}

impl ServerAddr {
    /// Reads several, separated by commas: at least one, each once.
    ///
    /// # Errors
    /// `Address` for the first that is none.
    pub fn parse_list(text: &str) -> Result<Vec<ServerAddr>, Error> {
        let mut addresses = Vec::new();
        for one in text.split(',') {
            let address = one.trim().parse()?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }
}

impl Default for ServerAddr {
    fn default() -> ServerAddr {
        ServerAddr::Tcp { host: "127.0.0.1".to_owned(), port: 7470 }
    }
}

impl From<SocketAddr> for ServerAddr {
    fn from(addr: SocketAddr) -> ServerAddr {
        ServerAddr::Tcp { host: addr.ip().to_string(), port: addr.port() }
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServerAddr::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            ServerAddr::Tcp { host, port } => write!(f, "{host}:{port}"),
            ServerAddr::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for ServerAddr {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServerAddr, Error> {
        let refused = || Error::Address { text: text.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            // A relative path would name another socket for a server that changed its directory.
            return if path.starts_with('/') && !path.contains('\0') {
                Ok(ServerAddr::Unix(PathBuf::from(path)))
            } else {
                Err(refused())
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(refused)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(refused)?,
            None if host.contains(':') => return Err(refused()),
            None => host,
        };
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b':' | b'%');
        if host.is_empty() || !host.bytes().all(legal) || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refused());
        }
        Ok(ServerAddr::Tcp { host: host.to_owned(), port: port.parse().map_err(|_| refused())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_print_and_parse_back_to_themselves() {
        for text in ["127.0.0.1:7470", "[::1]:80", "storage-3.example:0", "unix:/run/frieze.sock"] {
            assert_eq!(text.parse::<ServerAddr>().unwrap().to_string(), text);
        }
        assert_eq!(ServerAddr::DEFAULT.parse::<ServerAddr>().unwrap(), ServerAddr::default());
    }

    #[test]
    fn a_wrong_address_says_what_was_expected() {
        for text in
            ["", "7470", ":7470", "host:", "host:99999", "host:+1", "::1:80", "[::1:80", "unix:rel", "a b:1", "h/:1"]
        {
            let error = text.parse::<ServerAddr>().unwrap_err();
            assert!(error.to_string().contains("expected HOST:PORT"), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_has_each_address_once_and_no_gaps() {
        let list = |text: &str| {
            let found = ServerAddr::parse_list(text);
            found
                .map(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .map_err(|e| e.to_string())
        };
        assert_eq!(list("a:1").as_deref(), Ok("a:1"));
        assert_eq!(list("a:1, unix:/s,[::1]:2,a:1").as_deref(), Ok("a:1 unix:/s [::1]:2"));
        for text in ["", "a:1,", "a:1,,b:2", "a:1;b:2"] {
            assert!(list(text).unwrap_err().contains("expected HOST:PORT"), "{text}");
        }
    }

    #[test]
    fn only_this_machine_reaches_a_loopback_address() {
        let check = |text: &str| text.parse::<ServerAddr>().unwrap().is_loopback();
        assert!(check("127.8.9.1:1") && check("[::1]:1") && check("localhost:1") && check("unix:/s"));
        assert!(!check("0.0.0.0:1") && !check("[::]:1") && !check("10.0.0.1:1") && !check("example.org:1"));
    }

    #[test]
    fn any_text_is_an_address_that_prints_and_parses_back_or_refused() {
        let seeds = ["127.0.0.1:7470", "[::1]:80", "storage-3.example:0", "unix:/run/frieze.sock", "a:1, b:2"];
        frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
            if let Some(address) = frieze_harness::check_text(bytes, |text| text.parse::<ServerAddr>().ok()) {
                address.is_loopback();
            }
            if let Some(Ok(list)) = std::str::from_utf8(bytes).ok().map(ServerAddr::parse_list) {
                let all: Vec<String> = list.iter().map(ToString::to_string).collect();
                assert!(!list.is_empty() && all.iter().all(|address| address.parse::<ServerAddr>().is_ok()));
            }
        });
    }
}
