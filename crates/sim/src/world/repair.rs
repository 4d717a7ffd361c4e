//! The ends of faults.

/// A fault that ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum ServerRepair {
    Clock { by_us: i64 },
    Space,
    Rot { offset: u64, bit: u8 },
}
