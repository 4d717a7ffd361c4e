//! Stories: text files in which a line that starts with `> ` is a command, and the lines below it are its effects.
//!
//! A story is told by a test and compared with its file; `UPDATE_EXPECT=1` rewrites what the lines below a command say.
//! Empty lines and lines that start with `#` stay as they are.

use std::collections::BTreeMap;
use std::path::Path;

/// A test for each story of `testdata/`, and one that no story there is without a test.
///
/// `$start` makes what executes the commands of one story: a function of a command that returns its effects.
#[macro_export]
macro_rules! stories {
    ($start:expr; $($name:ident),* $(,)?) => {
        $(#[test] fn $name() {
            let mut run = $start;
            $crate::story::check(env!("CARGO_MANIFEST_DIR"), stringify!($name), &mut run);
        })*

        #[test]
        fn every_story_in_testdata_has_a_test() {
            $crate::story::check_all_have_tests(env!("CARGO_MANIFEST_DIR"), &[$(stringify!($name)),*]);
        }
    };
}

/// Compares a story with its file in the `testdata` of a crate, or rewrites the file.
pub fn check(crate_dir: &str, name: &str, run: &mut dyn FnMut(&str) -> Vec<String>) {
    let path = Path::new(crate_dir).join(format!("testdata/{name}.txt"));
    let written = std::fs::read_to_string(&path).expect("the story is there");
    let now = replay(&written, run);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &now).expect("the story can be rewritten");
        return;
    }
    assert!(now == written, "{name} differs from its file; it is now:\n{now}\nUPDATE_EXPECT=1 rewrites the file");
}

/// Asserts that `testdata` holds these stories and no file beside them.
pub fn check_all_have_tests(crate_dir: &str, names: &[&str]) {
    let folder = Path::new(crate_dir).join("testdata");
    let files = std::fs::read_dir(folder).expect("testdata is there").count();
    assert_eq!(files, names.len(), "a story without a test proves nothing");
}

/// The text of a story with the effects of each command as they are now.
fn replay(written: &str, run: &mut dyn FnMut(&str) -> Vec<String>) -> String {
    let mut now = String::new();
    for line in written.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.is_empty() || line.starts_with('#') {
                now += &format!("{line}\n");
            }
            continue;
        };
        now += &format!("{line}\n");
        for effect in run(command) {
            now += &format!("  {effect}\n");
        }
    }
    now
}

/// A command of a story: a verb, then pairs of a name and a value; a flag is a name without a value.
pub struct StoryCommand<'a> {
    /// The first word.
    pub verb: &'a str,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> StoryCommand<'a> {
    /// Parses a command in which these names are flags.
    pub fn parse(command: &'a str, flags: &[&str]) -> StoryCommand<'a> {
        let mut words = command.split_whitespace();
        let verb = words.next().expect("a command has a verb");
        let mut values = BTreeMap::new();
        while let Some(name) = words.next() {
            let value = if flags.contains(&name) { "" } else { words.next().expect("a name has a value") };
            values.insert(name, value);
        }
        StoryCommand { verb, values }
    }

    /// True if a flag, or a value of this name, is given.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The text of a value, if it is given.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).copied()
    }

    /// A value as a number, if it is given.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name).map(|text| text.parse().expect("the value is a number"))
    }

    /// A value as a number.
    pub fn need(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{} needs {name}", self.verb))
    }
}

#[cfg(test)]
mod tests {
    use super::{StoryCommand, replay};

    #[test]
    fn a_story_keeps_its_comments_and_gets_new_effects() {
        let mut sum = 0;
        let mut run = |command: &str| {
            sum += StoryCommand::parse(command, &[]).need("n");
            vec![format!("sum {sum}")]
        };
        let now = replay("# sums\n\n> add n 1\n  sum 7\n> add n 2\n", &mut run);
        assert_eq!(now, "# sums\n\n> add n 1\n  sum 1\n> add n 2\n  sum 3\n");
    }

    #[test]
    fn a_flag_has_no_value() {
        let command = StoryCommand::parse("write sync n 3", &["sync"]);
        assert_eq!((command.verb, command.has("sync"), command.need("n")), ("write", true, 3));
        assert_eq!(command.number("at"), None);
    }
}
