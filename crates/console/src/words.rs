//! Values as people read them.

use std::collections::BTreeMap;

use frieze_client::{FileKind, Hlc, SessionInfo, SessionName};
use nix::unistd::{Uid, User};

/// The wall-clock time of a stamp to the millisecond, UTC: `2026-11-30 15:00:00.123`.
pub(crate) fn time_of(stamp: Hlc) -> String {
    let exact = exact_time(stamp);
    let (date, time) = exact.split_once('T').unwrap_or((&exact, ""));
    let time = time.trim_end_matches('Z');
    // The microseconds behind are in the exact form.
    format!("{date} {}", time.get(..12).unwrap_or(time))
}

/// RFC 3339, UTC, microseconds.
pub(crate) fn exact_time(stamp: Hlc) -> String {
    frieze_hlc::format_instant(stamp)
}

/// Bytes of a name as text: what is not UTF-8 becomes the replacement character, and so does what moves the cursor or
/// turns the direction of writing.
pub(crate) fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().map(|c| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

fn is_shown(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let hides = matches!(c, '\u{200b}' | '\u{2028}' | '\u{2029}' | '\u{feff}');
    !(c.is_control() || turns || hides)
}

/// A count of bytes: `812 B`, `4.2 KiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// `1 change`, `2 changes`, `12,345 changes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let digits = grouped(number);
    if number == 1 { format!("1 {thing}") } else { format!("{digits} {thing}s") }
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A duration in its two largest units.
pub(crate) fn duration_ms(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{:.1} s", ms as f64 / 1000.0),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Permission bits as `ls` shows them.
pub(crate) fn mode(kind: FileKind, mode: u32) -> String {
    let first = match kind {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::File => '-',
        _ => 's',
    };
    let bits = (0..9).rev().map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit as usize % 3] } else { '-' });
    std::iter::once(first).chain(bits).collect()
}

/// Users and sessions that a page names.
#[derive(Debug, Default)]
pub(crate) struct PageAuthors {
    users: BTreeMap<u32, String>,
    sessions: BTreeMap<u64, SessionInfo>,
}

impl PageAuthors {
    /// Adds the sessions of a reply.
    pub(crate) fn learn(&mut self, sessions: Vec<SessionInfo>) {
        self.sessions.extend(sessions.into_iter().map(|session| (session.id, session)));
    }

    /// The name of a user; the number if it has none.
    pub(crate) fn user(&mut self, uid: u32) -> String {
        self.users.entry(uid).or_insert_with(|| user_name(uid)).clone()
    }

    /// What a session is called: its name, else its program, else its number.
    pub(crate) fn session(&self, id: u64) -> String {
        let Some(info) = self.sessions.get(&id).filter(|info| !info.hidden && !info.command.is_empty()) else {
            return format!("session {id}");
        };
        match SessionName::split(&info.command) {
            (Some(name), _) => shown(name.as_bytes()),
            (None, command) => {
                let mut words = shown(command.as_bytes());
                let end = words.floor_char_boundary(COMMAND_BYTES_MAX);
                if end < words.len() {
                    words.truncate(end);
                    words.push('…');
                }
                words
            }
        }
    }
}

/// The name of a user in this machine's database; the number if it has none.
pub(crate) fn user_name(uid: u32) -> String {
    let found = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    found.map_or_else(|| uid.to_string(), |user| user.name)
}

/// A longer command is cut on a page.
const COMMAND_BYTES_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_read_as_people_write_them() {
        assert_eq!([bytes(0), bytes(1023), bytes(1024), bytes(1 << 20)], ["0 B", "1023 B", "1.0 KiB", "1.0 MiB"]);
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!([grouped(0), grouped(999), grouped(1000), grouped(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([count(1, "change"), count(2, "change")], ["1 change", "2 changes"]);
        assert_eq!(duration_ms(90_061_000), "1 d 1 h");
        assert_eq!(mode(FileKind::Directory, 0o751), "drwxr-x--x");
    }

    #[test]
    fn names_cannot_turn_the_text_around_them() {
        assert_eq!(shown(b"a\x1b[31mb"), "a\u{fffd}[31mb");
        assert_eq!(shown("evil\u{202e}gpj.exe".as_bytes()), "evil\u{fffd}gpj.exe");
        assert_eq!(shown(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn a_time_is_shown_to_the_millisecond() {
        let stamp = Hlc::first_of_micros(1_780_000_000_123_456);
        assert_eq!(time_of(stamp), "2026-05-28 20:26:40.123");
    }
}
