//! Inputs of a fuzz target: seeds, seeds with mutations, and bytes without any form.
//!
//! Guarantees: all choices come from bolero's driver, so that a seed of its own plays an input again, and libFuzzer can
//! follow coverage through them. Random bytes alone do not get past a checksum: a seed is valid, a mutation changes a
//! few of its bytes, and `resealed` mutations have their checksum made right again.

use std::fmt::{self, Debug, Display};
use std::time::Duration;

use bolero::Driver;
use bolero::generator::ValueGenerator;

use crate::allocations::peak_bytes;

/// How long a target runs under `cargo test`: some ten thousand inputs of a small decoder.
pub const TEST_TIME: Duration = Duration::from_millis(500);

/// Memory that a decoder may have allocated at once: this much, and [`BYTES_A_BYTE`] for each byte of its input. The
/// largest known is a table of counters or a page of text.
const BYTES_MIN: usize = 256 << 10;
/// A field of one byte may become a struct of some hundred bytes.
const BYTES_A_BYTE: usize = 512;
/// Most bytes of an input without form.
const FORMLESS_BYTES_MAX: usize = 256;
/// Most mutations of one seed.
const MUTATIONS_MAX: u64 = 4;

/// Calls `property`.
///
/// # Panics
/// If `property` does, or if it allocates more at once than the length of `bytes` and `buffers_bytes` justify.
pub fn check_bounded(bytes: &[u8], buffers_bytes: usize, property: &impl Fn(&[u8])) {
    let peak = peak_bytes(|| property(bytes));
    let most = BYTES_MIN + buffers_bytes + BYTES_A_BYTE * bytes.len();
    assert!(peak <= most, "{} bytes of input took {peak} bytes of memory, at most {most}", bytes.len());
}

/// Decodes `bytes`, and then the encoding of their value: it has to be the same value, with the same encoding. Returns
/// the value; `None` if `bytes` do not decode.
///
/// # Panics
/// If either is not.
pub fn check_stable<T: PartialEq + Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) -> Option<T> {
    let value = decode(bytes)?;
    let encoded = encode(&value);
    let again =
        decode(&encoded).unwrap_or_else(|| panic!("{value:?} encodes to {encoded:02x?}, which does not decode"));
    assert_eq!(again, value, "decoded from what it encodes to, {encoded:02x?}");
    assert_eq!(encode(&again), encoded, "a value has one encoding");
    Some(value)
}

/// The same of text.
pub fn check_text<T: PartialEq + Debug + Display>(bytes: &[u8], parse: impl Fn(&str) -> Option<T>) -> Option<T> {
    check_stable(bytes, |bytes| parse(std::str::from_utf8(bytes).ok()?), |value| value.to_string().into_bytes())
}

/// An input: prints as a byte string of Rust, to be pasted into a test.
pub struct FuzzInput(pub Vec<u8>);

impl Debug for FuzzInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

/// What a target is tried on.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    seeds: Vec<Vec<u8>>,
    seal: Option<fn(&mut Vec<u8>)>,
    buffers_bytes: usize,
}

impl<T: Into<Vec<u8>>, const N: usize> From<[T; N]> for Inputs {
    fn from(seeds: [T; N]) -> Inputs {
        Inputs { seeds: seeds.into_iter().map(Into::into).collect(), ..Inputs::default() }
    }
}

impl From<Vec<Vec<u8>>> for Inputs {
    fn from(seeds: Vec<Vec<u8>>) -> Inputs {
        Inputs { seeds, ..Inputs::default() }
    }
}

impl From<Vec<&str>> for Inputs {
    fn from(seeds: Vec<&str>) -> Inputs {
        Inputs { seeds: seeds.into_iter().map(|seed| seed.as_bytes().to_vec()).collect(), ..Inputs::default() }
    }
}

impl Inputs {
    /// Most mutated inputs go through `seal`, which makes their checksums right.
    pub fn resealed(self, seal: fn(&mut Vec<u8>)) -> Inputs {
        Inputs { seal: Some(seal), ..self }
    }

    /// The decoder reads through buffers of this many bytes, whatever its input.
    pub fn with_buffers(self, buffers_bytes: usize) -> Inputs {
        Inputs { buffers_bytes, ..self }
    }

    /// See [`Inputs::with_buffers`].
    pub fn buffers_bytes(&self) -> usize {
        self.buffers_bytes
    }

    /// Calls `property` with each seed as it is, and with each of its beginnings.
    pub fn check_seeds(&self, property: &impl Fn(&[u8])) {
        for seed in &self.seeds {
            check_bounded(seed, self.buffers_bytes, property);
            // All of a short seed, and about a thousand of a long one.
            for len in (0..seed.len()).step_by(seed.len() / 1000 + 1) {
                check_bounded(&seed[..len], self.buffers_bytes, property);
            }
        }
    }

