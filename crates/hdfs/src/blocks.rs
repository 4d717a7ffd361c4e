//! Blocks: what Hadoop's clients call a part of a file. frieze has none; a block is a span of a file that a token
//! names.
//!
//! A file that is read consists of blocks of [`BLOCK_BYTES`], whatever block size it was written with; a block that is
//! written begins at the writer's position. The token, which a client returns with every transfer, holds file, range,
//! instant, user and expiry, and is signed: the data service needs no other record, and believes no other.

use prost::Message;

use crate::exception::Exception;
use crate::proto::{self, ExtendedBlock};

/// Size of the blocks in which files are read, and the default for writers.
pub(crate) const BLOCK_BYTES: u64 = 128 << 20;
/// The one pool of blocks.
pub(crate) const POOL: &str = "frieze";

/// What a transfer may do.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Pass {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub(crate) inode: u64,
    /// Where in it the block begins.
    #[prost(uint64, tag = "2")]
    pub(crate) start: u64,
    /// Bytes that may be read, or written.
    #[prost(uint64, tag = "3")]
    pub(crate) len: u64,
    /// The instant to read; absent for now.
    #[prost(uint64, optional, tag = "4")]
    pub(crate) at: Option<u64>,
    /// The user time to read up to.
    #[prost(sint64, optional, tag = "5")]
    pub(crate) user_at: Option<i64>,
    /// The lease to write under; 0 to read.
    #[prost(uint64, tag = "6")]
    pub(crate) lease: u64,
    /// The user.
    #[prost(uint32, tag = "7")]
    pub(crate) uid: u32,
    /// Its group.
    #[prost(uint32, tag = "8")]
    pub(crate) gid: u32,
    /// Its other groups.
    #[prost(uint32, repeated, tag = "9")]
    pub(crate) groups: Vec<u32>,
    /// Expiry: nanoseconds since 1970, as [`wall_ns`].
    #[prost(uint64, tag = "10")]
    pub(crate) expires_ns: u64,
    /// The gateway that gave the lease: the data service that receives what is written, as `IP:PORT`.
    #[prost(string, tag = "11")]
    pub(crate) gateway: String,
}

/// Signs passes and verifies them.
#[derive(Clone)]
pub(crate) struct TokenMint {
    key: [u8; 32],
}

impl TokenMint {
    /// A mint with a secret.
    pub(crate) fn new(key: [u8; 32]) -> TokenMint {
        TokenMint { key }
    }

    /// A mint for another purpose: neither accepts what the other signs.
    pub(crate) fn of(&self, purpose: &str) -> TokenMint {
        TokenMint { key: blake3::derive_key(purpose, &self.key) }
    }

    /// A token for `pass`.
    pub(crate) fn sign(&self, pass: &Pass) -> proto::Token {
        proto::Token { kind: "HDFS_BLOCK_TOKEN".to_owned(), ..self.seal(pass) }
    }

    /// The pass of a token, at `now_ns`; `None` if this mint did not sign it, or it has expired.
    pub(crate) fn verify(&self, token: &proto::Token, now_ns: u64) -> Option<Pass> {
        self.unseal(token).filter(|pass: &Pass| now_ns < pass.expires_ns)
    }

    /// Signs a message.
    pub(crate) fn seal(&self, message: &impl Message) -> proto::Token {
        let identifier = message.encode_to_vec();
        let password = self.mac(&identifier).to_vec();
        proto::Token { identifier, password, kind: String::new(), service: String::new() }
    }

    /// The message that this mint has signed; `None` if it has not.
    pub(crate) fn unseal<M: Message + Default>(&self, token: &proto::Token) -> Option<M> {
        let expected = blake3::Hash::from_bytes(self.mac(&token.identifier));
        let found: [u8; 32] = token.password.as_slice().try_into().ok()?;
        // Compared in constant time.
        if expected != blake3::Hash::from_bytes(found) {
            return None;
        }
        M::decode(token.identifier.as_slice()).ok()
    }

    fn mac(&self, identifier: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.key, identifier).as_bytes()
    }
}

/// The number of the block of a file that begins at a byte: always the same for the same file and byte. While inode
/// numbers are below [`NAMED_MAX`], it contains the file's ([`inode_of`]): a gateway without a record of the block
/// finds its writer by that.
///
/// Blocks that are read begin at multiples of [`BLOCK_BYTES`], and no two of a file have the same number. Two
/// consecutive blocks that are written may share theirs, if the first is a multiple of [`PLACES`] long: their
/// generations differ.
pub(crate) fn block_id(inode: u64, start: u64) -> u64 {
    let place = start % PLACES;
    // Hadoop takes a negative number for a block of an erasure-coded file.
    match inode < NAMED_MAX {
        true => inode << PLACE_BITS | place,
        false => UNNAMED | (mix(mix(inode).wrapping_add(start)) & (UNNAMED - 1)),
    }
}

