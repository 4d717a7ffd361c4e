//! `du --history`: the space of the past beside the present.

use anyhow::{Error, Result};
use frieze_base::{InodeId, Reason};
use frieze_client::{Fs, Hlc, Target};
use serde_json::json;

use crate::args::DuArgs;
use crate::copy::{self, target};
use crate::failure::{self, ReportedError};
use crate::format;
use crate::path::FsPath;
use crate::progress::ProgressLine;
use crate::run::CommandRun;

/// The space of a tree.
#[derive(Clone, Copy, Debug, Default)]
struct TreeSum {
    live: u64,
    history: u64,
    files: u64,
    deleted_files: u64,
    directories: u64,
}

impl TreeSum {
    fn add(&mut self, other: TreeSum) {
        self.live += other.live;
        self.history += other.history;
        self.files += other.files;
        self.deleted_files += other.deleted_files;
        self.directories += other.directories;
    }
}

/// `frieze du --history`.
pub(crate) fn du_history(run: &mut CommandRun, args: &DuArgs) -> Result<()> {
    let paths = copy::parse_all(&args.paths)?;
    let fs = run.fs()?;
    run.show(|wanted| ProgressLine::items(wanted, "directories"));
    if !run.json() {
        run.print(&format!("{:>12}  {:>12}", "NOW", "HISTORY"))?;
    }
    for path in &paths {
        if let Err(error) = tree(run, args, &fs, path, &target(path, true), true) {
            run.report(&path.to_string(), error)?;
        }
    }
    Ok(())
}

/// Sums up a directory, printing those below first. A deleted one is printed with its last name.
fn tree(
    run: &mut CommandRun,
    args: &DuArgs,
    fs: &Fs,
    path: &FsPath,
    target: &Target,
    is_asked: bool,
) -> Result<TreeSum> {
    let mut sum = TreeSum { directories: 1, ..TreeSum::default() };
    let (mut after, mut below) = (Vec::new(), Vec::new());
    loop {
        let page = fs.usage(target, &after).map_err(Error::from)?;
        sum.add(TreeSum {
            live: page.live_bytes,
            history: page.history_bytes,
            files: page.files,
            deleted_files: page.deleted_files,
            directories: 0,
        });
        below.extend(page.directories);
        if page.next.is_empty() {
            break;
        }
        after = page.next;
    }
    run.progress(|progress| {
        progress.advance(1);
        progress.at(path.to_string());
    });
    let mut failed = false;
    for directory in below {
        let here = if directory.at == 0 { fs.clone() } else { fs.at(Hlc(directory.at)) };
        let (path, target) = (path.join(&directory.name), Target::inode(InodeId(directory.inode)));
        match tree(run, args, &here, &path, &target, false) {
            Ok(part) => sum.add(part),
            // Its last state is not kept, and so takes no space.
            Err(error) if directory.at != 0 && failure::is(&error, Reason::HistoryExpired) => {}
            Err(error) => {
                run.report(&path.to_string(), error)?;
                failed = true;
            }
        }
    }
    if is_asked || !args.summarize {
        let size = |bytes: u64| if args.human { format::human(bytes) } else { bytes.to_string() };
        run.item(
            || {
                json!({
                    "path": path.to_string(),
                    "bytes_live": sum.live,
                    "bytes_history": sum.history,
                    "files": sum.files,
                    "deleted_files": sum.deleted_files,
                    "directories": sum.directories,
                })
            },
            || Some(format!("{:>12}  {:>12}  {path}", size(sum.live), size(sum.history))),
        )?;
    }
    // A sum with something missing was printed, and the missing part reported.
    if failed && is_asked { Err(ReportedError.into()) } else { Ok(sum) }
}
