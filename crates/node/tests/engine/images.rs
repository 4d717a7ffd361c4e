//! Images, from outside: they change no read, survive a restart, make room for data, and expire.

use frieze_base::Rng;
use frieze_wire::message::ImageStatus;

use super::sharing::{Model, check_states, play};
use super::*;

/// A machine with images of everything, at once.
fn eager(pieces_max: u32) -> Machine {
    let mut machine = Machine::new();
    machine.settings.image_percent = 10_000;
    machine.settings.image_pieces_max = pieces_max;
    machine.settings.image_delay = std::time::Duration::ZERO;
    machine.settings.session_timeout = std::time::Duration::from_secs(3600);
    machine
}

fn image_files(machine: &Machine) -> Vec<String> {
    machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("image-")).collect()
}

/// Every byte of the image files.
fn image_bytes(machine: &Machine) -> Vec<u8> {
    let mut all = Vec::new();
    for name in image_files(machine) {
        let file = machine.disk.open(&name).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        all.extend(bytes);
    }
    all
}

/// Makes everything durable and all images that are due.
fn make_images(served: &mut Served) {
    served.open_session();
    served.fsync();
    served.engine.service.upkeep.reclaim().unwrap();
    while served.engine.service.upkeep.image(&|_| true).unwrap() {}
}

fn status(served: &mut Served) -> ImageStatus {
    let Ok(Reply::Status(status)) = served.ask(Request::Status(Status {})) else { panic!("no status") };
    *status.images.unwrap()
}

/// Small writes into the first two chunks of files, by chance; what each state of each file is.
fn scribble(served: &mut Served, paths: &[&str], writes: u64, rng: &mut Rng) -> Vec<(String, u64, Vec<u8>)> {
    let files: Vec<Vec<u8>> = paths.iter().map(|path| served.make(path)).collect();
    let mut now = vec![Vec::new(); paths.len()];
    let mut states = Vec::new();
    for _ in 0..writes {
        let which = rng.below(paths.len() as u64) as usize;
        let (offset, len) = (rng.below(60_000), rng.between(1, 900));
        let bytes = pattern(len as usize, rng.below(250) as u8);
        let (stamp, _) = served.write(&files[which], Some(offset), &bytes).unwrap();
        let file: &mut Vec<u8> = &mut now[which];
        let end = (offset + len) as usize;
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(&bytes);
        states.push((paths[which].to_owned(), stamp, file.clone()));
    }
    states
}

/// Lets the session write the first chunks of a file.
fn grant(served: &mut Served, inode: u64, chunks: u32) {
    for first in (0..chunks).step_by(16) {
        served.txn(Op::Grant(frieze_wire::txn::Grant { inode, first, count: 16 })).unwrap();
    }
}

/// Makes the log large, so that images may take much.
fn pad(served: &mut Served) {
    let file = served.make("/padding");
    let inode = served.stat("/padding", View::NOW).unwrap().attr.inode;
    grant(served, inode, 16);
    for part in 0..4u64 {
        served.write(&file, Some(part << 18), &pattern(1 << 18, 7)).unwrap();
    }
}

fn check(served: &mut Served, states: &[(String, u64, Vec<u8>)]) {
    for (path, stamp, bytes) in states {
        assert!(served.at(path, *stamp).unwrap() == *bytes, "{path} at {stamp}");
    }
}

#[test]
fn every_state_reads_as_before_and_images_outlive_a_restart() {
    let machine = eager(4);
    let mut served = machine.serve();
    let states = scribble(&mut served, &["/f", "/g"], 500, &mut Rng::new(1));
    assert_eq!(status(&mut served).pieces_most, 0, "nothing was looked at");
    make_images(&mut served);
    let told = status(&mut served);
    assert!((100..300).contains(&told.count), "{} images", told.count);
    assert_eq!((told.pieces_max, told.pieces_most, told.wishes), (4, 4, 0));
    assert!(told.looked_upto >= states.last().unwrap().1);
    assert!(told.bytes >= told.count * (68 << 10) && told.bytes <= told.bytes_max);
    check(&mut served, &states);
    assert_eq!(status(&mut served).wishes, 0, "no page was read in more pieces");
    drop(served);
    let mut served = machine.serve();
    assert_eq!(status(&mut served).count, told.count);
    check(&mut served, &states);
    make_images(&mut served);
    let again = status(&mut served);
    assert_eq!((again.count, again.lost), (told.count, 0));
    assert!(again.looked_upto >= told.looked_upto);
    assert_eq!(served.engine.service.upkeep.mended(), [""; 0]);
    // Without any, they are made again when they are read.
    for name in image_files(&machine) {
        machine.disk.remove(&name).unwrap();
    }
    drop(served);
    let mut served = machine.serve();
    assert_eq!(status(&mut served).count, 0);
    check(&mut served, &states);
    let wishes = status(&mut served).wishes;
    assert!(wishes > 400, "{wishes} states are wanted");
    make_images(&mut served);
    let made = status(&mut served);
    assert!(made.wishes == 0 && made.count >= told.count, "{made:?}");
    check(&mut served, &states);
    assert_eq!(status(&mut served).wishes, 0);
}

