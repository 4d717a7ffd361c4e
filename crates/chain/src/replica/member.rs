//! A replica as one of several members: it forwards, acknowledges, and asks the tail and the head.
//!
//! Records and promises go down the chain, acknowledgements up. Every message can be lost and is sent again
//! ([`ReplicaInput::Resend`](crate::ReplicaInput::Resend)): a member drops a record that it has already, and leaves one
//! that does not follow its last to be sent again. So the order of arrival affects speed only.
//!
//! Source: protocols §2 and §3; Terrace and Freedman, CRAQ (USENIX ATC'09) §2.

use frieze_base::{ByteRange, ChainEpoch, ChunkId, NodeId, Reason};
use frieze_hlc::Hlc;
use frieze_wire::chain::{Configuration, RecordHeader};

use super::model::{ClosePromise, DirtyRecord, NeighbourState, PendingClose, Replica};
use crate::configuration::{ForwardedRecord, Message, RequestId};
use crate::dedupe::BelowFloor;
use crate::error::Error;
use crate::message::{AppendToken, Moment, ReplicaEffect};

/// Committed records that are sent out of the log at once to a member that lacks them, at most.
const SUPPLY_MAX: u64 = 256;

impl Replica {
    /// The members, as far as they are known here.
    pub fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// True if something is unanswered: where that lasts, [`crate::ReplicaInput::Resend`] is due.
    pub fn has_unanswered(&self) -> bool {
        let is_new = self.is_syncing() && !self.link.is_sound || self.is_joining() && !self.link.has_reported;
        let has_heard = !is_new && (self.successor().is_none() || self.link.sent.is_some());
        !(self.dirty.is_empty()
            && self.promises.is_empty()
            && self.closing.is_empty()
            && self.tail_queries.is_empty()
            && has_heard)
    }

    /// True if a read of now may be answered at once with the records stamped up to [`Replica::now_cut`]; if not, ask
    /// by [`crate::ReplicaInput::QueryTail`].
    pub fn is_readable_now(&self) -> bool {
        self.has_all_acknowledged() && (self.is_tail() || self.dirty.is_empty())
    }

    /// True if a read of now of these bytes of a chunk may be answered at once with the records stamped up to
    /// [`Replica::now_cut`]: the uncommitted records lie beside them. Says nothing of where the chunk ends.
    pub fn is_clean_in(&self, chunk: ChunkId, range: ByteRange) -> bool {
        let touches = |header: &RecordHeader| {
            let (start, end) = (u64::from(header.offset), u64::from(header.offset) + u64::from(header.len));
            header.chunk == chunk && start < range.end() && range.start() < end
        };
        self.has_all_acknowledged() && (self.is_tail() || !self.dirty.iter().any(|record| touches(&record.header)))
    }

    /// True if a read at an instant may be answered here at all: a syncing node does not have every record.
    pub fn is_whole(&self) -> bool {
        !self.is_syncing()
    }

    /// Why this replica takes part no more; `None` while it does.
    pub fn failure(&self) -> Option<Reason> {
        self.failed
    }

    /// True if it stamps.
    pub fn is_head(&self) -> bool {
        self.configuration.head() == Some(self.me)
    }

    /// The node that records are sent to.
    pub fn successor(&self) -> Option<NodeId> {
        self.configuration.after(self.me)
    }

    pub(super) fn is_member(&self) -> bool {
        self.configuration.holds(self.me)
    }

    pub(super) fn is_tail(&self) -> bool {
        self.configuration.tail() == Some(self.me)
    }

    pub(super) fn is_syncing(&self) -> bool {
        self.configuration.syncing == Some(self.me)
    }

    /// The syncing node knows that its log is a prefix of the chain's.
    pub(super) fn is_sound(&self) -> bool {
        self.is_syncing() && self.link.is_sound
    }

    fn is_joining(&self) -> bool {
        self.configuration.joining && self.is_tail()
    }

    /// Every record up to it is committed behind this member.
    pub(super) fn behind(&self) -> u64 {
        // A syncing node commits by itself what the tail has: no member asks it, and no request waits for it.
        if self.is_tail() || self.is_syncing() { u64::MAX } else { self.link.acked }
    }

    fn send(&self, to: NodeId, message: Message, out: &mut Vec<ReplicaEffect>) {
        out.push(ReplicaEffect::Send { to, epoch: self.configuration.epoch, message });
    }

