//! Servers that execute one log by a scheduler each, and the messages between them: what the scenarios `calvin` and
//! `shards` share.

use std::collections::{BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};

use frieze_base::{LogIndex, MonoTime, Rng};
use frieze_calvin::{Position, Scheduler, SchedulerSettings, ShardId};

/// Entries that a server takes before it has begun with them.
const INCOMING_MAX: usize = 8;

/// Draws into how many shards the names are divided, the bounds of the schedulers, and which shards each server has.
pub(crate) fn draw_division(rng: &mut Rng) -> (SchedulerSettings, Vec<BTreeSet<ShardId>>) {
    let shards = *rng.choose(&[1, 2, 4, 16]);
    let count = rng.between(1, 3) as usize;
    let settings = SchedulerSettings {
        shards,
        parked_max: *rng.choose(&[2, 8, 1024]),
        early_max: *rng.choose(&[1, 4, 4096]),
        ..SchedulerSettings::default()
    };
    // Each shard has a server, and perhaps others.
    let mut places = vec![BTreeSet::new(); count];
    for shard in (0..shards).map(ShardId) {
        places[rng.below(count as u64) as usize].insert(shard);
        places.iter_mut().filter(|_| rng.chance(2)).for_each(|place| {
            place.insert(shard);
        });
    }
    (settings, places)
}

/// A server: a driver of a scheduler.
pub(crate) trait ScheduledServer {
    /// An entry of the log.
    type Entry;
    /// A message to another server.
    type Message: Clone;
    /// What it tells the judge.
    type Report;

    /// Its scheduler.
    fn scheduler(&self) -> &Scheduler;
    /// The last entry that it was given.
    fn fed(&self) -> LogIndex;
    /// How many tasks wait, to be run in any order.
    fn tasks(&self) -> usize;
    /// Takes the next entry of the log.
    fn feed(&mut self, now: MonoTime, entry: &Self::Entry, reports: &mut Vec<Self::Report>);
    /// Runs one of the tasks.
    fn run(&mut self, now: MonoTime, task: usize, reports: &mut Vec<Self::Report>);
    /// Time has passed.
    fn tick(&mut self, now: MonoTime, reports: &mut Vec<Self::Report>);
    /// Takes a message of another server.
    fn receive(&mut self, now: MonoTime, from: usize, message: Self::Message, reports: &mut Vec<Self::Report>);
}

/// The servers, and messages on their way.
pub(crate) struct ScheduledServers<S: ScheduledServer> {
    all: Vec<S>,
    network: VecDeque<(usize, usize, S::Message)>,
}

impl<S: ScheduledServer> ScheduledServers<S> {
    pub(crate) fn new(all: Vec<S>) -> ScheduledServers<S> {
        ScheduledServers { all, network: VecDeque::new() }
    }

    /// A server takes the next entry, unless it has enough.
    pub(crate) fn feed(&mut self, which: usize, now: MonoTime, log: &[S::Entry]) -> Vec<S::Report> {
        let server = &mut self.all[which];
        let mut reports = Vec::new();
        if let Some(entry) = log.get(server.fed().0 as usize).filter(|_| server.scheduler().incoming() <= INCOMING_MAX)
        {
            server.feed(now, entry, &mut reports);
        }
        reports
    }

    /// A server runs any of its tasks.
    pub(crate) fn run_task(&mut self, which: usize, now: MonoTime, rng: &mut Rng) -> Vec<S::Report> {
        let server = &mut self.all[which];
        let mut reports = Vec::new();
        if server.tasks() > 0 {
            let task = rng.below(server.tasks() as u64) as usize;
            server.run(now, task, &mut reports);
        }
        reports
    }

    /// A server looks at the time.
    pub(crate) fn tick(&mut self, which: usize, now: MonoTime) -> Vec<S::Report> {
        let mut reports = Vec::new();
        self.all[which].tick(now, &mut reports);
        reports
    }

    /// Any message arrives. Returns where, and what that server reports.
    pub(crate) fn deliver(&mut self, now: MonoTime, rng: &mut Rng) -> (usize, Vec<S::Report>) {
        let which = rng.below(self.network.len() as u64) as usize;
        let (from, to, message) = self.network.remove(which).expect("the caller has counted them");
        let mut reports = Vec::new();
        self.all[to].receive(now, from, message, &mut reports);
        (to, reports)
    }

    /// How many messages are on their way.
    pub(crate) fn on_their_way(&self) -> usize {
        self.network.len()
    }

    /// The oldest message is lost.
    pub(crate) fn lose_one(&mut self) {
        self.network.pop_front();
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, message: S::Message) {
        self.network.push_back((from, to, message));
    }

    pub(crate) fn send_to_others(&mut self, from: usize, message: &S::Message) {
        let others = (0..self.all.len()).filter(|other| *other != from);
        self.network.extend(others.map(|other| (from, other, message.clone())));
    }

    /// Up to where each has executed the log.
    pub(crate) fn watermarks(&self) -> Vec<Position> {
        self.all.iter().map(|server| server.scheduler().whole_watermark()).collect()
    }

    /// True if all have executed so many entries.
    pub(crate) fn have_executed(&self, entries: usize) -> bool {
        let end = Position { index: LogIndex(entries as u64 + 1), item: 0 };
        self.watermarks().into_iter().all(|mark| mark == end)
    }
}

impl<S: ScheduledServer> Deref for ScheduledServers<S> {
    type Target = [S];

    fn deref(&self) -> &[S] {
        &self.all
    }
}

impl<S: ScheduledServer> DerefMut for ScheduledServers<S> {
    fn deref_mut(&mut self) -> &mut [S] {
        &mut self.all
    }
}