#[test]
fn edits_that_share_cut_and_bring_back_read_the_same_through_images() {
    for seed in 0..3 {
        let machine = eager(2);
        let mut served = machine.serve();
        let mut rng = Rng::new(seed);
        served.mkdir("/a");
        served.mkdir("/b");
        let mut model = Model::empty(served.engine.planes.newest().0);
        for round in 0..250 {
            play(&mut served, &mut model, &mut rng);
            if rng.chance(6) {
                make_images(&mut served);
            }
            if round % 50 == 49 {
                check_states(&mut served, &model, &mut rng, 10);
                drop(served);
                served = machine.serve();
            }
        }
        assert!(status(&mut served).count > 20, "{:?}", status(&mut served));
        check_states(&mut served, &model, &mut rng, 60);
        assert_eq!(served.engine.service.upkeep.mended(), [""; 0]);
    }
}

#[test]
fn damaged_images_are_given_up_said_and_never_believed() {
    let machine = eager(4);
    let mut served = machine.serve();
    let states = scribble(&mut served, &["/f", "/g"], 300, &mut Rng::new(2));
    make_images(&mut served);
    let images = status(&mut served).count;
    let flip_all = |from: u64, step: u64| {
        for name in image_files(&machine) {
            let len = machine.disk.open(&name).unwrap().len().unwrap();
            for at in (from..len).step_by(step as usize) {
                machine.disk.flip_bit(&name, at, 3).unwrap();
            }
        }
    };
    // In every block of every page.
    flip_all(8192 + 4096 + 77, 4096);
    check(&mut served, &states);
    let told = status(&mut served);
    assert!(told.count < images / 2 && told.lost > images / 2, "{told:?}");
    let words = served.engine.service.upkeep.mended();
    assert_eq!(words.len() as u64, told.lost);
    assert!(words[0].contains("given up") && words[0].contains("page 0 of chunk"), "{words:?}");
    make_images(&mut served);
    check(&mut served, &states);
    // A scrub finds images that no reader uses: nothing is lost.
    let found = served.engine.check_up();
    assert!(found.scrub.findings.is_empty(), "{found:?}");
    drop(served);
    // In the directory: the restart finds it, and a check names it.
    for name in image_files(&machine) {
        machine.disk.flip_bit(&name, 4096 + 10, 1).unwrap();
    }
    let mut served = machine.serve();
    assert!(served.engine.notes().iter().any(|note| note.contains("the records say the same")));
    assert!(served.engine.check_up().notes.iter().any(|words| words.contains("of the images in image-")));
    check(&mut served, &states);
    drop(served);
    // In the head of a file.
    for name in image_files(&machine) {
        machine.disk.flip_bit(&name, 9, 1).unwrap();
    }
    let mut served = machine.serve();
    assert!(served.engine.notes().iter().any(|note| note.contains("are given up")), "{:?}", served.engine.notes());
    assert_eq!((status(&mut served).count, image_files(&machine).len()), (0, 0));
    check(&mut served, &states);
}

#[test]
fn a_scrub_gives_up_what_is_damaged_and_a_worn_image_is_no_error() {
    let machine = eager(4);
    let mut served = machine.serve();
    let states = scribble(&mut served, &["/f"], 200, &mut Rng::new(3));
    make_images(&mut served);
    let images = status(&mut served).count;
    let name = image_files(&machine).remove(0);
    machine.disk.wear_out(&name, 8192 + 8192..8192 + 8192 + 100).unwrap();
    machine.disk.flip_bit(&name, 8192 + 69_632 + 10_000, 0).unwrap();
    let found = served.engine.check_up();
    assert_eq!((found.wrong.len(), found.scrub.findings.len()), (2, 0), "{found:?}");
    assert_eq!(status(&mut served).count, images - 2);
    check(&mut served, &states);
    make_images(&mut served);
    assert_eq!(served.engine.check_up().wrong, [""; 0]);
}

