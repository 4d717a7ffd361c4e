//! The `frieze` command.
fn main() {}
