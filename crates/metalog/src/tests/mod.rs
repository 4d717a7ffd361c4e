//! Segments of a journal: golden bytes, recovery from every kind of damage, random lives.

mod golden;
mod machine;
mod random;
mod recovery;
