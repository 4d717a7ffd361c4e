//! Node ids: the kernel's numbers for a file at an instant.
//!
//! A file of the mount's own view (the present, or the instant of `mount --at`) has its inode number as its id, without
//! a table. Every other view has a *slot*, and an id is a marker bit, the slot and the inode: so each (inode, view) has
//! a number of its own that never equals one of the present, and the table grows with the number of views in use, not
//! of files. A slot counts the kernel's references and is used again when the last is dropped, the one free longest
//! first.
//!
//! Every id is below 2^53: programs keep inode numbers in doubles (Node's `fs.stat`, `jq`), where larger ones collide.
//! Of the 52 bits beside the first, three encode the division between slot and inode ([`pack`]): with an inode below
//! 2^21 there is room for 2^28 slots, with one below 2^45 for 16.
//!
//! A slot also names its *at entry*, the `.at` it was entered by: the same directory at the same instant reached by two
//! at entries has two ids, because the kernel allows a directory only one place in its tree.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use frieze_base::InodeId;
use frieze_hlc::{Hlc, UserTime};

/// A number by which the kernel knows a file. Also its `st_ino`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) u64);

impl NodeId {
    /// True if it belongs to the mount's own view: it is an inode number.
    pub(crate) fn is_of_base(self) -> bool {
        self.0 & PAST_BIT == 0
    }
}

/// The instant and user time that a part of the tree shows. Both absent: now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ViewTime {
    /// System time, inclusive.
    pub(crate) at: Option<Hlc>,
    /// User time, inclusive.
    pub(crate) user_at: Option<UserTime>,
}

impl ViewTime {
    /// True if nothing may be changed through it.
    pub(crate) fn is_past(self) -> bool {
        self.at.is_some() || self.user_at.is_some()
    }

    /// True if its content never changes: an exact instant of system time, with or without a user time under it.
    pub(crate) fn is_final(self) -> bool {
        self.at.is_some()
    }
}

/// The kind of place of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodePlace {
    /// A file of the tree.
    Tree,
    /// The virtual directory `.at` of a directory.
    At,
    /// A symbolic link in `.at` whose meaning moves: `5m-ago`.
    Moving(Arc<str>),
}

/// A node: an inode in a place, as its view shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FuseNode {
    /// Its id.
    pub(crate) id: NodeId,
    /// The inode; of `.at` and what is in it: the directory it belongs to.
    pub(crate) inode: InodeId,
    /// When; of `.at` and of the links in it: the view of the directory it belongs to.
    pub(crate) when: ViewTime,
    /// Where.
    pub(crate) place: NodePlace,
}

/// No slot is free, or the inode number does not fit into an id beside one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NodeSlot {
    place: NodePlace,
    when: ViewTime,
    /// Tree and Moving: the `.at` directory it lies in. At: the at entry of the directory it belongs to, 0 for the
    /// base.
    at_entry: u64,
}

/// All nodes the kernel knows. Bounded by [`SLOTS_MAX`].
pub(crate) struct NodeTable {
    base: ViewTime,
    table: Mutex<SlotTable>,
}

#[derive(Default)]
struct SlotTable {
    slots: Vec<Option<(NodeSlot, u64)>>,
    numbers: BTreeMap<NodeSlot, u32>,
    free: VecDeque<u32>,
}

const PAST_BIT: u64 = 1 << 52;
/// Bits of slot and inode together, below the bits that encode their division.
const PARTS_BITS: u32 = 49;
const DIVISIONS: u32 = 8;
/// Bits of the inode in the first division; each further one has so many more.
const INODE_BITS_LEAST: u32 = 21;
const INODE_BITS_STEP: u32 = 4;
/// Views in use at one time, times the at entries they were entered by.
pub(crate) const SLOTS_MAX: usize = 1 << 22;
/// `d_ino` where there is no number to give (FUSE_UNKNOWN_INO).
pub(crate) const UNNUMBERED: NodeId = NodeId(u32::MAX as u64);

impl NodeTable {
    /// Nodes of a mount that shows `base`.
    pub(crate) fn new(base: ViewTime) -> NodeTable {
        NodeTable { base, table: Mutex::new(SlotTable::default()) }
    }

