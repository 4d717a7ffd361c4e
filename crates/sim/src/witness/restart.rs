//! A crash of the server and its next start: compares what recovery found with what it had to find.

use frieze_disk::CrashKind;
use frieze_hlc::Hlc;
use frieze_wire::message::{Reply, Request, Stat, View};
use frieze_wire::txn::{Batch, Op, Target};

use super::Witness;
use crate::journal::{Act, Effect, LogPlace};
use crate::violation::{Rule, Verdict, broken};

impl Witness {
    /// Ends the process, with or without the power of the machine.
    pub(crate) fn die(&mut self, kind: CrashKind) {
        self.trace.line(|| format!("dies: {kind:?}"));
        self.machine.die(kind);
        self.lost_power |= kind == CrashKind::Power;
        self.forget_process();
    }

    fn forget_process(&mut self) {
        self.asked.clear();
        self.sessions.conns.clear();
        self.excuses.device = false;
        self.read_only = false;
    }

    /// Stops the server in order.
    pub(crate) fn stop(&mut self) -> Verdict {
        let result = self.machine.stop();
        self.trace.line(|| format!("stop {result:?}"));
        self.judge_answers(None)?;
        let stopped = result.is_ok();
        self.excuse("stopping", result)?;
        if stopped && !self.machine.is_dying() {
            self.journal.durable_up_to(self.journal.effects.len());
        }
        Ok(())
    }

    /// Starts the server. False if it died again while it started.
    pub(crate) fn start(&mut self) -> Verdict<bool> {
        let result = self.machine.start();
        self.trace.line(|| format!("start {:?} {:?}", result, self.machine.notes()));
        if let Err(fault) = result {
            if self.machine.is_dying() {
                return Ok(false);
            }
            return broken(Rule::Restarts, format!("the server does not start: {fault} ({:?})", fault.reason));
        }
        let now = self.now();
        self.reconcile()?;
        self.sessions.idle_since = self.model.sessions.keys().map(|session| (*session, now)).collect();
        Ok(true)
    }

