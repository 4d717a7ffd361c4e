//! Judges an answer: the model answers the same question.
//!
//! A write without an answer so far may be visible or not, but only as a whole: a read of now is right if it equals the
//! model with some of those writes left out.

mod content;
mod edit;
mod expiry;
mod names;
mod timeline;

use frieze_base::{Fault, Reason, crc32c};
use frieze_hlc::Hlc;
use frieze_wire::message::{Durability, InstantInfo, Now, NowReply, Reply, Request, View};

use crate::exchange::MachineResponse;
use crate::model::RequestEffect;
use crate::violation::{Rule, Verdict, broken};
use crate::witness::{CHUNK_BYTES, Expectation, Witness, WitnessedRequest};

impl Witness {
    /// Judges one answer. `at_once`: it was given within the call that asked.
    pub(crate) fn judge(&mut self, asked: &WitnessedRequest, answer: &MachineResponse, at_once: bool) -> Verdict {
        if crc32c(&answer.payload) != answer.payload_crc {
            return broken(Rule::PromisedErrors, "an answer's payload does not match its checksum");
        }
        if let Err(fault) = &answer.result
            && (self.excused(fault.reason) || self.excuses_request(asked, fault))
        {
            return Ok(());
        }
        let request = asked.ask.body.request.as_ref().expect("simulated clients ask something");
        let header = &asked.ask.header;
        match (&asked.expect, &answer.result) {
            (
                Expectation::Txn { did: Ok(RequestEffect::Txn { stamp, result: Ok(done) }), logged: true },
                Ok(Reply::Txn(reply)),
            ) => {
                if (reply.stamp, reply.id, reply.existed) != (stamp.0, done.id, done.existed) {
                    return broken(
                        Rule::Linearizable,
                        format!("{request:?} answered {reply:?}, expected {done:?} stamped {stamp}"),
                    );
                }
                if let (Some(attr), true) = (&reply.attr, at_once) {
                    self.check_attr_now(done.id, attr)?;
                }
                let sync = matches!(request, Request::Txn(txn) if txn.durability == Durability::Sync as i32);
                self.note_answered(header.session.0, header.seq.0, sync);
                Ok(())
            }
            (Expectation::Txn { did: Ok(RequestEffect::Txn { result: Err(reason), .. }), .. }, Err(fault))
            | (Expectation::Txn { did: Err(Err(reason)), .. }, Err(fault))
                if fault.reason == *reason =>
            {
                Ok(())
            }
            (Expectation::Txn { did, logged }, result) => broken(
                Rule::Linearizable,
                format!(
                    "{request:?} answered {result:?}, expected {did:?}{}",
                    if *logged { "" } else { " (not logged)" }
                ),
            ),
            (Expectation::Write { did: Some(RequestEffect::Wrote { stamp, offset }), .. }, Ok(Reply::Write(reply))) => {
                if (reply.stamp, reply.offset) != (stamp.0, *offset) {
                    return broken(
                        Rule::Linearizable,
                        format!(
                            "{request:?} was written at {} stamped {}, expected {offset} and {stamp}",
                            reply.offset,
                            Hlc(reply.stamp)
                        ),
                    );
                }
                let sync = matches!(request, Request::Write(write) if write.durability == Durability::Sync as i32);
                self.unsure.remove(stamp);
                self.note_answered(header.session.0, header.seq.0, sync);
                Ok(())
            }
            (Expectation::Write { did: Some(RequestEffect::Wrote { stamp, offset }), .. }, Ok(Reply::Punch(reply))) => {
                let Request::Punch(punch) = request else {
                    return broken(Rule::PromisedErrors, format!("{request:?} answered {reply:?}"));
                };
                // Of an earlier run only the end of its first chunk is known.
                let (end, at_least) = (offset + punch.len, (offset / CHUNK_BYTES + 1) * CHUNK_BYTES);
                if reply.stamp != stamp.0 || (reply.upto != end && reply.upto != at_least.min(end)) {
                    let words = format!("{request:?} answered {reply:?}, expected {stamp} and {end}");
                    return broken(Rule::Linearizable, words);
                }
                self.unsure.remove(stamp);
                self.note_answered(header.session.0, header.seq.0, punch.durability == Durability::Sync as i32);
                Ok(())
            }
            (Expectation::Write { refusals, .. }, Err(fault)) if refusals.contains(&fault.reason) => Ok(()),
            (Expectation::Write { did, refusals }, result) => {
                broken(Rule::Linearizable, format!("{request:?} answered {result:?}, expected {did:?} or {refusals:?}"))
            }
            (Expectation::Planned { logged, did }, result) if matches!(request, Request::Forget(_)) => {
                self.judge_forget(&asked.ask, request, *logged, did.as_ref(), result)
            }
            (Expectation::Planned { logged, did }, result) => {
                self.judge_edit(&asked.ask, request, *logged, did.as_ref(), result, at_once)
            }
            (Expectation::Sync { count }, Ok(Reply::Done(_))) => {
                // A later answer can cover less than a crash has taken since, never more than there is.
                self.journal.durable_up_to((*count).min(self.journal.effects.len()));
                Ok(())
            }
            (Expectation::Sync { .. }, result) => {
                broken(Rule::PromisedErrors, format!("a barrier answered {result:?}"))
            }
            (Expectation::Read, result) => self.judge_read(asked, request, result, &answer.payload),
        }
    }

