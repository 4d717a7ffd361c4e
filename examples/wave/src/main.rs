//! The wave demo.
fn main() {}
