//! Clients, a network between them and the server, and faults: one event after the other, in the order of the seed.

mod faults;
mod repair;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use frieze_base::{ErrorKind, Reason, Rng};
use frieze_disk::CrashKind;
use frieze_node::Settings;

use repair::ServerRepair;

use crate::auditor::{Auditor, comparable};
use crate::client::{ClientAction, SimClient};
use crate::exchange::{ClientRequest, ConnId, MachineResponse};
use crate::machine::{Hardware, STRANGER, SUPERUSER, USER};
use crate::model::tree::ROOT;
use crate::plan::{ServerCounts, ServerOutcome, ServerPlan};
use crate::schedule::Schedule;
use crate::trace::Trace;
use crate::violation::{Rule, Verdict, Violation, broken};
use crate::witness::{CHUNK_BYTES, SESSION_TIMEOUT_NS, Witness};
use crate::workload::{Workload, WorkloadMix};

/// Something that will happen.
enum ServerEvent {
    /// A client looks for something to do.
    Think {
        client: usize,
    },
    ToServer {
        conn: ConnId,
        ask: Box<ClientRequest>,
    },
    ToClient {
        client: usize,
        answer: Box<MachineResponse>,
    },
    /// No answer arrived for too long.
    Timeout {
        client: usize,
        request_id: u64,
    },
    /// The server is notified that a connection has ended.
    Gone {
        conn: ConnId,
    },
    Flush,
    Tend,
    Restart,
    Heal(ServerRepair),
}

struct ServerWorld {
    plan: ServerPlan,
    rng: Rng,
    work: Rng,
    witness: Witness,
    auditor: Auditor,
    clients: Vec<SimClient>,
    conns: BTreeMap<ConnId, usize>,
    /// When the last message of a connection arrives: they do not overtake each other.
    arrivals: BTreeMap<(ConnId, bool), u64>,
    schedule: Schedule<ServerEvent>,
    now_us: u64,
    flush_at: Option<u64>,
    flush_delay_us: u64,
    /// Its value where no fault makes it longer.
    usual_flush_delay_us: u64,
    /// A request waits for the next flush.
    hurried: bool,
    /// Operations after which the next faults come, last first.
    faults: Vec<u64>,
    mix: WorkloadMix,
    /// Kind of crash when the device stops during a call.
    next_crash: CrashKind,
    calm: bool,
    rotten: Option<(u64, u8)>,
    counts: ServerCounts,
}

/// Runs a plan to its end, or to the first promise that is broken.
pub fn run_one_server(plan: &ServerPlan) -> ServerOutcome {
    let mut world = ServerWorld::new(*plan);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.live()));
    let violation = match caught {
        Ok(verdict) => verdict.err(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().cloned();
            let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
            Some(Violation { rule: Rule::NoPanic, what: words.unwrap_or_else(|| "a panic without words".to_owned()) })
        }
    };
    world.counts.changes = world.witness.journal.effects.len() as u64;
    world.counts.lost = world.witness.lost;
    world.counts.remembered = world.witness.memory.len() as u64;
    let trace_hash = world.witness.trace.hash();
    ServerOutcome { violation, trace_hash, trace: world.witness.trace.take_lines(), counts: world.counts }
}

/// The settings that simulated servers run with: small chunks and segments, so that their edges are met.
pub(crate) fn settings() -> Settings {
    Settings {
        dir: "sim".into(),
        segment_bytes: SEGMENT_BYTES,
        // Little enough that files are away more often than not.
        shelve_segments: 1,
        index_bytes_max: 64 << 10,
        names_bytes_max: 64 << 10,
        // Most reads of the past find nothing in memory.
        young_bytes_max: 64 << 10,
        old_bytes_max: 256 << 10,
        // Of all pages that consist of more than an image and a record.
        image_percent: 10_000,
        image_pieces_max: 2,
        image_delay: std::time::Duration::from_millis(500),
        chunk_bytes: CHUNK_BYTES,
        chain_count: 4,
        dirty_bytes_max: 8 << 20,
        reserve_bytes: RESERVE_BYTES,
        session_timeout: std::time::Duration::from_nanos(SESSION_TIMEOUT_NS),
        root_mode: Some(0o777),
        ..Settings::default()
    }
}

