//! Challenge and response with a shared key: proves a caller's identity where the kernel cannot.
//!
//! The server sends a random challenge; the caller answers BLAKE3, keyed by the secret, over
//! `challenge || client nonce || key name`. The secret never travels, and an answer is good for one connection.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Length of a challenge and of a client's nonce, in bytes.
pub const NONCE_BYTES: usize = 32;
/// Length of an answer, in bytes.
pub const MAC_BYTES: usize = 32;

/// A named secret that both ends know. Written `NAME:HEX`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    name: String,
    secret: Vec<u8>,
}

impl Key {
    /// A key of at least 16 secret bytes.
    ///
    /// # Errors
    /// `Key` for a name with other bytes than letters, digits, `.`, `_`, `-`, or a shorter secret.
    pub fn new(name: impl Into<String>, secret: impl Into<Vec<u8>>) -> Result<Key, Error> {
        let (name, secret) = (name.into(), secret.into());
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(legal) || secret.len() < SECRET_BYTES_MIN {
            return Err(Error::Key);
        }
        Ok(Key { name, secret })
    }

    /// The name, which travels in the clear.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Answers a challenge: what the caller sends.
    pub fn prove(&self, challenge: &[u8], client_nonce: &[u8]) -> [u8; MAC_BYTES] {
        *self.mac(challenge, client_nonce).as_bytes()
    }

    /// True if `mac` answers the challenge: what the server asks. Takes the same time for every wrong answer.
    pub fn verify(&self, challenge: &[u8], client_nonce: &[u8], mac: &[u8]) -> bool {
        let Ok(mac) = <[u8; MAC_BYTES]>::try_from(mac) else { return false };
        // A challenge of another length could move bytes between the hashed parts.
        challenge.len() == NONCE_BYTES
            && client_nonce.len() == NONCE_BYTES
            && self.mac(challenge, client_nonce) == blake3::Hash::from_bytes(mac)
    }

    fn mac(&self, challenge: &[u8], client_nonce: &[u8]) -> blake3::Hash {
        // Secrets may be of any length; the key of the hash is 32 bytes bound to this one use.
        let key = blake3::derive_key("frieze 2026-11 proof of a caller's key v1", &self.secret);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        hasher.update(challenge).update(client_nonce).update(self.name.as_bytes());
        hasher.finalize()
    }
}

impl FromStr for Key {
    type Err = Error;

    fn from_str(text: &str) -> Result<Key, Error> {
        let (name, hex) = text.trim().split_once(':').ok_or(Error::Key)?;
        if hex.len() % 2 != 0 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Error::Key);
        }
        let secret: Result<Vec<u8>, _> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16)).collect();
        Key::new(name, secret.map_err(|_| Error::Key)?)
    }
}

impl fmt::Debug for Key {
    /// Without the secret: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

/// 32 bytes of the system's randomness, for a challenge or a nonce.
///
/// # Errors
/// If the system has none to give.
pub fn random_nonce() -> Result<[u8; NONCE_BYTES], Error> {
    let mut nonce = [0u8; NONCE_BYTES];
    // Up to 256 bytes are never cut short (getrandom(2)).
    rustix::rand::getrandom(&mut nonce[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::System { doing: "draw random bytes", source: errno.into() })?;
    Ok(nonce)
}

const SECRET_BYTES_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        text.parse().unwrap()
    }

    #[test]
    fn only_the_same_secret_name_challenge_and_nonce_prove_a_caller() {
        let ours = key("laptop:000102030405060708090a0b0c0d0e0f");
        let (challenge, nonce) = (random_nonce().unwrap(), random_nonce().unwrap());
        let mac = ours.prove(&challenge, &nonce);
        assert!(ours.verify(&challenge, &nonce, &mac));
        assert!(!ours.verify(&nonce, &challenge, &mac));
        assert!(!ours.verify(&challenge, &nonce, &mac[..31]));
        assert!(!ours.verify(&challenge, &random_nonce().unwrap(), &mac));
        assert!(!key("laptoq:000102030405060708090a0b0c0d0e0f").verify(&challenge, &nonce, &mac));
        assert!(!key("laptop:000102030405060708090a0b0c0d0e0e").verify(&challenge, &nonce, &mac));
    }

    #[test]
    fn a_challenge_of_another_length_is_refused() {
        let ours = key("laptop:000102030405060708090a0b0c0d0e0f");
        let mac = ours.prove(&[1; 33], &[1; 31]);
        assert!(!ours.verify(&[1; 33], &[1; 31], &mac));
    }

    #[test]
    fn keys_that_are_short_or_misspelt_are_refused() {
        for text in [
            "",
            "a",
            "a:",
            "a:0011",
            "a b:000102030405060708090a0b0c0d0e0f",
            "a:0001020304050607 8090a0b0c0d0e0f",
            "a:+00102030405060708090a0b0c0d0e0f",
        ] {
            assert!(text.parse::<Key>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        assert_eq!(format!("{:?}", key("laptop:000102030405060708090a0b0c0d0e0f")), "Key { name: \"laptop\", .. }");
    }

    #[test]
    fn any_text_is_a_key_or_refused() {
        frieze_harness::fuzz!(["laptop:000102030405060708090a0b0c0d0e0f", " a:FFFF\n"], |bytes: &[u8]| {
            if let Some(Ok(key)) = std::str::from_utf8(bytes).ok().map(str::parse::<Key>) {
                assert!(key.secret.len() >= SECRET_BYTES_MIN && !key.name.is_empty());
            }
        });
    }
}
