//! The user at the other end of a connection, as the kernel of this machine reports it.

use std::ffi::CString;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use frieze_wire::txn::Caller;
use nix::unistd::{Gid, Uid, User};

use crate::{Error, Stream, sock_diag};

/// User of a caller without proof.
pub const NOBODY: u32 = 65534;

/// The identity of the peer according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The user that owns the other end of the connection.
    User(u32),
    /// The other end is not on this machine, or is closed: without a key the caller has no user of its own.
    Unproven,
}

/// Queries the kernel for the owner of the other end: the peer credentials of a Unix socket, or the owner of a loopback
/// TCP connection. Call it once, right after `accept`, before any reply.
///
/// # Errors
/// If the query fails; treat it as [`Proof::Unproven`].
pub fn kernel_proof(stream: &Stream) -> Result<Proof, Error> {
    let failed = |source| Error::System { doing: "ask the kernel for the owner of a connection", source };
    let Some(ends) = stream.tcp_ends() else {
        let credentials = rustix::net::sockopt::socket_peercred(stream).map_err(|errno| failed(errno.into()))?;
        return Ok(Proof::User(credentials.uid.as_raw()));
    };
    let (peer, local) = ends.map_err(failed)?;
    tcp_proof(peer, local)
}

/// The same for a TCP connection of another protocol, by its two addresses.
///
/// # Errors
/// As [`kernel_proof`].
pub fn tcp_proof(peer: SocketAddr, local: SocketAddr) -> Result<Proof, Error> {
    let failed = |source| Error::System { doing: "ask the kernel for the owner of a connection", source };
    let (peer, local) = (canonical(peer), canonical(local));
    if !peer.ip().is_loopback() || !local.ip().is_loopback() {
        return Ok(Proof::Unproven);
    }
    // A query for one socket takes microseconds; the table grows with the connections of the machine.
    match sock_diag::owner_of(peer, local) {
        Ok(Some(owner)) => Ok(Proof::User(owner)),
        // A kernel without the module `tcp_diag` answers the same as for a socket that is closed.
        Ok(None) => owner_in_tables(peer, local).map_err(failed),
        Err(error) => {
            tracing::debug!(%error, "the kernel answers no socket diagnosis; reading /proc/net/tcp");
            owner_in_tables(peer, local).map_err(failed)
        }
    }
}

/// The user, primary group and supplementary groups of `uid` from the user database of this machine. A user without an
/// entry has its number as the only group.
///
/// # Errors
/// If the database cannot be read.
pub fn user_of(uid: u32) -> Result<Caller, Error> {
    let failed = |errno: nix::errno::Errno| Error::System { doing: "read the user database", source: errno.into() };
    let Some(user) = User::from_uid(Uid::from_raw(uid)).map_err(failed)? else {
        return Ok(Caller { uid, gid: uid, groups: Vec::new() });
    };
    let gid = user.gid.as_raw();
    let Ok(name) = CString::new(user.name) else { return Ok(Caller { uid, gid, groups: Vec::new() }) };
    let mut groups: Vec<u32> =
        nix::unistd::getgrouplist(&name, user.gid).map_err(failed)?.into_iter().map(Gid::as_raw).collect();
    groups.retain(|&group| group != gid);
    Ok(Caller { uid, gid, groups })
}

/// The name of this machine, for logs; empty if it has none.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Finds the peer's own row in the kernel's tables of TCP sockets.
fn owner_in_tables(peer: SocketAddr, local: SocketAddr) -> io::Result<Proof> {
    // An IPv4 connection may have been opened through an IPv6 socket, which is listed in the other table.
    let mut tables = vec![("/proc/net/tcp6", true)];
    if peer.is_ipv4() {
        tables.insert(0, ("/proc/net/tcp", false));
    }
    for (path, is_v6) in tables {
        let table = match fs::read_to_string(path) {
            Ok(table) => table,
            // A kernel without IPv6 has no such table.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if let Some(uid) = owner_in_table(&table, &hex_of(peer, is_v6), &hex_of(local, is_v6)) {
            return Ok(Proof::User(uid));
        }
    }
    Ok(Proof::Unproven)
}

/// The owner of the established socket whose own address is `own` and whose peer is `other`.
///
/// Only an established row with an inode counts: a socket that its owner has closed shows user 0, which would make
/// any caller root.
fn owner_in_table(table: &str, own: &str, other: &str) -> Option<u32> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_it = fields.next()? == own && fields.next()? == other && fields.next()? == "01";
        if !is_it {
            return None;
        }
        // tx:rx queues, timer, retransmits; then uid, timeout, inode.
        let uid = fields.nth(3)?.parse().ok()?;
        let inode: u64 = fields.nth(1)?.parse().ok()?;
        (inode != 0).then_some(uid)
    })
}

