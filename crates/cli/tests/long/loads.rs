//! The loads of the long run: paced, so that half an hour of them fits on a small disk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_base::{Rng, crc32c};
use frieze_client::{
    Client, CreateMode, Durability, ForgetOptions, HistoryInterval, Hlc, OpenFlags, Options, Reason, RenameMode, Target,
};

use frieze_testkit::bytes::random_bytes;
use frieze_testkit::wait::{clock, eventually, patience};

/// What every load is given.
pub(crate) struct Plan<'a> {
    pub(crate) address: String,
    pub(crate) over: &'a AtomicBool,
    /// How long all of it takes.
    pub(crate) whole: Duration,
    /// How many times as many calls a second as by itself.
    pub(crate) pace: u32,
    pub(crate) rng: Rng,
}

/// So many files are written over, of so many bytes each.
const FILES: u64 = 8;
const FILE_BYTES: u64 = 4 << 20;

impl Plan<'_> {
    /// A client for a while: sessions come and go. One that comes while the server is restarted tries again.
    fn client(&self) -> Client {
        eventually("a connection", || {
            let server = self.address.parse().unwrap();
            Client::connect(Options { server, timeout: patience(), ..Options::default() }).ok()
        })
    }

    /// What is older than this is forgotten.
    fn kept(&self) -> Duration {
        self.whole / 10
    }

    /// Runs `call` again and again, at most so many times a second, with a new session now and then; the number of
    /// calls.
    fn again(&mut self, calls_per_s: u32, mut call: impl FnMut(&Client, &mut Rng)) -> u64 {
        let mut calls: u64 = 0;
        let mut due = clock();
        while !self.over.load(Ordering::Relaxed) {
            let client = self.client();
            for _ in 0..self.rng.between(100, 1000) {
                if self.over.load(Ordering::Relaxed) {
                    break;
                }
                call(&client, &mut self.rng);
                calls += 1;
                // What a pause of the machine or a restart kept it from is not made up for: the load is the same all
                // the time.
                due = (due + Duration::from_secs(1) / (calls_per_s * self.pace)).max(clock().saturating_sub(CATCH_UP));
                std::thread::park_timeout(due.saturating_sub(clock()).min(Duration::from_secs(1)));
            }
            client.close().unwrap();
        }
        calls
    }
}

/// So far a load may be behind its pace and still catch up.
const CATCH_UP: Duration = Duration::from_secs(1);

fn path_of(number: u64) -> Target {
    Target::path(format!("/over-{number}"))
}

/// Small writes at random places of a few files, some of them durable at once.
pub(crate) fn overwrite(mut plan: Plan<'_>, which: u64) -> u64 {
    plan.again(50, |client, rng| {
        let durability = if rng.chance(20) { Durability::Sync } else { Durability::Async };
        let fs = client.fs().with_durability(durability);
        let path = path_of(which * FILES + rng.below(FILES));
        let file = fs.create_with(&path, 0o644, CreateMode::OpenExisting, OpenFlags::READ_WRITE).unwrap();
        for _ in 0..rng.between(1, 8) {
            let bytes = random_bytes(rng.next(), rng.between(1, 8000) as usize);
            file.write_at(rng.below(FILE_BYTES), &bytes).unwrap();
        }
        if rng.chance(50) {
            file.set_len(rng.below(FILE_BYTES)).unwrap();
        }
        file.close().unwrap();
    })
}

/// Lines at the end of a file, which is put aside when it is large.
pub(crate) fn append(mut plan: Plan<'_>) -> u64 {
    plan.again(50, |client, rng| {
        let (path, aside) = (Target::path("/lines"), Target::path("/lines.old"));
        let file = client.fs().create(&path, 0o644, CreateMode::OpenExisting).unwrap();
        let reply = file.append(&random_bytes(rng.next(), rng.between(10, 4000) as usize)).unwrap();
        if rng.chance(40) {
            file.sync().unwrap();
        }
        file.close().unwrap();
        if reply.offset > FILE_BYTES {
            client.fs().rename(&path, &aside, RenameMode::Replace).unwrap();
        }
    })
}

