//! The rest of long answers: differences that one page computed and that belong to later pages.
//!
//! Guarantees: as long as there is room, a later page is read from here and not computed again; without room it is
//! computed again, so only time depends on this cache. It never exceeds `bytes_max`; the rest that was used last is
//! evicted last.
//! Leaves to others: whether the rights of now still show a difference (`activity`).

use std::collections::VecDeque;

use frieze_hlc::Hlc;
use frieze_locks::{Mutex, levels};
use frieze_wire::timeline::Difference;
use frieze_wire::txn::Caller;
use prost::Message;

use crate::history::scope::Scope;
use crate::history::tree_pair::Interval;

/// The request, and what its answer depends on beside the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnshownKey {
    pub(crate) caller: Caller,
    pub(crate) scope: Scope,
    pub(crate) interval: Interval,
    /// Expiries of history: how many, and the last one.
    pub(crate) forgotten: (usize, Hlc),
}

/// The rest of an answer.
#[derive(Debug)]
struct Rest {
    asked: UnshownKey,
    /// Number of the first difference.
    first: u64,
    /// Differences stored here, and whether more follow that had no room.
    count: u64,
    more: bool,
    hidden: bool,
    /// Each difference after its length; those before `at` were sent, and are not needed any more.
    bytes: Vec<u8>,
    at: usize,
}

/// A page of differences.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) differences: Vec<Difference>,
    pub(crate) more: bool,
    pub(crate) hidden: bool,
}

/// Rests of answers, the one used last at the end.
#[derive(Debug)]
pub struct Unshown {
    rests: Mutex<levels::AnswerRests, VecDeque<Rest>>,
    bytes_max: usize,
}

/// One byte in so many of the server's memory.
const SHARE: u64 = 32;
/// 30,000 differences of about 120 bytes, and a million.
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 128 << 20;

impl Unshown {
    /// Room for a server with so much memory.
    pub fn of_memory(bytes: u64) -> Unshown {
        Unshown::new((bytes / SHARE).clamp(BYTES_MIN, BYTES_MAX) as usize)
    }

    /// Room for `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> Unshown {
        Unshown { rests: Mutex::default(), bytes_max }
    }

    /// Stores the differences after the first page of an answer: from number `first` on, as many as there is room for.
    pub(crate) fn keep(&self, asked: UnshownKey, first: u64, differences: &[Difference], hidden: bool) {
        let mut rest = Rest { asked, first, count: 0, more: false, hidden, bytes: Vec::new(), at: 0 };
        for difference in differences {
            if rest.bytes.len() + difference.encoded_len() + 10 > self.bytes_max {
                rest.more = true;
                break;
            }
            difference.encode_length_delimited(&mut rest.bytes).expect("a vector grows");
            rest.count += 1;
        }
        if rest.count == 0 {
            return;
        }
        rest.bytes.shrink_to_fit();
        let mut rests = self.rests.lock();
        rests.push_back(rest);
        let mut bytes: usize = rests.iter().map(|rest| rest.bytes.capacity()).sum();
        while bytes > self.bytes_max {
            bytes -= rests.pop_front().map_or(bytes, |rest| rest.bytes.capacity());
        }
    }

    /// At most `max` of the differences from number `skip` on, of about `bytes_max` bytes; `None` if they are not here.
    pub(crate) fn page(&self, asked: &UnshownKey, skip: u64, max: usize, bytes_max: usize) -> Option<Page> {
        let mut rests = self.rests.lock();
        let is_it = |rest: &Rest| rest.asked == *asked && (rest.first..rest.first + rest.count).contains(&skip);
        let position = rests.iter().position(is_it)?;
        let mut rest = rests.remove(position)?;
        drop(rests);
        rest.skip(skip)?;
        let page = rest.page(max, bytes_max)?;
        // A client that has not received a page may ask for it again.
        if page.more {
            self.rests.lock().push_back(rest);
        }
        Some(page)
    }
}

impl Rest {
    /// Skips to number `skip`.
    fn skip(&mut self, skip: u64) -> Option<()> {
        let mut left = &self.bytes[self.at..];
        while self.first < skip {
            let len = prost::decode_length_delimiter(&mut left).ok()?;
            left = left.get(len..)?;
            self.first += 1;
            self.count -= 1;
        }
        self.at = self.bytes.len() - left.len();
        Some(())
    }

    fn page(&self, max: usize, bytes_max: usize) -> Option<Page> {
        let mut left = &self.bytes[self.at..];
        let mut differences = Vec::new();
        while differences.len() < max && !left.is_empty() {
            let shown = self.bytes.len() - self.at - left.len();
            if shown > bytes_max {
                break;
            }
            differences.push(Difference::decode_length_delimited(&mut left).ok()?);
        }
        Some(Page { more: !left.is_empty() || self.more, hidden: self.hidden, differences })
    }
}

#[cfg(test)]
mod tests {
    use frieze_base::InodeId;

    use super::*;

    fn asked(uid: u32) -> UnshownKey {
        let interval = Interval { after: Hlc(1), upto: Hlc(2) };
        let caller = Caller { uid, gid: 0, groups: Vec::new() };
        UnshownKey { caller, scope: Scope::Within(InodeId(7)), interval, forgotten: (0, Hlc::ZERO) }
    }

    fn differences(count: u64) -> Vec<Difference> {
        (0..count).map(|stamp| Difference { stamp: 1000 + stamp, ..Difference::default() }).collect()
    }

    #[test]
    fn pages_go_on_where_the_last_ended_and_can_be_asked_for_again() {
        let unshown = Unshown::new(1 << 20);
        let all = differences(25);
        unshown.keep(asked(0), 10, &all[10..], true);
        for _ in 0..2 {
            let page = unshown.page(&asked(0), 10, 6, 1 << 20).expect("it is there");
            assert_eq!(page, Page { differences: all[10..16].to_vec(), more: true, hidden: true });
        }
        assert_eq!(unshown.page(&asked(1), 10, 6, 1 << 20), None, "another caller's");
        assert_eq!(unshown.page(&asked(0), 9, 6, 1 << 20), None, "shown before");
        let page = unshown.page(&asked(0), 16, 100, 1 << 20).expect("it is there");
        assert_eq!(page, Page { differences: all[16..].to_vec(), more: false, hidden: true });
        assert_eq!(unshown.page(&asked(0), 16, 100, 1 << 20), None, "all was shown");
    }

    #[test]
    fn what_has_no_room_is_not_kept_and_the_oldest_goes_first() {
        let all = differences(5000);
        let unshown = Unshown::new(4096);
        for uid in 0..5 {
            unshown.keep(asked(uid), 0, &all, false);
        }
        let bytes = |unshown: &Unshown| unshown.rests.lock().iter().map(|rest| rest.bytes.capacity()).sum::<usize>();
        assert!(bytes(&unshown) <= 4096);
        let page = unshown.page(&asked(4), 0, 10_000, 1 << 20).expect("it is there");
        assert!(page.more && page.differences.len() < 5000 && page.differences[..] == all[..page.differences.len()]);
        assert_eq!(unshown.page(&asked(0), 0, 1, 1 << 20), None);
    }
}
