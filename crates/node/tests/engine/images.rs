//! Images, from outside: they change no read, survive a restart, make room for data, and expire.

use frieze_base::Rng;
use frieze_wire::message::ImageStatus;

use super::sharing::{Model, check_states, play};
use super::*;

/// A machine with images of everything, at once.
fn eager(pieces_max: u32) -> SimMachine {
    let mut machine = SimMachine::new(7);
    machine.settings.image_percent = 10_000;
    machine.settings.image_pieces_max = pieces_max;
    machine.settings.image_delay = std::time::Duration::ZERO;
    machine.settings.session_timeout = std::time::Duration::from_secs(3600);
    machine
}

fn image_files(machine: &SimMachine) -> Vec<String> {
    machine.disk.list().unwrap().into_iter().filter(|name| name.starts_with("image-")).collect()
}

/// Every byte of the image files.
fn image_bytes(machine: &SimMachine) -> Vec<u8> {
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
fn make_images(client: &mut TestConnection) {
    client.open_session();
    client.fsync();
    client.server.reclaim().unwrap();
    while client.server.image(&|_| true).unwrap() {}
}

fn status(client: &mut TestConnection) -> ImageStatus {
    let Ok(Reply::Status(status)) = client.ask(Request::Status(Status {})) else { panic!("no status") };
    *status.images.unwrap()
}

/// Small writes into the first two chunks of files, by chance; what each state of each file is.
fn scribble(client: &mut TestConnection, paths: &[&str], writes: u64, rng: &mut Rng) -> Vec<(String, u64, Vec<u8>)> {
    let files: Vec<Vec<u8>> = paths.iter().map(|path| client.make(path)).collect();
    let mut now = vec![Vec::new(); paths.len()];
    let mut states = Vec::new();
    for _ in 0..writes {
        let which = rng.below(paths.len() as u64) as usize;
        let (offset, len) = (rng.below(60_000), rng.between(1, 900));
        let bytes = pattern(len as usize, rng.below(250) as u8);
        let (stamp, _) = client.write(&files[which], Some(offset), &bytes).unwrap();
        let file: &mut Vec<u8> = &mut now[which];
        let end = (offset + len) as usize;
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(&bytes);
        states.push((paths[which].to_owned(), stamp, file.clone()));
    }
    states
}

/// Lets the session write the first chunks of a file.
fn grant(client: &mut TestConnection, inode: u64, chunks: u32) {
    for first in (0..chunks).step_by(16) {
        client.txn(Op::Grant(frieze_wire::txn::Grant { inode, first, count: 16 })).unwrap();
    }
}

/// Makes the log large, so that images may take much.
fn pad(client: &mut TestConnection) {
    let file = client.make("/padding");
    let inode = client.stat("/padding", View::NOW).unwrap().attr.inode;
    grant(client, inode, 16);
    for part in 0..4u64 {
        client.write(&file, Some(part << 18), &pattern(1 << 18, 7)).unwrap();
    }
}

fn check(client: &mut TestConnection, states: &[(String, u64, Vec<u8>)]) {
    for (path, stamp, bytes) in states {
        assert!(client.at(path, *stamp).unwrap() == *bytes, "{path} at {stamp}");
    }
}

#[test]
fn every_state_reads_as_before_and_images_outlive_a_restart() {
    let machine = eager(4);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f", "/g"], 500, &mut Rng::new(1));
    assert_eq!(status(&mut client).pieces_most, 0, "nothing was looked at");
    make_images(&mut client);
    let told = status(&mut client);
    assert!((100..300).contains(&told.count), "{} images", told.count);
    assert_eq!((told.pieces_max, told.pieces_most, told.wishes), (4, 4, 0));
    assert!(told.looked_upto >= states.last().unwrap().1);
    assert!(told.bytes >= told.count * (68 << 10) && told.bytes <= told.bytes_max);
    check(&mut client, &states);
    assert_eq!(status(&mut client).wishes, 0, "no page was read in more pieces");
    drop(client);
    let mut client = machine.serve();
    assert_eq!(status(&mut client).count, told.count);
    check(&mut client, &states);
    make_images(&mut client);
    let again = status(&mut client);
    assert_eq!((again.count, again.lost), (told.count, 0));
    assert!(again.looked_upto >= told.looked_upto);
    assert_eq!(client.server.repairs(), [""; 0]);
    // Without any, they are made again when they are read.
    for name in image_files(&machine) {
        machine.disk.remove(&name).unwrap();
    }
    drop(client);
    let mut client = machine.serve();
    assert_eq!(status(&mut client).count, 0);
    check(&mut client, &states);
    let wishes = status(&mut client).wishes;
    assert!(wishes > 400, "{wishes} states are wanted");
    make_images(&mut client);
    let made = status(&mut client);
    assert!(made.wishes == 0 && made.count >= told.count, "{made:?}");
    check(&mut client, &states);
    assert_eq!(status(&mut client).wishes, 0);
}

#[test]
fn edits_that_share_cut_and_bring_back_read_the_same_through_images() {
    for seed in 0..3 {
        let machine = eager(2);
        let mut client = machine.serve();
        let mut rng = Rng::new(seed);
        client.mkdir("/a");
        client.mkdir("/b");
        let mut model = Model::empty(client.server.newest().0);
        for round in 0..250 {
            play(&mut client, &mut model, &mut rng);
            if rng.chance(6) {
                make_images(&mut client);
            }
            if round % 50 == 49 {
                check_states(&mut client, &model, &mut rng, 10);
                drop(client);
                client = machine.serve();
            }
        }
        assert!(status(&mut client).count > 20, "{:?}", status(&mut client));
        check_states(&mut client, &model, &mut rng, 60);
        assert_eq!(client.server.repairs(), [""; 0]);
    }
}

#[test]
fn damaged_images_are_given_up_said_and_never_believed() {
    let machine = eager(4);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f", "/g"], 300, &mut Rng::new(2));
    make_images(&mut client);
    let images = status(&mut client).count;
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
    check(&mut client, &states);
    let told = status(&mut client);
    assert!(told.count < images / 2 && told.lost > images / 2, "{told:?}");
    let words = client.server.repairs();
    assert_eq!(words.len() as u64, told.lost);
    assert!(words[0].contains("given up") && words[0].contains("page 0 of chunk"), "{words:?}");
    make_images(&mut client);
    check(&mut client, &states);
    // A scrub finds images that no reader uses: nothing is lost.
    let found = client.server.check_up();
    assert!(found.scrub.findings.is_empty(), "{found:?}");
    drop(client);
    // In the directory: the restart finds it, and a check names it.
    for name in image_files(&machine) {
        machine.disk.flip_bit(&name, 4096 + 10, 1).unwrap();
    }
    let mut client = machine.serve();
    assert!(client.server.notes().iter().any(|note| note.contains("the records say the same")));
    assert!(client.server.check_up().notes.iter().any(|words| words.contains("of the images in image-")));
    check(&mut client, &states);
    drop(client);
    // In the head of a file.
    for name in image_files(&machine) {
        machine.disk.flip_bit(&name, 9, 1).unwrap();
    }
    let mut client = machine.serve();
    assert!(client.server.notes().iter().any(|note| note.contains("are given up")), "{:?}", client.server.notes());
    assert_eq!((status(&mut client).count, image_files(&machine).len()), (0, 0));
    check(&mut client, &states);
}

#[test]
fn a_scrub_gives_up_what_is_damaged_and_a_worn_image_is_no_error() {
    let machine = eager(4);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f"], 200, &mut Rng::new(3));
    make_images(&mut client);
    let images = status(&mut client).count;
    let name = image_files(&machine).remove(0);
    machine.disk.wear_out(&name, 8192 + 8192..8192 + 8192 + 100).unwrap();
    machine.disk.flip_bit(&name, 8192 + 69_632 + 10_000, 0).unwrap();
    let found = client.server.check_up();
    assert_eq!((found.wrong.len(), found.scrub.findings.len()), (2, 0), "{found:?}");
    assert_eq!(status(&mut client).count, images - 2);
    check(&mut client, &states);
    make_images(&mut client);
    assert_eq!(client.server.check_up().wrong, [""; 0]);
}

#[test]
fn what_is_forgotten_is_in_no_image() {
    let mut machine = eager(3);
    let mut client = machine.serve();
    let secret = b"nobody is to read this again";
    pad(&mut client);
    let file = client.make("/f");
    let other = client.make("/other");
    for round in 0..40u64 {
        client.write(&file, Some(round * 900), secret).unwrap();
        client.write(&other, Some(round * 700), b"this stays as it is").unwrap();
    }
    let truncate = SetAttr { target: Target::path("/f"), size: Some(500), ..SetAttr::default() };
    client.txn(Op::SetAttr(truncate)).unwrap();
    let mut states = Vec::new();
    for round in 0..60u64 {
        let (stamp, _) = client.write(&file, Some(round * 431 % 20_000), &[round as u8 + 1; 300]).unwrap();
        states.push(("/f".to_owned(), stamp, client.at("/f", stamp).unwrap()));
    }
    make_images(&mut client);
    let holds = |machine: &SimMachine, bytes: &[u8]| {
        let all = image_bytes(machine);
        all.windows(bytes.len()).any(|window| window == bytes)
    };
    assert!(holds(&machine, secret) && holds(&machine, b"this stays as it is"));
    let before = status(&mut client).count;
    let then = states[10].1;
    client.close_session();
    let reply = client.forget("/f", then);
    assert!(reply.bytes > 0);
    machine.lose_power();
    assert!(!holds(&machine, secret), "what was cut off by a truncate is gone too, and no crash brings it back");
    assert!(holds(&machine, b"this stays as it is"));
    let mut client = machine.serve();
    client.server.reclaim().unwrap();
    let told = status(&mut client);
    assert!(told.count < before && told.count > 10, "{} of {before}", told.count);
    check(&mut client, &states[10..]);
    assert_eq!(client.at("/f", states[9].1).unwrap_err().reason, Reason::HistoryExpired);
    // Made again where they are wanted, they hold nothing of it; and a restart keeps them.
    make_images(&mut client);
    check(&mut client, &states[10..]);
    make_images(&mut client);
    assert!(!holds(&machine, secret));
    let images = status(&mut client).count;
    drop(client);
    let mut client = machine.serve();
    make_images(&mut client);
    assert_eq!(status(&mut client).count, images);
    check(&mut client, &states[10..]);
    assert_eq!(client.server.check_up().wrong, [""; 0]);
}

#[test]
fn a_forgetting_that_cannot_wipe_images_is_not_acknowledged() {
    let mut machine = eager(3);
    let mut client = machine.serve();
    let secret = b"nobody is to read this again";
    pad(&mut client);
    let file = client.make("/f");
    for round in 0..40u64 {
        client.write(&file, Some(round * 900), secret).unwrap();
    }
    let (then, _) = client.write(&file, Some(0), &pattern(50_000, 1)).unwrap();
    make_images(&mut client);
    client.close_session();
    client.server.flush().unwrap();
    let holds = |machine: &SimMachine| image_bytes(machine).windows(secret.len()).any(|window| window == secret);
    assert!(holds(&machine));
    // Whatever the device dies of on the way: either it was not said, or nothing of it is left.
    for changes in 1..80 {
        let copy = SimMachine {
            disk: machine.disk.clone(),
            time: machine.time.clone(),
            store: machine.store.clone(),
            boot: machine.boot,
            settings: machine.settings.clone(),
        };
        machine.disk.fail_after(changes);
        if client.session == SessionId(0) {
            let _ = client.try_open_session("test", "here");
        }
        client.seq += 1;
        let ask = frieze_wire::forget::Forget {
            target: Target::path("/f"),
            before: then,
            dry_run: false,
            with_snapshots: false,
        };
        let id = client.send(Request::Forget(ask), &[], client.seq);
        let said = matches!(client.answer(id), Some((Ok(_), _)));
        drop(client);
        machine = copy;
        machine.lose_power();
        if said {
            assert!(!holds(&machine), "after {changes} changes");
        }
        client = machine.serve();
        client.server.reclaim().unwrap();
        if client.at("/f", then - 1).is_err() {
            assert!(!holds(&machine), "found again after {changes} changes");
            return;
        }
    }
    panic!("it never came to forgetting");
}

#[test]
fn an_image_that_was_half_overwritten_at_a_power_loss_is_not_called_damaged() {
    let mut machine = eager(3);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f", "/g"], 300, &mut Rng::new(6));
    let (mut evictions, mut crashes) = (0, 0);
    for round in 0..40u64 {
        make_images(&mut client);
        // An image that could not be read once is evicted by the next round.
        for (path, stamp, _) in states.iter().skip(round as usize).step_by(7) {
            machine.disk.fail_reads(1);
            let _ = client.at(path, *stamp);
            if status(&mut client).lost > 0 {
                evictions += 1;
                break;
            }
        }
        machine.disk.spare_reads();
        machine.disk.fail_after(round % 4 + 1);
        crashes += u32::from(client.server.image(&|_| true).is_err());
        drop(client);
        machine.lose_power();
        client = machine.serve();
        let found = client.server.check_up();
        assert_eq!((found.wrong, found.scrub.findings.len()), (Vec::<String>::new(), 0), "round {round}");
        client.server.reclaim().unwrap();
    }
    assert!(evictions > 10 && crashes > 10, "{evictions} evictions, the device stopped {crashes} times");
    check(&mut client, &states);
}

#[test]
fn images_give_way_to_data_and_keep_to_their_space() {
    let mut machine = eager(3);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f", "/g"], 900, &mut Rng::new(5));
    make_images(&mut client);
    let told = status(&mut client);
    assert!(told.count > 300);
    // A full disk: data goes where images were.
    let used = machine.disk.space().unwrap();
    machine.disk.set_capacity(used.capacity_bytes - used.free_bytes + machine.settings.reserve_bytes);
    let file = client.make("/large");
    let inode = client.stat("/large", View::NOW).unwrap().attr.inode;
    grant(&mut client, inode, 1600);
    let mut written = 0u64;
    while client.write(&file, Some(written), &pattern(1 << 20, 1)).is_ok() {
        client.server.flush().unwrap();
        written += 1 << 20;
    }
    assert!(written > 14 << 20, "{written} bytes");
    assert!(image_files(&machine).is_empty(), "{:?}", image_files(&machine));
    check(&mut client, &states[..100]);
    while client.server.image(&|_| true).unwrap() {}
    assert!(image_files(&machine).is_empty(), "there is no room");
    drop(client);
    // Little space: the most useful stay, and the worst case is reported.
    machine.disk.set_capacity(u64::MAX / 2);
    machine.settings.image_percent = 8;
    let mut client = machine.serve();
    make_images(&mut client);
    let told = status(&mut client);
    assert!(told.count > 0 && told.bytes <= told.bytes_max, "{told:?}");
    assert!(told.pieces_most > 20, "{told:?}");
    let read = &states[700];
    for _ in 0..2 {
        client.at(&read.0, read.1).unwrap();
        make_images(&mut client);
    }
    check(&mut client, std::slice::from_ref(read));
    assert_eq!(status(&mut client).wishes, 0, "what is read has its image");
    for state in &states[..200] {
        client.at(&state.0, state.1).unwrap();
        make_images(&mut client);
    }
    let told = status(&mut client);
    assert!(told.bytes <= told.bytes_max, "{told:?}");
    drop(client);
    // Space again: what was missing is made.
    machine.settings.image_percent = 10_000;
    let mut client = machine.serve();
    make_images(&mut client);
    let told = status(&mut client);
    assert_eq!(told.pieces_most, 3, "{told:?}");
    check(&mut client, &states);
    drop(client);
    machine.settings.image_percent = 0;
    let mut client = machine.serve();
    make_images(&mut client);
    assert!(image_files(&machine).is_empty());
    check(&mut client, &states[..100]);
    assert_eq!(status(&mut client).wishes, 0);
}

#[test]
fn more_wishes_than_are_kept_change_nothing_else() {
    let mut machine = eager(2);
    machine.settings.chunk_bytes = 64 << 10;
    let mut client = machine.serve();
    pad(&mut client);
    let file = client.make("/f");
    let inode = client.stat("/f", View::NOW).unwrap().attr.inode;
    grant(&mut client, inode, 1100);
    for part in 0..3u64 {
        for chunk in 0..1100u64 {
            client.write(&file, Some(chunk * (64 << 10) + part * 50), &[part as u8 + 1; 40]).unwrap();
        }
    }
    let Ok(Reply::Open(open)) = client.ask(Request::Open(Open {
        target: Target::path("/f"),
        view: View::NOW,
        read: true,
        write: false,
        made_at: 0,
    })) else {
        panic!("no open file")
    };
    let read = |client: &mut TestConnection| {
        let mut all = 0u64;
        for at in (0..1100u64 << 16).step_by(1 << 20) {
            let read = Read {
                capability: open.capability.clone(),
                offset: at,
                len: 1 << 20,
                in_steps: false,
                ..Read::default()
            };
            let id = client.send(Request::Read(read), &[], 0);
            let (reply, payload) = client.answer(id).unwrap();
            reply.unwrap();
            all += payload.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        all
    };
    assert_eq!(read(&mut client), 1100 * 40 * (1 + 2 + 3));
    assert_eq!(status(&mut client).wishes, 1024, "and no more");
    make_images(&mut client);
    assert_eq!(read(&mut client), 1100 * 40 * (1 + 2 + 3));
    assert_eq!(status(&mut client).wishes, 0);
}

#[test]
fn no_crash_while_images_are_made_shows_anywhere() {
    let mut machine = eager(3);
    let mut client = machine.serve();
    let states = scribble(&mut client, &["/f", "/g"], 300, &mut Rng::new(6));
    client.fsync();
    let mut crashes = 0;
    for round in 0..40u64 {
        client.server.reclaim().unwrap();
        machine.disk.fail_after(round * 7 + 1);
        let made = client.server.image(&|_| true);
        crashes += u32::from(made.is_err());
        drop(client);
        machine.lose_power();
        client = machine.serve();
        check(&mut client, &states[..40]);
        let found = client.server.check_up();
        assert_eq!((found.wrong, found.scrub.findings.len()), (Vec::<String>::new(), 0), "round {round}");
    }
    assert!(crashes > 10, "{crashes} times the device stopped");
    make_images(&mut client);
    assert_eq!(status(&mut client).pieces_most, 3);
    check(&mut client, &states);
}
