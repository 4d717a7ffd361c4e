//! How values look in print: names, sizes, modes, times, columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use frieze_hlc::Hlc;
use jiff::Timestamp;
use nix::unistd::{Gid, Group, Uid, User};

/// Bytes of a name as text that is safe on a terminal: control characters are escaped, bytes that are not UTF-8 become
/// the replacement character.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.contains(|c: char| c.is_control()) {
        return text.into_owned();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match letter {
            '\0' => shown.push_str("\\0"),
            letter if letter.is_control() => shown.extend(letter.escape_default()),
            letter => shown.push(letter),
        }
    }
    shown
}

/// A local path as text that is safe on a terminal.
pub(crate) fn local(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// `4.0K`, `1.5M`: three significant digits at most, in powers of 1024, rounded up as `du` does.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = 1u64;
    for letter in ["K", "M", "G", "T", "P", "E"] {
        unit <<= 10;
        // In tenths, rounded up; u128 for the last unit.
        let tenths = (u128::from(bytes) * 10).div_ceil(unit.into());
        if tenths < 100 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        let whole = bytes.div_ceil(unit);
        if whole < 1024 || letter == "E" {
            return format!("{whole}{letter}");
        }
    }
    unreachable!("the last unit holds every u64")
}

/// `1 file`, `2 files`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// `244 B`, `1.8 KiB`: as [`human`], with the unit written out.
pub(crate) fn size(bytes: u64) -> String {
    let short = human(bytes);
    match short.strip_suffix(|letter: char| letter.is_ascii_uppercase()) {
        Some(number) => format!("{number} {}iB", &short[number.len()..]),
        None => format!("{short} B"),
    }
}

/// The nine permission letters with set-id and sticky bits, after the letter of the kind.
pub(crate) fn mode(kind_letter: char, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind_letter);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in ns since 1970 in RFC 3339 UTC with at least microseconds, so that it can be given to `--at` as it stands.
pub(crate) fn time_ns(ns: i64) -> String {
    match Timestamp::from_nanosecond(ns.into()) {
        Ok(time) if ns.rem_euclid(1000) == 0 => format!("{time:.6}"),
        Ok(time) => format!("{time:.9}"),
        Err(_) => format!("{ns}ns"),
    }
}

/// The wall-clock time of a stamp in RFC 3339 UTC with microseconds.
pub(crate) fn time_of(stamp: Hlc) -> String {
    frieze_hlc::format_instant(stamp)
}

/// The program of a command line: the last part of its first word. The rest may contain a secret, and is shown only on
/// request.
pub(crate) fn program(command: &str) -> &str {
    let first = command.split_whitespace().next().unwrap_or_default();
    let name = first.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    &name[..name.floor_char_boundary(PROGRAM_BYTES_MAX)]
}

/// Bytes of a program's name that are shown: the longest names of Linux would push a table apart.
const PROGRAM_BYTES_MAX: usize = 32;

/// JSON in which every number is exact for readers that keep numbers in doubles (JavaScript, `jq`): one of 2^53 and
/// above, or as far below zero, is a string of its digits.
pub(crate) fn exact(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(number) => {
            let large = number.as_u64().or(number.as_i64().map(i64::unsigned_abs)).is_some_and(|size| size >= 1 << 53);
            if large { Value::String(number.to_string()) } else { Value::Number(number) }
        }
        Value::Array(values) => values.into_iter().map(exact).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, exact(value))).collect(),
        other => other,
    }
}

/// The precision of exact instants, as text; `u64::MAX` means an undisciplined clock.
pub(crate) fn precision(us: u64) -> String {
    match us {
        u64::MAX => "with unknown precision (nothing disciplines the server's clock)".to_owned(),
        us => format!("precise to {us} us"),
    }
}

/// The same for programs: null if it is unknown.
pub(crate) fn precision_json(us: u64) -> serde_json::Value {
    if us == u64::MAX { serde_json::Value::Null } else { us.into() }
}

/// A length of time in its two largest units: `3d 4h`, `12.5s`, `40ms`.
pub(crate) fn duration_ms(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms}ms"),
        1..60 => format!("{s}.{}s", ms % 1000 / 100),
        60..3600 => format!("{}m {}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d {}h", s / 86_400, s % 86_400 / 3600),
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String never fails");
        text
    })
}

