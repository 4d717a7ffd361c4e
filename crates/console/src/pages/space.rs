//! The space of a directory: what is live, and what is kept for the past only.

use askama::Template;
use frieze_base::MonoTime;
use frieze_client::{Fs, Hlc, InodeId, Target, UsageDirectory, mono};

use crate::error::{PageRefusal, about};
use crate::frame::{Frame, render};
use crate::paths::PagePath;
use crate::query::Params;
use crate::reply::ConsoleReply;
use crate::visit::{Visit, target};
use crate::words::{bytes, grouped, shown};

/// How long a page adds up directories; what is left out is said.
const TIME_MAX_NS: u64 = 1_500_000_000;
/// Directories that a page adds up.
const DIRECTORIES_MAX: usize = 20_000;
/// Directories that a page lists.
const ROWS_MAX: usize = 100;

/// Bytes and files of a tree.
#[derive(Clone, Copy, Debug, Default)]
struct TreeSpace {
    live: u64,
    history: u64,
    files: u64,
    deleted_files: u64,
}

impl TreeSpace {
    fn add(&mut self, other: TreeSpace) {
        self.live += other.live;
        self.history += other.history;
        self.files += other.files;
        self.deleted_files += other.deleted_files;
    }
}

/// A directory as a bar.
struct SpaceRow {
    name: String,
    href: String,
    live: String,
    history: String,
    /// Widths of the two parts of its bar, in hundredths of the longest.
    live_width: u64,
    history_width: u64,
    files: String,
    /// It is not there any more, and its past is.
    is_deleted: bool,
}

#[derive(Template)]
#[template(path = "space.html")]
struct SpacePage {
    frame: Frame,
    crumbs: Vec<(String, String)>,
    live: String,
    history: String,
    files: String,
    deleted_files: String,
    rows: Vec<SpaceRow>,
    /// Not all was added up.
    at_least: bool,
    path: String,
}

/// Adds up a tree, for as long as a page may.
struct TreeWalk<'f> {
    fs: &'f Fs,
    until: MonoTime,
    left: usize,
    at_least: bool,
}

impl TreeWalk<'_> {
    /// The files of one directory, and the directories in it.
    fn directory(&mut self, target: &Target, at: u64) -> Result<(TreeSpace, Vec<UsageDirectory>), PageRefusal> {
        let fs = if at == 0 { self.fs.clone() } else { self.fs.at(Hlc(at)) };
        let (mut space, mut below, mut after) = (TreeSpace::default(), Vec::new(), Vec::new());
        loop {
            let page = fs.usage(target, &after).map_err(about(shown(&target.path)))?;
            space.add(TreeSpace {
                live: page.live_bytes,
                history: page.history_bytes,
                files: page.files,
                deleted_files: page.deleted_files,
            });
            below.extend(page.directories);
            if page.next.is_empty() {
                return Ok((space, below));
            }
            if mono() > self.until {
                self.at_least = true;
                return Ok((space, below));
            }
            after = page.next;
        }
    }

    /// Everything below an inode. What the user may not look at is left out.
    fn tree(&mut self, inode: u64, at: u64) -> TreeSpace {
        let (mut space, mut rest) = (TreeSpace::default(), vec![(inode, at)]);
        while let Some((inode, at)) = rest.pop() {
            if self.left == 0 || mono() > self.until {
                self.at_least = true;
                return space;
            }
            self.left -= 1;
            match self.directory(&Target::inode(InodeId(inode)), at) {
                Ok((own, below)) => {
                    space.add(own);
                    rest.extend(below.into_iter().map(|directory| (directory.inode, directory.at)));
                }
                Err(_) => self.at_least = true,
            }
        }
        space
    }
}

pub(super) fn page(visit: &Visit<'_>, path: &PagePath, _: &Params) -> Result<ConsoleReply, PageRefusal> {
    let fs = visit.fs();
    let until = MonoTime(mono().0 + TIME_MAX_NS);
    let mut walk = TreeWalk { fs: &fs, until, left: DIRECTORIES_MAX, at_least: false };
    let (mut whole, below) = walk.directory(&target(path), 0)?;
    let mut found = Vec::new();
    for UsageDirectory { name, inode, at } in below {
        let space = walk.tree(inode, at);
        whole.add(space);
        found.push((name, at, space));
    }
    found.sort_by_key(|(_, _, space)| std::cmp::Reverse(space.live + space.history));
    let longest = found.first().map_or(1, |(_, _, space)| (space.live + space.history).max(1));
    let width = |part: u64| (u128::from(part) * 100 / u128::from(longest)) as u64;
    let row = |(name, at, space): &(Vec<u8>, u64, TreeSpace)| SpaceRow {
        name: shown(name),
        href: match at {
            0 => format!("/space{}", path.join(name).escaped()),
            at => format!("/files{}?at={}", path.join(name).escaped(), Hlc(*at)),
        },
        live: bytes(space.live),
        history: bytes(space.history),
        live_width: width(space.live),
        history_width: width(space.history),
        files: grouped(space.files),
        is_deleted: *at != 0,
    };
    Ok(render(&SpacePage {
        frame: Frame::new(visit, "space", format!("Space of {}", path.shown())),
        crumbs: path.crumbs(),
        live: bytes(whole.live),
        history: bytes(whole.history),
        files: grouped(whole.files),
        deleted_files: grouped(whole.deleted_files),
        rows: found.iter().take(ROWS_MAX).map(row).collect(),
        at_least: walk.at_least || found.len() > ROWS_MAX,
        path: path.shown(),
    }))
}
