//! Space of a file: punched holes, and length without bytes.

use frieze_hlc::Hlc;
use frieze_wire::message::{Punch, Reply, Request};
use frieze_wire::txn::{Op, SetAttr, Target};

use crate::file::check_range;
use crate::file::write::{GRANT_ROUNDS_MAX, is_without_grant};
use crate::route::ServerRoute;
use crate::{Error, File};

impl File {
    /// Punches a hole: the range reads as zeros from now on, takes no space in the present, and stays readable in
    /// the past. The length of the file stays. Returns the stamp of the last part: a read at it, or later, reads all of
    /// the hole as zeros.
    ///
    /// A hole within one chunk is atomic; a wider one may be several, in order of offset.
    ///
    /// # Errors
    /// `NotOpenFor`; as any call. Of a hole of several parts some may have happened.
    ///
    /// # Cost
    /// One request for every 128 chunks of the range that were ever written; other chunks cost nothing. Among several
    /// servers one for each chunk, and a grant.
    pub fn punch(&self, offset: u64, len: u64) -> Result<Hlc, Error> {
        self.must_write()?;
        check_range(offset, len)?;
        let end = offset + len;
        let mut at = offset;
        let mut stamp = self.shared.newest();
        let mut rounds = 0;
        while at < end {
            // Among several servers the head of a chunk punches it, and the leader grants the right to.
            let (chunk, part) = (self.chunk_at(at), self.at_one_head(at, end - at));
            if self.is_among_several() {
                self.ensure_granted(at, part as usize)?;
            }
            let punch = Punch {
                capability: self.capability().to_vec(),
                offset: at,
                len: part,
                durability: self.durability() as i32,
            };
            self.note_dirty();
            let number = self.shared.number()?;
            let request = self.request(Request::Punch(punch), number.seq, &[]).to(ServerRoute::Write(chunk));
            match self.shared.call(&request, &mut []) {
                Ok((Reply::Punch(reply), _)) if reply.upto > at => {
                    (at, stamp, rounds) = (reply.upto, Hlc(reply.stamp), 0);
                }
                Ok((other, _)) => return Err(self.shared.unexpected("a hole", &other)),
                // A truncate took the grants that the server had just given. The refused request did not run, so the
                // next attempt is another request.
                Err(Error::Refused(fault)) if is_without_grant(&fault) && rounds < GRANT_ROUNDS_MAX => {
                    rounds += 1;
                    self.note_lost_grant(at);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(stamp)
    }

    /// Makes the file at least `len` bytes long, the new bytes a hole. A file that is longer already keeps its length:
    /// a concurrent append is not truncated.
    ///
    /// # Errors
    /// `NotOpenFor`; as any call.
    pub fn extend_to(&self, len: u64) -> Result<(), Error> {
        self.must_write()?;
        let change = SetAttr {
            target: Target::inode(self.inode()),
            size: Some(len),
            extend: true,
            by_handle: true,
            ..SetAttr::default()
        };
        self.shared.change(self.caller(), self.durability(), Op::SetAttr(change)).map(drop)
    }
}
