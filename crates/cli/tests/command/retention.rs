//! Policies of retention, at the door of the command.

use frieze_testkit::wait;
use serde_json::Value;

use crate::served::Served;

#[test]
fn a_policy_is_shown_previewed_and_applied_and_a_refused_instant_names_those_beside_it() {
    let server = Served::start();
    server.ok(&["mkdir", "/t"]);
    server.put("/t/f", "first");
    let shown = server.json(&["retention", "show", "/t", "--json"]);
    assert_eq!(shown[0]["policy"], Value::Null, "{shown:?}");
    let policy = "all 1s, 1/s 1h";
    assert!(server.ok(&["retention", "set", "-n", policy, "/t"]).contains("2 names would get the policy"));
    assert_eq!(server.json(&["retention", "show", "/t", "--json"])[0]["policy"], Value::Null);
    assert!(server.ok(&["retention", "set", policy, "/t"]).contains("2 names got the policy"));
    assert!(server.ok(&["retention", "set", policy, "/t"]).contains("has this policy already"));
    server.put("/t/later", "later");
    assert_eq!(server.json(&["retention", "show", "/t/later", "--json"])[0]["policy"], policy);

    // Of several states within one second the last is kept: one of these is not.
    let mut instants = Vec::new();
    for number in 0..10 {
        server.put("/t/f", format!("state {number}"));
        instants.push(server.now());
    }
    let preview = server.json(&["retention", "preview", "all 1s", "/t", "--json"]);
    assert_eq!(preview[0]["files"], 2, "{preview:?}");
    let is_exact = |at: &str| {
        let shown = server.json(&["retention", "show", "/t/f", "--at", at, "--json"]);
        shown[0]["exact"].as_bool().unwrap()
    };
    wait::wait_until("an instant that is not exact", || instants.iter().any(|at| !is_exact(at)));
    let thinned = instants.iter().find(|at| !is_exact(at)).unwrap();
    let words = server.fails(1, &["cat", "/t/f", "--at", thinned]);
    assert!(words.contains("is not kept as it was at") && words.contains("the instants beside it"), "{words}");
    let shown = server.json(&["retention", "show", "/t/f", "--at", thinned, "--json"]);
    for beside in ["before", "after"] {
        // None if the file was made since.
        let Some(at) = shown[0][beside].as_str() else { continue };
        assert!(is_exact(at), "{beside}: {shown:?}");
        let bytes = server.cat_at("/t/f", at);
        assert!(bytes.starts_with("state ") || bytes == "first", "{beside}: {bytes}");
    }
    assert_eq!(server.ok(&["cat", "/t/f"]), "state 9");
}

#[test]
fn a_policy_that_is_none_is_refused_with_what_to_write() {
    let server = Served::start();
    server.ok(&["mkdir", "/t"]);
    for (policy, words) in [
        ("all 1h, 1/7min 1d", "write 1/5min or 1/15min"),
        ("all 1h 1/min 1d", "a comma is missing"),
        ("1/min 1d", "begin with `all` and an age"),
        ("all 1h, 1/month 1y", "1/4w or 1/52w"),
    ] {
        for command in ["set", "preview"] {
            let refused = server.fails(1, &["retention", command, policy, "/t"]);
            assert!(refused.contains(words), "{command} {policy}: {refused}");
        }
    }
    assert!(server.fails(1, &["retention", "set", "all 1h", "/never"]).contains("no such file or directory"));
    assert!(server.fails(1, &["retention", "show", "/never"]).contains("no such file or directory"));
}