#[test]
fn what_is_forgotten_is_in_no_image() {
    let mut machine = eager(3);
    let mut served = machine.serve();
    let secret = b"nobody is to read this again";
    pad(&mut served);
    let file = served.make("/f");
    let other = served.make("/other");
    for round in 0..40u64 {
        served.write(&file, Some(round * 900), secret).unwrap();
        served.write(&other, Some(round * 700), b"this stays as it is").unwrap();
    }
    let truncate = SetAttr { target: Target::path("/f"), size: Some(500), ..SetAttr::default() };
    served.txn(Op::SetAttr(truncate)).unwrap();
    let mut states = Vec::new();
    for round in 0..60u64 {
        let (stamp, _) = served.write(&file, Some(round * 431 % 20_000), &[round as u8 + 1; 300]).unwrap();
        states.push(("/f".to_owned(), stamp, served.at("/f", stamp).unwrap()));
    }
    make_images(&mut served);
    let holds = |machine: &Machine, bytes: &[u8]| {
        let all = image_bytes(machine);
        all.windows(bytes.len()).any(|window| window == bytes)
    };
    assert!(holds(&machine, secret) && holds(&machine, b"this stays as it is"));
    let before = status(&mut served).count;
    let then = states[10].1;
    served.close();
    let reply = served.forget("/f", then);
    assert!(reply.bytes > 0);
    machine.lose_power();
    assert!(!holds(&machine, secret), "what was cut off by a truncate is gone too, and no crash brings it back");
    assert!(holds(&machine, b"this stays as it is"));
    let mut served = machine.serve();
    served.engine.service.upkeep.reclaim().unwrap();
    let told = status(&mut served);
    assert!(told.count < before && told.count > 10, "{} of {before}", told.count);
    check(&mut served, &states[10..]);
    assert_eq!(served.at("/f", states[9].1).unwrap_err().reason, Reason::HistoryExpired);
    // Made again where they are wanted, they hold nothing of it; and a restart keeps them.
    make_images(&mut served);
    check(&mut served, &states[10..]);
    make_images(&mut served);
    assert!(!holds(&machine, secret));
    let images = status(&mut served).count;
    drop(served);
    let mut served = machine.serve();
    make_images(&mut served);
    assert_eq!(status(&mut served).count, images);
    check(&mut served, &states[10..]);
    assert_eq!(served.engine.check_up().wrong, [""; 0]);
}

#[test]
fn a_forgetting_that_cannot_wipe_images_is_not_acknowledged() {
    let mut machine = eager(3);
    let mut served = machine.serve();
    let secret = b"nobody is to read this again";
    pad(&mut served);
    let file = served.make("/f");
    for round in 0..40u64 {
        served.write(&file, Some(round * 900), secret).unwrap();
    }
    let (then, _) = served.write(&file, Some(0), &pattern(50_000, 1)).unwrap();
    make_images(&mut served);
    served.close();
    served.engine.planes.flush().unwrap();
    let holds = |machine: &Machine| image_bytes(machine).windows(secret.len()).any(|window| window == secret);
    assert!(holds(&machine));
    // Whatever the device dies of on the way: either it was not said, or nothing of it is left.
    for changes in 1..80 {
        let copy = Machine {
            disk: machine.disk.clone(),
            time: machine.time.clone(),
            store: machine.store.clone(),
            boot: machine.boot,
            settings: machine.settings.clone(),
        };
        machine.disk.fail_after(changes);
        served.open_session_if_it_can();
        served.seq += 1;
        let ask = frieze_wire::forget::Forget {
            target: Target::path("/f"),
            before: then,
            dry_run: false,
            with_snapshots: false,
        };
        let id = served.send(Request::Forget(ask), &[], served.seq);
        let said = matches!(served.answer(id), Some((Ok(_), _)));
        drop(served);
        machine = copy;
        machine.lose_power();
        if said {
            assert!(!holds(&machine), "after {changes} changes");
        }
        served = machine.serve();
        served.engine.service.upkeep.reclaim().unwrap();
        if served.at("/f", then - 1).is_err() {
            assert!(!holds(&machine), "found again after {changes} changes");
            return;
        }
    }
    panic!("it never came to forgetting");
}

