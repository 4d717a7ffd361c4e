use frieze_base::Seq;
use frieze_wire::acl::AclNamedEntry;
use frieze_wire::message::VersionKind;

use super::*;
use crate::key::VersionKey;
use crate::load::LoadedNames;
use crate::namespace::Namespace;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn layout() -> Arc<FileLayout> {
    Arc::new(FileLayout { chunk_bytes: 64 << 20, chain_count: 8, plugin: String::new(), regime: 0 })
}

fn fresh() -> Inode {
    let stamp = Hlc::first_of_micros(1_790_000_000_000_000);
    Inode {
        from: stamp,
        born: stamp,
        ctime: stamp,
        mtime_ns: stamp.unix_ns(),
        mtime_stamp: stamp,
        atime_ns: stamp.unix_ns(),
        size: 0,
        size_as_of: stamp,
        named: stamp,
        parent: InodeId::ROOT,
        layout: layout(),
        links: 1,
        uid: 1000,
        gid: 100,
        mode: 0o644,
        kind: FileKind::File as u8,
        extra: None,
    }
}

fn full() -> Inode {
    let stamp = Hlc(0x0065_c000_0000_0005);
    let shared = PatchSource::Shared { inode: InodeId(300), offset: 7, at: Hlc(0x0065_b000_0000_0001) };
    Inode {
        from: stamp,
        born: Hlc(0x0065_b000_0000_0000),
        ctime: Hlc(0x0065_c000_0000_0004),
        mtime_ns: -5,
        mtime_stamp: Hlc(0x0065_c000_0000_0003),
        atime_ns: i64::MIN,
        size: 1 << 40,
        size_as_of: Hlc(0x0065_c000_0000_0009),
        named: stamp,
        parent: InodeId(77),
        layout: Arc::new(FileLayout { chunk_bytes: 4096, chain_count: 1, plugin: "json:/t".to_owned(), regime: 0 }),
        links: 2,
        uid: u32::MAX,
        gid: 0,
        mode: 0o7777,
        kind: FileKind::File as u8,
        extra: Some(Box::new(Extra {
            patches: vec![
                Patch { at: Hlc(0x0065_b000_0000_0002), start: 0, end: 4, source: shared },
                Patch { at: Hlc(0x0065_b000_0000_0003), start: 5, end: 10, source: PatchSource::Hole },
                Patch::truncate(stamp, 12),
            ],
            grants: vec![WriteGrant { session: SessionId(9), chunks: vec![0..1, 5..21], is_stopped: false }],
            target: b"../x"[..].into(),
            rdev: 0x0801,
            also_in: vec![InodeId(3)],
            orphaned: Hlc(0x0065_c000_0000_0001),
            origin: Some((InodeId(5), Hlc(0x0065_a000_0000_0001))),
            times_after: Hlc(0x0065_c000_0000_0002),
            reaches_from: Some(0),
            made_by: author(),
            ..Extra::default()
        })),
    }
}

/// The author that [`encoded`] gives each version: of those with grants it stays in memory.
fn author() -> Option<Box<VersionAuthor>> {
    let causes = vec![StoredCause::new(VersionKind::Make, b"name")];
    Some(Box::new(VersionAuthor { session: SessionId(9), uid: 1000, causes }))
}

/// An access list as an inode keeps it.
fn listed() -> Acl {
    let named = AclNamedEntry { id: 300, permissions: 6 };
    Acl { users: vec![named], group: 5, mask: Some(0), ..Acl::default() }
}

fn encoded(inode: &Inode) -> Vec<u8> {
    let causes = vec![StoredCause::new(VersionKind::Make, b"name")];
    StoredInode::of(inode, SessionId(9), 1000, causes).encode_to_vec()
}

#[test]
fn what_has_any_field_that_few_inodes_have_is_not_empty() {
    let all = *full().extra.unwrap();
    let none = Extra::default();
    assert!(none.is_empty() && !all.is_empty());
    let Extra {
        patches,
        grants,
        target,
        rdev,
        also_in,
        orphaned,
        origin,
        times_after,
        reaches_from,
        acl,
        has_default_acl,
        made_by,
    } = all;
    let some = [
        Extra { patches, ..none.clone() },
        Extra { grants, ..none.clone() },
        Extra { target: b"x".as_slice().into(), ..none.clone() },
        Extra { rdev, ..none.clone() },
        Extra { also_in, ..none.clone() },
        Extra { orphaned, ..none.clone() },
        Extra { origin, ..none.clone() },
        Extra { times_after, ..none.clone() },
        Extra { reaches_from, ..none.clone() },
        Extra { acl: Some(Box::new(listed())), ..none.clone() },
        Extra { has_default_acl: true, ..none.clone() },
        Extra { made_by, ..none.clone() },
    ];
    assert!(acl.is_none() && !has_default_acl);
    drop(target);
    some.iter().for_each(|extra| assert!(!extra.is_empty() && *extra != none, "{extra:?}"));
    let named = |plugin: &str| FileLayout { plugin: plugin.to_owned(), ..(*layout()).clone() };
    assert!(named("a").is(&named("a")) && named("").is(&named("")));
    assert!(!named("a").is(&named("b")) && !named("").is(&named("a")) && !named("a").is(&named("")));
    assert!(!FileLayout { chain_count: 2, ..named("") }.is(&FileLayout { chain_count: 3, ..named("") }));
    assert!(!FileLayout { chunk_bytes: 1, ..named("") }.is(&FileLayout { chunk_bytes: 2, ..named("") }));
}

