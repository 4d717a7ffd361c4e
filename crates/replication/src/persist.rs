//! Durability: what the flusher reports to all chains.
//!
//! Guarantees: a `sync` write is answered only after a report that covers its record.

use frieze_base::{ChainId, Reason};
use frieze_chain::{LogEnd, Moment, ReplicaEffect, ReplicaInput};
use frieze_multilog::LogPosition;

use crate::chain_state::Out;
use crate::observer::Publishing;
use crate::plane::DataPlane;
use crate::report::Report;

impl DataPlane {
    /// Everything up to `through` is durable: answers the `sync` writes that this covers.
    pub fn persisted(&self, through: LogPosition) {
        self.feed_all(|| ReplicaInput::Persisted {
            through: LogEnd { segment: through.segment, offset: through.offset },
        });
        if self.is_shared() {
            self.tell_persisted(&mut self.hold_writes(), through);
        }
    }

    /// The device failed: refuses waiting requests and all later ones.
    pub fn device_failed(&self, reason: Reason) {
        self.feed_all(|| ReplicaInput::DeviceFailed { reason });
        self.report_failed(reason);
    }

    fn feed_all(&self, input: impl Fn() -> ReplicaInput) {
        let mut out = Out::default();
        {
            let mut appender = self.hold_writes();
            let moment = Moment { mono: self.clock.reading().mono, hlc: self.clock.newest() };
            let mut effects: Vec<Vec<ReplicaEffect>> = Vec::with_capacity(appender.chains.len());
            for chain in &mut appender.chains {
                let mut own = Vec::new();
                chain.step(moment, input(), &mut own);
                effects.push(own);
            }
            // While the write waited for the disk, clients may have cached the files again.
            let waited = appender.groups.values().map(|group| (group.request, group.inode));
            let _publishing = self.caching.get().map(|caching| Publishing::of_all(&**caching, waited));
            self.show(&appender, (0..appender.chains.len()).map(|chain| ChainId(chain as u32)));
            for (chain, effects) in effects.into_iter().enumerate() {
                self.carry(&mut appender, ChainId(chain as u32), effects, None, &mut out);
            }
        }
        self.finish_out(out);
    }

    /// Reports that this node is no longer a member of any of its chains.
    fn report_failed(&self, reason: Reason) {
        let shared: Vec<ChainId> = {
            let appender = self.hold_writes();
            let chains = appender.chains.iter().zip(&appender.members);
            chains.filter(|(_, member)| member.shared).map(|(replica, _)| replica.chain()).collect()
        };
        shared.into_iter().for_each(|chain| self.report(Report::Failed { chain, fault: reason.into() }));
    }
}