    /// Installs a newer configuration. A new tail commits all it has; a new head stamps from now on; a node without a
    /// role leaves the chain.
    pub(super) fn configure(&mut self, configuration: Configuration, out: &mut Vec<ReplicaEffect>) {
        if configuration.epoch <= self.configuration.epoch {
            return;
        }
        let (found, was_tail) = (self.configuration.epoch, self.is_tail());
        self.configuration = configuration;
        let inherited = match (was_tail, self.is_tail()) {
            // The predecessor has not reported yet what it has.
            (false, true) if self.configuration.joining => u64::MAX,
            (false, true) => self.last,
            // No member is left to report it: the records here are the chain.
            (true, true) if self.is_head() && self.link.inherited == u64::MAX => self.last,
            _ => self.link.inherited,
        };
        let inherited_promise = self.link.inherited_promise;
        self.link = NeighbourState { acked: self.clean, inherited, inherited_promise, ..NeighbourState::default() };
        if self.is_syncing() {
            // It may have missed the configurations without it. What it promised as a head without an acknowledgement
            // is no promise of the chain's, and what it stamped none of its records: the present head answers requests
            // that wait for them.
            self.promises.clear();
            self.promised = self.closed;
            let current = self.configuration.epoch;
            self.refuse_all(&Error::StaleEpoch { chain: self.chain, current, found }, out);
            return self.resend(out);
        }
        if !self.is_member() {
            let current = self.configuration.epoch;
            return self.refuse_all(&Error::StaleEpoch { chain: self.chain, current, found }, out);
        }
        if self.is_head() {
            // Of a head before it, which had not come through.
            self.have_closed(inherited_promise, out);
        }
        self.acknowledge_promises();
        self.commit(out);
        self.resend(out);
    }

    /// Sends again what may have been lost.
    pub(super) fn resend(&mut self, out: &mut Vec<ReplicaEffect>) {
        if !self.is_member() && !self.is_syncing() {
            return;
        }
        self.link.reported = None;
        if let (true, false, Some(tail)) = (self.is_syncing(), self.link.is_sound, self.configuration.tail()) {
            return self.send(tail, Message::Offer { epochs: self.epochs.iter().copied().collect() }, out);
        }
        self.report_ready(out);
        if self.is_joining()
            && self.link.inherited == u64::MAX
            && let Some(to) = self.configuration.before(self.me)
        {
            // Its greeting was lost: the successor has not reported yet what it has.
            self.send(to, Message::Greet { held: self.appended, promised: self.promised }, out);
        }
        if let Some(to) = self.successor() {
            (self.link.sent, self.link.supplied, self.link.promised) = (None, 0, Hlc::ZERO);
            self.send(to, Message::Greet { held: self.appended, promised: self.promised }, out);
        }
        for request in std::mem::take(&mut self.tail_queries) {
            self.on_query_tail(request, out);
        }
        if let Some(newest) = self.closing.iter().map(|closing| closing.at).max() {
            self.have_closed(newest, out);
            self.acknowledge_promises();
            self.answer_closing(out);
        }
    }

    /// Reports this member's progress to the predecessor, if it has changed.
    pub(super) fn report_progress(&mut self, out: &mut Vec<ReplicaEffect>) {
        // A syncing node acknowledges nothing, it only reports what it has.
        let now = if self.is_syncing() { (self.last, Hlc::ZERO) } else { (self.clean, self.closed) };
        if self.failed.is_some() || self.link.reported == Some(now) || self.is_syncing() && !self.link.is_sound {
            return;
        }
        if let Some(to) = self.configuration.before(self.me) {
            self.link.reported = Some(now);
            let upto = if self.is_syncing() { 0 } else { self.clean };
            self.send(to, Message::Ack { upto, closed: now.1, held: self.last }, out);
        }
    }

    /// Sends the successor what is complete here and was not sent yet, records and promises.
    pub(super) fn forward(&mut self, out: &mut Vec<ReplicaEffect>) {
        let (Some(to), Some(sent)) = (self.successor(), self.link.sent) else { return };
        if self.failed.is_some() {
            return;
        }
        let epoch = self.configuration.epoch;
        // An up-to-date member has at least what is committed.
        let rest = self.dirty.iter().skip((sent - self.clean) as usize);
        for record in rest.take_while(|record| record.header.n <= self.appended) {
            let message = Message::Record(Box::new(record.forwarded()));
            out.push(ReplicaEffect::Send { to, epoch, message });
        }
        let sent = sent.max(self.appended);
        self.link.sent = Some(sent);
        // A new member has to know what is closed already, for it may become head.
        if self.closed > self.link.promised && self.closed_follows <= sent {
            self.link.promised = self.closed;
            let follows = self.closed_follows;
            out.push(ReplicaEffect::Send { to, epoch, message: Message::Promise { follows, at: self.closed } });
        }
        for &ClosePromise { follows, at } in &self.promises {
            if follows <= sent && at > self.link.promised {
                self.link.promised = at;
                out.push(ReplicaEffect::Send { to, epoch, message: Message::Promise { follows, at } });
            }
        }
    }

