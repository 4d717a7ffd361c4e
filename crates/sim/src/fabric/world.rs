//! All parts together, faults, and the end.

use super::client::FabricClient;
use super::kit::{FabricEvent, FabricKit};
use super::memory::ClientMemory;
use super::plan::{FabricOutcome, FabricPlan};
use super::provider::SimProvider;
use super::served::FabricServer;
use crate::violation::{Rule, Verdict, broken};

struct FabricWorld {
    kit: FabricKit,
    memory: ClientMemory,
    provider: SimProvider,
    server: FabricServer,
    clients: Vec<FabricClient>,
    asks_left: u64,
    files: usize,
    /// Longest pause between two faults.
    fault_pause_us: u64,
}

/// Plays a plan.
pub fn run_fabric(plan: &FabricPlan) -> FabricOutcome {
    let mut world = FabricWorld::new(plan);
    let violation = world.play().err();
    let kit = &mut world.kit;
    FabricOutcome { trace_hash: kit.trace.hash(), trace: kit.trace.take_lines(), counts: kit.counts, violation }
}

impl FabricWorld {
    fn new(plan: &FabricPlan) -> FabricWorld {
        let mut kit = FabricKit::new(plan.seed, plan.keep_trace, plan.breakage);
        let files = kit.rng.between(1, 4) as usize;
        let clients = kit.rng.between(1, 4) as usize;
        FabricWorld {
            server: FabricServer::new(&mut kit, files),
            clients: (0..clients).map(|index| FabricClient::new(&mut kit, index)).collect(),
            memory: ClientMemory::default(),
            provider: SimProvider::default(),
            asks_left: plan.asks,
            files,
            fault_pause_us: *kit.rng.choose(&[100_000, 500_000, 5_000_000]),
            kit,
        }
    }

    fn play(&mut self) -> Verdict {
        self.kit.soon(self.fault_pause_us, FabricEvent::Fault);
        while self.asks_left > 0 {
            let which = self.kit.rng.below(self.clients.len() as u64) as usize;
            let client = &mut self.clients[which];
            if client.is_up && client.backlog() < BACKLOG_MAX {
                self.asks_left -= 1;
                let file = self.kit.rng.below(self.files as u64) as usize;
                let writes = self.kit.rng.chance(2);
                client.ask(&mut self.kit, file, writes);
            }
            let pause = *self.kit.rng.choose(&[10, 100, 1_000, 100_000]);
            let until = self.kit.now_us + self.kit.rng.between(1, pause);
            self.run_until(until, |_| false)?;
        }
        // Everything is well now.
        self.kit.faults = false;
        let now = self.kit.now_us;
        self.provider.stalls_until_us = self.provider.stalls_until_us.min(now);
        self.provider.fails_until_us = self.provider.fails_until_us.min(now);
        self.run_until(now + END_MAX_US, FabricWorld::is_idle)?;
        if !self.is_idle() {
            return broken(
                Rule::Live,
                format!("requests have no reply {} s after the last fault", END_MAX_US / 1_000_000),
            );
        }
        self.check_requests()?;
        self.check_recovery()?;
        self.check_rooms()
    }

    fn is_idle(&self) -> bool {
        self.server.is_up && self.clients.iter().all(|client| client.is_up && client.is_idle())
    }

    /// Plays what happens up to a moment, or until `is_done`.
    fn run_until(&mut self, until_us: u64, is_done: impl Fn(&FabricWorld) -> bool) -> Verdict {
        while !is_done(self) && self.kit.schedule.next_at_us().is_some_and(|at| at <= until_us) {
            let (at, event) = self.kit.schedule.pop().expect("just looked at");
            self.kit.now_us = at;
            self.kit.trace.at(at);
            self.handle(event)?;
        }
        if !is_done(self) {
            self.kit.now_us = until_us;
        }
        Ok(())
    }

    fn handle(&mut self, event: FabricEvent) -> Verdict {
        let FabricWorld { kit, memory, provider, server, clients, .. } = self;
        match event {
            FabricEvent::Act(which) => {
                self.connect(which);
                self.clients[which].act(&mut self.kit, &mut self.memory)
            }
            FabricEvent::ClientStarts(which) => {
                clients[which].is_up = true;
                Ok(())
            }
            FabricEvent::Look(which, conn) if clients[which].conn() == Some(conn) => clients[which].look(kit, memory),
            FabricEvent::Look(..) => Ok(()),
            FabricEvent::Limit(which, id) => clients[which].check_limit(id),
            FabricEvent::CloseKeys(keys) => {
                keys.into_iter().for_each(|key| memory.close_key(key));
                Ok(())
            }
            FabricEvent::ToServer(conn, ask) => {
                server.receive(kit, conn, ask);
                Ok(())
            }
            FabricEvent::ToClient(conn, reply) => match clients.iter_mut().find(|client| client.conn() == Some(conn)) {
                Some(client) => client.receive(kit, memory, conn, reply.map(|reply| *reply)),
                None => Ok(()),
            },
            FabricEvent::Work(conn, number) => server.work(kit, provider, conn, number),
            FabricEvent::Leave(transfer, piece) => provider.leave(kit, memory, transfer, piece),
            FabricEvent::Land(transfer, piece) => provider.land(kit, memory, transfer, piece),
            FabricEvent::Complete(transfer, again) => {
                provider.complete(kit, memory, transfer, again);
                Ok(())
            }
            FabricEvent::Fault => {
                self.do_harm();
                Ok(())
            }
            FabricEvent::ServerStarts => {
                server.is_up = true;
                Ok(())
            }
        }
    }