/// An address as the kernel's tables write it: each 32-bit word in the machine's byte order.
fn hex_of(addr: SocketAddr, is_v6: bool) -> String {
    let mut text = String::with_capacity(40);
    let mut word = |bytes: [u8; 4]| text.push_str(&format!("{:08X}", u32::from_ne_bytes(bytes)));
    match addr.ip() {
        IpAddr::V4(ip) if !is_v6 => word(ip.octets()),
        ip => {
            let octets = match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            octets.chunks_exact(4).for_each(|piece| word([piece[0], piece[1], piece[2], piece[3]]));
        }
    }
    format!("{text}:{:04X}", addr.port())
}

/// An IPv4 address of an IPv6 socket as IPv4.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, ServerAddr};
    use std::time::Duration;

    fn connected(addr: &str) -> (Stream, Stream) {
        let listener = Listener::bind(&addr.parse::<ServerAddr>().unwrap()).unwrap();
        let client = Stream::connect(listener.addr(), Duration::from_secs(5)).unwrap();
        (client, listener.accept().unwrap().unwrap())
    }

    #[test]
    fn the_kernel_names_the_owner_of_a_loopback_connection_and_of_a_unix_socket() {
        let own = Proof::User(nix::unistd::geteuid().as_raw());
        let directory = tempfile::tempdir().unwrap();
        let unix = format!("unix:{}/s", directory.path().display());
        for addr in ["127.0.0.1:0", "[::1]:0", &unix] {
            let (_client, server) = connected(addr);
            assert_eq!(kernel_proof(&server).unwrap(), own, "{addr}");
        }
    }

    #[test]
    fn the_tables_name_the_same_owner_as_the_diagnosis() {
        let (_client, server) = connected("127.0.0.1:0");
        let (peer, local) = server.tcp_ends().unwrap().unwrap();
        assert_eq!(owner_in_tables(peer, local).unwrap(), Proof::User(nix::unistd::geteuid().as_raw()));
    }

    #[test]
    fn the_diagnosis_finds_only_the_very_socket_asked_for() {
        let (_client, server) = connected("127.0.0.1:0");
        let (peer, local) = server.tcp_ends().unwrap().unwrap();
        // A kernel built without it answers an error, and the tables are read.
        let Ok(owner) = sock_diag::owner_of(peer, local) else { return };
        assert_eq!(owner, Some(nix::unistd::geteuid().as_raw()));
        let elsewhere = SocketAddr::new(peer.ip(), 1);
        assert_eq!(sock_diag::owner_of(elsewhere, local).unwrap(), None);
        assert_eq!(sock_diag::owner_of(local, elsewhere).unwrap(), None, "a listener is no end of a connection");
    }

    #[test]
    fn a_peer_that_has_closed_is_unproven_and_not_root() {
        let (client, server) = connected("127.0.0.1:0");
        let (peer, local) = server.tcp_ends().unwrap().unwrap();
        drop(client);
        assert_eq!(owner_in_tables(peer, local).unwrap(), Proof::Unproven);
        assert_eq!(kernel_proof(&server).unwrap(), Proof::Unproven);
    }

    #[test]
    fn a_row_counts_only_if_established_and_owned() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let row = |state: &str, inode: u64| {
            format!(
                "{head}   0: 0100007F:A1B2 0100007F:1D2E {state} 00000000:00000000 00:00000000 00000000  1000        0 \
                 {inode} 1 0 20\n"
            )
        };
        let (own, other) = ("0100007F:A1B2", "0100007F:1D2E");
        assert_eq!(owner_in_table(&row("01", 77), own, other), Some(1000));
        assert_eq!(owner_in_table(&row("04", 77), own, other), None);
        assert_eq!(owner_in_table(&row("01", 0), own, other), None);
        assert_eq!(owner_in_table(&row("01", 77), other, own), None);
        assert_eq!(owner_in_table("", own, other), None);
    }

    #[test]
    fn the_user_database_gives_groups_and_an_unknown_user_stands_alone() {
        let root = user_of(0).unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(
            user_of(3_999_999_999).unwrap(),
            Caller { uid: 3_999_999_999, gid: 3_999_999_999, groups: Vec::new() }
        );
    }
}
