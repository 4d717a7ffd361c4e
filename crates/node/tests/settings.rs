//! `docs/settings.md` and `contrib/frieze.toml` are made of the settings themselves: `UPDATE_EXPECT=1` writes them.

#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::path::{Path, PathBuf};

use frieze_node::Settings;

/// One setting: its name, its type, and what is said of it.
struct Setting {
    name: String,
    kind: String,
    words: Vec<String>,
}

enum Part {
    Title(String),
    Setting(Setting),
}

/// The settings of a struct, in their order.
fn parts_of(source: &str, name: &str) -> Vec<Part> {
    let body = source.split_once(&format!("pub struct {name} {{\n")).unwrap().1.split_once("\n}\n").unwrap().0;
    let (mut parts, mut words, mut is_set) = (Vec::new(), Vec::new(), true);
    for line in body.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix("// # ") {
            parts.push(Part::Title(title.to_owned()));
        } else if let Some(text) = line.strip_prefix("///") {
            words.push(text.trim().to_owned());
        } else if line.starts_with("#[serde(skip,") {
            is_set = false;
        } else if let Some((name, kind)) = line.strip_prefix("pub ").and_then(|line| line.split_once(": ")) {
            let setting = Setting {
                name: name.to_owned(),
                kind: kind.trim_end_matches(',').to_owned(),
                words: std::mem::take(&mut words),
            };
            if std::mem::replace(&mut is_set, true) {
                parts.push(Part::Setting(setting));
            }
        }
    }
    parts
}

/// What is written in a file for a type.
fn written(kind: &str) -> &str {
    match kind {
        "PathBuf" | "String" => "text",
        "Vec<String>" => "list of texts",
        "Duration" => "duration, such as \"50ms\", \"5s\", \"1m\", \"7d\"",
        "bool" => "true or false",
        "Vec<KeySettings>" => "list of keys",
        "Option<KeySettings>" => "a key",
        "Option<u32>" => "number, such as 0o755",
        "u32" | "u64" => "number",
        other => panic!("{other}: say how it is written"),
    }
}

/// Cut into lines of `width`, each after `prefix`.
fn wrapped(words: &[String], prefix: &str, width: usize) -> String {
    let (mut out, mut line) = (String::new(), String::new());
    for word in words.iter().flat_map(|words| words.split(' ')) {
        if !line.is_empty() && prefix.len() + line.len() + 1 + word.len() > width {
            out += &format!("{prefix}{line}\n");
            line.clear();
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    out + &format!("{prefix}{line}\n")
}

fn made() -> (String, String) {
    let source = std::fs::read_to_string(root().join("crates/planes/src/settings.rs")).unwrap();
    let defaults: toml::Table = toml::from_str(&toml::to_string(&Settings::default()).unwrap()).unwrap();
    let mut page = "# Settings of a server\n\n".to_owned();
    let intro = [
        "Generated from the code; `cargo test -p frieze-node --test settings` fails if the page differs from it. The \
         file is TOML, given as `frieze serve --config FILE`; an option of the command line overrides its setting. The \
         server refuses a file that other users can write, and a file with a secret that other users can read. \
         [contrib/frieze.toml](../contrib/frieze.toml) has every setting as a comment, to be copied. Sizes are bytes. \
         An unknown name, or an impossible value, is refused with its line."
            .to_owned(),
    ];
    page += &wrapped(&intro, "", 120);
    let mut example =
        "# Settings of a server of frieze: 'frieze serve --config FILE'. Each stands here with its default;\n"
            .to_owned();
    example += "# remove the '#' before a name to set it. docs/settings.md says the same in sections. The file has\n";
    example += "# to be readable for its user alone if it holds a key (chmod 600).\n";
    for part in parts_of(&source, "Settings") {
        let setting = match part {
            Part::Title(title) => {
                page += &format!("\n## {title}\n");
                example += &format!("\n\n#### {title}\n");
                continue;
            }
            Part::Setting(setting) => setting,
        };
        let default = defaults.get(&setting.name).map(toml::Value::to_string);
        let shown = default.clone().filter(|default| !matches!(default.as_str(), "\"\"" | "[]"));
        let shown = shown.map_or(String::new(), |default| format!(", `{default}`"));
        page += &format!("\n### `{}`\n\n*{}{shown}.*\n\n", setting.name, written(&setting.kind));
        page += &wrapped(&setting.words, "", 120);
        example += &format!("\n{}", wrapped(&setting.words, "# ", 100));
        match (&setting.kind[..], default) {
            ("Vec<KeySettings>" | "Option<KeySettings>", _) => {
                let table = if setting.kind.starts_with("Vec") { "[[keys]]" } else { "[join_key]" };
                page += "\n";
                // A table ends what stands before it: behind everything else in a file.
                example +=
                    &format!("# It goes to the end of the file, after everything else, and begins with {table}:\n");
                for part in parts_of(&source, "KeySettings") {
                    let Part::Setting(of_key) = part else { continue };
                    page += &format!("- `{}`: {}\n", of_key.name, of_key.words.join(" "));
                    let value = if of_key.kind == "bool" { "false" } else { "\"...\"" };
                    example += &format!("#     {} = {value}   # {}\n", of_key.name, of_key.words.join(" "));
                }
            }
            (_, Some(default)) => example += &format!("#{} = {default}\n", setting.name),
            (_, None) => example += &format!("#{} = 0o755\n", setting.name),
        }
    }
    (page, example)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_page_and_the_example_are_as_the_code_has_it() {
    let (page, example) = made();
    for (path, text) in [("docs/settings.md", page), ("contrib/frieze.toml", example)] {
        let path = root().join(path);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is not as the code has it: UPDATE_EXPECT=1 writes it", path.display());
    }
}

/// Each line that sets something is taken as it stands, all of them together too, and changes nothing.
#[test]
fn every_default_of_the_example_is_a_setting() {
    let text = std::fs::read_to_string(root().join("contrib/frieze.toml")).unwrap();
    let lines =
        text.lines().filter_map(|line| line.strip_prefix('#')).filter(|line| line.starts_with(char::is_alphabetic));
    // Two that stand for nothing where they have no default.
    let set: Vec<&str> = lines.filter(|line| !line.starts_with("root_mode")).collect();
    assert!(set.len() > 35, "{}", set.len());
    let parsed: Settings = toml::from_str(&set.join("\n")).unwrap();
    assert_eq!(toml::to_string(&parsed).unwrap(), toml::to_string(&Settings::default()).unwrap());
    let settings: toml::Table = toml::from_str(&toml::to_string(&Settings::default()).unwrap()).unwrap();
    for name in settings.keys().filter(|name| *name != "keys") {
        assert!(set.iter().any(|line| line.starts_with(&format!("{name} = "))), "{name} is missing");
    }
}
