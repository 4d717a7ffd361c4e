//! Properties of a calling process, from `/proc`.

use std::fs;

/// A process: its thread-group id and when it started, so that a number used again is another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessId {
    group: u32,
    /// Clock ticks after boot.
    started: u64,
}

impl ProcessId {
    /// The process that thread `thread` belongs to; `None` if it has ended or lives in another pid namespace (thread
    /// 0).
    pub(crate) fn of(thread: u32) -> Option<ProcessId> {
        if thread == 0 {
            return None;
        }
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let group = field(&status, "Tgid:")?.parse().ok()?;
        let stat = fs::read(format!("/proc/{group}/stat")).ok()?;
        Some(ProcessId { group, started: start_of(&stat)? })
    }

    #[cfg(test)]
    pub(crate) fn made_up(group: u32) -> ProcessId {
        ProcessId { group, started: 0 }
    }
}

/// The supplementary groups of `thread`; none if it has ended or lives in another pid namespace.
pub(crate) fn groups_of(thread: u32) -> Vec<u32> {
    if thread == 0 {
        return Vec::new();
    }
    fs::read_to_string(format!("/proc/{thread}/status")).map(|status| groups(&status)).unwrap_or_default()
}

/// A variable of the environment that the process of `thread` was started with; `None` too if it has ended, lives in
/// another pid namespace, or may not be read.
pub(crate) fn variable_of(thread: u32, name: &str) -> Option<String> {
    if thread == 0 {
        return None;
    }
    variable(&fs::read(format!("/proc/{thread}/environ")).ok()?, name)
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    let value = |entry: &[u8]| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    String::from_utf8(environment.split(|&byte| byte == 0).find_map(value)?).ok()
}

/// True if `thread` has a signal to act on, or has ended. False if it lives in another pid namespace.
pub(crate) fn has_signal(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    fs::read_to_string(format!("/proc/{thread}/status")).map_or(true, |status| is_signalled(&status))
}

/// True if `thread` has requested the text of a symbolic link (`readlink(2)`), and not its target. False as well where
/// that cannot be determined: in another pid namespace, or for want of the right to trace the thread.
pub(crate) fn is_reading_link(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    for _ in 0..LOOKS_MAX {
        match fs::read_to_string(format!("/proc/{thread}/syscall")) {
            // It has sent the request, and is about to sleep until it is answered.
            Ok(text) if text.starts_with("running") => std::thread::yield_now(),
            text => return text.is_ok_and(|text| is_readlink(&text)),
        }
    }
    false
}

fn is_readlink(syscall: &str) -> bool {
    let number = syscall.split(' ').next().and_then(|number| number.parse().ok());
    number.is_some_and(|number: i64| READLINK_CALLS.contains(&number))
}

fn is_signalled(status: &str) -> bool {
    let mask = |name| field(status, name).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0);
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0
}

fn groups(status: &str) -> Vec<u32> {
    let listed = field(status, "Groups:").unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|group| group.parse().ok()).collect()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Field 22 of `/proc/PID/stat`. The second, the command's name in brackets, may hold anything: count from its end.
fn start_of(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Looks at a thread that still runs: it takes microseconds to fall asleep.
const LOOKS_MAX: usize = 100;
#[cfg(target_arch = "x86_64")]
const READLINK_CALLS: [i64; 2] = [nix::libc::SYS_readlink, nix::libc::SYS_readlinkat];
#[cfg(not(target_arch = "x86_64"))]
const READLINK_CALLS: [i64; 1] = [nix::libc::SYS_readlinkat];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_a_link_and_following_it_are_distinguished_by_thread() {
        let readlinkat = nix::libc::SYS_readlinkat;
        assert!(is_readlink(&format!("{readlinkat} 0xffffff9c 0x7ffe 0x5581 0x1000 0x0 0x0 0x7ffd 0x7f31\n")));
        assert!(!is_readlink(&format!("{} 0xffffff9c 0x7ffe", nix::libc::SYS_openat)));
        assert!(!is_readlink("-1 0x7ffd 0x7f31") && !is_readlink("running\n") && !is_readlink(""));
        assert!(!is_reading_link(0));
    }

    #[test]
    fn a_thread_belongs_to_the_process_it_runs_in() {
        let process = ProcessId::of(std::process::id()).unwrap();
        let thread = std::thread::spawn(|| ProcessId::of(rustix::thread::gettid().as_raw_nonzero().get() as u32));
        assert_eq!(thread.join().unwrap(), Some(process));
        assert_eq!(process.group, std::process::id());
        assert_eq!(ProcessId::of(0), None);
    }

    #[test]
    fn the_start_is_found_behind_a_name_with_spaces_and_brackets() {
        let stat = b"77 (a b) c) S 1 77 77 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 123456 99 1 2";
        assert_eq!(start_of(stat), Some(123_456));
        assert_eq!(start_of(b"77 (short) S 1"), None);
    }

    #[test]
    fn a_signal_counts_when_it_is_pending_and_not_blocked() {
        let status = |pending: &str, shared: &str, blocked: &str| {
            is_signalled(&format!("Name:\tx\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\n"))
        };
        assert!(!status("0000000000000000", "0000000000000000", "0000000000000000"));
        assert!(status("0000000000000100", "0000000000000000", "0000000000000000"));
        assert!(status("0000000000000000", "0000000000000100", "0000000000000001"));
        assert!(!status("0000000000000000", "0000000000000100", "0000000000000100"));
        assert!(!has_signal(0));
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"XTZ=a\0TZX=b\0TZ=Asia/Tokyo\0TZ=later\0";
        assert_eq!(variable(environment, "TZ").as_deref(), Some("Asia/Tokyo"));
        assert_eq!(variable(b"TZX=b\0", "TZ"), None);
        assert_eq!(variable(b"TZ=\0", "TZ").as_deref(), Some(""));
    }

    #[test]
    fn supplementary_groups_are_read_from_the_status() {
        assert_eq!(groups("Name:\tx\nGroups:\t4 24 1000 \nNStgid:\t1\n"), [4, 24, 1000]);
        assert_eq!(groups("Name:\tx\nGroups:\t \n"), []);
        assert_eq!(groups(""), []);
    }
}
