//! Stories of one replica, random lives, and what a driver may never do.

mod alone;
mod driver;
mod joining;
mod members;
mod random;
mod story;