/// Files that are made, renamed and removed.
pub(crate) fn come_and_go(mut plan: Plan<'_>) -> u64 {
    let mut there: VecDeque<u64> = VecDeque::new();
    let mut made = 0;
    plan.client().fs().mkdir(&Target::path("/coming"), 0o755).unwrap();
    let path = |number: u64, kind: &str| Target::path(format!("/coming/{number}{kind}"));
    plan.again(25, |client, rng| {
        let fs = client.fs();
        let file = fs.create(&path(made, ".new"), 0o644, CreateMode::Exclusive).unwrap();
        file.write_at(0, &random_bytes(made, rng.between(1, 6000) as usize)).unwrap();
        file.close().unwrap();
        fs.rename(&path(made, ".new"), &path(made, ""), RenameMode::NoReplace).unwrap();
        there.push_back(made);
        made += 1;
        if there.len() > 200 {
            let oldest = there.pop_front().expect("there are many");
            fs.unlink(&path(oldest, "")).unwrap();
        }
    })
}

/// Asks about instants of the past, and again later: the answer is the same, or that it was forgotten.
pub(crate) fn read_the_past(mut plan: Plan<'_>) -> u64 {
    let (kept, mut known) = (plan.kept(), VecDeque::new());
    plan.again(20, |client, rng| {
        let now = client.now().unwrap();
        let at = Hlc::first_of_micros(now.micros() - rng.below(kept.as_micros() as u64));
        let question = rng.below(FILES * 2 + 3);
        known.push_back((at, question, ask(client, at, question)));
        if known.len() > 500 {
            known.pop_front();
        }
        let (at, question, before) = &known[rng.below(known.len() as u64) as usize];
        let again = ask(client, *at, *question);
        assert!(again == *before || again == FORGOTTEN, "question {question} at {at}: {before:?} became {again:?}");
    })
}

type Answer = (u64, u32);
const FORGOTTEN: Answer = (u64::MAX, 1);
const NOT_THERE: Answer = (u64::MAX, 2);

fn ask(client: &Client, at: Hlc, question: u64) -> Answer {
    let fs = client.fs().at(at);
    let told = match question {
        0 => fs.entries_with_attrs(&Target::path("/coming")).map(|entries| format!("{entries:?}").into_bytes()),
        1 => {
            let after = Hlc::first_of_micros(at.micros().saturating_sub(100_000));
            let diff = fs.diff(&Target::path("/"), HistoryInterval { after, upto: at }, 0, 0);
            diff.map(|reply| format!("{:?}", reply.differences).into_bytes())
        }
        2 => fs.stat(&Target::path("/lines")).map(|reply| format!("{:?}", reply.attr).into_bytes()),
        number => fs.open(&path_of(number - 3), OpenFlags::READ).and_then(|file| {
            // A piece of it, that the question alone decides.
            let mut bytes = vec![0; 256 << 10];
            let len = file.read_at(at.0 % FILE_BYTES / 4096 * 4096, &mut bytes)?;
            bytes.truncate(len);
            Ok(bytes)
        }),
    };
    match told {
        Ok(bytes) => (bytes.len() as u64, crc32c(&bytes)),
        Err(error) if error.reason() == Reason::HistoryExpired => FORGOTTEN,
        Err(error) if error.reason() == Reason::NotFound => NOT_THERE,
        Err(error) => panic!("question {question} at {at}: {error}"),
    }
}

/// Gives up what is older than a tenth of the time, twenty times.
pub(crate) fn forget_the_old(plan: Plan<'_>) -> u64 {
    let (began, kept) = (clock(), plan.kept());
    let mut done = 0;
    while !plan.over.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_millis(100));
        if clock() - began < kept + plan.whole * done / 20 {
            continue;
        }
        let client = plan.client();
        let before = Hlc::first_of_micros(client.now().unwrap().micros() - kept.as_micros() as u64);
        match client.fs().forget(&Target::path("/"), before, ForgetOptions::default()) {
            Ok(_) => {}
            // Before the file system was made.
            Err(error) => assert_eq!(error.reason(), Reason::HistoryExpired, "{error}"),
        }
        client.close().unwrap();
        done += 1;
    }
    u64::from(done)
}