/// Names of users and groups of this machine, looked up once each.
#[derive(Debug, Default)]
pub(crate) struct UserNames {
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl UserNames {
    /// The name of a user, or the number where there is none.
    pub(crate) fn user(&mut self, uid: u32) -> &str {
        self.users.entry(uid).or_insert_with(|| match User::from_uid(Uid::from_raw(uid)) {
            Ok(Some(user)) => user.name,
            Ok(None) | Err(_) => uid.to_string(),
        })
    }

    /// The name of a group, or the number where there is none.
    pub(crate) fn group(&mut self, gid: u32) -> &str {
        self.groups.entry(gid).or_insert_with(|| match Group::from_gid(Gid::from_raw(gid)) {
            Ok(Some(group)) => group.name,
            Ok(None) | Err(_) => gid.to_string(),
        })
    }
}

/// Rows whose columns line up, two spaces between them; the last column is as long as it is.
#[derive(Debug)]
pub(crate) struct TextTable {
    right: &'static [bool],
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table of as many columns as `right` has; true aligns a column to the right.
    pub(crate) fn new(right: &'static [bool]) -> TextTable {
        TextTable { right, rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not as many cells as the table has columns.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.right.len(), "a row has a cell for each column");
        self.rows.push(cells);
    }

    /// The lines, without trailing spaces.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        let width_of = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.right.len()).map(width_of).collect();
        self.rows.iter().map(move |row| {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let (width, right) = (widths[column], self.right[column]);
                if column > 0 {
                    line.push_str("  ");
                }
                let padding = " ".repeat(width - cell.chars().count());
                if right {
                    line.push_str(&padding);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&padding);
                }
            }
            line.truncate(line.trim_end().len());
            line
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_that_a_double_cannot_hold_are_strings_at_any_depth() {
        let (largest, next) = ((1u64 << 53) - 1, 1u64 << 53);
        let value =
            json!({ "a": largest, "b": [next, { "c": u64::MAX, "d": i64::MIN }], "e": -1, "f": 0.5, "g": null });
        let shown = json!({
            "a": largest, "b": ["9007199254740992", { "c": "18446744073709551615", "d": "-9223372036854775808" }],
            "e": -1, "f": 0.5, "g": null,
        });
        assert_eq!(exact(value), shown);
    }

    #[test]
    fn sizes_for_people_have_two_digits_and_round_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_240, "10K"),
            (1_048_575, "1.0M"),
            (1_572_864, "1.5M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human(bytes), text, "{bytes} bytes");
        }
    }

    #[test]
    fn sizes_with_their_unit_say_which_thousand_is_meant() {
        assert_eq!([size(244), size(1800), size(3 << 40)], ["244 B", "1.8 KiB", "3.0 TiB"]);
    }

    #[test]
    fn a_command_line_is_shown_as_its_program() {
        for (command, shown) in [
            ("/usr/bin/mysql -psecret", "mysql"),
            ("sh -c TOKEN=hunter2 true", "sh"),
            ("  cp\ta b", "cp"),
            ("./build/", "build"),
            ("", ""),
            ("/", ""),
        ] {
            assert_eq!(program(command), shown, "{command:?}");
        }
        assert_eq!(program(&"ä".repeat(40)).len(), 32);
    }

    #[test]
    fn modes_show_special_bits_in_their_place() {
        assert_eq!(mode('d', 0o755), "drwxr-xr-x");
        assert_eq!(mode('-', 0o4755), "-rwsr-xr-x");
        assert_eq!(mode('-', 0o2644), "-rw-r-Sr--");
        assert_eq!(mode('d', 0o1777), "drwxrwxrwt");
        assert_eq!(mode('-', 0o1000), "---------T");
    }

    #[test]
    fn control_characters_of_a_name_never_reach_a_terminal() {
        assert_eq!(printable(b"plain \xc3\xa9"), "plain é");
        assert_eq!(printable(b"a\x1b[31mb\n"), "a\\u{1b}[31mb\\n");
        assert_eq!(printable(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn times_carry_the_digits_that_name_the_write() {
        assert_eq!(time_ns(1_439_845_200_100_000_000), "2015-08-17T21:00:00.100000Z");
        assert_eq!(time_ns(1_439_845_200_100_000_007), "2015-08-17T21:00:00.100000007Z");
        assert_eq!(time_of(Hlc::last_of_micros(1_439_845_200_100_000)), "2015-08-17T21:00:00.100000Z");
    }

    #[test]
    fn durations_name_their_two_largest_units() {
        for (ms, text) in
            [(40, "40ms"), (1234, "1.2s"), (61_000, "1m 1s"), (3_600_000, "1h 0m"), (273_600_000, "3d 4h")]
        {
            assert_eq!(duration_ms(ms), text);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&[false, true, false]);
        table.row(["a", "1", "x"].map(str::to_owned));
        table.row(["bcd", "100", ""].map(str::to_owned));
        assert_eq!(table.lines().collect::<Vec<_>>(), ["a      1  x", "bcd  100"]);
    }
}
