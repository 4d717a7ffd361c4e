//! The files of the pages: built into the program, named by the hash of their bytes.

use std::sync::OnceLock;

use crate::reply::ConsoleReply;

/// A file: its name, its type, its bytes.
struct Asset {
    name: &'static str,
    kind: &'static str,
    bytes: &'static [u8],
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

const ASSETS: &[Asset] = &[
    Asset { name: "console.css", kind: STYLE, bytes: include_bytes!("../assets/console.css") },
    Asset { name: "console.js", kind: SCRIPT, bytes: include_bytes!("../assets/console.js") },
    Asset { name: "cluster.js", kind: SCRIPT, bytes: include_bytes!("../assets/cluster.js") },
    Asset { name: "wave.js", kind: SCRIPT, bytes: include_bytes!("../assets/wave.js") },
    Asset { name: "icon.svg", kind: "image/svg+xml", bytes: include_bytes!("../assets/icon.svg") },
    Asset { name: "uplot.js", kind: SCRIPT, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/uplot.js")) },
    Asset { name: "uplot.css", kind: STYLE, bytes: include_bytes!(concat!(env!("OUT_DIR"), "/uplot.css")) },
];

/// The address of a file: it changes with its bytes, so that browsers may keep it.
pub(crate) fn address(name: &str) -> String {
    format!("/assets/{}/{name}", version())
}

/// The file of an address behind `/assets/`; files of another version of the program are not there.
pub(crate) fn asset(rest: &str) -> Option<ConsoleReply> {
    let (_, name) = rest.split_once('/').filter(|(found, _)| *found == version())?;
    let found = ASSETS.iter().find(|asset| asset.name == name)?;
    Some(ConsoleReply::asset(found.kind, found.bytes))
}

fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let mut hasher = blake3::Hasher::new();
        for asset in ASSETS {
            hasher.update(asset.bytes);
        }
        hasher.finalize().to_hex()[..12].to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_file_and_no_other() {
        assert!(asset(address("console.js").strip_prefix("/assets/").expect("it lies there")).is_some());
        for wrong in ["console.js", "000000000000/console.js", "../console.js", ""] {
            assert!(asset(wrong).is_none(), "{wrong}");
        }
    }
}
