use frieze_base::Reason;
use frieze_wire::txn::{Caller, Format, Make, MakeKind, Op, OpenSession, Remove, SetAttr, Target, Transaction};

use super::*;
use crate::read_set::NoReadSet;

struct Writer {
    namespace: Namespace,
    stamp: Hlc,
    session: u64,
}

impl Writer {
    fn new() -> Writer {
        let stamp = Hlc::first_of_micros(1_700_000_000_000_000);
        let mut writer = Writer { namespace: Namespace::new(), stamp, session: 0 };
        writer.run(Op::Format(Format { chunk_bytes: 4096, chain_count: 8, uid: 0, gid: 0, mode: 0o755 }));
        let open = OpenSession { command: "test".to_owned(), host: "here".to_owned(), uid: 0, keeps: false };
        writer.session = writer.run(Op::OpenSession(open));
        writer
    }

    fn run(&mut self, op: Op) -> u64 {
        self.stamp = Hlc(self.stamp.0 + (50 << 12));
        let (session, caller) = (self.session, Caller::root());
        let txn = Transaction { session, seq: 0, acked: 0, caller, must_see: 0, op: Some(op) };
        let outcome = self.namespace.apply(&txn, self.stamp, &mut Vec::new(), &NoReadSet);
        assert_eq!(outcome.reason, 0, "{outcome:?}");
        outcome.id
    }

    fn make(&mut self, path: &str, kind: MakeKind) {
        self.run(Op::Make(Make { target: Target::path(path), mode: 0o644, kind: Some(kind), ..Make::default() }));
    }
}

/// The directory `/a`.
fn first() -> InodeId {
    InodeId::directory(1)
}

/// A file in it.
fn in_first(count: u64) -> InodeId {
    InodeId::file(first().slot(), count)
}

/// Two directories, files in them, a link, a pipe, a file that is open, and one without a name.
fn writer(files: usize) -> Writer {
    let mut writer = Writer::new();
    for directory in ["/a", "/b"] {
        writer.make(directory, MakeKind::Directory(true));
        (0..files).for_each(|file| writer.make(&format!("{directory}/file-{file:05}"), MakeKind::File(false)));
    }
    writer.make("/link", MakeKind::Symlink(b"a".to_vec()));
    writer.make("/open", MakeKind::File(true));
    writer.make("/removed", MakeKind::File(true));
    writer.run(Op::Remove(Remove { target: Target::path("/removed"), directory: false }));
    writer
}

fn pieces(snapshot: &PresentSnapshot) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut inodes, mut names) = (Vec::new(), Vec::new());
    assert!(snapshot.inode_pieces(&mut |piece| {
        inodes.push(piece.to_vec());
        true
    }));
    assert!(snapshot.name_pieces(&mut |piece| {
        names.push(piece.to_vec());
        true
    }));
    (inodes, names)
}

fn loaded(inodes: &[Vec<u8>], names: &[Vec<u8>]) -> Result<Namespace, Fault> {
    let (mut of_inodes, mut of_names) = (PackedInodes::default(), PackedNames::default());
    inodes.iter().try_for_each(|piece| of_inodes.load(piece))?;
    names.iter().try_for_each(|piece| of_names.load(piece))?;
    let mut namespace = Namespace::new();
    namespace.take_present(of_inodes, of_names);
    Ok(namespace)
}

/// What a present has of a namespace is the same.
fn check_same(one: &Namespace, other: &Namespace) {
    assert_eq!(one.inodes, other.inodes);
    assert_eq!(one.directories, other.directories);
    assert_eq!((one.alive, &one.orphans, &one.granted), (other.alive, &other.orphans, &other.granted));
}

#[test]
fn a_present_that_was_read_from_its_bytes_is_the_same_and_goes_on_alike() {
    let mut writer = writer(3000);
    let (inodes, names) = pieces(&writer.namespace.present());
    let mut again = loaded(&inodes, &names).unwrap();
    check_same(&again, &writer.namespace);
    assert_eq!(pieces(&again.present()), (inodes, names), "bytes are stable");
    std::mem::swap(&mut again.inodes, &mut writer.namespace.inodes);
    std::mem::swap(&mut again.directories, &mut writer.namespace.directories);
    writer.make("/a/more", MakeKind::File(false));
    writer.run(Op::SetAttr(SetAttr { target: Target::path("/b/file-00007"), mode: Some(0o600), ..SetAttr::default() }));
    (0..3000).for_each(|file| {
        let target = Target::path(format!("/a/file-{file:05}").as_str());
        writer.run(Op::Remove(Remove { target, directory: false }));
    });
    assert_eq!(writer.namespace.entry_count(first()), 1);
}

#[test]
fn layouts_keep_their_numbers_while_pieces_come() {
    let mut writer = writer(200);
    // Two layouts that only later pages have, and before them an unpacked inode with one that no page has.
    for (id, chains) in [(first(), 99), (in_first(148), 20), (in_first(188), 21)] {
        let inode = writer.namespace.inodes.get_mut(id).unwrap();
        inode.layout = std::sync::Arc::new(FileLayout { chain_count: chains, ..FileLayout::clone(&inode.layout) });
        writer.namespace.inodes.pack(id);
    }
    let (inodes, names) = pieces(&writer.namespace.present());
    let again = loaded(&inodes, &names).unwrap();
    check_same(&again, &writer.namespace);
    let chains = |id| again.current(id).unwrap().layout.chain_count;
    assert_eq!([first(), in_first(148), in_first(188), in_first(189)].map(chains), [99, 20, 21, 8]);
    assert_eq!(pieces(&again.present()), (inodes, names), "and no layout stays that no page has");
}

