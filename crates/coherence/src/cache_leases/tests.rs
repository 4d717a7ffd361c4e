use frieze_base::Rng;
use frieze_testkit::seeds::SeedPlan;

use super::*;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const THREE: SessionId = SessionId(3);
const DIR: CacheKey = CacheKey(7 << 1 | 1);
const FILE: CacheKey = CacheKey(9 << 1);
const MS: u64 = 1_000_000;

/// A lease of 5 s, on which the times below are based.
fn settings() -> CacheLeaseSettings {
    CacheLeaseSettings { lease_ns: 5000 * MS, ..CacheLeaseSettings::default() }
}

fn ms(at: u64) -> MonoTime {
    MonoTime(at * MS)
}

/// Sessions with a lease and a waiting poll, from the start.
fn with(sessions: &[SessionId]) -> CacheLeases {
    let mut grants = CacheLeases::new(settings());
    for session in sessions {
        grants.poll(ms(0), *session, PollId(session.0), 0, &mut Vec::new());
    }
    grants
}

fn change(grants: &mut CacheLeases, at: u64, by: SessionId, keys: &[CacheKey]) -> Vec<LeaseEffect> {
    let mut out = Vec::new();
    grants.change(ms(at), (by, Seq(1)), keys, &mut out);
    out
}

fn answer(grants: &mut CacheLeases, at: u64, by: SessionId, keys: &[CacheKey], ticket: u64) -> bool {
    let mut out = Vec::new();
    grants.answer(ms(at), (by, Seq(1)), &of(keys), AnswerTicket(ticket), &mut out);
    out == [LeaseEffect::Release(AnswerTicket(ticket))]
}

fn of(keys: &[CacheKey]) -> AnswerKeys {
    AnswerKeys { keys: keys.to_vec(), everything: false }
}

fn told(effects: &[LeaseEffect]) -> Vec<(PollId, Recall)> {
    let tell = |effect: &LeaseEffect| match effect {
        LeaseEffect::Tell { poll, recall } => Some((*poll, recall.clone())),
        LeaseEffect::Release(_) => None,
    };
    effects.iter().filter_map(tell).collect()
}

#[test]
fn all_leases_that_one_change_revokes_are_in_one_recall() {
    let mut grants = with(&[ONE, TWO, THREE]);
    for key in [DIR, FILE] {
        assert!(grants.give(ms(1), ONE, key) > 0);
    }
    let told = told(&change(&mut grants, 2, TWO, &[DIR, FILE]));
    let [(_, recall)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((&recall.directories[..], &recall.files[..]), (&[7][..], &[9][..]));
    assert!(!answer(&mut grants, 3, THREE, &[FILE], 1));
    grants.poll(ms(4), ONE, PollId(9), recall.number, &mut Vec::new());
    assert!(grants.is_idle());
}

#[test]
fn a_change_is_answered_when_other_sessions_have_dropped_their_leases() {
    let mut grants = with(&[ONE, TWO]);
    assert_eq!(grants.give(ms(10), ONE, DIR), 4990 * MS);
    let told = told(&change(&mut grants, 20, TWO, &[DIR, FILE]));
    assert_eq!(told, [(PollId(1), Recall { number: 1, directories: vec![7], ..Recall::default() })]);
    assert!(!answer(&mut grants, 20, TWO, &[], 5), "the change waits");
    assert!(!answer(&mut grants, 20, THREE, &[DIR], 6), "and who reads what it changed");
    assert!(answer(&mut grants, 20, THREE, &[FILE], 7), "but nobody else");
    assert!(!answer(&mut grants, 20, ONE, &[DIR], 8), "and who has to drop it: others may use it on the same machine");
    let mut out = Vec::new();
    grants.poll(ms(30), ONE, PollId(9), 1, &mut out);
    assert_eq!(out, [5, 6, 8].map(|ticket| LeaseEffect::Release(AnswerTicket(ticket))));
    assert!(grants.is_idle());
}

#[test]
fn own_changes_recall_nothing_of_ones_own() {
    let mut grants = with(&[ONE, TWO]);
    grants.give(ms(10), ONE, DIR);
    assert_eq!(change(&mut grants, 20, ONE, &[DIR]), []);
    assert!(answer(&mut grants, 20, ONE, &[DIR], 5));
    assert!(grants.give(ms(20), ONE, DIR) > 0);
}

#[test]
fn a_session_drops_its_own_change_before_another_session_is_recalled() {
    let mut grants = with(&[ONE, TWO]);
    grants.give(ms(10), ONE, DIR);
    grants.give(ms(10), ONE, FILE);
    assert_eq!(change(&mut grants, 20, ONE, &[DIR]), []);
    assert!(answer(&mut grants, 20, ONE, &[DIR], 5), "its own answer waits for nobody");
    assert!(answer(&mut grants, 21, TWO, &[FILE], 6), "nor does who reads something else");
    // The answer to the change may still be in flight to it.
    let mut out = Vec::new();
    grants.answer(ms(22), (TWO, Seq(0)), &of(&[DIR]), AnswerTicket(7), &mut out);
    assert_eq!(told(&out), [(PollId(1), Recall { number: 1, directories: vec![7], ..Recall::default() })]);
    assert_eq!(grants.give(ms(23), ONE, DIR), 0);
    out.clear();
    grants.poll(ms(30), ONE, PollId(9), 1, &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(7))]);
    assert!(answer(&mut grants, 31, TWO, &[DIR], 8) && grants.is_idle());

    // While no other session cached anything, changes are not noted: all that it caches may be stale.
    out.clear();
    grants.changed_unnoted(ms(40), ONE, &mut out);
    assert!(matches!(&told(&out)[..], [(PollId(9), Recall { number: 2, everything: true, .. })]), "{out:?}");
    assert!(!answer(&mut grants, 40, TWO, &[FILE], 9));
    out.clear();
    grants.poll(ms(50), ONE, PollId(10), 2, &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(9))]);
}

