//! Golden bytes, stories of the log, recovery from every kind of damage, random lives.

mod golden;
mod machine;
mod random;
mod recovery;
mod story;
