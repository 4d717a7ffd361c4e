//! Bytes to write and compare.

/// Bytes that differ from their neighbours and from those of another seed, and repeat after 256.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Bytes that look random and are the same for the same seed.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    frieze_base::Rng::new(seed).fill(&mut bytes);
    bytes
}
