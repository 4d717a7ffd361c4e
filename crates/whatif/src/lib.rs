//! What a recorded load would cost on other hardware, and under other policies.
//!
//! Guarantees: no clock, no unseeded randomness: the same load, system and rules give the same outcome on every
//! machine and with any number of threads; every rule can be taken away, and a test notices.
//! Leaves to others: recording (`trace`), the format of traces (`tracefile`), the words and pictures of the command.
//!
//! # The parts
//! A [`RecordedLoad`] is what a trace says; [`LocalLoad`] what that means at one machine, lowered once; a
//! [`SystemConfig`] is hardware and policies; [`Simulation`] runs one, [`SystemSweep`] many; [`SimOutcome`] is what was
//! counted, from which costs ([`SystemCosts`]), the front of justified systems ([`justified`]) and table 1 follow.
//!
//! [`simulate_server`] asks another question: what a server of frieze would find in its memory, by the code that the
//! server itself runs.
//!
//! # Source
//! Harter et al., Analysis of HDFS Under HBase: A Facebook Messages Case Study (FAST'14).

mod advice;
mod answer;
mod costs;
mod disk;
mod error;
mod facts;
mod figures;
mod hardware;
mod latency;
mod local;
mod outcome;
mod requests;
mod rules;
mod server;
mod simulation;
mod stack;
mod sweep;
mod trace;
mod wear;
mod workload;

pub use advice::{Advice, AdviceTopic, AdvisedServer, Confidence, advise};
pub use answer::{TriedSystem, WhatIfAnswer, best_for_little, name_of};
pub use costs::{CrashCost, RENT_YEARS, SystemCosts, flash_years, justified};
pub use disk::{DiskModel, DiskQueue, DiskRequest, ServedRequest};
pub use error::WhatIfError;
pub use facts::{CallSums, LoadFacts, ProgramFacts};
pub use figures::{FIGURES, FigurePlan, FigureTable};
pub use hardware::{HardwareProfile, ProfileNumber, SETTINGS, SettingRange};
pub use latency::TailedLatency;
pub use local::{
    CodeParts, FRAME_BYTES, FrameAccess, LocalFile, LocalLoad, PAGE_BYTES, ReplicationModel, ReplicationSettings,
};
pub use outcome::{DiskSums, HitBucket, LatencyHistogram, ObjectSums, SimOutcome};
pub use rules::{RuleSet, SimRule};
pub use server::{DeviceReplay, ServerHits, ServerMemory, simulate_server};
pub use simulation::{CacheUnit, Simulation, SystemConfig, SystemPolicies};
pub use stack::StackDistances;
pub use sweep::{SYSTEMS_MAX, SweepLimits, SystemSweep};
pub use trace::{EVENTS_SORTED_MAX, TraceLoad};
pub use wear::greedy_amplification;
pub use workload::{DataCall, FileFacts, IoPurpose, Movement, RecordedLoad};
