//! A watch through the loss of servers: it misses nothing, and says the same as any other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frieze_base::Rng;
use frieze_client::{Client, CreateMode, Difference, Hlc, RenameMode, Target, WatchItem};
use frieze_testkit::wait::{SetOnDrop, pass, patience};

use super::served_cluster::ServedCluster;

/// What one watch said.
#[derive(Default)]
struct Lines {
    events: Vec<Difference>,
    marks: Vec<Hlc>,
}

impl Lines {
    fn add(&mut self, item: WatchItem) {
        match item {
            WatchItem::Event { change, .. } => {
                let resolved = self.marks.last().copied().unwrap_or_default();
                assert!(change.stamp > resolved.0, "an event follows a mark that it is not after: {change:?}");
                self.events.push(*change);
            }
            WatchItem::Resolved(at) => {
                assert!(self.marks.last().is_none_or(|before| *before < at));
                self.marks.push(at);
            }
            other => panic!("nothing was forgotten, hidden or removed: {other:?}"),
        }
    }
}

/// Follows the changes of `/in` from `from` on until a mark at or after `end()`.
fn follow(client: &Client, from: Hlc, end: &dyn Fn() -> Option<Hlc>) -> Lines {
    let (mut lines, mut watch) = (Lines::default(), client.fs().watch(&Target::path("/in"), from).unwrap());
    loop {
        // A watch that waits is asked again now and then, for the end of the test.
        if let Some(item) = watch.next(Duration::from_millis(200)).unwrap() {
            lines.add(item);
        }
        if end().is_some_and(|end| watch.resolved() >= end) {
            return lines;
        }
    }
}

/// Makes, writes, moves and removes files in `/in` and `/out` until `stop`; returns the names of those that it made.
fn change(client: &Client, stop: &AtomicBool) -> BTreeSet<String> {
    let (fs, mut rng, mut made, mut count) = (client.fs(), Rng::new(0x4a7c), BTreeSet::new(), 0u64);
    let mut there: Vec<String> = Vec::new();
    while !stop.load(Ordering::Acquire) {
        match rng.below(6) {
            0 | 1 => {
                let name = format!("/in/{count}");
                count += 1;
                fs.create(&Target::path(&*name), 0o644, CreateMode::Exclusive).unwrap().close().unwrap();
                made.insert(name.clone());
                there.push(name);
            }
            2 | 3 if !there.is_empty() => {
                let file = fs.open(&Target::path(&**rng.choose(&there)), frieze_client::OpenFlags::WRITE).unwrap();
                for part in 0..rng.below(4) {
                    file.write_at(part * 100 + rng.below(100), b"some bytes").unwrap();
                }
                file.close().unwrap();
            }
            4 if !there.is_empty() => {
                let index = rng.below(there.len() as u64) as usize;
                let new = format!("{}/m{count}", if rng.below(2) == 0 { "/in" } else { "/out" });
                count += 1;
                fs.rename(&Target::path(&*there[index]), &Target::path(&*new), RenameMode::Replace).unwrap();
                there[index] = new;
            }
            5 if there.len() > 20 => {
                let name = there.swap_remove(rng.below(there.len() as u64) as usize);
                fs.unlink(&Target::path(&*name)).unwrap();
            }
            _ => {}
        }
    }
    made
}

#[test]
fn any_two_watches_say_the_same_up_to_a_mark_through_the_kill_of_every_server() {
    let mut cluster = ServedCluster::of(3);
    cluster.await_whole(0);
    let writer = cluster.client(1);
    writer.fs().mkdir(&Target::path("/in"), 0o777).unwrap();
    writer.fs().mkdir(&Target::path("/out"), 0o777).unwrap();
    let from = writer.now().unwrap();
    let (stop, end) = (AtomicBool::new(false), std::sync::OnceLock::new());
    let watchers: Vec<Client> = (0..3).map(|number| cluster.client(number)).collect();
    let (made, watched) = std::thread::scope(|scope| {
        let _ends = SetOnDrop(&stop);
        let end = &end;
        let stop = &stop;
        let until = move || end.get().copied().or_else(|| stop.load(Ordering::Acquire).then_some(Hlc::ZERO));
        let changes = scope.spawn(|| change(&writer, stop));
        let watches: Vec<_> = watchers.iter().map(|client| scope.spawn(move || follow(client, from, &until))).collect();
        // The leader first.
        for number in 0..3 {
            pass(Duration::from_millis(400));
            cluster.kill(number);
            pass(Duration::from_millis(400));
            cluster.start_again(number);
            cluster.await_whole((number + 1) % 3);
        }
        let _ = end.set(writer.now().unwrap());
        stop.store(true, Ordering::Release);
        let made = changes.join().unwrap();
        (made, watches.into_iter().map(|watch| watch.join().unwrap()).collect::<Vec<_>>())
    });
    let end = *end.get().unwrap();
    // Later, from the log alone.
    let mut again = Lines::default();
    let mut watch = cluster.client(2).fs().watch(&Target::path("/in"), from).unwrap().until(end);
    while let Some(item) = watch.next(patience()).unwrap() {
        again.add(item);
    }
    assert!(watch.has_ended() && watch.resolved() == end);
    assert!(!again.events.is_empty() && made.len() > 3, "the load ran");
    let upto = |lines: &Lines, at: Hlc| -> Vec<Difference> {
        lines.events.iter().filter(|event| event.stamp <= at.0).cloned().collect()
    };
    for lines in &watched {
        let mark = *lines.marks.iter().rfind(|mark| **mark <= end).unwrap();
        assert_eq!(upto(lines, mark), upto(&again, mark));
        assert!(lines.marks.len() > 3, "marks come while something happens: {:?}", lines.marks);
    }
    let created: Vec<String> = again
        .events
        .iter()
        .filter(|event| event.before.is_none() && event.after.as_ref().is_some_and(|side| side.born == event.stamp))
        .map(|event| String::from_utf8(event.after.as_ref().unwrap().path.clone()).unwrap())
        .collect();
    assert_eq!(created.len(), created.iter().collect::<BTreeSet<_>>().len(), "each creation is one event");
    let missing: Vec<&String> = made.iter().filter(|name| !created.contains(name)).collect();
    assert!(missing.is_empty(), "an acknowledged file that no event says: {missing:?}");
    // From a mark in the middle it is the rest.
    let middle = watched[0].marks[watched[0].marks.len() / 2];
    let mut rest = Lines::default();
    let mut watch = cluster.client(0).fs().watch(&Target::path("/in"), middle).unwrap().until(end);
    while let Some(item) = watch.next(patience()).unwrap() {
        rest.add(item);
    }
    let expected: Vec<Difference> = again.events.iter().filter(|event| event.stamp > middle.0).cloned().collect();
    assert_eq!(rest.events, expected);
}
