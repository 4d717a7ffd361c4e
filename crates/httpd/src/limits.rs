//! What a connection may take: time and bytes.

use std::time::Duration;

/// What a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// From the first byte of a request's head to its last; of the first request from the beginning of the connection.
    pub head: Duration,
    /// From one request to the next.
    pub idle: Duration,
    /// Without a byte in either direction in the middle of a request.
    pub silence: Duration,
    /// For the whole connection; `None` for no limit.
    pub total: Option<Duration>,
    /// Bytes of a head.
    pub head_bytes_max: usize,
    /// Lines of a head.
    pub head_lines_max: usize,
    /// Bytes of the buffers of one connection.
    pub buffer_bytes_max: usize,
    /// False: the connection ends after one request.
    pub keep_alive: bool,
}

impl Default for ConnectionLimits {
    /// The limits of a gateway whose requests and answers are files. 16 KiB of head: a path of 4,096 bytes, each
    /// written as three, and some lines.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            head: Duration::from_secs(10),
            idle: Duration::from_secs(30),
            silence: Duration::from_secs(60),
            total: None,
            head_bytes_max: 16 << 10,
            head_lines_max: 64,
            buffer_bytes_max: 256 << 10,
            keep_alive: true,
        }
    }
}