#[test]
fn every_field_of_an_inode_reads_back() {
    for inode in [fresh(), full()] {
        let (back, stored) = StoredInode::read(inode.from, &encoded(&inode), Arc::new).unwrap();
        assert_eq!(back, inode);
        assert_eq!((stored.session, stored.by_uid), (9, 1000));
        assert_eq!(stored.causes, [StoredCause::new(VersionKind::Make, b"name")]);
    }
}

#[test]
fn golden_bytes_of_inodes() {
    assert_eq!(hex(&encoded(&fresh())), "10a403180120e80728643801701a7808b80109c001e807ca0108080112046e616d65");
    let (all, first_fields) = (
        encoded(&full()),
        "10ff1f180220ffffffff0f30808080808020384d408a808080808008480250045807608980808080d8eb18688080808080a2\
         96e7ff01700c78018201076a736f6e3a2f748a0102100c92010808091204000105159a01042e2e2f78a0018110aa010103b0\
         0108b80109c001e807ca0108080112046e616d65d201170886808080808008180420ac0228073088808080808008d2010c08\
         8480808080800810051805",
    );
    assert_eq!(hex(&all), format!("{first_fields}d80105e001feffffffffff07e80100f00106"));
    // Without an origin, records that reach over, and times that begin anew.
    let none = Hlc::ZERO;
    let extra =
        full().extra.map(|extra| Box::new(Extra { origin: None, times_after: none, reaches_from: None, ..*extra }));
    let without = Inode { extra, ..full() };
    assert_eq!(hex(&encoded(&without)), first_fields);
    let (back, _) = StoredInode::read(full().from, &all[..first_fields.len() / 2], Arc::new).unwrap();
    assert_eq!(back, without);
    // A file that got its name before this version.
    let named = Inode { named: Hlc(fresh().from.0 - 5), ..fresh() };
    assert_eq!(hex(&encoded(&named)), format!("{}88020a", hex(&encoded(&fresh()))));
    assert_eq!(StoredInode::read(named.from, &encoded(&named), Arc::new).unwrap().0, named);
    // Access lists.
    let extra = Extra { acl: Some(Box::new(listed())), has_default_acl: true, ..*full().extra.unwrap() };
    let with_list = Inode { extra: Some(Box::new(extra)), ..full() };
    let list = "fa0124\
                0200000001000000ffffffff020006002c01000004000500ffffffff10000000ffffffff20000000ffffffff\
                800201";
    assert_eq!(hex(&encoded(&with_list)), format!("{}{list}", hex(&all)).replace("fa0124", "fa012c"));
    assert_eq!(StoredInode::read(full().from, &encoded(&with_list), Arc::new).unwrap().0, with_list);
    // Sessions that are stopped from writing.
    let extra = Extra {
        grants: vec![WriteGrant { is_stopped: true, ..full().grants()[0].clone() }],
        made_by: author(),
        ..Extra::default()
    };
    let stopped = Inode { extra: Some(Box::new(extra)), ..fresh() };
    assert_eq!(StoredInode::read(stopped.from, &encoded(&stopped), Arc::new).unwrap().0, stopped);
    let writing = Extra { grants: full().grants().to_vec(), ..Extra::default() };
    let writing = Inode { extra: Some(Box::new(writing)), ..fresh() };
    // One field more, of two bytes.
    assert_eq!(
        hex(&encoded(&stopped)),
        hex(&encoded(&writing)).replace("9201080809120400010515", "92010a08091204000105151801")
    );
}

#[test]
fn golden_bytes_of_the_other_values() {
    let entry = StoredEntry { inode: 300, kind: FileKind::Directory as i32, session: 9, uid: 1000 };
    assert_eq!(hex(&entry.encode_to_vec()), "08ac021001180920e807");
    let outcome = StoredOutcome { id: 5, existed: true, reason: 2, message: "no".to_owned(), acked: 7, replaced: 0 };
    assert_eq!(hex(&outcome.encode_to_vec()), "08051001180222026e6f2807");
    let outcome = StoredOutcome { replaced: 300, ..outcome };
    assert_eq!(hex(&outcome.encode_to_vec()), "08051001180222026e6f280730ac02");
    let session = StoredSession {
        uid: 1,
        command: "ls".to_owned(),
        host: "h".to_owned(),
        keeps: false,
        ..StoredSession::default()
    };
    assert_eq!(hex(&session.encode_to_vec()), "080112026c731a0168");
    assert_eq!(hex(&StoredSnapshot { at: 300, uid: 1 }.encode_to_vec()), "08ac021001");
    let format = StoredFormat { chunk_bytes: 4096, chain_count: 8, uid: 1, gid: 2, mode: 0o755 };
    assert_eq!(hex(&format.encode_to_vec()), "08802010081801200228ed03");
    let xattr = StoredXattr { value: b"v".to_vec(), session: 9, uid: 1000 };
    assert_eq!(hex(&xattr.encode_to_vec()), "0a0176100918e807");
}

