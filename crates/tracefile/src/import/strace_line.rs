//! Lines of `strace -f -ttt -T -y`: process, time, call, arguments, result, duration.

/// A line as it begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimedLine<'l> {
    /// 0 for a trace of one process.
    pub(super) pid: u32,
    /// ns since 1970.
    pub(super) time_ns: i64,
    pub(super) rest: &'l str,
}

/// A whole call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TracedCall<'l> {
    pub(super) name: &'l str,
    pub(super) arguments: Vec<&'l str>,
    /// What it returned; `None` for `?`.
    pub(super) value: Option<i64>,
    /// The errno's name, if it failed.
    pub(super) errno: Option<&'l str>,
    /// The path of a descriptor that it returned.
    pub(super) returned_path: Option<&'l str>,
    pub(super) duration_ns: Option<u64>,
}

/// A descriptor as an argument: number and path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor<'l> {
    pub(super) number: i64,
    pub(super) path: Option<&'l str>,
}

/// Splits process and time from a line; `None` for a line of another kind.
pub(super) fn timed(line: &str) -> Option<TimedLine<'_>> {
    let (first, rest) = line.trim_start().split_once(' ')?;
    // `[pid  1234]` is how strace marks lines on a terminal.
    let (first, rest) = match first {
        "[pid" => {
            let (pid, rest) = rest.trim_start().split_once(']')?;
            (pid, rest.trim_start())
        }
        first => (first, rest.trim_start()),
    };
    match first.contains('.') {
        true => Some(TimedLine { pid: 0, time_ns: nanoseconds(first)?, rest }),
        false => {
            let (time, rest) = rest.split_once(' ')?;
            Some(TimedLine { pid: first.parse().ok()?, time_ns: nanoseconds(time)?, rest: rest.trim_start() })
        }
    }
}

/// `1700000000.123456` in ns.
pub(super) fn nanoseconds(text: &str) -> Option<i64> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let (seconds, fraction): (i64, i64) = (seconds.parse().ok()?, digits.parse().ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// The call of a line without `<unfinished ...>`; `None` for a signal, an exit, or what is cut.
pub(super) fn call(text: &str) -> Option<TracedCall<'_>> {
    let (name, rest) = text.split_once('(')?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let (arguments, rest) = arguments(rest)?;
    let (result, duration_ns) = match rest.trim_end().strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((result, duration)) => match nanoseconds(duration) {
            Some(ns) => (result, u64::try_from(ns).ok()),
            None => (rest, None),
        },
        None => (rest, None),
    };
    let result = result.trim().strip_prefix('=')?.trim();
    let word = result.split(' ').next()?;
    let digits = word.split('<').next()?;
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    };
    let errno = (value == Some(-1)).then(|| result.split(' ').nth(1)).flatten();
    Some(TracedCall {
        name,
        arguments,
        value,
        errno,
        returned_path: descriptor(result).and_then(|fd| fd.path),
        duration_ns,
    })
}

/// Splits arguments at commas that are in no string, bracket or path; and what follows the closing bracket.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let (mut all, mut depth, mut start, mut at) = (Vec::new(), 0_u32, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if at > start || !all.is_empty() {
                    all.push(text.get(start..at)?.trim());
                }
                return Some((all, text.get(at + 1..)?));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            // The path of a descriptor, which may have another one in it: `0</dev/pts/0<char 136:0>>`.
            b'<' if at > 0 && bytes[at - 1].is_ascii_alphanumeric() => {
                let mut angles = 1;
                while angles > 0 && at + 1 < bytes.len() {
                    at += 1;
                    match bytes[at] {
                        b'<' => angles += 1,
                        b'>' => angles -= 1,
                        b'\\' => at += 1,
                        _ => {}
                    }
                }
            }
            b',' if depth == 0 => {
                all.push(text.get(start..at)?.trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// A descriptor: `3</path>`, `AT_FDCWD</cwd>` (-100), `3`.
pub(super) fn descriptor(text: &str) -> Option<Descriptor<'_>> {
    let (number, path) = match text.split_once('<') {
        Some((number, path)) => (number, Some(path.rsplit_once('>')?.0)),
        None => (text, None),
    };
    let number = if number == "AT_FDCWD" { -100 } else { number.trim().parse().ok()? };
    Some(Descriptor { number, path })
}

/// The bytes of a string argument; `None` for what is none. A string that strace cut (`"..."...`) is as far as it goes.
pub(super) fn string(text: &str) -> Option<Vec<u8>> {
    let inner = text.strip_prefix('"')?;
    let mut bytes = Vec::new();
    let mut rest = inner.as_bytes();
    loop {
        match rest {
            [] => return None,
            [b'"', ..] => return Some(bytes),
            [b'\\', b'x', high, low, ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
                rest = &rest[4..];
            }
            [b'\\', first @ b'0'..=b'7', ..] => {
                let digits = rest[1..].iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let value = rest[1..=digits].iter().fold(0_u32, |value, byte| value * 8 + u32::from(byte - b'0'));
                debug_assert!(*first >= b'0');
                bytes.push(value as u8);
                rest = &rest[1 + digits..];
            }
            [b'\\', escaped, ..] => {
                bytes.push(match escaped {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    b'v' => 11,
                    b'f' => 12,
                    other => *other,
                });
                rest = &rest[2..];
            }
            [byte, ..] => {
                bytes.push(*byte);
                rest = &rest[1..];
            }
        }
    }
}
