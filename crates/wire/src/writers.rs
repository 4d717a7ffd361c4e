//! The present writers of a file, as text.
//!
//! It travels as an extended attribute that is computed on request.

use std::fmt::Write;

use frieze_base::SessionId;

/// The extended attribute, of now and never listed, that shows the sessions with the right to write to a regular file
/// to every user that may read or write it, in the format of [`format_writers`] and [`parse_writers`]. A session that
/// closed the file, or has ended, is not among them.
pub const WRITERS_XATTR: &[u8] = b"user.frieze.writers";

/// A session that may write a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWriter {
    /// Which.
    pub session: SessionId,
    /// The user the server has proven.
    pub uid: u32,
    /// Host, as the client sent it; empty for callers other than the session's own user and administrators.
    pub host: String,
    /// Program, as the client sent it; empty as `host` is.
    pub command: String,
}

/// The value of the attribute: a line for each session, `SESSION UID HOST COMMAND`. A character that would end a line
/// or a word is written as a blank, or as `_`.
pub fn format_writers(writers: &[FileWriter]) -> String {
    let mut text = String::new();
    for FileWriter { session, uid, host, command } in writers {
        let host: String = host.chars().map(|c| if c.is_whitespace() || c.is_control() { '_' } else { c }).collect();
        let command: String = command.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(text, "{session} {uid} {host} {command}").expect("a string grows");
    }
    text
}

/// Parses the text of [`format_writers`]; `None` if it is something else.
pub fn parse_writers(text: &[u8]) -> Option<Vec<FileWriter>> {
    let text = std::str::from_utf8(text).ok()?;
    let writer = |line: &str| {
        let mut words = line.splitn(4, ' ');
        Some(FileWriter {
            session: words.next()?.parse().ok()?,
            uid: words.next()?.parse().ok()?,
            host: words.next()?.to_owned(),
            command: words.next()?.to_owned(),
        })
    };
    // Another separator than that of `lines` would be one that a command may hold.
    text.split_terminator('\n').map(writer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_round_trip_except_line_ends_and_spaces() {
        let writer = |host: &str, command: &str| FileWriter {
            session: SessionId(7),
            uid: 1000,
            host: host.to_owned(),
            command: command.to_owned(),
        };
        let writers = [writer("h", "frieze put a  b"), writer("", "")];
        assert_eq!(format_writers(&writers), "7 1000 h frieze put a  b\n7 1000  \n");
        assert_eq!(parse_writers(format_writers(&writers).as_bytes()).as_deref(), Some(writers.as_slice()));
        assert_eq!(parse_writers(b""), Some(Vec::new()));
        let bad = [writer("a\nb c", "x\ny\r\u{1b}[0m z")];
        assert_eq!(parse_writers(format_writers(&bad).as_bytes()), Some(vec![writer("a_b_c", "x y  [0m z")]));
        for text in ["7", "x 1 h c", "7 -1 h c", "7 1 h", "\n", "7 1 h c\n\n"] {
            assert_eq!(parse_writers(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse_writers(b"\xff"), None);
    }
}
