//! What a path is, by rules: a table's file, a log, a source. Decided before names are left out of a trace.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::TraceFileError;

/// The built-in rules.
const BUILT_IN: &str = include_str!("../kinds.toml");
/// Rules that a file may have.
const RULES_MAX: usize = 10_000;
/// Longest extension that is kept: what follows the last dot of a longer name is no extension.
const EXTENSION_BYTES_MAX: usize = 12;

/// What a path is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKind {
    /// The word of the first rule that fits; `other` if none does.
    pub kind: String,
    /// The part of the path that the rule names as `{family}`.
    pub family: Option<String>,
    /// What follows the last dot of the name, in lower case.
    pub extension: Option<String>,
}

/// Rules, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindRules {
    rules: Vec<KindRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KindRule {
    kind: String,
    parts: Vec<PathPattern>,
    /// The pattern fits at any depth: it does not begin with a slash.
    is_floating: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PathPattern {
    /// `**`: any number of directories.
    Any,
    /// `{family}`: one name, which is the family.
    Family,
    /// A name with stars.
    Name(String),
}

#[derive(Deserialize)]
struct RuleFile {
    #[serde(default)]
    kind: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    name: String,
    paths: Vec<String>,
}

impl KindRules {
    /// The rules that frieze brings.
    ///
    /// # Panics
    /// Never: a test reads them.
    pub fn built_in() -> KindRules {
        KindRules::parse(BUILT_IN).expect("the built-in rules are whole")
    }

    /// Reads rules: `[[kind]]` tables of `name` and `paths`, with `*` for a part of a name, `**` for directories and
    /// `{family}` for the name that is the family.
    ///
    /// # Errors
    /// `Rule`, with the number of the rule.
    pub fn parse(text: &str) -> Result<KindRules, TraceFileError> {
        let rule_error = |number: usize, why: String| TraceFileError::Rule { number, why };
        let file: RuleFile = toml::from_str(text).map_err(|error| rule_error(0, error.to_string()))?;
        let mut rules = Vec::new();
        for (number, rule) in file.kind.into_iter().enumerate() {
            if rule.name.is_empty() || rule.paths.is_empty() {
                return Err(rule_error(number + 1, "it needs a name and paths".to_owned()));
            }
            for path in &rule.paths {
                let parts: Vec<PathPattern> =
                    path.split('/').filter(|part| !part.is_empty()).map(PathPattern::of).collect();
                if parts.is_empty() || rules.len() >= RULES_MAX {
                    let why = format!("{path:?} is no path, or there are more than {RULES_MAX}");
                    return Err(rule_error(number + 1, why));
                }
                rules.push(KindRule { kind: rule.name.clone(), parts, is_floating: !path.starts_with('/') });
            }
        }
        Ok(KindRules { rules })
    }

    /// These rules before others.
    #[must_use]
    pub fn before(mut self, others: KindRules) -> KindRules {
        self.rules.extend(others.rules);
        self
    }

    /// What a path is.
    pub fn kind_of(&self, path: &[u8]) -> PathKind {
        let text = String::from_utf8_lossy(path);
        let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
        let mut kind = PathKind { kind: "other".to_owned(), family: None, extension: extension_of(&names) };
        for rule in &self.rules {
            let starts = if rule.is_floating { names.len() } else { 1 };
            let found = (0..starts).find_map(|start| fit(&rule.parts, &names[start..]));
            if let Some(family) = found {
                kind.kind.clone_from(&rule.kind);
                kind.family = family.map(str::to_owned);
                break;
            }
        }
        kind
    }

    /// Number of paths by kind.
    pub fn count<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for path in paths {
            *counts.entry(self.kind_of(path).kind).or_default() += 1;
        }
        counts
    }
}

impl PathPattern {
    fn of(part: &str) -> PathPattern {
        match part {
            "**" => PathPattern::Any,
            "{family}" => PathPattern::Family,
            name => PathPattern::Name(name.to_owned()),
        }
    }
}

fn extension_of(names: &[&str]) -> Option<String> {
    let (stem, extension) = names.last()?.rsplit_once('.')?;
    let is_one = !stem.is_empty() && (1..=EXTENSION_BYTES_MAX).contains(&extension.len());
    (is_one && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())).then(|| extension.to_ascii_lowercase())
}

/// Whether a pattern fits all names; and the family.
fn fit<'n>(parts: &[PathPattern], names: &[&'n str]) -> Option<Option<&'n str>> {
    let Some((part, parts)) = parts.split_first() else { return names.is_empty().then_some(None) };
    match part {
        PathPattern::Any => (0..=names.len()).find_map(|skipped| fit(parts, &names[skipped..])),
        PathPattern::Family => {
            let (name, names) = names.split_first()?;
            fit(parts, names).map(|_| Some(*name))
        }
        PathPattern::Name(pattern) => {
            let (name, names) = names.split_first()?;
            if fits_name(pattern.as_bytes(), name.as_bytes()) { fit(parts, names) } else { None }
        }
    }
}

/// Whether a name fits a pattern with stars.
fn fits_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut star) = (0, None);
    let mut from = 0;
    while from < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == name[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                // The star takes one byte more.
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    (at, from) = (star_at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}
