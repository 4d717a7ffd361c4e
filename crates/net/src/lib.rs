//! Transport drivers: TCP and Unix sockets, frames, proof of who is calling.