#[test]
fn a_session_that_does_not_answer_is_waited_for_until_its_grant_runs_out() {
    let mut grants = with(&[ONE]);
    grants.give(ms(3000), ONE, DIR);
    change(&mut grants, 3000, TWO, &[DIR]);
    assert!(!answer(&mut grants, 3000, TWO, &[], 5));
    let mut out = Vec::new();
    grants.tick(ms(4999), &mut out);
    assert_eq!(out, []);
    grants.tick(ms(5000), &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(5))]);
}

#[test]
fn nothing_is_granted_without_a_lease_and_nothing_beyond_its_end() {
    let mut grants = with(&[ONE]);
    assert_eq!(grants.give(ms(0), TWO, DIR), 0);
    assert_eq!(grants.give(ms(4999), ONE, DIR), MS);
    assert_eq!(grants.give(ms(5000), ONE, DIR), 0);
    grants.poll(ms(6000), ONE, PollId(2), 0, &mut Vec::new());
    assert_eq!(grants.give(ms(6000), ONE, DIR), 5000 * MS);
}

#[test]
fn an_item_that_two_sessions_change_is_not_leased_until_one_is_alone_for_a_second() {
    let mut grants = with(&[ONE, TWO]);
    grants.give(ms(0), ONE, DIR);
    change(&mut grants, 100, TWO, &[DIR]);
    grants.poll(ms(100), ONE, PollId(8), 1, &mut Vec::new());
    grants.poll(ms(100), TWO, PollId(9), 0, &mut Vec::new());
    assert_eq!((grants.give(ms(200), ONE, DIR), grants.give(ms(200), TWO, DIR)), (0, 0));
    change(&mut grants, 600, ONE, &[DIR]);
    change(&mut grants, 1500, ONE, &[DIR]);
    assert_eq!((grants.give(ms(1550), ONE, DIR), grants.give(ms(1550), TWO, DIR)), (0, 0));
    assert!(grants.give(ms(1600), ONE, DIR) > 0, "alone since 600");
    assert_eq!(grants.give(ms(1600), TWO, DIR), 0);
    assert!(grants.give(ms(2500), TWO, DIR) > 0, "left alone since 1500");
}

#[test]
fn a_lost_recall_is_sent_again_and_an_old_acknowledgement_does_not_count() {
    let mut grants = with(&[ONE, TWO]);
    grants.give(ms(0), ONE, DIR);
    grants.give(ms(0), ONE, FILE);
    change(&mut grants, 10, TWO, &[DIR]);
    assert!(!answer(&mut grants, 10, TWO, &[], 5));
    // The answer is lost with its connection; meanwhile there are more recalls.
    change(&mut grants, 20, TWO, &[FILE]);
    assert!(!answer(&mut grants, 20, THREE, &[FILE], 6));
    let mut out = Vec::new();
    grants.poll(ms(30), ONE, PollId(8), 0, &mut out);
    let recall = Recall { number: 2, directories: vec![7], files: vec![9], ..Recall::default() };
    assert_eq!(out, [LeaseEffect::Tell { poll: PollId(8), recall }]);
    let mut out = Vec::new();
    grants.poll(ms(40), ONE, PollId(9), 1, &mut out);
    assert!(out.contains(&LeaseEffect::Release(AnswerTicket(5))), "the first was heard after all: {out:?}");
    assert!(!out.contains(&LeaseEffect::Release(AnswerTicket(6))), "but not what came after it: {out:?}");
    let mut out = Vec::new();
    grants.poll(ms(50), ONE, PollId(10), 3, &mut out);
    assert!(out.contains(&LeaseEffect::Release(AnswerTicket(6))), "{out:?}");
}