pub(crate) const SEGMENT_BYTES: u64 = 8 << 20;
pub(crate) const RESERVE_BYTES: u64 = 24 << 20;
/// Parts of staged edits: one name or a few.
const PART_BYTES: usize = 64;
/// 2026-11-21T00:00:00Z: any day will do.
pub(crate) const WALL_US: u64 = 1_795_219_200_000_000;
/// Attempts after which a client abandons a request while there are faults.
const ATTEMPTS_MAX: u32 = 8;
/// Simulated time in which everything has to be answered once faults have stopped: beyond an hour's jump of the clock.
const CALM_US_MAX: u64 = 3 * 3_600_000_000;

impl ServerWorld {
    fn new(plan: ServerPlan) -> ServerWorld {
        let mut rng = Rng::new(plan.seed);
        let usual = settings();
        // In a quarter of the seeds edits of more than a name or two are staged in parts.
        let edit_part_bytes = if plan.seed % 4 == 1 { PART_BYTES } else { usual.edit_part_bytes };
        let settings = Settings { edit_part_bytes, ..usual };
        let hardware = Hardware { seed: rng.next(), settings, wall_us: WALL_US, breakage: plan.breakage };
        let work = rng.split();
        let mix = WorkloadMix {
            sync_one_in: *rng.choose(&[2, 3, 5, 20]),
            large_one_in: if rng.chance(8) { 12 } else { 100_000 },
        };
        let usual_flush_delay_us = *rng.choose(&[50_000, 50_000, 400_000, 2_000_000]);
        let mut faults: Vec<u64> = (0..plan.faults).map(|_| rng.between(5, plan.operations.max(6) - 1)).collect();
        faults.sort_unstable_by_key(|at| Reverse(*at));
        ServerWorld {
            witness: Witness::new(hardware, Trace::new(plan.keep_trace)),
            auditor: Auditor::default(),
            clients: (0..plan.clients).map(|_| USER).chain([SUPERUSER, STRANGER]).map(SimClient::new).collect(),
            conns: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            schedule: Schedule::default(),
            now_us: 0,
            flush_at: None,
            flush_delay_us: usual_flush_delay_us,
            usual_flush_delay_us,
            hurried: false,
            faults,
            mix,
            next_crash: CrashKind::Process,
            calm: false,
            rotten: None,
            counts: ServerCounts::default(),
            plan,
            rng,
            work,
        }
    }

    fn live(&mut self) -> Verdict {
        if !self.witness.start()? {
            return broken(Rule::Restarts, "the first start died");
        }
        for client in 0..self.clients.len() {
            self.after(client as u64 * 100, ServerEvent::Think { client });
        }
        self.after(500_000, ServerEvent::Tend);
        while self.counts.operations < self.plan.operations || !self.faults.is_empty() {
            self.step()?;
        }
        self.calm_down()?;
        self.look_back()
    }

    /// Lets the next event happen.
    fn step(&mut self) -> Verdict {
        let Some((at_us, event)) = self.schedule.pop() else {
            return broken(Rule::Live, "nothing is left to happen");
        };
        if at_us > self.now_us {
            self.witness.machine.time.advance_us(at_us - self.now_us);
            self.now_us = at_us;
        }
        self.witness.trace.at(self.now_us);
        self.handle_event(event)?;
        self.settle()?;
        while self.faults.last().is_some_and(|at| *at <= self.counts.operations) {
            self.faults.pop();
            self.inject()?;
            self.settle()?;
        }
        Ok(())
    }