    /// Refusals that any request may meet.
    fn excuses_request(&self, asked: &WitnessedRequest, fault: &Fault) -> bool {
        let session = asked.ask.header.session.0;
        fault.reason == Reason::UnknownSession && session != 0 && !self.model.sessions.contains_key(&session)
    }

    /// A client received the answer to a change.
    fn note_answered(&mut self, session: u64, seq: u64, sync: bool) {
        let Some(effect) = self.journal.of_request(session, seq) else { return };
        effect.answered = true;
        if sync {
            let mine = |effect: &crate::journal::Effect| effect.session == session && effect.seq == seq;
            let count = self.journal.effects.iter().rposition(mine).map_or(0, |place| place + 1);
            self.journal.durable_up_to(count);
        }
    }

    fn judge_read(
        &mut self,
        asked: &WitnessedRequest,
        request: &Request,
        result: &Result<Reply, Fault>,
        payload: &[u8],
    ) -> Verdict {
        let view = match request {
            Request::Stat(ask) => ask.view,
            Request::List(ask) => ask.view,
            Request::Open(ask) => ask.view,
            Request::ReadLink(ask) => ask.view,
            Request::GetXattr(ask) => ask.view,
            Request::Log(ask) => ask.view,
            Request::Deleted(ask) => ask.view,
            Request::Usage(ask) => ask.view,
            Request::Diff(ask) => View { at: Some(ask.to), user_at: None },
            Request::Story(ask) => View { at: Some(ask.upto), user_at: None },
            Request::Read(_) | Request::Seek(_) => asked.ask.handle.as_ref().map_or(View::NOW, |handle| handle.view),
            _ => View::NOW,
        };
        if let Some(reason) = self.refuses_instant(view, result) {
            return match result {
                Err(fault) if fault.reason == reason => Ok(()),
                other => broken(Rule::PromisedErrors, format!("{request:?} answered {other:?}, expected {reason:?}")),
            };
        }
        if let (Some(at), false) = (view.instant(), matches!(result, Err(fault) if fault.reason == Reason::Future)) {
            self.newest_answered = self.newest_answered.max(at);
        }
        match (request, result) {
            (Request::Stat(ask), result) => self.judge_stat(ask, result),
            (Request::List(ask), result) => self.judge_list(ask, result),
            (Request::Open(ask), result) => self.judge_open(ask, result),
            (Request::ReadLink(ask), result) => self.judge_link(ask, result),
            (Request::GetXattr(ask), result) => self.judge_xattr(ask, result),
            (Request::Read(ask), result) => self.judge_bytes(asked.ask.handle.as_ref(), asked, ask, result, payload),
            (Request::Seek(ask), result) => self.judge_seek(asked.ask.handle.as_ref(), asked, ask, result),
            (Request::Now(ask), Ok(Reply::Now(reply))) => self.judge_now(ask, reply),
            (Request::Now(ask), Err(fault))
                if fault.reason == Reason::NotFound && !self.model.snapshots.contains_key(&ask.name) =>
            {
                Ok(())
            }
            (Request::Snapshots(_), Ok(Reply::Snapshots(reply))) => {
                let found: Vec<_> =
                    reply.snapshots.iter().map(|one| (one.name.clone(), (Hlc(one.at), one.uid))).collect();
                let known: Vec<_> = self.model.snapshots.iter().map(|(name, one)| (name.clone(), *one)).collect();
                expect_equal("the snapshots", &found, &known)
            }
            (Request::Ping(_), Ok(Reply::Done(_))) | (Request::Status(_), Ok(Reply::Status(_))) => Ok(()),
            (Request::Log(ask), result) => self.judge_log(ask, result),
            (Request::Diff(ask), result) => self.judge_diff(ask, result),
            (Request::Story(ask), result) => self.judge_story(ask, result),
            (Request::Deleted(ask), result) => self.judge_deleted(ask, result),
            (Request::Usage(ask), result) => self.judge_usage(ask, result),
            (Request::LastExisted(ask), result) => self.judge_last_existed(ask, result),
            (Request::Sessions(ask), result) => self.judge_sessions(ask, result),
            (request, result) => broken(Rule::PromisedErrors, format!("{request:?} answered {result:?}")),
        }
    }

