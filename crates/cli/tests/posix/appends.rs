//! `O_APPEND` from several mounts: every line once, whole, and in the order of each writer.

use std::fs::{self, OpenOptions};
use std::io::Write;

use rustix::fs::{FallocateFlags, fallocate};

use crate::mount_server;
use crate::support::Mount;

const WRITERS: usize = 6;
const LINES: usize = 150;

/// A line of any length, some longer than a page, that tells whose it is and which.
fn line(writer: usize, number: usize) -> String {
    format!("{writer} {number} {}\n", "x".repeat((writer * 977 + number * 131) % 6000))
}

#[test]
fn lines_appended_through_two_mounts_are_whole_and_in_order() {
    let Some(mounted) = mount_server() else { return };
    let second = Mount::at(&mounted.server, "second").unwrap();
    let paths = [mounted.path("log"), second.path("log")];
    fs::write(&paths[0], "#").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = &paths[writer % 2];
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(path).unwrap();
                for number in 0..LINES {
                    file.write_all(line(writer, number).as_bytes()).unwrap();
                }
            });
        }
        // Allocation beside them extends at most: it never cuts what is appended meanwhile. The first byte is punched
        // out.
        scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(&paths[1]).unwrap();
            for _ in 0..100 {
                let len = file.metadata().unwrap().len().max(1);
                fallocate(&file, FallocateFlags::empty(), 0, len).unwrap();
                fallocate(&file, FallocateFlags::KEEP_SIZE, len, 10).unwrap();
                fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 1).unwrap();
            }
        });
    });
    let text = fs::read_to_string(&paths[0]).unwrap();
    assert!(fs::read_to_string(&paths[1]).unwrap() == text);
    let mut next = [0; WRITERS];
    let mut rest = text.strip_prefix('\0').expect("the first byte is punched out");
    while !rest.is_empty() {
        let end = rest.find('\n').expect("the last line is whole") + 1;
        let writer: usize = rest.split(' ').next().unwrap().parse().unwrap();
        let expected = line(writer, next[writer]);
        let same = rest.bytes().zip(expected.bytes()).take_while(|(is, was)| is == was).count();
        let offset = text.len() - rest.len() + same;
        assert!(
            rest[..end] == expected,
            "line {} of writer {writer} differs at byte {offset}, its byte {same} of {}, {} found: {:?}",
            next[writer],
            expected.len(),
            end,
            &rest[same..(same + 30).min(rest.len())]
        );
        next[writer] += 1;
        rest = &rest[end..];
    }
    assert_eq!(next, [LINES; WRITERS]);
}