    /// Handles the effects of every call of the server: its crash, its answers, its request for a flush.
    fn settle(&mut self) -> Verdict {
        self.carry_answers();
        if self.witness.machine.is_up() && self.witness.machine.is_dying() {
            self.die(self.next_crash);
        }
        if self.witness.machine.is_up() && !self.witness.read_only {
            let (woken, dirty) = self.witness.machine.wants_flush();
            let hurries = woken && !self.hurried;
            self.hurried = woken;
            // A flush takes time, and other clients write meanwhile.
            let delay = match hurries {
                true => *self.rng.choose(&[100, 500, 2_000, 10_000]),
                false => self.flush_delay_us,
            };
            let at = self.now_us + delay;
            if (hurries || dirty) && self.flush_at.is_none_or(|flush_at| at < flush_at) {
                self.flush_at = Some(at);
                self.after(delay, ServerEvent::Flush);
            }
        }
        Ok(())
    }

    fn after(&mut self, delay_us: u64, event: ServerEvent) {
        self.schedule.add(self.now_us + delay_us, event);
    }

    fn handle_event(&mut self, event: ServerEvent) -> Verdict {
        match event {
            ServerEvent::Think { client } => self.think(client),
            ServerEvent::ToServer { conn, ask } => return self.witness.deliver(conn, *ask),
            ServerEvent::ToClient { client, answer } => self.on_response(client, &answer),
            ServerEvent::Timeout { client, request_id } => self.time_out(client, request_id),
            ServerEvent::Gone { conn } => self.witness.disconnect(conn),
            ServerEvent::Flush => {
                if self.flush_at.is_some_and(|at| at <= self.now_us) {
                    self.flush_at = None;
                    if !self.witness.read_only {
                        self.witness.flush()?;
                    }
                    if self.witness.read_only && self.witness.machine.is_up() {
                        // The operator of the server notices that and restarts it.
                        let delay = self.rng.between(100_000, 3_000_000);
                        self.after(delay, ServerEvent::Restart);
                    }
                }
            }
            ServerEvent::Tend => {
                // Segments end as if they were full, so that a short run has many.
                if self.rng.chance(3) {
                    self.witness.machine.close_segment();
                }
                self.witness.tend()?;
                if self.rng.chance(3) {
                    let flushes = self.rng.below(4) as u32;
                    self.witness.checkpoint(flushes)?;
                }
                if self.rng.chance(2) {
                    let bytes_max = *self.rng.choose(&[0, 0, 500, 3000]);
                    self.witness.evict_names(bytes_max)?;
                }
                self.after(500_000, ServerEvent::Tend);
            }
            ServerEvent::Restart => return self.restart(),
            ServerEvent::Heal(healing) => self.heal(healing),
        }
        Ok(())
    }

    fn think(&mut self, client: usize) {
        let idle = self.clients[client].waiting.is_none();
        if !idle {
            return;
        }
        if self.clients[client].steps.is_empty() {
            if self.calm {
                return;
            }
            let mut workload = Workload { rng: &mut self.work, witness: &self.witness, mix: self.mix };
            let steps = workload.next(&self.clients[client]);
            self.clients[client].steps.extend(steps);
        }
        match self.clients[client].begin() {
            true => self.send(client),
            false if self.clients[client].uid == USER => self.after(1000, ServerEvent::Think { client }),
            false => self.after(20_000, ServerEvent::Think { client }),
        }
    }

    /// Sends a client's request, over a connection that it may have to open first.
    fn send(&mut self, client: usize) {
        let known = self.clients[client].conn.filter(|conn| self.witness.machine.is_connected(*conn));
        let conn = match known {
            Some(conn) => conn,
            None if self.witness.machine.is_up() && !self.witness.machine.is_dying() => {
                let conn = self.witness.connect(self.clients[client].uid);
                self.conns.insert(conn, client);
                self.clients[client].conn = Some(conn);
                conn
            }
            None => {
                // Connection refused.
                let Some(ask) = self.clients[client].attempt() else { return };
                let request_id = ask.header.request_id;
                return self.after(100_000, ServerEvent::Timeout { client, request_id });
            }
        };
        let Some(ask) = self.clients[client].attempt() else { return };
        let request_id = ask.header.request_id;
        let copies = self.copies();
        for _ in 0..copies {
            let at = self.arrival(conn, true);
            self.after(at - self.now_us, ServerEvent::ToServer { conn, ask: Box::new(ask.clone()) });
        }
        let patience = self.rng.between(800_000, 1_500_000);
        self.after(patience, ServerEvent::Timeout { client, request_id });
    }