    /// The node with this id; `None` if it was forgotten.
    pub(crate) fn find(&self, id: NodeId) -> Option<FuseNode> {
        if id.0 & PAST_BIT == 0 {
            return Some(FuseNode { id, inode: InodeId(id.0), when: self.base, place: NodePlace::Tree });
        }
        let (number, inode) = split(id);
        let table = self.lock();
        let (slot, _) = table.slots.get(number as usize)?.as_ref()?;
        Some(FuseNode { id, inode, when: slot.when, place: slot.place.clone() })
    }

    /// True if it was reached by an `.at`.
    pub(crate) fn is_entered(&self, node: &FuseNode) -> bool {
        node.id.0 & PAST_BIT != 0
    }

    /// The `.at` by which the view of `node` was entered; of an `.at`, the one outside of it. `None` in the mount's own
    /// view.
    pub(crate) fn at_entry_of(&self, node: &FuseNode) -> Option<FuseNode> {
        if !self.is_entered(node) {
            return None;
        }
        let at_entry = self.lock().at_entry_of(node.id);
        if at_entry == 0 { None } else { self.find(NodeId(at_entry)) }
    }

    /// The id of another inode in the view of `node`, without a reference: for listings.
    pub(crate) fn beside(&self, node: &FuseNode, inode: InodeId) -> NodeId {
        if node.id.0 & PAST_BIT == 0 {
            return NodeId(inode.0);
        }
        let (number, _) = split(node.id);
        pack(number, inode).unwrap_or(UNNUMBERED)
    }

    /// The id of another inode in the view of `node`; the kernel holds one more reference to it.
    pub(crate) fn refer_beside(&self, node: &FuseNode, inode: InodeId) -> Result<NodeId, Full> {
        if node.id.0 & PAST_BIT == 0 {
            return Ok(NodeId(inode.0));
        }
        let (number, _) = split(node.id);
        let id = pack(number, inode).ok_or(Full)?;
        let mut table = self.lock();
        let (_, references) = table.slots.get_mut(number as usize).and_then(Option::as_mut).ok_or(Full)?;
        *references += 1;
        Ok(id)
    }

    /// The id of the `.at` of the directory `node`; the kernel holds one more reference to it.
    pub(crate) fn refer_at(&self, node: &FuseNode) -> Result<NodeId, Full> {
        let mut table = self.lock();
        let at_entry = if node.id.0 & PAST_BIT == 0 { 0 } else { table.at_entry_of(node.id) };
        table.refer(NodeSlot { place: NodePlace::At, when: node.when, at_entry }, node.inode)
    }

    /// The id of the directory of the `.at` directory `at`, as it was `when`; the kernel holds one more reference.
    pub(crate) fn refer_past(&self, at: &FuseNode, when: ViewTime) -> Result<NodeId, Full> {
        self.lock().refer(NodeSlot { place: NodePlace::Tree, when, at_entry: at.id.0 }, at.inode)
    }

    /// The id of the moving link `name` in the `.at` directory `at`; the kernel holds one more reference.
    pub(crate) fn refer_moving(&self, at: &FuseNode, name: &str) -> Result<NodeId, Full> {
        self.lock()
            .refer(NodeSlot { place: NodePlace::Moving(name.into()), when: at.when, at_entry: at.id.0 }, at.inode)
    }

    /// The kernel gave up `count` references.
    pub(crate) fn forget(&self, id: NodeId, count: u64) {
        if id.0 & PAST_BIT == 0 {
            return;
        }
        let (number, _) = split(id);
        let mut table = self.lock();
        let Some(place) = table.slots.get_mut(number as usize) else { return };
        let Some((slot, references)) = place else { return };
        *references = references.saturating_sub(count);
        if *references == 0 {
            let slot = slot.clone();
            *place = None;
            table.numbers.remove(&slot);
            table.free.push_back(number);
        }
    }