#[test]
fn damaged_values_are_refused_and_never_panic() {
    let bytes = encoded(&full());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let _ = StoredInode::read(Hlc(5), &damaged, Arc::new);
        }
        let _ = StoredInode::read(Hlc(5), &bytes[..at], Arc::new);
    }
    // A kind and a chunk size that do not exist.
    assert!(StoredInode::read(Hlc(5), &[8, 99], Arc::new).is_err());
    assert!(StoredInode::read(Hlc(5), &[0x70, 63], Arc::new).is_err());
}

#[test]
fn any_bytes_are_an_inode_or_corrupt() {
    frieze_harness::fuzz!([encoded(&full()), encoded(&fresh())], |bytes: &[u8]| {
        for from in [full().from, Hlc(5), Hlc::MAX] {
            let decode = |bytes: &[u8]| StoredInode::read(from, bytes, Arc::new).ok().map(|(inode, _)| inode);
            let encode = |inode: &Inode| StoredInode::of_current(inode).encode_to_vec();
            frieze_harness::check_stable(bytes, decode, encode);
        }
    });
}

/// The value of a key of each kind, as a start loads them: the first byte of the input chooses the key.
#[test]
fn any_bytes_are_the_value_of_a_key_or_corrupt() {
    let entry = StoredEntry { inode: 300, kind: FileKind::Directory as i32, session: 9, uid: 1000 };
    let outcome = StoredOutcome { id: 5, existed: true, reason: 2, message: "no".to_owned(), acked: 7, replaced: 300 };
    let session = StoredSession { uid: 1, command: "ls".to_owned(), host: "h".to_owned(), ..StoredSession::default() };
    let forgotten =
        StoredForgotten { before: 77, pins: vec![5, 6], path: b"/d".to_vec(), ..StoredForgotten::default() };
    let inodes = StoredForgottenInodes { named: vec![3, 1], nameless: vec![9], owners: Vec::new() };
    let values = [
        entry.encode_to_vec(),
        StoredFormat { chunk_bytes: 4096, chain_count: 8, uid: 1, gid: 2, mode: 0o755 }.encode_to_vec(),
        forgotten.encode_to_vec(),
        inodes.encode_to_vec(),
        encoded(&full()),
        StoredSnapshot { at: 300, uid: 1 }.encode_to_vec(),
        outcome.encode_to_vec(),
        session.encode_to_vec(),
        StoredXattr { value: b"files=9".to_vec(), session: 9, uid: 1000 }.encode_to_vec(),
    ];
    let seeds: Vec<Vec<u8>> = (0..).zip(&values).map(|(which, value)| [&[which][..], value].concat()).collect();
    // Room for 4096 inodes at once.
    frieze_harness::fuzz!(frieze_harness::Inputs::from(seeds).with_buffers(1 << 20), |bytes: &[u8]| {
        let Some((which, value)) = bytes.split_first() else { return };
        let id = InodeId(300);
        let key = match which % 9 {
            0 => VersionKey::Entry(InodeId::ROOT, b"name"),
            1 => VersionKey::Format,
            2 => VersionKey::Forgotten(Hlc(99), 0),
            3 => VersionKey::Forgotten(Hlc(99), 1),
            4 => VersionKey::Inode(id),
            5 => VersionKey::Snapshot(b"monday"),
            6 => VersionKey::Outcome(SessionId(7), Seq(9)),
            7 => VersionKey::Session(SessionId(7)),
            _ => VersionKey::Xattr(id, b"user.frieze.quota"),
        };
        let mut namespace = Namespace::default();
        let before = StoredForgotten { before: 77, ..StoredForgotten::default() }.encode_to_vec();
        namespace.load(&VersionKey::Forgotten(Hlc(99), 0).encode(), Hlc(99), &before).expect("a forgotten instant");
        namespace.load(&VersionKey::Inode(id).encode(), full().from, &encoded(&fresh())).expect("an inode");
        let loaded = namespace.load(&key.encode(), full().from, value);
        assert!(loaded.is_ok() || loaded.is_err_and(|fault| fault.reason == frieze_base::Reason::Corrupt));
        let mut apart = LoadedNames::default();
        if apart.load(&key.encode(), full().from, value).is_ok() {
            namespace.take_apart(apart);
        }
    });
}