    fn mutated<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        let pick = |driver: &mut D| below(driver, self.seeds.len()).map(|index| &self.seeds[index]);
        let mut bytes = pick(driver)?.clone();
        for _ in 0..below(driver, MUTATIONS_MAX as usize)? + 1 {
            let at = below(driver, bytes.len() + 1)?;
            match below(driver, 8)? {
                0 => set(&mut bytes, at, &[driver.produce()?]),
                1 if at < bytes.len() => bytes[at] ^= 1 << below(driver, 8)?,
                1 => bytes.push(driver.produce()?),
                2 => bytes.truncate(at),
                3 => {
                    let end = at + below(driver, bytes.len() - at + 1)?;
                    bytes.drain(at..end);
                }
                4 => {
                    let end = at + below(driver, (bytes.len() - at).min(64) + 1)?;
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                5 => set(&mut bytes, at, &number(driver)?),
                6 => {
                    let number = number(driver)?;
                    bytes.splice(at..at, number);
                }
                _ => {
                    let other = pick(driver)?;
                    let from = below(driver, other.len() + 1)?;
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
            }
        }
        if let Some(seal) = self.seal
            && below(driver, 4)? != 0
        {
            seal(&mut bytes);
        }
        Some(bytes)
    }
}

impl ValueGenerator for Inputs {
    type Output = FuzzInput;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<FuzzInput> {
        let bytes = if self.seeds.is_empty() || below(driver, 8)? == 0 {
            let len = below(driver, FORMLESS_BYTES_MAX)?;
            (0..len).map(|_| driver.produce()).collect()
        } else {
            self.mutated(driver)
        };
        bytes.map(FuzzInput)
    }
}

/// A number less than `end`, or 0.
fn below<D: Driver>(driver: &mut D, end: usize) -> Option<usize> {
    Some(driver.produce::<u32>()? as usize % end.max(1))
}

/// Overwrites bytes from `at` on, as far as there are any.
fn set(bytes: &mut [u8], at: usize, with: &[u8]) {
    for (byte, with) in bytes.iter_mut().skip(at).zip(with) {
        *byte = *with;
    }
}

/// A number at an edge, as formats write it: little or big endian of 2, 4 or 8 bytes, or a varint.
fn number<D: Driver>(driver: &mut D) -> Option<Vec<u8>> {
    let bit = below(driver, 64)?;
    let edge = match below(driver, 4)? {
        0 => 1u64 << bit,
        1 => (1u64 << bit) - 1,
        2 => !(1u64 << bit),
        _ => u64::from(driver.produce::<u16>()?),
    };
    Some(match below(driver, 7)? {
        0 => edge.to_le_bytes()[..2].to_vec(),
        1 => edge.to_le_bytes()[..4].to_vec(),
        2 => edge.to_le_bytes().to_vec(),
        3 => edge.to_be_bytes()[6..].to_vec(),
        4 => edge.to_be_bytes()[4..].to_vec(),
        5 => edge.to_be_bytes().to_vec(),
        _ => {
            let (mut varint, mut rest) = (Vec::new(), edge);
            while rest >= 0x80 {
                varint.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            varint.push(rest as u8);
            varint
        }
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    crate::count_allocations!();

    /// A decoder of a length and as many bytes, with a checksum, and the faults that are asked for.
    fn decode(bytes: &[u8], trusts_len: bool, trusts_sum: bool) -> Option<Vec<u8>> {
        let (sum, rest) = bytes.split_first()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let len = u32::from_le_bytes(*len) as usize;
        assert!(!trusts_sum || rest.first() != Some(&0xff), "a decoder that falls");
        if *sum != rest.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)) {
            return None;
        }
        if trusts_len {
            return Some(std::hint::black_box(Vec::with_capacity(len)));
        }
        rest.get(..len).map(<[u8]>::to_vec)
    }

    fn seal(bytes: &mut Vec<u8>) {
        bytes.resize(bytes.len().max(5), 0);
        let sum = bytes.iter().skip(5).fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
        set(bytes, 0, &[sum]);
    }

    const SEED: [u8; 8] = [6, 3, 0, 0, 0, 1, 2, 3];

    #[test]
    fn a_good_decoder_passes() {
        crate::fuzz!(Inputs::from([SEED]).resealed(seal), |bytes: &[u8]| drop(decode(bytes, false, false)));
    }

    #[test]
    fn a_decoder_that_panics_is_caught() {
        let caught = catch_unwind(|| {
            crate::fuzz!(Inputs::from([SEED]).resealed(seal), |bytes: &[u8]| drop(decode(bytes, false, true)));
        });
        assert!(caught.is_err());
    }

    #[test]
    fn a_decoder_that_believes_a_length_is_caught() {
        let caught = catch_unwind(|| {
            crate::fuzz!(Inputs::from([SEED]).resealed(seal), |bytes: &[u8]| drop(decode(bytes, true, false)));
        });
        assert!(caught.is_err());
    }

    #[test]
    #[should_panic(expected = "took 1000000 bytes of memory")]
    fn memory_beyond_the_bound_is_told() {
        check_bounded(b"x", 0, &|_| drop(std::hint::black_box(vec![0u8; 1_000_000])));
    }
}