#[test]
fn a_page_may_have_an_owner_of_whose_layout_no_inode_is_left() {
    let mut writer = writer(200);
    for chains in [99, 8] {
        let inode = writer.namespace.inodes.get_mut(in_first(148)).unwrap();
        inode.layout = std::sync::Arc::new(FileLayout { chain_count: chains, ..FileLayout::clone(&inode.layout) });
        writer.namespace.inodes.pack(in_first(148));
    }
    let (inodes, names) = pieces(&writer.namespace.present());
    assert_eq!(inodes.iter().filter(|piece| piece[0] == LAYOUT).count(), 1, "the other layout is not there");
    check_same(&loaded(&inodes, &names).unwrap(), &writer.namespace);
}

#[test]
fn a_snapshot_stays_as_it_was_while_the_namespace_goes_on() {
    let mut writer = writer(500);
    let snapshot = writer.namespace.present();
    let before = pieces(&snapshot);
    for file in 0..500 {
        let target = Target::path(format!("/a/file-{file:05}").as_str());
        match file % 3 {
            0 => drop(writer.run(Op::Remove(Remove { target, directory: false }))),
            1 => drop(writer.run(Op::SetAttr(SetAttr { target, mode: Some(0o600), ..SetAttr::default() }))),
            _ => writer.make(&format!("/b/new-{file}"), MakeKind::File(file % 2 == 0)),
        }
    }
    assert_eq!(pieces(&snapshot), before);
    let old = loaded(&before.0, &before.1).unwrap();
    assert_eq!((old.entry_count(first()), writer.namespace.entry_count(first())), (500, 333));
}

#[test]
fn every_inode_that_can_be_is_packed_after_each_transaction() {
    let writer = writer(100);
    let snapshot = writer.namespace.present();
    let unpacked = snapshot.inodes.iter().flat_map(|(leaf, inodes)| inodes.unpacked(*leaf));
    let unpacked: Vec<InodeId> = unpacked.map(|(id, _)| id).collect();
    let in_root = |count| InodeId::file(InodeId::ROOT.slot(), count);
    let directories = [InodeId::ROOT, first(), InodeId::directory(2)];
    assert_eq!(
        unpacked,
        [&directories[..], &[1, 2, 3].map(in_root)].concat(),
        "directories, the link, two with a writer"
    );
}

#[test]
fn pieces_that_say_a_number_twice_or_are_out_of_order_are_refused() {
    let writer = writer(200);
    let (inodes, names) = pieces(&writer.namespace.present());
    let corrupt = |inodes: &[Vec<u8>], names: &[Vec<u8>]| {
        let refused = loaded(inodes, names).expect_err("it is damaged");
        assert_eq!(refused.reason, Reason::Corrupt);
    };
    for piece in &inodes {
        corrupt(&[inodes.as_slice(), std::slice::from_ref(piece)].concat(), &names);
    }
    for piece in &names {
        corrupt(&inodes, &[names.as_slice(), std::slice::from_ref(piece)].concat());
    }
    let first_page = inodes.iter().position(|piece| piece[0] == PAGE).unwrap();
    corrupt(&inodes[1..], &names);
    corrupt(&[&inodes[..1], &inodes[first_page..]].concat(), &names);
    corrupt(&[b"X".to_vec()], &[]);
    corrupt(&[Vec::new()], &[]);
    corrupt(&[], &[Vec::new()]);
    let mut moved = inodes[first_page].clone();
    moved[1] += 1;
    corrupt(&[&inodes[..first_page], &[moved]].concat(), &[]);
}

#[test]
fn any_bytes_are_pieces_or_refused() {
    let (inodes, names) = pieces(&writer(20).namespace.present());
    let first: Vec<Vec<u8>> = inodes.iter().filter(|piece| [NUMBERS, LAYOUT].contains(&piece[0])).cloned().collect();
    let seeds: Vec<Vec<u8>> = inodes.into_iter().chain(names).collect();
    frieze_harness::fuzz!(frieze_harness::Inputs::from(seeds).with_buffers(64 * 1024), |bytes: &[u8]| {
        let (mut inodes, mut names) = (PackedInodes::default(), PackedNames::default());
        first.iter().for_each(|piece| inodes.load(piece).unwrap());
        let (of_inodes, of_names) = (inodes.load(bytes).is_ok(), names.load(bytes).is_ok());
        let mut namespace = Namespace::new();
        namespace.take_present(inodes, names);
        let (inodes, names) = pieces(&namespace.present());
        if of_names {
            assert_eq!(names, [bytes]);
        } else if of_inodes && bytes[0] == PAGE {
            assert_eq!(inodes.last().map(Vec::as_slice), Some(bytes));
        }
    });
}