    /// Slots in use.
    #[cfg(test)]
    fn slots(&self) -> usize {
        self.lock().numbers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SlotTable> {
        // Every change of the table is complete before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn refer(&mut self, slot: NodeSlot, inode: InodeId) -> Result<NodeId, Full> {
        let number = match self.numbers.get(&slot) {
            Some(&number) => number,
            None => self.take(slot, inode)?,
        };
        let id = pack(number, inode).ok_or(Full)?;
        if let Some(Some((_, references))) = self.slots.get_mut(number as usize) {
            *references += 1;
        }
        Ok(id)
    }

    /// A slot that has never been used, or when there is none the one free longest: an id comes back as late as it can.
    fn take(&mut self, slot: NodeSlot, inode: InodeId) -> Result<u32, Full> {
        let fits = |number: u32| pack(number, inode).is_some();
        let unused = self.slots.len() as u32;
        let number = if self.slots.len() < SLOTS_MAX && self.free.len() < FREE_MIN && fits(unused) {
            self.slots.push(None);
            unused
        } else {
            let place = self.free.iter().position(|&number| fits(number)).ok_or(Full)?;
            self.free.remove(place).ok_or(Full)?
        };
        self.slots[number as usize] = Some((slot.clone(), 0));
        self.numbers.insert(slot, number);
        Ok(number)
    }

    fn at_entry_of(&self, id: NodeId) -> u64 {
        let (number, _) = split(id);
        self.slots.get(number as usize).and_then(Option::as_ref).map_or(0, |(slot, _)| slot.at_entry)
    }
}

// Free slots kept before one is used again, so that a recent id does not change its meaning.
const FREE_MIN: usize = 1024;

/// The id of an inode in the view of a slot; `None` if both together are too large for any division.
fn pack(number: u32, inode: InodeId) -> Option<NodeId> {
    let fits = |division: &u32| {
        let inode_bits = inode_bits(*division);
        inode.0 >> inode_bits == 0 && u64::from(number) >> (PARTS_BITS - inode_bits) == 0
    };
    let division = (0..DIVISIONS).find(fits)?;
    let slot = u64::from(number) << inode_bits(division);
    Some(NodeId(PAST_BIT | u64::from(division) << PARTS_BITS | slot | inode.0))
}

fn split(id: NodeId) -> (u32, InodeId) {
    let division = (id.0 & !PAST_BIT) >> PARTS_BITS;
    let inode_bits = inode_bits(division as u32 % DIVISIONS);
    let parts = id.0 & ((1 << PARTS_BITS) - 1);
    ((parts >> inode_bits) as u32, InodeId(parts & ((1 << inode_bits) - 1)))
}

fn inode_bits(division: u32) -> u32 {
    INODE_BITS_LEAST + division * INODE_BITS_STEP
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: NodeId = NodeId(InodeId::ROOT.0);

    fn at(micros: u64) -> ViewTime {
        ViewTime { at: Some(Hlc::first_of_micros(micros)), user_at: None }
    }

    fn past(nodes: &NodeTable, dir: NodeId, when: ViewTime) -> FuseNode {
        let at_entry = nodes.refer_at(&nodes.find(dir).unwrap()).unwrap();
        let id = nodes.refer_past(&nodes.find(at_entry).unwrap(), when).unwrap();
        nodes.find(id).unwrap()
    }

    #[test]
    fn a_present_file_has_its_inode_number_and_costs_no_slot() {
        let nodes = NodeTable::new(ViewTime::default());
        let node = nodes.find(NodeId(77)).unwrap();
        assert_eq!((node.inode, node.when, &node.place), (InodeId(77), ViewTime::default(), &NodePlace::Tree));
        assert_eq!(nodes.refer_beside(&node, InodeId(78)), Ok(NodeId(78)));
        assert_eq!(nodes.slots(), 0);
    }

    #[test]
    fn every_inode_and_instant_has_an_id_of_its_own() {
        let nodes = NodeTable::new(ViewTime::default());
        let first = past(&nodes, ROOT, at(1));
        let second = past(&nodes, ROOT, at(2));
        let file_first = nodes.refer_beside(&first, InodeId(9)).unwrap();
        let file_second = nodes.refer_beside(&second, InodeId(9)).unwrap();
        let ids = [ROOT, NodeId(9), first.id, second.id, file_first, file_second];
        for (index, id) in ids.iter().enumerate() {
            assert!(!ids[..index].contains(id), "{id:?} twice");
        }
        let found = nodes.find(file_second).unwrap();
        assert_eq!((found.inode, found.when), (InodeId(9), at(2)));
    }

    #[test]
    fn the_same_view_reached_twice_by_one_at_entry_has_one_id_and_by_two_has_two() {
        let nodes = NodeTable::new(ViewTime::default());
        let by_root = past(&nodes, ROOT, at(5));
        assert_eq!(past(&nodes, ROOT, at(5)).id, by_root.id);
        let inside = nodes.refer_beside(&by_root, InodeId(30)).unwrap();
        let by_directory = past(&nodes, NodeId(30), at(5));
        assert_ne!(inside, by_directory.id, "the kernel allows a directory one place only");
        assert_eq!(nodes.find(inside).unwrap().inode, by_directory.inode);
    }

    #[test]
    fn a_slot_lives_until_its_last_reference_is_forgotten() {
        let nodes = NodeTable::new(ViewTime::default());
        let dir = past(&nodes, ROOT, at(5));
        let file = nodes.refer_beside(&dir, InodeId(9)).unwrap();
        nodes.refer_beside(&dir, InodeId(9)).unwrap();
        nodes.forget(dir.id, 1);
        assert!(nodes.find(file).is_some());
        nodes.forget(file, 1);
        assert!(nodes.find(file).is_some());
        nodes.forget(file, 1);
        assert_eq!(nodes.find(file), None);
        assert_eq!(nodes.slots(), 1, "the .at directory is still known");
    }

    #[test]
    fn an_id_given_up_is_not_used_again_at_once() {
        let nodes = NodeTable::new(ViewTime::default());
        let root = nodes.find(ROOT).unwrap();
        let at_entry = nodes.find(nodes.refer_at(&root).unwrap()).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for micros in 0..1000 {
            let id = nodes.refer_past(&at_entry, at(micros)).unwrap();
            assert!(seen.insert(id), "used again after {micros}");
            nodes.forget(id, 1);
        }
        for micros in 0..10_000 {
            let id = nodes.refer_past(&at_entry, at(micros)).unwrap();
            nodes.forget(id, 1);
        }
        assert!(nodes.lock().slots.len() <= FREE_MIN + 1, "but it is used again");
    }

    #[test]
    fn moving_links_of_one_directory_differ_and_do_not_equal_its_at() {
        let nodes = NodeTable::new(ViewTime::default());
        let root = nodes.find(ROOT).unwrap();
        let at_entry = nodes.find(nodes.refer_at(&root).unwrap()).unwrap();
        let one = nodes.refer_moving(&at_entry, "5m-ago").unwrap();
        let other = nodes.refer_moving(&at_entry, "yesterday").unwrap();
        assert!(one != other && one != at_entry.id);
        assert_eq!(nodes.find(one).unwrap().place, NodePlace::Moving("5m-ago".into()));
    }

    #[test]
    fn a_mount_of_an_instant_shows_it_under_plain_inode_numbers() {
        let nodes = NodeTable::new(at(8));
        let node = nodes.find(NodeId(4)).unwrap();
        assert!(node.when.is_past() && node.when.is_final());
        assert_eq!(nodes.beside(&node, InodeId(5)), NodeId(5));
    }

    #[test]
    fn every_id_is_exact_in_a_double_and_decodes_to_its_node() {
        let inodes = (0..52).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        let mut packed = std::collections::BTreeSet::new();
        for inode in inodes.map(InodeId).collect::<std::collections::BTreeSet<_>>() {
            for number in (0..28).flat_map(|bits| [(1u32 << bits) - 1, 1 << bits]) {
                let Some(id) = pack(number, inode) else { continue };
                assert_eq!((id.0 as f64) as u64, id.0);
                assert!(id.0 >= PAST_BIT && id.0 < 1 << 53, "{number} {inode}");
                assert_eq!(split(id), (number, inode));
                packed.insert(id);
            }
        }
        assert!(packed.len() > 2000);
        assert!(pack(SLOTS_MAX as u32 - 1, InodeId((1 << 25) - 1)).is_some(), "all slots, with 32 million files");
        assert!(pack(15, InodeId((1 << 45) - 1)).is_some());
    }

    #[test]
    fn what_does_not_fit_is_refused_not_cut_and_takes_no_slot() {
        let nodes = NodeTable::new(ViewTime::default());
        let dir = past(&nodes, ROOT, at(5));
        let huge = InodeId(1 << 50);
        assert_eq!((nodes.refer_beside(&dir, huge), nodes.beside(&dir, huge)), (Err(Full), UNNUMBERED));
        let present = nodes.find(NodeId(huge.0)).unwrap();
        let slots = nodes.slots();
        assert_eq!((nodes.refer_at(&present), nodes.slots()), (Err(Full), slots));
    }
}
