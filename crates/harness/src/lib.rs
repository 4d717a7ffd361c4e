//! What tests of every crate share: fuzz targets of decoders, bounded memory, and skips that a strict run refuses.
//!
//! Guarantees: a decoder under [`fuzz!`] receives each seed as it is, seeds with mutations, and bytes without any form.
//! The target fails if the decoder panics, or allocates more than its input justifies. A test asks [`requirements`] for
//! what it needs of the machine. Leaves to others: servers and clusters for tests. This crate uses no other crate of
//! the workspace, so the tests of every crate can use it.

mod allocations;
mod mutations;
pub mod requirements;

pub use allocations::{CountingAllocator, peak_bytes};
pub use bolero;
pub use mutations::{FuzzInput, Inputs, TEST_TIME, check_bounded, check_stable, check_text};

/// Counts the memory of a test binary: once in the tests of a crate that calls [`fuzz!`].
#[macro_export]
macro_rules! count_allocations {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::CountingAllocator = $crate::CountingAllocator;
    };
}

/// A fuzz target: the body of a test that gives `property` (`Fn(&[u8])`) many inputs.
///
/// Under `cargo test` it runs for [`TEST_TIME`], or `BOLERO_RANDOM_TEST_TIME_MS`. `make fuzz` drives it with libFuzzer.
/// A failure prints the input and `BOLERO_RANDOM_SEED`, which plays it again.
#[macro_export]
macro_rules! fuzz {
    ($inputs:expr, $property:expr) => {
        let target = $crate::bolero::check!();
        let (inputs, property) = ($crate::Inputs::from($inputs), $property);
        let buffers_bytes = inputs.buffers_bytes();
        inputs.check_seeds(&property);
        target
            .with_test_time($crate::TEST_TIME)
            .with_generator(inputs)
            .for_each(|input: &$crate::FuzzInput| $crate::check_bounded(&input.0, buffers_bytes, &property));
    };
}
