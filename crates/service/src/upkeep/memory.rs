//! Keeps the process within its memory, where no other module limits the kernel's copies.
//!
//! Guarantees: names, and page cache of the log of metadata and of the store's tables, are kept to their shares;
//! `device::tiers` limits that of the device log. Leaves to others: dividing the memory (`tier`), the index
//! (`device::index_runs`), the store's own caches (`store`).

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use frieze_base::Fault;

use crate::upkeep::Upkeep;

impl Upkeep {
    /// Frees memory that no other module tracks. To be called about twice a second, on a thread that may take long.
    ///
    /// # Errors
    /// The disk's: the next call tries again, and until then memory may exceed the limit.
    pub fn keep_to_memory(&self) -> Result<(), Fault> {
        self.planes.data.device().sweep();
        self.planes.meta.keep_names_to_memory();
        // Half for each: one may fill during the look at the other.
        let files_max = self.planes.data.device().shares().files / 2;
        let cached = self.planes.meta.keep_cached(files_max)? + self.planes.meta.keep_versions_cached(files_max)?;
        self.files_cached.store(cached, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of files that are neither segments nor shelves in the kernel's memory, as of the last look.
    pub fn files_cached(&self) -> u64 {
        self.files_cached.load(Ordering::Relaxed)
    }
}

/// Memory that this process may use at most: that of the machine, or less where a control group limits it. 0 if it is
/// unknown.
pub fn machine_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(
        total.map_or(0, |kib| kib << 10),
        limits(&groups, Path::new("/sys/fs/cgroup"), &|path| std::fs::read_to_string(path).ok()),
    )
}

fn least(total: u64, limits: impl Iterator<Item = u64>) -> u64 {
    limits.filter(|limit| *limit > 0).fold(total, |least, limit| if least == 0 { limit } else { least.min(limit) })
}

/// The limits of the groups of `/proc/self/cgroup` and of all above them.
fn limits<'a>(
    groups: &'a str,
    root: &'a Path,
    read: &'a dyn Fn(&Path) -> Option<String>,
) -> impl Iterator<Item = u64> + 'a {
    let files = groups.lines().flat_map(move |line| {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            return Vec::new();
        };
        // Version 2 names no kinds; version 1 has a tree for each.
        let (tree, file) = match kinds {
            "" => (root.to_owned(), "memory.max"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return Vec::new(),
        };
        let mut files: Vec<PathBuf> = Vec::new();
        let mut group = Path::new(group.trim_start_matches('/'));
        loop {
            files.push(tree.join(group).join(file));
            match group.parent() {
                Some(above) => group = above,
                None => return files,
            }
        }
    });
    // "max" is no number, and no limit.
    files.filter_map(|file| read(&file)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(groups: &str, files: &[(&str, &str)]) -> u64 {
        let read =
            |path: &Path| files.iter().find(|(name, _)| Path::new(name) == path).map(|(_, text)| (*text).to_owned());
        least(16 << 30, limits(groups, Path::new("/g"), &read))
    }

    #[test]
    fn the_least_of_all_limits_above_holds() {
        assert_eq!(found("0::/\n", &[("/g/memory.max", "max\n")]), 16 << 30);
        let files = [("/g/a/b/memory.max", "max\n"), ("/g/a/memory.max", "1073741824\n"), ("/g/memory.max", "max\n")];
        assert_eq!(found("0::/a/b\n", &files), 1 << 30);
        let files = [("/g/memory/x/memory.limit_in_bytes", "4096\n"), ("/g/x/memory.max", "1\n")];
        assert_eq!(found("5:cpu,memory:/x\n4:pids:/x\n", &files), 4096);
        // What version 1 says where there is no limit is more than any machine has.
        let files = [("/g/memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(found("5:memory:/\n", &files), 16 << 30);
        assert_eq!(least(0, [0, 7].into_iter()), 7);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(machine_bytes() > 64 << 20);
    }
}