    /// Sees to it that the head promises to stamp nothing at or below `instant`.
    pub(super) fn have_closed(&mut self, instant: Hlc, out: &mut Vec<ReplicaEffect>) {
        if instant <= self.promised {
            return;
        }
        if self.is_head() {
            self.promised = instant;
            self.promises.push_back(ClosePromise { follows: self.last, at: instant });
        } else if let Some(head) = self.configuration.head() {
            self.send(head, Message::AskClose { at: instant }, out);
        }
    }

    /// A read of now. Every committed record has passed through every member: a member without uncommitted records
    /// knows enough.
    pub(super) fn on_query_tail(&mut self, request: RequestId, out: &mut Vec<ReplicaEffect>) {
        let max = self.settings.closing_max;
        let refused = match (self.check_device(), self.is_member()) {
            (Err(failed), _) => Some(failed),
            (_, false) => Some(Error::NotMember { chain: self.chain }),
            _ if self.tail_queries.len() >= max => {
                Some(Error::Overloaded { what: "reads that ask the tail", max: max as u64 })
            }
            _ => None,
        };
        if let Some(error) = refused {
            return out.push(ReplicaEffect::Reply { request, result: Err(error.into()) });
        }
        match self.configuration.tail() {
            Some(tail) if tail != self.me && !self.dirty.is_empty() => {
                self.tail_queries.push(request);
                self.send(tail, Message::AskClean { request }, out);
            }
            _ if self.may_answer() => out.push(ReplicaEffect::TailCut { request, cut: self.now_cut() }),
            _ => self.tail_queries.push(request),
        }
    }

    /// True if every record that was ever acknowledged is in the log here, or on its way into it.
    pub fn has_all_acknowledged(&self) -> bool {
        self.is_member() && self.failed.is_none() && self.may_answer()
    }

    /// True if this member may answer reads of now by itself. A joining tail has no role in the next configuration if
    /// it is taken out, or if the chain resumes from another log, and no member waits until it knows: until it serves
    /// it reports to its predecessors alone.
    fn may_answer(&self) -> bool {
        self.has_committed_inherited() && !self.is_joining()
    }

    /// True unless this is a tail that has not committed all that it took over.
    fn has_committed_inherited(&self) -> bool {
        self.clean >= self.link.inherited && self.promised >= self.link.inherited_promise
    }

    /// A joining tail reports that it can serve.
    fn report_ready(&mut self, out: &mut Vec<ReplicaEffect>) {
        if self.is_joining() && self.has_committed_inherited() && !self.link.has_reported {
            self.link.has_reported = true;
            out.push(ReplicaEffect::Ready { epoch: self.configuration.epoch });
        }
    }

    /// Answers the reads of now that wait for this member itself.
    pub(super) fn answer_tail_queries(&mut self, out: &mut Vec<ReplicaEffect>) {
        self.report_ready(out);
        if self.is_tail() && self.may_answer() {
            let cut = self.now_cut();
            out.extend(self.tail_queries.drain(..).map(|request| ReplicaEffect::TailCut { request, cut }));
        }
    }

