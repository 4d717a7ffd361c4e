//! Durability: what the flusher reports to all chains.
//!
//! Guarantees: a `sync` write is answered only after a report that covers its record.

use frieze_base::{ChainId, Reason};
use frieze_chain::{LogEnd, Moment, ReplicaEffect, ReplicaInput};
use frieze_multilog::LogPosition;

use crate::chain_state::DeferredWork;
use crate::observer::PublishGuard;
use crate::plane::DataPlane;
use crate::report::ChainEvent;

impl DataPlane {
    /// Everything up to `through` is durable: answers the `sync` writes that this covers.
    pub fn on_persisted(&self, through: LogPosition) {
        self.feed_all(|| ReplicaInput::Persisted {
            through: LogEnd { segment: through.segment, offset: through.offset },
        });
        self.send_persisted(&mut self.lock_appender(), through);
    }

    /// The device failed: refuses waiting requests and all later ones.
    pub fn on_device_failed(&self, reason: Reason) {
        self.feed_all(|| ReplicaInput::DeviceFailed { reason });
        self.report_failed(reason);
    }

    fn feed_all(&self, input: impl Fn() -> ReplicaInput) {
        let mut out = DeferredWork::default();
        {
            let mut appender = self.lock_appender();
            let moment = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
            let mut effects: Vec<Vec<ReplicaEffect>> = Vec::with_capacity(appender.chains.len());
            for chain in &mut appender.chains {
                let mut own = Vec::new();
                chain.step(moment, input(), &mut own);
                effects.push(own);
            }
            // While the write waited for the disk, clients may have cached the files again.
            let waited = appender.groups.values().map(|group| (group.request, group.inode));
            let _publishing = self.observer.get().map(|observer| PublishGuard::of_all(&**observer, waited));
            self.publish_cuts(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
            for (chain, effects) in effects.into_iter().enumerate() {
                self.apply_effects(&mut appender, ChainId(chain as u32), effects, &mut out);
            }
        }
        self.run_deferred(out);
    }

    /// Reports that this node is no longer a member of any of its chains.
    fn report_failed(&self, reason: Reason) {
        let shared: Vec<ChainId> = {
            let appender = self.lock_appender();
            let chains = appender.chains.iter().zip(&appender.states);
            chains.filter(|(_, state)| state.shared).map(|(replica, _)| replica.chain()).collect()
        };
        shared.into_iter().for_each(|chain| self.report(ChainEvent::Failed { chain, fault: reason.into() }));
    }
}