    /// Compares what recovery found with what it had to find, and continues from there.
    fn reconcile(&mut self) -> Verdict {
        let status = self.machine.status();
        let Some((base, entries)) = self.machine.journal() else {
            return broken(Rule::Restarts, "the journal of the metalog cannot be read after a start");
        };
        let records = status.records;
        let last = entries.last_key_value().map(|(last, _)| *last);
        if self.journal.effects.is_empty() {
            return self.begin(&entries.into_keys().collect::<Vec<u64>>(), records);
        }
        // The entries of starts hold no transaction. The tables have what the journal no longer has, and no start lets
        // go of entries.
        let ends = self.journal.effects.iter().filter_map(|effect| match effect.place {
            LogPlace::Meta(end) if end <= base => Some(end),
            _ => None,
        });
        let index = last.or(ends.max()).unwrap_or(0);
        let (mut known_index, known_records) = self.journal.ends();
        // What a failed sync left in the journal is there after the death of the process: its client has an error, and
        // may ask again.
        let failed = std::mem::take(&mut self.failed).into_iter().map(|doubt| (doubt, true));
        let doubts = std::mem::take(&mut self.doubts).into_iter().map(|doubt| (doubt, false));
        for (mut doubt, has_failed) in failed.chain(doubts).collect::<Vec<_>>() {
            if let LogPlace::Meta(end) = &mut doubt.place {
                let is_of = |batch: &Batch| {
                    batch.transactions.iter().any(|txn| {
                        let is_part = matches!(&txn.op, Some(Op::StageEdit(stage)) if stage.request == doubt.seq);
                        txn.session == doubt.session && (txn.seq == doubt.seq || is_part)
                    })
                };
                let later = entries.range(known_index + 1..).find(|(_, (_, batch))| is_of(batch));
                match later {
                    Some((index, (stamp, _))) if has_failed => (*end, doubt.stamp) = (*index, *stamp),
                    None if has_failed => continue,
                    _ if self.owes_loss && !entries.contains_key(end) => *end += 1,
                    _ => {}
                }
            }
            let whole = match doubt.place {
                LogPlace::Meta(end) => end > known_index && entries.contains_key(&end),
                LogPlace::Data(end) => end > known_records && records >= end,
            };
            if whole {
                let doubt = self.planned_in_doubt(doubt)?;
                self.newest_stamp = self.newest_stamp.max(doubt.stamp);
                let made = match &doubt.act {
                    Act::Txn(op) if self.model.preview(doubt.session, doubt.seq, op) == Err(Ok(())) => {
                        self.number_of_made(&op.clone())?
                    }
                    _ => 0,
                };
                let goes_on = matches!(doubt.act, Act::Expired | Act::Staged);
                if let LogPlace::Meta(end) = doubt.place {
                    known_index = end;
                }
                self.journal.effects.push(Effect { made, ..doubt });
                // Of session ends several can have happened; of all other doubts the entries are alternatives for one
                // request.
                if !goes_on && !has_failed {
                    break;
                }
            }
        }
        let meta_orders: Vec<bool> = self
            .journal
            .effects
            .iter()
            .map(|effect| matches!(effect.place, LogPlace::Meta(end) if end <= index))
            .collect();
        let lost = self.journal.cut(index, records);
        let ends = self.journal.ends();
        if ends != (index, records) {
            return broken(
                Rule::Prefix,
                format!(
                    "recovery found {index} entries and {records} records, where changes end at {} and {}: half a \
                     change, or one that nobody asked for",
                    ends.0, ends.1
                ),
            );
        }
        let gaps: Vec<(Hlc, Hlc)> = status.gaps.iter().map(|gap| (Hlc(gap.from), Hlc(gap.to))).collect();
        if !self.lost_power && gaps != self.gaps {
            return broken(Rule::Durable, format!("only the process died, and a gap was declared: {gaps:?}"));
        }
        let last_name = meta_orders.iter().rposition(|survived| *survived).unwrap_or(0);
        for (order, effect) in &lost {
            let report = format!(
                "{:?} stamped {} (request {} of session {})",
                effect.act, effect.stamp, effect.seq, effect.session
            );
            if effect.durable {
                return broken(Rule::Durable, format!("was durable and is lost: {report}"));
            }
            if !self.lost_power && effect.answered {
                return broken(Rule::Durable, format!("the process died and took along: {report}"));
            }
            if matches!(effect.place, LogPlace::Data(_)) && *order < last_name {
                return broken(Rule::Prefix, format!("later names survived without these bytes: {report}"));
            }
            if effect.answered && !gaps.iter().any(|(from, to)| effect.stamp > *from && effect.stamp <= *to) {
                return broken(Rule::SameForEver, format!("no gap of {gaps:?} covers what was lost: {report}"));
            }
        }
        self.lost += lost.len() as u64;
        let report = lost.iter().any(|(_, effect)| effect.answered);
        if report {
            self.memory.forget_by_user_time();
        }
        // A named instant that is back holds back again what was forgotten.
        let forgets = |effect: &Effect| match &effect.act {
            Act::Txn(op) => matches!(**op, Op::Forget(_) | Op::DeleteSnapshot(_)),
            _ => false,
        };
        if lost.iter().any(|(_, effect)| forgets(effect)) {
            self.memory.forget_refusals();
        }
        self.trace.line(|| format!("restarted at {index} entries and {records} records, {} changes lost", lost.len()));
        self.gaps = gaps;
        self.model = self.journal.replay();
        self.unsure.clear();
        self.skips_ids |= self.lost_power;
        // A server that only died again declares the loss before it, if it had not.
        self.owes_loss |= self.lost_power;
        self.lost_power = false;
        Ok(())
    }

    /// The first start: the file system was made.
    fn begin(&mut self, entries: &[u64], records: u64) -> Verdict {
        let ([index], 0) = (entries, records) else {
            let words = format!("a new file system has the entries {entries:?} and {records} records");
            return broken(Rule::Restarts, words);
        };
        let stat =
            Stat { target: Target { base: 1, path: Vec::new(), follow: false }, view: View::NOW, ..Stat::default() };
        let Some(Reply::Stat(root)) = self.machine.look(Request::Stat(stat)) else {
            return broken(Rule::Restarts, "a new file system has no root");
        };
        let format = Act::Format { mode: root.attr.mode };
        let format =
            Effect { durable: true, ..Effect::new(LogPlace::Meta(*index), Hlc(root.attr.born), (0, 0, 0), format) };
        self.newest_stamp = format.stamp;
        self.journal.effects.push(format);
        self.model = self.journal.replay();
        self.gaps = self.machine.status().gaps.iter().map(|gap| (Hlc(gap.from), Hlc(gap.to))).collect();
        self.owes_loss = self.lost_power;
        self.lost_power = false;
        Ok(())
    }
}