#[test]
fn too_many_recalls_recall_everything() {
    let settings = CacheLeaseSettings { recalls_max: 3, ..settings() };
    let mut grants = CacheLeases::new(settings);
    grants.poll(ms(0), ONE, PollId(1), 0, &mut Vec::new());
    let keys: Vec<CacheKey> = (1..=9).map(|inode| CacheKey(inode << 1)).collect();
    for key in &keys {
        grants.give(ms(0), ONE, *key);
    }
    let told = told(&change(&mut grants, 10, TWO, &keys));
    assert!(matches!(&told[..], [(_, Recall { everything: true, .. })]), "{told:?}");
    assert!(!answer(&mut grants, 20, TWO, &[], 5));
    let mut out = Vec::new();
    grants.poll(ms(30), ONE, PollId(2), 1, &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(5))]);
}

#[test]
fn a_full_table_grants_nothing_more() {
    let settings = CacheLeaseSettings { grants_max: 2, ..settings() };
    let mut grants = CacheLeases::new(settings);
    grants.poll(ms(0), ONE, PollId(1), 0, &mut Vec::new());
    assert!(grants.give(ms(0), ONE, CacheKey(1)) > 0 && grants.give(ms(0), ONE, CacheKey(2)) > 0);
    assert_eq!(grants.give(ms(0), ONE, CacheKey(3)), 0);
    assert!(grants.give(ms(0), ONE, CacheKey(2)) > 0, "what is granted already can be granted longer");
}

#[test]
fn after_a_restart_a_change_waits_for_every_session_that_may_hold_leases() {
    let mut grants = CacheLeases::new(settings());
    grants.found(ms(0), [ONE]);
    change(&mut grants, 10, TWO, &[DIR]);
    assert!(!answer(&mut grants, 10, TWO, &[], 5));
    assert!(!answer(&mut grants, 10, ONE, &[], 6), "it may believe what is no more, too");
    assert!(!answer(&mut grants, 10, THREE, &[FILE], 7), "it may have been changed just before");
    let mut out = Vec::new();
    grants.poll(ms(20), ONE, PollId(1), 0, &mut out);
    assert!(
        matches!(&out[..], [LeaseEffect::Tell { recall: Recall { everything: true, number: 1, .. }, .. }]),
        "{out:?}"
    );
    out.clear();
    grants.poll(ms(30), ONE, PollId(2), 1, &mut out);
    assert_eq!(out, [5, 6, 7].map(|ticket| LeaseEffect::Release(AnswerTicket(ticket))));
    assert!(grants.give(ms(30), ONE, FILE) > 0);

    // And for no session longer than the lease.
    let mut grants = CacheLeases::new(settings());
    grants.found(ms(0), [ONE]);
    change(&mut grants, 10, TWO, &[DIR]);
    answer(&mut grants, 10, TWO, &[], 5);
    let mut out = Vec::new();
    grants.tick(ms(5000), &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(5))]);
}

#[test]
fn a_session_that_ends_is_waited_for_no_more() {
    let mut grants = with(&[ONE]);
    grants.give(ms(0), ONE, DIR);
    change(&mut grants, 10, TWO, &[DIR]);
    answer(&mut grants, 10, TWO, &[], 5);
    let mut out = Vec::new();
    grants.ended(ONE, &mut out);
    assert_eq!(out, [LeaseEffect::Release(AnswerTicket(5))]);
    assert_eq!(grants.sessions().count(), 0);
}

/// Sessions that cache under their grants, over a network that delays, reorders and loses messages: when a change is
/// answered, every cached state is the state after that change.
#[test]
fn no_random_history_shows_a_state_older_than_an_answered_change() {
    SeedPlan::new(0, 3000, 300).play(|seed, steps| LeaseHistory::new(seed).run(steps));
}

const SESSIONS: u64 = 3;
const KEYS: u64 = 3;

/// An answer to a session.
#[derive(Clone, Copy)]
struct Answer {
    to: SessionId,
    key: CacheKey,
    state: u64,
    is_change: bool,
}

