use frieze_base::Rng;

use super::*;

const EXTREMES: [u64; 8] = [0, 1, 4095, 4096, 1 << 40, (1 << 52) + 77, u64::MAX - 1, u64::MAX];

fn plain(born: u64) -> PlainInode {
    let born = Hlc::first_of_micros(born);
    PlainInode {
        born,
        from: born,
        ctime: born,
        mtime_stamp: born,
        size_as_of: born,
        named: born,
        mtime_ns: born.unix_ns(),
        atime_ns: born.unix_ns(),
        links: 1,
        parent: InodeId(1),
        size: 0,
        owner: InodeOwner { uid: 1000, gid: 100, mode: 0o644, kind: FileKind::File as u8, layout: 0 },
    }
}

/// Every field often like others, and often anything.
fn random(rng: &mut Rng) -> PlainInode {
    let mut inode = plain(1_700_000_000_000_000 + rng.below(1 << 30));
    for _ in 0..rng.below(6) {
        let word = if rng.below(2) == 0 { EXTREMES[rng.below(8) as usize] } else { rng.next() };
        let stamp = [Hlc(word), inode.born, inode.from, inode.mtime_stamp][rng.below(4) as usize];
        match rng.below(12) {
            0 => inode.born = stamp,
            1 => inode.from = stamp,
            2 => inode.ctime = stamp,
            3 => inode.mtime_stamp = stamp,
            4 => inode.size_as_of = stamp,
            5 => inode.mtime_ns = word as i64,
            6 => inode.atime_ns = [word as i64, inode.mtime_ns, i64::MIN, i64::MAX][rng.below(4) as usize],
            7 => inode.links = word as u32,
            8 => inode.parent = InodeId(word),
            9 => inode.size = word,
            10 => inode.named = [stamp, Hlc::ZERO][rng.below(2) as usize],
            _ => {
                let kind = [FileKind::File, FileKind::Fifo, FileKind::BlockDevice][rng.below(3) as usize] as u8;
                let (uid, gid) = (word as u32, rng.below(3) as u32);
                let mode = rng.below(0o10_000) as u16;
                inode.owner = InodeOwner { uid, gid, mode, kind, layout: word as u16 };
            }
        }
    }
    inode
}

fn loaded(page: &InodePage) -> Option<InodePage> {
    InodePage::load(page.bytes().content(), |_| true)
}

#[test]
fn a_page_is_what_was_put_into_it() {
    let mut rng = Rng::new(7);
    for _ in 0..200 {
        let (mut page, mut scratch) = (None, Vec::new());
        let mut oracle: [Option<PlainInode>; 64] = [None; 64];
        for _ in 0..rng.below(300) {
            let index = rng.below(64) as u32;
            match oracle[index as usize].take() {
                Some(inode) => assert_eq!(InodePage::take(&mut page, index, &mut scratch), inode),
                None => {
                    let inode = random(&mut rng);
                    InodePage::put(&mut page, index, &inode, &mut scratch);
                    oracle[index as usize] = Some(inode);
                }
            }
            let present = page.as_ref().map_or(0, InodePage::present);
            for (index, inode) in (0..).zip(oracle) {
                assert_eq!((present >> index) & 1 == 1, inode.is_some());
                assert_eq!(inode, inode.and_then(|_| page.as_ref().map(|page| page.get(index))));
            }
        }
        let again = page.as_ref().map(|page| loaded(page).expect("its own bytes are a page"));
        let content = |page: &Option<InodePage>| page.as_ref().map(|page| page.bytes().content().to_vec());
        assert_eq!(content(&again), content(&page));
    }
}

#[test]
fn files_made_one_after_the_other_take_eight_bytes() {
    let (mut page, mut scratch) = (None, Vec::new());
    for index in 0..64 {
        InodePage::put(&mut page, index, &plain(1_700_000_000_000_000 + u64::from(index) * 50), &mut scratch);
    }
    let content = page.as_ref().map_or(0, |page| page.bytes().content().len());
    assert!(content <= HEADER_BYTES + OWNER_BYTES + 64 * 5, "{content} bytes");
}

#[test]
fn owners_that_no_inode_has_any_more_leave_the_page() {
    let (mut page, mut scratch) = (None, Vec::new());
    InodePage::put(&mut page, 0, &plain(1), &mut scratch);
    for uid in 0..10_000 {
        let mut inode = plain(2);
        inode.owner.uid = uid;
        InodePage::put(&mut page, 1, &inode, &mut scratch);
        assert_eq!(InodePage::take(&mut page, 1, &mut scratch), inode);
    }
    let page = page.expect("one inode is left");
    assert_eq!(page.get(0), plain(1));
    assert!(page.bytes().content().len() < 200, "{} bytes", page.bytes().content().len());
}

#[test]
fn an_inode_that_a_page_has_no_room_for_stays_unpacked() {
    let inode =
        plain(1).unpacked(Arc::new(FileLayout { chunk_bytes: 1, chain_count: 1, plugin: String::new(), regime: 0 }));
    assert_eq!(PlainInode::of(&inode, 0), Some(plain(1)));
    let directory = Inode { kind: FileKind::Directory as u8, ..inode.clone() };
    assert_eq!(PlainInode::of(&directory, 0), None);
    let mut with_extra = inode;
    with_extra.extra_mut().rdev = 1;
    assert_eq!(PlainInode::of(&with_extra, 0), None);
}

#[test]
fn any_bytes_are_a_page_or_none() {
    let mut rng = Rng::new(11);
    let mut page = |count: u64| {
        let (mut page, mut scratch) = (None, Vec::new());
        (0..count).for_each(|_| {
            let index = rng.below(64) as u32;
            if page.as_ref().is_none_or(|page: &InodePage| page.present() & 1 << index == 0) {
                InodePage::put(&mut page, index, &random(&mut rng), &mut scratch);
            }
        });
        page.expect("it has one").bytes().content().to_vec()
    };
    let seeds = [page(1), page(3), page(200)];
    frieze_harness::fuzz!(seeds, |bytes: &[u8]| {
        let Some(page) = InodePage::load(bytes, |layout| !(4..=100).contains(&layout)) else { return };
        assert_eq!(page.bytes().content(), bytes);
        let mut page = Some(page);
        let mut scratch = Vec::new();
        while let Some(present) = page.as_ref().map(InodePage::present) {
            InodePage::take(&mut page, present.trailing_zeros(), &mut scratch);
        }
    });
}
