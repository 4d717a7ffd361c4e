//! Metadata on simulated disks, alone and among several servers.

pub(crate) mod fixture;
mod questions;
mod raft;
mod restart;
mod single;
