//! A device that fails while it serves: an error in words, no lost durable write, no wrong byte, now and after a
//! restart.

use frieze_base::Rng;
use frieze_testkit::bytes::random_bytes;

use super::*;

/// Every file as it is, and states of before that were answered.
#[derive(Default)]
struct Model {
    now: BTreeMap<String, Vec<u8>>,
    /// Stamp, path and what was answered: it never changes.
    past: Vec<(u64, String, Vec<u8>)>,
}

const FILES: [&str; 3] = ["/a", "/b", "/c"];
/// Two chunks and a part of a third.
const LEN_MAX: u64 = 150_000;

fn is_of_the_device(fault: &Fault) -> bool {
    let words = &fault.message;
    matches!(fault.reason, Reason::InputOutput | Reason::Unavailable) && words.len() > 10
}

impl Model {
    /// One operation of a client; a failed one has no effect.
    fn step(&mut self, client: &mut TestConnection, capabilities: &BTreeMap<&str, Vec<u8>>, rng: &mut Rng) {
        let path = *rng.choose(&FILES);
        match rng.below(8) {
            0..=4 => {
                let (offset, len) = (rng.below(LEN_MAX - 40_000), rng.between(1, 40_000));
                let bytes = random_bytes(rng.next(), len as usize);
                match client.write(&capabilities[path], Some(offset), &bytes) {
                    Ok(_) => {
                        let file = self.now.get_mut(path).unwrap();
                        file.resize(file.len().max((offset + len) as usize), 0);
                        file[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
                    }
                    Err(fault) => assert!(is_of_the_device(&fault), "{fault:?}"),
                }
            }
            5 => match client.try_truncate(path, 70_000) {
                Ok(_) => self.now.get_mut(path).unwrap().resize(70_000, 0),
                Err(fault) => assert!(is_of_the_device(&fault), "{fault:?}"),
            },
            6 => match client.read(path, View::NOW) {
                Ok(bytes) => assert!(bytes == self.now[path], "{path} shows bytes that nobody wrote"),
                Err(fault) => assert!(is_of_the_device(&fault), "{fault:?}"),
            },
            _ => {
                let stamp = client.server.newest().0;
                match client.at(path, stamp) {
                    Ok(bytes) => {
                        assert!(bytes == self.now[path], "{path} at {stamp}");
                        self.past.push((stamp, path.to_owned(), bytes));
                    }
                    Err(fault) => assert!(is_of_the_device(&fault), "{fault:?}"),
                }
            }
        }
    }

    fn check(&self, seed: u64, client: &mut TestConnection) {
        for (path, bytes) in &self.now {
            let found = client.read(path, View::NOW).unwrap();
            let differs = found.iter().zip(bytes).position(|(is, was)| is != was);
            let (is, was) = (found.len(), bytes.len());
            assert!(found == *bytes, "{seed}: {path} now has {is} bytes, had {was}, differs at {differs:?}");
        }
        for (stamp, path, bytes) in &self.past {
            assert!(client.at(path, *stamp).unwrap() == *bytes, "{path} at {stamp}");
        }
    }
}

/// A server with three files, and the right to write to them.
fn with_files(machine: &SimMachine) -> (TestConnection, BTreeMap<&'static str, Vec<u8>>, Model) {
    let mut client = machine.serve();
    let mut model = Model::default();
    let mut capabilities = BTreeMap::new();
    for path in FILES {
        client.make(path);
        capabilities.insert(path, client.open(path).unwrap());
        model.now.insert(path.to_owned(), Vec::new());
    }
    (client, capabilities, model)
}

#[test]
fn under_device_faults_no_wrong_byte_is_read_and_acknowledged_writes_stay() {
    let (mut refused, mut read_only) = (0, 0);
    for seed in 0..150 {
        let mut machine = SimMachine::new(7);
        machine.disk = SimDisk::new(seed);
        let mut rng = Rng::new(seed);
        let (mut client, capabilities, mut model) = with_files(&machine);
        for _ in 0..40 {
            match rng.below(10) {
                0 => machine.disk.fail_writes(rng.below(3) as u32, rng.between(1, 3) as u32),
                1 => machine.disk.fail_reads(1),
                2 if seed % 3 == 0 && rng.chance(4) => machine.disk.fail_syncs(1),
                3 => {
                    let flushed = client.server.flush();
                    read_only += u32::from(flushed.is_err());
                }
                _ => {}
            }
            let before = model.now.clone();
            model.step(&mut client, &capabilities, &mut rng);
            refused += u32::from(before == model.now);
        }
        // Faults stop. What was acknowledged survives the death of the process, and what was refused stays away.
        machine.disk.crash(CrashKind::Process);
        drop(client);
        machine.disk.fail_syncs(0);
        machine.disk.restart();
        machine.time.advance_us(1_000_000);
        let mut client = machine.serve();
        model.check(seed, &mut client);
        assert_eq!(client.server.check_up().found(), 0, "seed {seed}: {:?}", client.server.check_up());
    }
    assert!(refused > 500 && read_only > 20, "{refused} changes were refused, {read_only} flushes");
}

#[test]
fn a_write_that_the_device_refused_does_not_come_back_after_a_crash() {
    for seed in 0..60 {
        let mut machine = SimMachine::new(7);
        machine.disk = SimDisk::new(seed);
        let (mut client, capabilities, _) = with_files(&machine);
        client.write(&capabilities["/a"], Some(0), b"first").unwrap();
        // A write over two chunks has two records: the first, the second or the last part of one fails.
        machine.disk.fail_writes((seed % 2) as u32, 1);
        let fault = client.write(&capabilities["/a"], Some(60_000), &random_bytes(seed, 10_000)).unwrap_err();
        assert_eq!(fault.reason, Reason::InputOutput);
        assert!(fault.message.contains("cannot write"), "{}", fault.message);
        let stamp = client.server.newest().0;
        assert_eq!(client.at("/a", stamp).unwrap(), b"first");
        machine.disk.crash(CrashKind::Process);
        drop(client);
        machine.disk.restart();
        let mut client = machine.serve();
        assert!(client.at("/a", stamp).unwrap() == b"first", "seed {seed}: an answer at an instant has changed");
        assert!(client.read("/a", View::NOW).unwrap() == b"first", "seed {seed}");
    }
}

#[test]
fn a_read_that_the_device_refuses_is_reported_and_harms_no_other_read() {
    let machine = SimMachine::new(7);
    let (mut client, capabilities, _) = with_files(&machine);
    let bytes = random_bytes(1, 60_000);
    client.write(&capabilities["/a"], Some(0), &bytes).unwrap();
    client.write(&capabilities["/b"], Some(0), b"other").unwrap();
    let (name, at) = machine.find(&bytes[..64]);
    machine.disk.wear_out(&name, at + 20_000..at + 20_001).unwrap();
    for _ in 0..2 {
        let fault = client.read("/a", View::NOW).unwrap_err();
        assert_eq!(fault.reason, Reason::InputOutput);
        assert!(fault.message.contains("cannot read seg-"), "{}", fault.message);
        assert_eq!(client.read("/b", View::NOW).unwrap(), b"other");
    }
    // Written again, it is whole.
    client.write(&capabilities["/a"], Some(0), &bytes).unwrap();
    assert!(client.read("/a", View::NOW).unwrap() == bytes);
}

#[test]
fn a_device_that_cannot_be_read_at_a_start_is_reported_and_not_changed() {
    let machine = SimMachine::new(7);
    let (mut client, capabilities, _) = with_files(&machine);
    let bytes = random_bytes(1, 60_000);
    client.write(&capabilities["/a"], Some(0), &bytes).unwrap();
    client.fsync();
    drop(client);
    let meta = machine.disk.list().unwrap().into_iter().find(|name| name.starts_with("raft-")).unwrap();
    for (name, bytes_of) in [("seg-0000000000000001", 0..1), (meta.as_str(), 0..1), ("state", 0..8192)] {
        let before = machine.disk.open(name).unwrap();
        let mut all = vec![0; before.len().unwrap() as usize];
        before.read_at(0, &mut all).unwrap();
        machine.disk.wear_out(name, bytes_of.clone()).unwrap();
        let fault = machine.try_serve().err().expect("it cannot serve what it cannot read");
        assert_eq!(fault.reason, Reason::InputOutput, "{name}: {}", fault.message);
        assert!(fault.message.contains(name), "{name}: {}", fault.message);
        // The device can be read again: written as it was.
        machine.disk.open(name).unwrap().write_at(0, &[&all[..bytes_of.end as usize]]).unwrap();
        let mut client = machine.serve();
        assert!(client.read("/a", View::NOW).unwrap() == bytes, "{name}");
    }
}

#[test]
fn names_leave_space_for_removals_and_for_a_start() {
    let mut machine = SimMachine::new(8);
    machine.settings.reserve_bytes = 64 << 20;
    let mut client = machine.serve();
    client.make("/there");
    client.make("/other");
    let used = machine.disk.space().unwrap();
    let used = used.capacity_bytes - used.free_bytes;
    let spares =
        |machine: &SimMachine| machine.disk.list().unwrap().iter().filter(|name| name.starts_with("spare")).count();
    client.fsync();
    let all = spares(&machine);
    assert!(all > 0);
    machine.disk.set_capacity(used + (5 << 20));
    client.fsync();
    let kind = || MakeKind::File(true);
    let fault = client.try_make("/more", kind(), true).unwrap_err();
    assert_eq!(fault.reason, Reason::NoSpace);
    assert!(fault.message.starts_with("no space for more names: 5 MiB free"), "{}", fault.message);
    let at = client.server.newest().0;
    assert_eq!(client.clone_tree("/there", at, "/copy").unwrap_err().reason, Reason::NoSpace);
    client.try_make("/there", kind(), true).expect("it is opened, not made");
    client.remove("/other", false).expect("names may become fewer");
    client.truncate("/there", 0);
    assert_eq!(spares(&machine), all);
    drop(client);
    // Another program uses up the rest.
    machine.disk.set_capacity(used);
    let mut client = machine.serve();
    assert_eq!(spares(&machine), all - 1, "what is not data has its space");
    client.remove("/there", false).expect("names may become fewer");
    machine.disk.set_capacity(u64::MAX / 2);
    client.try_make("/more", kind(), true).expect("there is space again, at once");
}