    /// Handles a message of a member. A message of another configuration is sent again under this one; a message that
    /// its sender has no right to send is dropped.
    pub(super) fn on_message(
        &mut self,
        at: Moment,
        from: NodeId,
        epoch: ChainEpoch,
        message: Message,
        out: &mut Vec<ReplicaEffect>,
    ) {
        if epoch != self.configuration.epoch || self.failed.is_some() {
            return;
        }
        let (before, after) = (self.configuration.before(self.me), self.successor());
        let result = match message {
            Message::Keep { upto } if self.is_syncing() && before == Some(from) => {
                if upto < self.last {
                    return out.push(ReplicaEffect::Discard { after: upto });
                }
                self.link.is_sound = true;
                self.commit(out);
                Ok(())
            }
            // Before the logs are known to be one, nothing is added to this one.
            _ if self.is_syncing() && !self.link.is_sound => Ok(()),
            Message::Offer { epochs } if after == Some(from) && self.configuration.syncing == Some(from) => {
                self.send(from, Message::Keep { upto: self.common(&epochs) }, out);
                Ok(())
            }
            Message::Record(record) if before == Some(from) => self.on_record(*record, out),
            Message::Promise { follows, at } if before == Some(from) => {
                self.on_promise(follows, at, out);
                Ok(())
            }
            Message::Greet { held, promised } if before == Some(from) => {
                self.link.reported = None;
                if self.is_joining() && self.link.inherited == u64::MAX {
                    (self.link.inherited, self.link.inherited_promise) = (held.max(self.last), promised);
                    self.report_ready(out);
                }
                Ok(())
            }
            Message::Greet { .. } if after == Some(from) => {
                self.send(from, Message::Greet { held: self.appended, promised: self.promised }, out);
                Ok(())
            }
            Message::Ack { upto, closed, held } if after == Some(from) => self.on_ack(upto, closed, held, out),
            Message::AskClean { request }
                if self.is_tail() && self.has_committed_inherited() && self.configuration.holds(from) =>
            {
                self.send(from, Message::Clean { request, upto: self.clean }, out);
                Ok(())
            }
            Message::Clean { request, upto } if self.configuration.tail() == Some(from) => {
                self.on_clean(request, upto, out)
            }
            // A clock that is too far ahead is not followed: the request is refused in time.
            Message::AskClose { at: instant } if self.configuration.holds(from) && instant <= at.hlc => {
                if self.is_head() {
                    self.have_closed(instant, out);
                    self.acknowledge_promises();
                    self.forward(out);
                    self.answer_closing(out);
                }
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(why) = result {
            out.push(ReplicaEffect::Distrust { peer: from, why });
        }
    }

    /// The next record, from the predecessor.
    fn on_record(&mut self, record: ForwardedRecord, out: &mut Vec<ReplicaEffect>) -> Result<(), &'static str> {
        let header = &record.header;
        if header.n != self.last + 1 {
            // Already present, or one before it was lost and comes again.
            return Ok(());
        }
        let group = (header.session, header.seq);
        if header.stamp <= self.promised {
            return Err("a record stamped at or below an instant that was promised to be closed");
        }
        if header.stamp <= self.newest && !self.is_further_part(header.stamp, group, header.part) {
            return Err("a record whose stamp is not above that of the record before it");
        }
        if header.epoch < self.last_epoch || header.epoch > self.configuration.epoch {
            return Err("a record of a configuration that cannot be");
        }
        if self.dirty.len() >= self.settings.in_flight_max {
            // It comes again when there is room.
            return Ok(());
        }
        let memory = self.sessions.entry(header.session).or_default();
        memory.acknowledge(record.acked);
        match memory.recall(header.seq, header.part) {
            Ok(None) => memory.begin(header.seq, header.part, header.n, self.settings.remembered_max),
            Ok(Some(_)) => return Err("a second record of one request"),
            // So old that its retry would be refused in any case.
            Err(BelowFloor { .. }) => {}
        }
        let token = AppendToken(self.tokens);
        self.tokens += 1;
        let (epoch, n) = (header.epoch, header.n);
        (self.last, self.last_epoch) = (header.n, header.epoch);
        (self.newest, self.newest_group) = (header.stamp, group);
        self.note_epoch(epoch, n);
        out.push(ReplicaEffect::AppendForwarded { token, record: Box::new(record.clone()) });
        let ForwardedRecord { header, durability, acked } = record;
        self.dirty.push_back(DirtyRecord { token, header, durability, acked, waiting: Vec::new(), end: None });
        Ok(())
    }

    /// A promise counts at a member that has the record that it follows.
    fn on_promise(&mut self, follows: u64, at: Hlc, out: &mut Vec<ReplicaEffect>) {
        if at <= self.promised || follows > self.last {
            return;
        }
        self.promised = at;
        self.promises.push_back(ClosePromise { follows, at });
        self.acknowledge_promises();
        self.forward(out);
        self.answer_tail_queries(out);
        self.answer_closing(out);
    }

    /// How far the successor is, and all behind it.
    fn on_ack(&mut self, upto: u64, closed: Hlc, held: u64, out: &mut Vec<ReplicaEffect>) -> Result<(), &'static str> {
        if held < self.clean {
            // A late message; or the successor is new, and what it lacks is in the log only.
            if self.link.sent.is_none()
                && held >= self.link.supplied
                && let Some(to) = self.successor()
            {
                // Its last window may still be on its way into its log.
                let window = SUPPLY_MAX.min(self.settings.in_flight_max as u64 / 2).max(1);
                self.link.supplied = self.clean.min(held + window);
                out.push(ReplicaEffect::Supply { to, after: held, upto: self.link.supplied });
            }
            return Ok(());
        }
        if held > self.last || upto > held || upto > self.appended {
            return Err("the successor acknowledges what it was not sent");
        }
        if closed > self.promised {
            // Made before this member was restarted, and acknowledged: it holds, and any head stamps above it, since it
            // is within the bound that each of them had made durable.
            self.promises.clear();
            (self.promised, self.closed, self.closed_follows) = (closed, closed, held);
        }
        self.link.sent.get_or_insert(held);
        if let (true, Some(node)) = (self.is_tail(), self.configuration.syncing) {
            if !std::mem::replace(&mut self.link.has_reported, true) {
                out.push(ReplicaEffect::CaughtUp { node, epoch: self.configuration.epoch });
            }
            self.forward(out);
            return Ok(());
        }
        self.link.acked = self.link.acked.max(upto);
        while let Some(promise) = self.promises.front()
            && promise.at <= closed
        {
            (self.closed, self.closed_follows) = (promise.at, promise.follows);
            self.promises.pop_front();
        }
        self.forward(out);
        self.commit(out);
        Ok(())
    }