/// A message in flight.
enum Message {
    /// An answer: from its arrival on every client may know the state.
    Answered(Answer),
    /// An answer that may be cached: key, state, expiry, and the recalls that the session knew when it asked.
    Granted {
        session: SessionId,
        key: CacheKey,
        state: u64,
        until: MonoTime,
        began: u64,
    },
    Recalled {
        session: SessionId,
        recall: Recall,
        sent: MonoTime,
        life: u64,
    },
    Asks {
        session: SessionId,
        acked: u64,
        sent: MonoTime,
        life: u64,
    },
}

#[derive(Default)]
struct Believer {
    lease_until: MonoTime,
    acked: u64,
    recalls: u64,
    recalled: BTreeMap<CacheKey, u64>,
    floor: u64,
    believed: BTreeMap<CacheKey, (u64, MonoTime)>,
    asked: MonoTime,
    life: u64,
    /// Its changes whose answers have not arrived.
    unheard: BTreeMap<CacheKey, u64>,
}

struct LeaseHistory {
    rng: Rng,
    now: u64,
    grants: CacheLeases,
    states: BTreeMap<CacheKey, u64>,
    /// Waiting answers: what they show, in which state, and the change that they answer.
    answers: BTreeMap<AnswerTicket, Answer>,
    believers: BTreeMap<SessionId, Believer>,
    polls: BTreeMap<PollId, (SessionId, MonoTime)>,
    network: Vec<(u64, Message)>,
    next: u64,
    /// Number of the leader: the next leader knows the sessions, and not their grants.
    life: u64,
    seed: u64,
}

impl LeaseHistory {
    fn new(seed: u64) -> LeaseHistory {
        let settings = CacheLeaseSettings {
            lease_ns: 500 * MS,
            renew_ns: 100 * MS,
            hot_ns: 50 * MS,
            recalls_max: 2,
            hot_max: 2,
            ..settings()
        };
        LeaseHistory {
            rng: Rng::new(seed),
            now: 1,
            grants: CacheLeases::new(settings),
            states: BTreeMap::new(),
            answers: BTreeMap::new(),
            believers: (1..=SESSIONS).map(|id| (SessionId(id), Believer::default())).collect(),
            polls: BTreeMap::new(),
            network: Vec::new(),
            next: 1,
            life: 1,
            seed,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.now += self.rng.below(12);
            let session = SessionId(1 + self.rng.below(SESSIONS));
            let key = CacheKey(10 + self.rng.below(KEYS));
            if self.rng.below(100) == 0 {
                self.begin_life();
            }
            match self.rng.below(10) {
                0..4 => self.read(session, key),
                4..6 => self.change(session, key),
                6 => self.ask_for_recalls(session),
                _ => {}
            }
            let mut out = Vec::new();
            self.grants.tick(ms(self.now), &mut out);
            self.obey(out);
            self.deliver();
        }
    }

    /// Another server becomes leader. Waiting answers are not sent; their clients retry, which the next steps do.
    fn begin_life(&mut self) {
        self.life += 1;
        self.grants = CacheLeases::new(*self.grants.settings());
        self.grants.take_over(ms(self.now), (1..=SESSIONS).map(SessionId));
        self.polls.clear();
        for answer in std::mem::take(&mut self.answers).into_values().filter(|answer| answer.is_change) {
            // The change is found done, and answered, when it is retried.
            self.next += 1;
            self.answer(answer, Seq(self.next), Vec::new());
        }
    }

    fn read(&mut self, session: SessionId, key: CacheKey) {
        let began = self.believers[&session].recalls;
        let for_ns = self.grants.give(ms(self.now), session, key);
        let state = self.states.get(&key).copied().unwrap_or(0);
        if for_ns > 0 {
            let until = MonoTime(ms(self.now).0 + for_ns);
            self.send(Message::Granted { session, key, state, until, began });
        }
        self.next += 1;
        self.answer(Answer { to: session, key, state, is_change: false }, Seq(0), Vec::new());
    }

    fn answer(&mut self, answer: Answer, seq: Seq, mut out: Vec<LeaseEffect>) {
        let ticket = AnswerTicket(self.next);
        self.answers.insert(ticket, answer);
        self.grants.answer(ms(self.now), (answer.to, seq), &of(&[answer.key]), ticket, &mut out);
        self.obey(out);
    }