    /// The refusal that an instant has to meet, if it is out of bounds.
    fn refuses_instant(&self, view: View, result: &Result<Reply, Fault>) -> Option<Reason> {
        let at = view.instant()?;
        if at < self.earliest() {
            return Some(Reason::HistoryExpired);
        }
        if at <= self.newest_before {
            return None;
        }
        let reading = frieze_disk::TimeSource::reading(&self.machine.time);
        let slack = reading.error_us.unwrap_or(0) + FUTURE_US_MAX;
        let refused = matches!(result, Err(fault) if fault.reason == Reason::Future);
        match self.excuses.clock {
            // Which wall clock it believes is its own business while that jumps.
            true => refused.then_some(Reason::Future),
            false => (at > Hlc::last_of_micros(reading.wall_us + slack)).then_some(Reason::Future),
        }
    }

    /// Checks the statements of an answer about itself.
    fn check_answered(&self, view: View, answered: &InstantInfo, open: Option<bool>) -> Verdict {
        let at = view.at.unwrap_or(0);
        if answered.at != at {
            return broken(Rule::SameForEver, format!("asked for {}, answered {}", Hlc(at), Hlc(answered.at)));
        }
        let incomplete = self.in_gap(Hlc(at));
        if at != 0 && answered.incomplete != incomplete {
            return broken(
                Rule::SameForEver,
                format!(
                    "the answer at {} says incomplete = {}, gaps are {:?}",
                    Hlc(at),
                    answered.incomplete,
                    self.gaps
                ),
            );
        }
        match open {
            Some(open) if view.at.is_none() && answered.user_time_open != open => {
                broken(Rule::SameForEver, format!("an answer by user time says open = {}", answered.user_time_open))
            }
            _ => Ok(()),
        }
    }

    fn judge_now(&self, ask: &Now, reply: &NowReply) -> Verdict {
        let at = Hlc(reply.at);
        if ask.name.is_empty() && at < self.newest_before {
            return broken(Rule::Linearizable, format!("now is {at}, and {} was given", self.newest_before));
        }
        if Hlc(reply.earliest) != self.earliest() {
            return broken(Rule::SameForEver, format!("earliest is {}, was {}", Hlc(reply.earliest), self.earliest()));
        }
        match self.model.snapshots.get(&ask.name) {
            Some((known, _)) => expect_equal("the instant of a snapshot", &at, known),
            None => Ok(()),
        }
    }
}

fn judge_refusal(ask: &dyn std::fmt::Debug, expected: Result<(), Reason>, result: &Result<Reply, Fault>) -> Verdict {
    match (expected, result) {
        (Err(reason), Err(fault)) if fault.reason == reason => Ok(()),
        (expected, result) => broken(Rule::Linearizable, format!("{ask:?} answered {result:?}, expected {expected:?}")),
    }
}

fn expect_equal<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Verdict {
    match found == expected {
        true => Ok(()),
        false => broken(Rule::Linearizable, format!("{what}: {found:?}, expected {expected:?}")),
    }
}

/// How far above the wall clock and its error an instant may lie (`ClockSettings::future_us_max`).
const FUTURE_US_MAX: u64 = 1_000;