    /// The tail's commit position, for a read of now. Records committed there are complete here.
    fn on_clean(&mut self, request: RequestId, upto: u64, out: &mut Vec<ReplicaEffect>) -> Result<(), &'static str> {
        if upto > self.appended {
            return Err("the tail has committed what it was not sent");
        }
        let Some(place) = self.tail_queries.iter().position(|waiting| *waiting == request) else { return Ok(()) };
        self.tail_queries.swap_remove(place);
        let first = self.dirty.iter().find(|record| record.header.n > upto);
        let cut = first.map_or(Hlc::MAX, |record| record.header.stamp.previous());
        out.push(ReplicaEffect::TailCut { request, cut });
        Ok(())
    }

    /// Refuses every waiting request. Records stay: they are in the log.
    pub(super) fn refuse_all(&mut self, error: &Error, out: &mut Vec<ReplicaEffect>) {
        let writers = self.dirty.iter_mut().flat_map(|record| record.waiting.drain(..));
        let readers = self.closing.drain(..).map(|PendingClose { request, .. }| request);
        for request in writers.chain(readers).chain(self.tail_queries.drain(..)) {
            out.push(ReplicaEffect::Reply { request, result: Err(error.clone().into()) });
        }
    }

    /// Record `n`, the last, was stamped under `epoch`.
    pub(super) fn note_epoch(&mut self, epoch: ChainEpoch, n: u64) {
        match self.epochs.back_mut() {
            Some((newest, last)) if *newest == epoch => *last = n,
            _ => self.epochs.push_back((epoch, n)),
        }
        if self.epochs.len() > EPOCHS_MAX {
            self.epochs.pop_front();
        }
    }

    /// The records after `n` are none.
    pub(super) fn forget_after(&mut self, n: u64) {
        while let Some((epoch, last)) = self.epochs.pop_back() {
            let before = self.epochs.back().map_or(0, |(_, before)| *before);
            if before < n {
                self.epochs.push_back((epoch, last.min(n)));
                return;
            }
        }
    }

    /// Number of the last record that this log and another have in common. Records of one number and one epoch are the
    /// same, for an epoch has one head, and so are all before them.
    fn common(&self, theirs: &[(ChainEpoch, u64)]) -> u64 {
        let (mut common, mut before, mut before_theirs) = (0, 0, 0);
        let mut others = theirs.iter().peekable();
        for &(epoch, last) in &self.epochs {
            while let Some(&&(other, their_last)) = others.peek()
                && other <= epoch
            {
                let shared = last.min(their_last).min(self.appended);
                if other == epoch && shared > before.max(before_theirs) {
                    common = shared;
                }
                before_theirs = their_last;
                others.next();
            }
            before = last;
        }
        common
    }
}

/// Configurations that are remembered. A log that went apart longer ago has nothing in common that is known of: it is
/// sent whole.
const EPOCHS_MAX: usize = 1024;
