//! Rules of a member, each by a few members in one place.

mod excuses;
mod group;
mod lone;
mod memory;
mod messages;
mod records;
mod rules;
mod salvage;
mod survivor;
