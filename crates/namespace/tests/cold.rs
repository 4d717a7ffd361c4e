//! Names leave memory while others change: the walks that give places and evict are taken in bites, and transactions
//! run between them.

#![expect(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NamespaceWorld, root};
use frieze_base::Rng;
use frieze_namespace::{ColdFile, MemoryPieces};
use frieze_wire::txn::{MakeKind, Op, SetAttr, Target};

/// Enough for several bites of a walk.
const FILES: usize = 24_000;
const DIRECTORIES: u64 = 12;

/// A few changes of any names, some of them of what the walk passes next.
fn change(world: &mut NamespaceWorld, rng: &mut Rng) {
    let path = |rng: &mut Rng| format!("/d{}/f{}", rng.below(DIRECTORIES), rng.below(FILES as u64 / DIRECTORIES + 50));
    for _ in 0..rng.between(1, 40) {
        let (one, other) = (path(rng), path(rng));
        // Failures change nothing, and are as welcome.
        match rng.below(5) {
            0 => drop(world.make(&one, 0o644, MakeKind::File(false))),
            1 => drop(world.remove(&one, false)),
            2 => drop(world.rename(&one, &other, 0)),
            3 => drop(world.link(&one, &other)),
            _ => {
                let mode = Some(rng.below(0o1000) as u32);
                let op = SetAttr { target: Target::path(one.as_str()), mode, ..SetAttr::default() };
                drop(world.run(&root(), Op::SetAttr(op)));
            }
        }
    }
}

#[test]
fn names_that_change_while_places_are_given_and_others_evicted_stay_as_they_are() {
    let mut world = NamespaceWorld::new();
    let mut rng = Rng::new(0xc01d);
    for directory in 0..DIRECTORIES {
        world.directory(&format!("/d{directory}"));
        for file in 0..FILES as u64 / DIRECTORIES {
            world.file(&format!("/d{directory}/f{file}"));
        }
    }
    let (mut bites, mut kept) = (0, 0);
    for _ in 0..12 {
        let before = world.ns.present();
        let (pieces, offsets) = MemoryPieces::of(&before);
        // What changes before the walk comes there, and what changes behind it.
        change(&mut world, &mut rng);
        let mut relocation = before.relocate(ColdFile::new(Box::new(pieces), world.ns.piece_loads()), offsets);
        while world.ns.relocate(&mut relocation) {
            bites += 1;
            change(&mut world, &mut rng);
        }
        world.ns.begin_eviction();
        while world.ns.evict(0) {
            bites += 1;
            change(&mut world, &mut rng);
        }
        let memory = world.ns.names_memory();
        assert!(memory.cold_bytes > memory.bytes, "most of it is cold: {memory:?}");
        kept += u64::from(memory.bytes > 0);
    }
    assert!(bites >= 24, "{bites} bites");
    assert!(kept > 0, "what changed since the checkpoint stays in memory");
    world.check_replay();
    let now = world.dump(None);
    assert_eq!(now, world.dump(Some(world.stamp)), "the present is the newest instant");
}
