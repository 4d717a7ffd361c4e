//! Query of the kernel for one TCP socket (`sock_diag(7)`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};

/// The user that owns the established socket whose own address is `own` and whose peer is `other`; `None` if there is
/// no such socket or its owner has closed it.
///
/// # Errors
/// If the kernel does not answer such queries: read its tables instead.
pub(crate) fn owner_of(own: SocketAddr, other: SocketAddr) -> io::Result<Option<u32>> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    rustix::net::send(&socket, &query(own, other), SendFlags::empty())?;
    let mut answer = [0u8; 1024];
    let (_, len) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty())?;
    let answer = answer.get(..len).ok_or(io::ErrorKind::InvalidData)?;
    let word = |at: usize| answer.get(at..at + 4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
    let kind = answer.get(4..6).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    match kind {
        Some(SOCK_DIAG_BY_FAMILY) => {
            // inet_diag_msg begins at 16: family, state, timer, retrans (4), id (48), expires, rqueue, wqueue, uid,
            // inode.
            let state = answer.get(17).copied();
            let (uid, inode) = (word(16 + 64), word(16 + 68));
            Ok(match (state, uid, inode) {
                (Some(TCP_ESTABLISHED), Some(uid), Some(inode)) if inode != 0 => Some(uid),
                _ => None,
            })
        }
        Some(NLMSG_ERROR) => {
            let code = word(16).unwrap_or(0) as i32;
            let error = io::Error::from_raw_os_error(-code);
            if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// `nlmsghdr` and `inet_diag_req_v2` for exactly one socket.
fn query(own: SocketAddr, other: SocketAddr) -> [u8; QUERY_BYTES] {
    let mut q = [0u8; QUERY_BYTES];
    q[0..4].copy_from_slice(&(QUERY_BYTES as u32).to_ne_bytes());
    q[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    q[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    q[16] = if own.is_ipv4() { AF_INET } else { AF_INET6 };
    q[17] = IPPROTO_TCP;
    q[20..24].copy_from_slice(&u32::MAX.to_ne_bytes()); // every state
    q[24..26].copy_from_slice(&own.port().to_be_bytes());
    q[26..28].copy_from_slice(&other.port().to_be_bytes());
    put_ip(&mut q[28..44], own.ip());
    put_ip(&mut q[44..60], other.ip());
    // Interface 0 is any; the cookie of all ones selects no particular socket.
    q[64..72].fill(0xff);
    q
}

fn put_ip(into: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => into[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => into.copy_from_slice(&ip.octets()),
    }
}

const QUERY_BYTES: usize = 16 + 56;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const TCP_ESTABLISHED: u8 = 1;