    /// How often a message arrives.
    fn copies(&mut self) -> u32 {
        match self.rng.below(100) {
            _ if self.calm => 1,
            0..=2 => 0,
            3..=5 => 2,
            _ => 1,
        }
    }

    /// When a message arrives: later than those sent before it on the same connection.
    fn arrival(&mut self, conn: ConnId, to_server: bool) -> u64 {
        let delay = match self.rng.below(30) {
            0 if !self.calm => self.rng.between(100_000, 4_000_000),
            1 | 2 => self.rng.between(2_000, 30_000),
            _ => self.rng.between(30, 400),
        };
        let last = self.arrivals.entry((conn, to_server)).or_insert(0);
        *last = (self.now_us + delay).max(*last + 1);
        *last
    }

    fn carry_answers(&mut self) {
        for answer in std::mem::take(&mut self.witness.said) {
            let Some(&client) = self.conns.get(&answer.conn) else { continue };
            for _ in 0..self.copies() {
                let at = self.arrival(answer.conn, false);
                self.after(at - self.now_us, ServerEvent::ToClient { client, answer: Box::new(answer.clone()) });
            }
        }
    }

    fn on_response(&mut self, client: usize, answer: &MachineResponse) {
        match self.clients[client].on_response(answer) {
            ClientAction::Nothing => {}
            ClientAction::Done(question) => {
                let lasting = answer.result.as_ref().err().is_none_or(|fault| {
                    !matches!(fault.kind(), ErrorKind::Corrupt | ErrorKind::Conflict)
                        && !matches!(fault.reason, Reason::Future | Reason::StaleHandle)
                });
                if let Some(question) = question.filter(|_| lasting) {
                    let (comparable_answer, _) = comparable(&answer.result, &answer.payload);
                    // On the path to a target that is named by its number a part may have expired; root asks again by
                    // number, without a path.
                    let by_number =
                        question.target.base != ROOT && comparable_answer == Err(Reason::HistoryExpired as u32);
                    if !by_number {
                        self.witness.memory.remember(question, comparable_answer);
                    }
                }
                self.counts.operations += 1;
                let pause = if self.rng.chance(10) { self.rng.below(100_000) } else { self.rng.between(10, 1_000) };
                self.after(pause, ServerEvent::Think { client });
            }
            ClientAction::Later => {
                let pause = self.rng.between(50_000, 500_000);
                let request_id = answer.header.request_id;
                self.after(pause, ServerEvent::Timeout { client, request_id });
            }
        }
    }

    fn time_out(&mut self, client: usize, request_id: u64) {
        let Some(waiting) = &self.clients[client].waiting else { return };
        if waiting.ask.header.request_id != request_id {
            return;
        }
        if waiting.attempts >= ATTEMPTS_MAX && !self.calm {
            self.clients[client].abandon();
            self.counts.operations += 1;
            return self.after(1000, ServerEvent::Think { client });
        }
        if let Some(conn) = self.clients[client].conn
            && self.rng.chance(2)
        {
            // It opens a new connection; messages in flight on the old one may still arrive.
            self.clients[client].conn = None;
            let late = self.rng.between(0, 6_000_000);
            self.after(late, ServerEvent::Gone { conn });
        }
        self.send(client);
    }

