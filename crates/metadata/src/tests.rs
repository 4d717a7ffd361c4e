//! Metadata on simulated disks, alone and among several servers.

mod fixture;
mod questions;
mod raft;
mod single;