/// The file of a block; `None` if its inode number is too large to be in the block's.
pub(crate) fn inode_of(block: u64) -> Option<u64> {
    (block < UNNAMED).then_some(block >> PLACE_BITS)
}

/// The finalizer of splitmix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

const PLACE_BITS: u32 = 22;
/// The largest prime below 2^22: that many blocks of 128 MiB, or 512 TiB, begin at different places.
const PLACES: u64 = (1 << PLACE_BITS) - 3;
/// Smaller inode numbers are part of the numbers of their blocks.
const NAMED_MAX: u64 = 1 << 40;
/// Marks the numbers of all other blocks.
const UNNAMED: u64 = 1 << 62;

/// The clock of token expiry: all gateways of a cluster have it, as exact as the servers' clocks are. Stamps do not use
/// it.
pub(crate) fn wall_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// A block as an answer names it.
pub(crate) fn extended(inode: u64, start: u64, len: u64, generation: u64) -> ExtendedBlock {
    ExtendedBlock {
        pool_id: POOL.to_owned(),
        block_id: block_id(inode, start),
        generation_stamp: generation,
        num_bytes: Some(len),
    }
}

/// The blocks of a file of `size` bytes that hold bytes of a range: where each begins and how long it is.
pub(crate) fn spans(size: u64, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset.saturating_add(len).min(size);
    // No block if the range begins behind the end of the file.
    let first = if offset < end { offset / BLOCK_BYTES * BLOCK_BYTES } else { end };
    let starts = (0..).map(move |number: u64| first.saturating_add(number.saturating_mul(BLOCK_BYTES)));
    starts.take_while(move |&start| start < end).map(move |start| (start, (size - start).min(BLOCK_BYTES)))
}

/// The block of a call that has to name one.
pub(crate) fn required(block: Option<ExtendedBlock>) -> Result<ExtendedBlock, Exception> {
    block.ok_or_else(|| Exception::illegal_argument("the call names no block"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_good_until_it_ends_and_cannot_be_changed() {
        let mint = TokenMint::new([7; 32]);
        let pass = Pass { inode: 5, start: 0, len: 9, at: Some(77), uid: 1000, expires_ns: 100, ..Pass::default() };
        let token = mint.sign(&pass);
        assert_eq!(mint.verify(&token, 99), Some(pass.clone()));
        assert_eq!(mint.verify(&token, 100), None, "over");
        assert_eq!(TokenMint::new([8; 32]).verify(&token, 99), None, "of another server");
        assert_eq!(mint.of("something else").verify(&token, 99), None, "for something else");
        let forged = proto::Token { identifier: Pass { uid: 0, ..pass }.encode_to_vec(), ..token.clone() };
        assert_eq!(mint.verify(&forged, 99), None);
        for at in 0..token.identifier.len() {
            let mut other = token.clone();
            other.identifier[at] ^= 1;
            assert_eq!(mint.verify(&other, 99), None, "byte {at}");
        }
    }

    #[test]
    fn blocks_cover_the_range_and_no_more_than_the_file() {
        let of = |size, offset, len| spans(size, offset, len).collect::<Vec<_>>();
        let block = BLOCK_BYTES;
        assert_eq!(of(0, 0, u64::MAX), []);
        assert_eq!(of(10, 0, u64::MAX), [(0, 10)]);
        assert_eq!(of(block, 0, 1), [(0, block)]);
        assert_eq!(of(2 * block + 1, block - 1, 2), [(0, block), (block, block)]);
        assert_eq!(of(2 * block + 1, 2 * block, u64::MAX), [(2 * block, 1)]);
        assert_eq!(of(10, 10, 5), []);
    }

    #[test]
    fn a_block_has_one_number_and_no_two_of_a_file_have_the_same() {
        let mut numbers: Vec<u64> = (0..1000).map(|index| block_id(42, index * BLOCK_BYTES)).collect();
        assert_eq!(numbers[3], block_id(42, 3 * BLOCK_BYTES));
        numbers.extend((0..1000).map(|index| block_id(NAMED_MAX + 42, index * BLOCK_BYTES)));
        assert!(numbers.iter().all(|&number| (number as i64) > 0));
        assert!(numbers[..1000].iter().all(|&number| inode_of(number) == Some(42)));
        assert!(numbers[1000..].iter().all(|&number| inode_of(number).is_none()));
        let last =
            [(NAMED_MAX - 1, u64::MAX), (NAMED_MAX - 1, PLACES - 1)].map(|(inode, start)| block_id(inode, start));
        assert_eq!(last.map(inode_of), [Some(NAMED_MAX - 1); 2]);
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 2000);
    }
}