    /// The process ends, or the machine goes down; it comes back after a while.
    fn die(&mut self, kind: CrashKind) {
        // The disk of a dying process answers no more: bits are set right once it is back.
        self.witness.die(kind);
        self.heal_rot(None);
        self.conns.clear();
        self.arrivals.clear();
        self.flush_at = None;
        self.flush_delay_us = self.usual_flush_delay_us;
        self.counts.power_losses += u64::from(kind == CrashKind::Power);
        for client in &mut self.clients {
            client.conn = None;
        }
        let delay = self.rng.between(1_000, 2_000_000);
        self.after(delay, ServerEvent::Restart);
    }

    fn restart(&mut self) -> Verdict {
        if self.witness.machine.is_up() {
            if self.witness.read_only || self.witness.excuses.device {
                self.die(CrashKind::Process);
            }
            return Ok(());
        }
        if !self.calm && self.rng.chance(4) {
            let changes = self.rng.between(1, 12);
            self.witness.machine.disk.fail_after(changes);
        }
        self.counts.restarts += 1;
        if !self.witness.start()? {
            let kind = if self.rng.chance(2) { CrashKind::Power } else { CrashKind::Process };
            self.die(kind);
            return Ok(());
        }
        let wait_us = self.witness.machine.restart_wait_us();
        self.witness.machine.time.advance_us(wait_us);
        self.now_us += wait_us;
        let looked = self.auditor.audit(&mut self.witness, None)?
            && self.auditor.ask_some_again(&mut self.witness, &mut self.rng, 20)?;
        self.witness.trace.line(|| format!("looked at everything: {looked}"));
        Ok(())
    }

    /// Faults stop; everything has to be answered.
    fn calm_down(&mut self) -> Verdict {
        self.witness.trace.line(|| "calm".to_owned());
        self.calm = true;
        self.heal(ServerRepair::Space);
        self.flush_delay_us = 50_000;
        let until = self.now_us + CALM_US_MAX;
        for client in 0..self.clients.len() {
            self.after(0, ServerEvent::Think { client });
        }
        let busy = |world: &ServerWorld| {
            let waits = |client: &SimClient| client.waiting.is_some() || !client.steps.is_empty();
            world.clients.iter().any(waits) || !world.witness.machine.is_up() || world.witness.excuses.device
        };
        while busy(self) {
            if self.now_us > until {
                let waiting: Vec<_> = self.clients.iter().filter_map(|client| client.waiting.as_ref()).collect();
                let asks: Vec<_> = waiting.iter().map(|waiting| (&waiting.step, waiting.attempts)).collect();
                return broken(Rule::Live, format!("faults have stopped, and these are not answered: {asks:?}"));
            }
            self.step()?;
        }
        self.heal_rot(None);
        Ok(())
    }

    /// The end: repeats all questions, before and after a clean restart.
    fn look_back(&mut self) -> Verdict {
        for round in 0..2 {
            self.witness.flush()?;
            if self.witness.unanswered() > 0 {
                return broken(Rule::Live, format!("{} requests were never answered", self.witness.unanswered()));
            }
            self.auditor.audit(&mut self.witness, None)?;
            for _ in 0..4 {
                let effects = &self.witness.journal.effects;
                let at = effects[self.rng.below(effects.len() as u64) as usize].stamp;
                let at = if self.rng.chance(3) { at.previous().max(self.witness.earliest()) } else { at };
                self.auditor.audit(&mut self.witness, Some(at))?;
            }
            for place in 0..self.witness.memory.len() {
                self.auditor.ask_again(&mut self.witness, place)?;
            }
            let wrong = self.witness.machine.check_up().into_iter().next();
            if let Some(wrong) = wrong.filter(|_| !self.witness.machine.is_dying()) {
                return broken(Rule::Whole, wrong);
            }
            if round == 0 {
                self.witness.stop()?;
                self.witness.die(CrashKind::Process);
                if !self.witness.start()? {
                    return broken(Rule::Restarts, "the last start died");
                }
            }
        }
        Ok(())
    }
}