#[test]
fn images_give_way_to_data_and_keep_to_their_space() {
    let mut machine = eager(3);
    let mut served = machine.serve();
    let states = scribble(&mut served, &["/f", "/g"], 900, &mut Rng::new(5));
    make_images(&mut served);
    let told = status(&mut served);
    assert!(told.count > 300);
    // A full disk: data goes where images were.
    let used = machine.disk.space().unwrap();
    machine.disk.set_capacity(used.capacity_bytes - used.free_bytes + machine.settings.reserve_bytes);
    let file = served.make("/large");
    let inode = served.stat("/large", View::NOW).unwrap().attr.inode;
    grant(&mut served, inode, 1600);
    let mut written = 0u64;
    while served.write(&file, Some(written), &pattern(1 << 20, 1)).is_ok() {
        served.engine.planes.flush().unwrap();
        written += 1 << 20;
    }
    assert!(written > 14 << 20, "{written} bytes");
    assert!(image_files(&machine).is_empty(), "{:?}", image_files(&machine));
    check(&mut served, &states[..100]);
    while served.engine.service.upkeep.image(&|_| true).unwrap() {}
    assert!(image_files(&machine).is_empty(), "there is no room");
    drop(served);
    // Little space: the most useful stay, and the worst case is reported.
    machine.disk.set_capacity(u64::MAX / 2);
    machine.settings.image_percent = 8;
    let mut served = machine.serve();
    make_images(&mut served);
    let told = status(&mut served);
    assert!(told.count > 0 && told.bytes <= told.bytes_max, "{told:?}");
    assert!(told.pieces_most > 20, "{told:?}");
    let read = &states[700];
    for _ in 0..2 {
        served.at(&read.0, read.1).unwrap();
        make_images(&mut served);
    }
    check(&mut served, std::slice::from_ref(read));
    assert_eq!(status(&mut served).wishes, 0, "what is read has its image");
    for state in &states[..200] {
        served.at(&state.0, state.1).unwrap();
        make_images(&mut served);
    }
    let told = status(&mut served);
    assert!(told.bytes <= told.bytes_max, "{told:?}");
    drop(served);
    // Space again: what was missing is made.
    machine.settings.image_percent = 10_000;
    let mut served = machine.serve();
    make_images(&mut served);
    let told = status(&mut served);
    assert_eq!(told.pieces_most, 3, "{told:?}");
    check(&mut served, &states);
    drop(served);
    machine.settings.image_percent = 0;
    let mut served = machine.serve();
    make_images(&mut served);
    assert!(image_files(&machine).is_empty());
    check(&mut served, &states[..100]);
    assert_eq!(status(&mut served).wishes, 0);
}

#[test]
fn more_wishes_than_are_kept_change_nothing_else() {
    let mut machine = eager(2);
    machine.settings.chunk_bytes = 64 << 10;
    let mut served = machine.serve();
    pad(&mut served);
    let file = served.make("/f");
    let inode = served.stat("/f", View::NOW).unwrap().attr.inode;
    grant(&mut served, inode, 1100);
    for part in 0..3u64 {
        for chunk in 0..1100u64 {
            served.write(&file, Some(chunk * (64 << 10) + part * 50), &[part as u8 + 1; 40]).unwrap();
        }
    }
    let Ok(Reply::Open(open)) = served.ask(Request::Open(Open {
        target: Target::path("/f"),
        view: View::NOW,
        read: true,
        write: false,
        made_at: 0,
    })) else {
        panic!("no open file")
    };
    let read = |served: &mut Served| {
        let mut all = 0u64;
        for at in (0..1100u64 << 16).step_by(1 << 20) {
            let read = Read {
                capability: open.capability.clone(),
                offset: at,
                len: 1 << 20,
                in_steps: false,
                ..Read::default()
            };
            let id = served.send(Request::Read(read), &[], 0);
            let (reply, payload) = served.answer(id).unwrap();
            reply.unwrap();
            all += payload.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        all
    };
    assert_eq!(read(&mut served), 1100 * 40 * (1 + 2 + 3));
    assert_eq!(status(&mut served).wishes, 1024, "and no more");
    make_images(&mut served);
    assert_eq!(read(&mut served), 1100 * 40 * (1 + 2 + 3));
    assert_eq!(status(&mut served).wishes, 0);
}

#[test]
fn no_crash_while_images_are_made_shows_anywhere() {
    let mut machine = eager(3);
    let mut served = machine.serve();
    let states = scribble(&mut served, &["/f", "/g"], 300, &mut Rng::new(6));
    served.fsync();
    let mut crashes = 0;
    for round in 0..40u64 {
        served.engine.service.upkeep.reclaim().unwrap();
        machine.disk.fail_after(round * 7 + 1);
        let made = served.engine.service.upkeep.image(&|_| true);
        crashes += u32::from(made.is_err());
        drop(served);
        machine.lose_power();
        served = machine.serve();
        check(&mut served, &states[..40]);
        let found = served.engine.check_up();
        assert_eq!((found.wrong, found.scrub.findings.len()), (Vec::<String>::new(), 0), "round {round}");
    }
    assert!(crashes > 10, "{crashes} times the device stopped");
    make_images(&mut served);
    assert_eq!(status(&mut served).pieces_most, 3);
    check(&mut served, &states);
}

impl Served {
    fn open_session_if_it_can(&mut self) {
        if self.session == SessionId(0) {
            let open =
                Op::OpenSession(OpenSession { command: "test".into(), host: "here".into(), uid: 0, keeps: false });
            let id = self.send(Request::Txn(Txn { durability: 0, op: Some(open) }), &[], 0);
            if let Some((Ok(Reply::Txn(reply)), _)) = self.answer(id) {
                self.session = SessionId(reply.id);
            }
        }
    }
}
