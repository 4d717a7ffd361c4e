//! Rules of a member, each by a few members in one place.

mod group;
mod memory;
mod messages;
mod records;
mod rules;
mod survivor;