    fn change(&mut self, session: SessionId, key: CacheKey) {
        let at = ms(self.now);
        self.next += 1;
        let by = (session, Seq(self.next));
        let mut out = Vec::new();
        self.grants.change(at, by, &[key], &mut out);
        let state = self.states.entry(key).or_default();
        *state += 1;
        let state = *state;
        *self.believers.entry(session).or_default().unheard.entry(key).or_default() += 1;
        self.answer(Answer { to: session, key, state, is_change: true }, by.1, out);
    }

    fn ask_for_recalls(&mut self, session: SessionId) {
        let sent = ms(self.now);
        if let Some(believer) = self.believers.get_mut(&session) {
            believer.asked = sent;
            let (acked, life) = (believer.acked, believer.life);
            self.send(Message::Asks { session, acked, sent, life });
        }
    }

    fn obey(&mut self, effects: Vec<LeaseEffect>) {
        for effect in effects {
            match effect {
                LeaseEffect::Tell { poll, recall } => {
                    let (session, sent) = self.polls.remove(&poll).expect("a question is answered once");
                    self.send(Message::Recalled { session, recall, sent, life: self.life });
                }
                LeaseEffect::Release(ticket) => {
                    let answer = self.answers.remove(&ticket).expect("an answer goes out once");
                    // No answer is lost for good, and each takes its time.
                    self.network.push((self.now + self.rng.below(60), Message::Answered(answer)));
                }
            }
        }
    }

    fn judge(&self, to: SessionId, key: CacheKey, state: u64) {
        let now = ms(self.now);
        // A kernel keeps a file locked against readers from its own change until the answer has arrived.
        let is_open = |believer: &Believer| believer.unheard.get(&key).is_none_or(|unheard| *unheard == 0);
        for (session, believer) in self.believers.iter().filter(|(session, one)| **session != to || is_open(one)) {
            if let Some((believed, until)) = believer.believed.get(&key)
                && *until > now
            {
                assert!(
                    *believed >= state,
                    "seed {}: at {} session {session} believes state {believed} of {key:?}, {state} was answered",
                    self.seed,
                    self.now
                );
            }
        }
    }

    fn send(&mut self, message: Message) {
        if self.rng.below(10) > 0 {
            self.network.push((self.now + self.rng.below(60), message));
        }
    }

    fn deliver(&mut self) {
        let due: Vec<(u64, Message)> = self.network.extract_if(.., |(at, _)| *at <= self.now).collect();
        for (_, message) in due {
            match message {
                Message::Granted { session, key, state, until, began } => {
                    let believer = self.believers.get_mut(&session).expect("it is known");
                    let good =
                        began >= believer.floor && believer.recalled.get(&key).is_none_or(|recall| *recall <= began);
                    let until = until.min(believer.lease_until);
                    if good {
                        believer.believed.insert(key, (state, until));
                    }
                }
                Message::Answered(Answer { to, key, state, is_change }) => {
                    // A session's own change ends its cached state only when the answer arrives.
                    if let Some(believer) = self.believers.get_mut(&to).filter(|_| is_change) {
                        *believer.unheard.entry(key).or_default() -= 1;
                        believer.believed.remove(&key);
                        believer.recalls += 1;
                        believer.recalled.insert(key, believer.recalls);
                    }
                    self.judge(to, key, state);
                }
                Message::Recalled { session, recall, sent, life } => {
                    let believer = self.believers.get_mut(&session).expect("it is known");
                    // Answers to older polls are closed with their connections.
                    if sent < believer.asked {
                        continue;
                    }
                    believer.recalls += 1;
                    let is_new = believer.life != life;
                    believer.life = life;
                    if recall.everything || is_new {
                        believer.believed.clear();
                        believer.floor = believer.recalls;
                    }
                    let names = recall.directories.iter().map(|inode| CacheKey(inode << 1 | 1));
                    for key in names.chain(recall.files.iter().map(|inode| CacheKey(inode << 1))) {
                        believer.believed.remove(&key);
                        believer.recalled.insert(key, believer.recalls);
                    }
                    if is_new || recall.number > 0 {
                        believer.acked = recall.number;
                    }
                    believer.lease_until = MonoTime(sent.0 + 500 * MS);
                    self.ask_for_recalls(session);
                }
                Message::Asks { session, acked, sent, life } => {
                    let acked = if life == self.life { acked } else { 0 };
                    self.next += 1;
                    let poll = PollId(self.next);
                    self.polls.insert(poll, (session, sent));
                    let mut out = Vec::new();
                    self.grants.poll(ms(self.now), session, poll, acked, &mut out);
                    self.obey(out);
                }
            }
        }
    }
}