    /// The greeting of a connection, in which the server says what its endpoint is.
    fn connect(&mut self, which: usize) {
        if !self.clients[which].wants_connection() {
            return;
        }
        if !self.server.is_up {
            self.kit.soon(50_000, FabricEvent::Act(which));
            return;
        }
        let conn = self.kit.number();
        self.kit.trace.line(|| format!("client {which}: connection {conn} begins"));
        self.server.open_endpoint(&mut self.kit, &mut self.provider);
        self.server.connect(conn);
        self.clients[which].connected(&self.kit, conn);
    }

    fn do_harm(&mut self) {
        if !self.kit.faults {
            return;
        }
        let which = self.kit.rng.below(self.clients.len() as u64) as usize;
        let FabricWorld { kit, memory, provider, server, clients, .. } = self;
        match kit.rng.below(8) {
            0 if server.is_up => {
                kit.trace.line(|| "the server dies".to_owned());
                kit.counts.deaths += 1;
                server.die(kit, provider);
                kit.soon(400_000, FabricEvent::ServerStarts);
            }
            1 if clients[which].is_up => {
                kit.trace.line(|| format!("client {which} dies"));
                kit.counts.deaths += 1;
                clients[which].die(kit, memory);
                kit.soon(100_000, FabricEvent::ClientStarts(which));
            }
            2 | 3 => {
                kit.counts.deaths += 1;
                clients[which].disconnect(kit, memory);
            }
            4 => {
                kit.counts.stalls += 1;
                let longest = *kit.rng.choose(&[10_000, 1_500_000]);
                provider.stalls_until_us = kit.now_us + kit.rng.between(1, longest);
                let fails_for = if kit.rng.chance(2) { 0 } else { kit.rng.between(1, 500_000) };
                provider.fails_until_us = provider.stalls_until_us + fails_for;
                let until = provider.fails_until_us;
                kit.trace.line(|| format!("the provider stalls, and works again at {until}"));
            }
            5 => kit.odd_until_us = kit.now_us + kit.rng.between(1, 100_000),
            _ => {}
        }
        let pause = self.fault_pause_us;
        self.kit.soon(pause, FabricEvent::Fault);
    }

    fn check_requests(&self) -> Verdict {
        for (which, client) in self.clients.iter().enumerate() {
            if client.lost() > 0 {
                return broken(Rule::Live, format!("{} requests of client {which} never ended", client.lost()));
            }
            if let Some(version) = client.acked.iter().find(|version| !self.server.made.contains(version)) {
                return broken(Rule::Once, format!("write {version} was acknowledged and not applied"));
            }
        }
        Ok(())
    }

    /// Without faults payloads go by the fabric again, after as many tests as may be needed.
    fn check_recovery(&mut self) -> Verdict {
        for which in 0..self.clients.len() {
            let mut has_landed = false;
            for round in 0..6 {
                self.run_until(self.kit.now_us + TEST_PAUSE_US, |_| false)?;
                self.clients[which].ask(&mut self.kit, 0, false);
                self.run_until(self.kit.now_us + END_MAX_US, FabricWorld::is_idle)?;
                self.server.open_endpoint(&mut self.kit, &mut self.provider);
                // The server may have opened an endpoint again, and a single slot may still have the payload before.
                has_landed |= round > 2 && self.clients[which].last_landed;
            }
            if !self.clients[which].is_idle() || !has_landed {
                let what = format!("payloads of client {which} go by TCP, or nowhere, though everything works");
                return broken(Rule::Live, what);
            }
        }
        Ok(())
    }

    fn check_rooms(&mut self) -> Verdict {
        self.run_until(self.kit.now_us + END_MAX_US, |_| false)?;
        self.server.open_endpoint(&mut self.kit, &mut self.provider);
        match self.provider.rooms_in_use() {
            0 => Ok(()),
            rooms => broken(Rule::Memory, format!("{rooms} rooms are in use, and nothing is under way")),
        }
    }
}

/// Requests of a client that wait to be sent, or for a reply.
const BACKLOG_MAX: usize = 12;
/// In this time all requests end once faults have stopped.
const END_MAX_US: u64 = 60_000_000;
/// More than the longest wait between two tests of transfers.
const TEST_PAUSE_US: u64 = 61_000_000;
