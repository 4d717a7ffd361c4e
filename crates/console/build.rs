//! Fetches what the pages use of others, by npm and its lock file, and puts it beside the program.
//!
//! Without Node the build goes on, and `frieze serve --console` says that this program has no console.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

/// Files of packages, as the pages name them.
const VENDORED: [(&str, &str); 2] =
    [("uplot/dist/uPlot.iife.min.js", "uplot.js"), ("uplot/dist/uPlot.min.css", "uplot.css")];

fn main() {
    println!("cargo:rustc-check-cfg=cfg(without_node)");
    for file in ["package.json", "package-lock.json"] {
        println!("cargo:rerun-if-changed=assets/{file}");
    }
    println!("cargo:rerun-if-env-changed=FRIEZE_WITHOUT_NODE");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    if let Err(why) = fetch(Path::new("assets"), &out) {
        println!("cargo:warning=the console (`frieze serve --console`) is left out: {why}");
        println!("cargo:rustc-cfg=without_node");
        for (_, name) in VENDORED {
            fs::write(out.join(name), "").expect("the directory of the build can be written");
        }
    }
}

/// Installs the packages of the lock file into a directory of the build, and copies what is wanted.
fn fetch(from: &Path, out: &Path) -> Result<(), String> {
    if env::var_os("FRIEZE_WITHOUT_NODE").is_some() {
        return Err("FRIEZE_WITHOUT_NODE is set".to_owned());
    }
    let install = out.join("packages");
    fs::create_dir_all(&install).map_err(|error| format!("{}: {error}", install.display()))?;
    for file in ["package.json", "package-lock.json"] {
        fs::copy(from.join(file), install.join(file)).map_err(|error| format!("{file}: {error}"))?;
    }
    let mut npm = Command::new("npm");
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(&install);
    let output = npm.stdin(Stdio::null()).output().map_err(|error| format!("npm (of Node): {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let first = words.lines().next().unwrap_or("no reason given").to_owned();
        return Err(format!("npm ci failed: {first}"));
    }
    for (package, name) in VENDORED {
        let source = install.join("node_modules").join(package);
        fs::copy(&source, out.join(name)).map_err(|error| format!("{}: {error}", source.display()))?;
    }
    Ok(())
}
