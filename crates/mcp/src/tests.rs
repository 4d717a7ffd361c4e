//! Tools on a real server, called as the protocol calls them.

use std::collections::BTreeSet;
use std::time::Duration;

use frieze_client::{Client, CreateMode, ForgetOptions, Options, ServerAddr, SessionName, SetAttr, Target, ZonePolicy};
use frieze_testkit::local::LocalServer;
use serde_json::{Value, json};

use crate::arguments::{LIMIT_MAX, READ_BYTES_MAX};
use crate::scoped_path::ToolScope;
use crate::tool_context::{ToolAccess, ToolContext};
use crate::tools;

/// A server, and tools that reach one tree of it.
struct ToolFixture {
    served: LocalServer,
    context: ToolContext,
}

impl ToolFixture {
    fn new() -> ToolFixture {
        ToolFixture::within("/", ToolAccess::ReadWrite)
    }

    fn within(root: &str, access: ToolAccess) -> ToolFixture {
        let served = LocalServer::at_socket();
        let context = ToolContext::new(options(&served), ToolScope::new(root, Some("/mnt/f")).unwrap(), access);
        ToolFixture { served, context }
    }

    /// Another client: an agent with a session of its own, by a name.
    fn agent(&self, name: &str) -> Agent {
        let name: SessionName = name.parse().unwrap();
        let client = Client::connect(Options { command: name.describe("agent"), ..options(&self.served) }).unwrap();
        let session = client.session().unwrap().0.to_string();
        Agent { client, session }
    }

    /// The structured answer, or the failure.
    fn call(&self, tool: &str, args: Value) -> Result<Value, String> {
        let Value::Object(args) = args else { panic!("{args} is no object") };
        let answer = tools::call(&self.context, tool, args).expect("there is such a tool");
        answer.map(|answer| answer.structured).map_err(|error| error.to_string())
    }

    fn get(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).unwrap()
    }

    fn refusal(&self, tool: &str, args: Value) -> String {
        self.call(tool, args).expect_err("it is refused")
    }

    fn checkpoint(&self) -> String {
        text(&self.get("checkpoint", json!({}))["at"])
    }

    fn read(&self, path: &str) -> String {
        text(&self.get("read_at", json!({ "path": path }))["text"])
    }
}

impl Drop for ToolFixture {
    fn drop(&mut self) {
        self.context.close();
    }
}

/// A client that edits files.
struct Agent {
    client: Client,
    session: String,
}

impl Agent {
    fn write(&self, path: impl Into<Vec<u8>>, offset: u64, bytes: &[u8]) {
        let target = Target::path(path);
        let file = self.client.fs().create(&target, 0o644, CreateMode::OpenExisting).unwrap();
        file.write_at(offset, bytes).unwrap();
        file.close().unwrap();
    }

    fn mkdir(&self, path: &str) {
        self.client.fs().mkdir(&Target::path(path), 0o755).unwrap();
    }

    fn remove(&self, path: &str) {
        self.client.fs().unlink(&Target::path(path)).unwrap();
    }
}

fn options(served: &LocalServer) -> Options {
    let server = ServerAddr::parse_list(&served.socket()).unwrap().remove(0);
    Options { server, timeout: Duration::from_secs(20), ..Options::default() }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

fn items<'a>(answer: &'a Value, field: &str) -> &'a Vec<Value> {
    answer[field].as_array().unwrap_or_else(|| panic!("{answer} has no {field}"))
}

#[test]
fn every_tool_describes_itself_its_arguments_and_its_answer() {
    let mut names = BTreeSet::new();
    for tool in tools::TOOLS.iter().map(tools::ToolRow::describe) {
        assert!(names.insert(tool.name.clone()));
        assert!(tool.description.unwrap().len() > 80, "{} says what it is for", tool.name);
        let (input, output) = (Value::Object((*tool.input_schema).clone()), tool.output_schema.unwrap());
        assert_eq!(input["additionalProperties"], false, "{} refuses arguments that it does not know", tool.name);
        for (name, schema) in input["properties"].as_object().unwrap() {
            assert!(schema["description"].is_string(), "{}: {name} says what it means", tool.name);
        }
        assert_eq!(output["type"], "object");
        let hints = tool.annotations.unwrap();
        let changes = ["checkpoint", "undo", "restore"].contains(&&*tool.name);
        assert_eq!(hints.read_only_hint, Some(!changes), "{}", tool.name);
        assert_eq!(hints.destructive_hint, Some(["undo", "restore"].contains(&&*tool.name)), "{}", tool.name);
    }
    let named = ["checkpoint", "changes", "diff", "undo", "restore", "read_at", "history", "sessions"];
    assert_eq!(names, named.map(Into::into).into());
}

#[test]
fn an_undo_shows_its_plan_first_and_takes_back_one_session_only() {
    let tools = ToolFixture::new();
    let (one, other) = (tools.agent("one"), tools.agent("other"));
    one.write("/shared", 0, b"................");
    let at = tools.checkpoint();
    one.write("/shared", 0, b"AAAA");
    other.write("/shared", 8, b"BBBB");
    one.write("/of-one", 0, b"new");
    other.write("/of-other", 0, b"kept");
    let plan = tools.get("undo", json!({ "sessions": ["one"], "from": at }));
    assert_eq!((&plan["dry_run"], &plan["left"]), (&json!(true), &json!(0)));
    assert_eq!(plan["changes"], plan["actions"].as_array().unwrap().len());
    assert_eq!(tools.read("/shared"), "AAAA....BBBB....", "nothing has changed");
    let done = tools.get("undo", json!({ "sessions": [one.session], "from": at, "dry_run": false }));
    assert_eq!(done["changes"], plan["changes"]);
    assert_eq!(tools.read("/shared"), "........BBBB....");
    assert_eq!(tools.read("/of-other"), "kept");
    assert!(tools.refusal("read_at", json!({ "path": "/of-one" })).contains("no such file"));
    let mut back = done["take_back"].clone();
    back["dry_run"] = json!(false);
    tools.get("undo", back);
    assert_eq!((tools.read("/shared"), tools.read("/of-one")), ("AAAA....BBBB....".to_owned(), "new".to_owned()));
}

#[test]
fn an_undo_lists_what_a_later_change_keeps_as_it_is() {
    let tools = ToolFixture::new();
    let (one, other) = (tools.agent("one"), tools.agent("other"));
    let at = tools.checkpoint();
    one.write("/f", 0, b"aaaa");
    other.write("/f", 0, b"bbbb");
    let done = tools.get("undo", json!({ "sessions": ["one"], "from": at, "dry_run": false }));
    assert!(done["left"].as_u64().unwrap() > 0, "{done}");
    let first = &items(&done, "actions")[0];
    assert_eq!((&first["action"], &first["path"]), (&json!("left"), &json!("/f")), "{done}");
    assert!(first["why"].is_string());
    assert_eq!(tools.read("/f"), "bbbb");
}

#[test]
fn an_undo_needs_sessions_or_a_start_and_knows_every_argument() {
    let tools = ToolFixture::new();
    assert!(tools.refusal("undo", json!({})).contains("give sessions, or from"));
    assert!(tools.refusal("undo", json!({ "path": "/" })).contains("give sessions, or from"));
    for wrong in [json!({ "dryrun": false, "from": "1m-ago" }), json!({ "from": "1m-ago", "dry_run": "no" })] {
        assert!(tools.refusal("undo", wrong).starts_with("the arguments are wrong"));
    }
    let (earlier, later) = (tools.checkpoint(), tools.checkpoint());
    let backward = json!({ "from": later, "to": earlier });
    assert!(tools.refusal("undo", backward.clone()).contains("swap from and to"));
    assert!(tools.refusal("diff", backward).contains("swap from and to"));
    let paged = json!({ "from": earlier, "dry_run": false, "next": 3 });
    assert!(tools.refusal("undo", paged).contains("dry run"));
}

#[test]
fn a_restore_returns_a_tree_and_can_be_taken_back() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.mkdir("/d");
    agent.write("/d/kept", 0, b"v1");
    let named = tools.get("checkpoint", json!({ "name": "before" }));
    assert_eq!(named["name"], "before");
    agent.write("/d/kept", 0, b"v2");
    agent.write("/d/new", 0, b"n");
    let plan = tools.get("restore", json!({ "path": "/d", "to": "before", "delete": true }));
    assert_eq!(tools.read("/d/kept"), "v2");
    let done = tools.get("restore", json!({ "path": "/d", "to": "before", "delete": true, "dry_run": false }));
    assert_eq!(done["changes"], plan["changes"]);
    assert_eq!(tools.read("/d/kept"), "v1");
    let names = tools.get("read_at", json!({ "path": "/d" }));
    assert_eq!(items(&names, "entries").len(), 1, "{names}");
    let mut back = done["take_back"].clone();
    back["dry_run"] = json!(false);
    tools.get("undo", back);
    assert_eq!((tools.read("/d/kept"), tools.read("/d/new")), ("v2".to_owned(), "n".to_owned()));
}

#[test]
fn a_file_of_gibibytes_is_read_in_bounded_parts_that_say_how_to_go_on() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    let size = 5u64 << 30;
    agent.write("/big", 0, "é".repeat(200_000).as_bytes());
    let attributes = SetAttr { target: Target::path("/big"), size: Some(size), ..SetAttr::default() };
    agent.client.fs().set_attr(attributes).unwrap();
    let first = tools.get("read_at", json!({ "path": "/big", "len": 1001 }));
    assert_eq!((&first["size"], &first["len"], &first["next_offset"]), (&json!(size), &json!(1000), &json!(1000)));
    assert_eq!(text(&first["text"]).chars().count(), 500, "a letter is not cut in two");
    let large = tools.get("read_at", json!({ "path": "/big", "offset": 1, "len": 4_000_000_000u32 }));
    assert_eq!(large["len"], READ_BYTES_MAX);
    assert!(large["base64"].is_string(), "the part begins within a letter");
    assert_eq!(large["next_offset"], READ_BYTES_MAX + 1);
    let last = tools.get("read_at", json!({ "path": "/big", "offset": size - 10 }));
    assert_eq!((&last["len"], last.get("next_offset")), (&json!(10), None));
    let beyond = tools.get("read_at", json!({ "path": "/big", "offset": u64::MAX }));
    assert_eq!((&beyond["len"], &beyond["text"]), (&json!(0), &json!("")));
}

#[test]
fn names_that_are_not_text_come_in_hexadecimal_and_go_back_so() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    let at = tools.checkpoint();
    agent.write(&b"/caf\xe9"[..], 0, b"latin");
    let listed = tools.get("read_at", json!({}));
    assert_eq!(items(&listed, "entries")[0]["name_hex"], "636166e9");
    let changed = tools.get("changes", json!({ "from": at }));
    let hex = text(&items(&changed, "changes")[0]["path_hex"]);
    assert_eq!(hex, "2f636166e9");
    assert_eq!(tools.get("read_at", json!({ "path_hex": hex }))["text"], "latin");
    assert_eq!(tools.get("history", json!({ "path_hex": hex }))["kind"], "file");
    tools.get("undo", json!({ "path_hex": hex, "from": at, "dry_run": false }));
    assert!(tools.refusal("read_at", json!({ "path_hex": hex })).contains("no such file"));
    assert!(tools.refusal("read_at", json!({ "path_hex": "2f6" })).contains("not hexadecimal"));
    assert!(tools.refusal("read_at", json!({ "path": "/", "path_hex": "2f" })).contains("not both"));
}

#[test]
fn instants_that_have_not_come_or_are_none_are_refused_with_the_present() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.write("/f", 0, b"x");
    let future = "hlc-7fffffffffffffff";
    for (tool, args) in [
        ("read_at", json!({ "path": "/f", "at": future })),
        ("changes", json!({ "from": "1m-ago", "to": future })),
        ("diff", json!({ "from": future })),
        ("undo", json!({ "from": future, "dry_run": false })),
        ("undo", json!({ "sessions": ["agent"], "to": future })),
        ("restore", json!({ "path": "/f", "to": future })),
        ("history", json!({ "path": "/f", "to": future })),
        ("sessions", json!({ "from": future })),
    ] {
        let refusal = tools.refusal(tool, args);
        assert!(refusal.contains("lies in the future: now is hlc-"), "{tool}: {refusal}");
    }
    assert!(tools.refusal("diff", json!({ "from": "soon ish" })).contains("soon ish"));
    assert!(tools.refusal("diff", json!({ "from": "2026-11-21T10:00:00" })).contains("zone"));
    assert!(tools.refusal("diff", json!({ "from": "no-such-snapshot" })).contains("no-such-snapshot"));
    assert!(tools.refusal("diff", json!({})).contains("from is missing"));
    assert!(tools.refusal("checkpoint", json!({ "name": "1h-ago" })).contains("cannot name a snapshot"));
}

#[test]
fn forgotten_history_is_refused_and_says_so() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    tools.agent("maker").write("/f", 0, b"v1");
    let at = tools.checkpoint();
    agent.write("/f", 0, b"v2");
    let before = agent.client.resolve(&tools.checkpoint(), ZonePolicy::Refuse).unwrap();
    tools.agent("owner").client.fs().forget(&Target::path("/f"), before, ForgetOptions::default()).unwrap();
    for (tool, args) in [
        ("read_at", json!({ "path": "/f", "at": at })),
        ("restore", json!({ "path": "/f", "to": at, "dry_run": false })),
        ("undo", json!({ "sessions": ["agent"], "dry_run": false })),
    ] {
        let refusal = tools.refusal(tool, args);
        assert!(refusal.contains("not kept any more"), "{tool}: {refusal}");
    }
    assert_eq!(tools.read("/f"), "v2");
    assert!(tools.get("history", json!({ "path": "/f" }))["forgotten_before"].is_string());
}

#[test]
fn no_path_and_no_link_leads_out_of_the_tree() {
    let tools = ToolFixture::within("/in", ToolAccess::ReadWrite);
    let agent = tools.agent("agent");
    for directory in ["/in", "/in/d", "/out"] {
        agent.mkdir(directory);
    }
    agent.write("/out/secret", 0, b"s");
    agent.write("/in/d/f", 0, b"v1");
    let at = tools.checkpoint();
    let fs = agent.client.fs();
    fs.symlink(b"/out", &Target::path("/in/link")).unwrap();
    agent.write("/out/secret", 0, b"t");
    agent.write("/in/d/f", 0, b"v2");
    for path in ["/out/secret", "/", "/in/../out", "../out/secret", "/mnt/f/out/secret", "/in/link/secret", "/inn"] {
        for (tool, args) in [
            ("read_at", json!({ "path": path })),
            ("history", json!({ "path": path })),
            ("diff", json!({ "path": path, "from": at })),
            ("changes", json!({ "path": path, "from": at })),
            ("undo", json!({ "path": path, "from": at, "dry_run": false })),
            ("restore", json!({ "path": path, "to": at, "dry_run": false })),
        ] {
            let refusal = tools.refusal(tool, args);
            let words = ["outside", "'..' is not allowed", "is a symbolic link"];
            assert!(words.iter().any(|why| refusal.contains(why)), "{tool} {path}: {refusal}");
        }
    }
    assert_eq!(tools.get("read_at", json!({ "path": "link" }))["link"], "/out");
    // Moved in from outside: where it came from is not shown.
    fs.rename(&Target::path("/out/secret"), &Target::path("/in/found"), frieze_client::RenameMode::Replace).unwrap();
    let answer = tools.get("diff", json!({ "from": at }));
    assert!(!answer.to_string().contains("/out/"), "{answer}");
    let found = items(&answer, "changes").iter().find(|change| change["path"] == "/in/found").unwrap();
    assert_eq!(found["change"], "added");
    tools.get("undo", json!({ "path": "/mnt/f/in/d", "from": at, "dry_run": false }));
    assert_eq!(tools.read("d/f"), "v1");
}

#[test]
fn a_session_is_named_by_its_number_or_by_a_name_that_is_its_own() {
    let tools = ToolFixture::new();
    let (first, second) = (tools.agent("turn"), tools.agent("turn"));
    let only = tools.agent("only");
    for agent in [&first, &second, &only] {
        agent.write(format!("/{}", agent.session), 0, b"x");
    }
    for wrong in ["nobody-there", "12345", "99999999999999999999999"] {
        let refusal = tools.refusal("undo", json!({ "sessions": [wrong] }));
        assert!(refusal.contains("no session") || refusal.contains("cannot name a session"), "{refusal}");
    }
    let refusal = tools.refusal("undo", json!({ "sessions": ["turn"] }));
    assert!(refusal.contains("2 sessions are named") && refusal.contains(&first.session), "{refusal}");
    assert!(refusal.contains(&second.session), "{refusal}");
    let listed = tools.get("sessions", json!({ "name": "turn" }));
    let numbers: Vec<String> = items(&listed, "sessions").iter().map(|item| text(&item["session"])).collect();
    assert_eq!(numbers, [first.session.clone(), second.session.clone()]);
    let page = tools.get("sessions", json!({ "name": "turn", "limit": 1 }));
    let rest = tools.get("sessions", json!({ "name": "turn", "limit": 1, "next": page["next"] }));
    assert_eq!((&items(&rest, "sessions")[0]["session"], rest.get("next")), (&json!(second.session), None));
    let all = tools.get("changes", json!({ "from": "1h-ago", "sessions": [first.session, "only"] }));
    let found: BTreeSet<String> = items(&all, "changes").iter().map(|change| text(&change["session"])).collect();
    assert_eq!(found, [first.session.clone(), only.session.clone()].into());
    assert!(items(&all, "changes").iter().any(|change| change["session_name"] == "only"));
}

#[test]
fn many_changes_come_in_bounded_pages_each_of_them_once() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.mkdir("/t");
    for number in 0..120 {
        agent.write(format!("/t/{number:03}"), 0, b"x");
    }
    let at = tools.checkpoint();
    // One transaction with more changes than an answer may have, then single ones.
    for copy in 0..4 {
        agent.client.fs().clone_tree(&Target::path("/t"), &Target::path(format!("/copy-{copy}")), false).unwrap();
    }
    agent.write("/last", 0, b"x");
    let expected: BTreeSet<String> = (0..4)
        .flat_map(|copy| (0..120).map(move |number| format!("/copy-{copy}/{number:03}")))
        .chain((0..4).map(|copy| format!("/copy-{copy}")))
        .chain(["/last".to_owned()])
        .collect();
    for (tool, limit) in [("changes", 30), ("changes", 100), ("diff", 100), ("changes", 1_000_000)] {
        let (mut found, mut args) = (Vec::new(), json!({ "from": at, "limit": limit, "path": "/" }));
        loop {
            let page = tools.get(tool, args);
            let changes = items(&page, "changes");
            assert!(changes.len() <= limit.min(LIMIT_MAX as usize), "{tool} {limit}: {}", changes.len());
            found.extend(changes.iter().filter(|change| change["path"] != "/").map(|change| text(&change["path"])));
            let Some(next) = page.get("next") else { break };
            args = json!({ "next": next, "limit": limit, "path": "/" });
        }
        // A file of its own appears when it is made and when it is written.
        found.dedup();
        let distinct: BTreeSet<String> = found.iter().cloned().collect();
        assert_eq!(distinct.len(), found.len(), "{tool} {limit}: none twice");
        assert_eq!(distinct, expected, "{tool} {limit}");
    }
    let (mut listed, mut args) = (0, json!({ "sessions": ["agent"], "from": at, "limit": 100 }));
    loop {
        let plan = tools.get("undo", args);
        listed += items(&plan, "actions").len();
        assert!(items(&plan, "actions").len() <= 100);
        let Some(next) = plan.get("next") else {
            assert_eq!(listed as u64, plan["changes"].as_u64().unwrap());
            break;
        };
        args = json!({ "sessions": ["agent"], "from": at, "limit": 100, "next": next });
    }
    assert!(tools.refusal("changes", json!({ "next": "12" })).contains("as it was"));
}

#[test]
fn a_deleted_file_has_a_history_that_says_how_to_get_it_back() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.write("/f", 0, b"one");
    agent.write("/f", 0, b"two");
    agent.remove("/f");
    let history = tools.get("history", json!({ "path": "/f", "limit": 2 }));
    let deleted = &history["deleted"];
    assert_eq!((&deleted["session"], &deleted["session_name"]), (&json!(agent.session), &json!("agent")));
    let (mut kinds, mut page) = (Vec::new(), history.clone());
    loop {
        assert!(items(&page, "versions").len() <= 2, "{page}");
        kinds.extend(items(&page, "versions").iter().map(|item| text(&item["kind"])));
        let Some(next) = page.get("next") else { break };
        page = tools.get("history", json!({ "path": "/f", "limit": 2, "next": next }));
    }
    assert_eq!(kinds.iter().filter(|kind| *kind == "write").count(), 2, "{kinds:?}");
    assert_eq!(kinds.last().map(String::as_str), Some("make"), "{kinds:?}");
    tools.get("restore", json!({ "path": "/f", "to": deleted["last_at"], "dry_run": false }));
    assert_eq!(tools.read("/f"), "two");
    assert!(tools.refusal("history", json!({ "path": "/never" })).contains("/never: no such file"));
}

#[test]
fn a_diff_shows_lines_of_text_and_says_why_it_shows_none() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.write("/text", 0, b"a\nb\n");
    agent.write("/binary", 0, b"\0\x01");
    agent.write("/long", 2 << 20, b"x");
    agent.write("/wide", 0, b"x");
    let at = tools.checkpoint();
    agent.write("/text", 0, b"a\nc\n");
    agent.write("/binary", 0, b"\0\x02");
    agent.write("/long", 2 << 20, b"y");
    agent.write("/wide", 0, "line\n".repeat(100_000).as_bytes());
    let answer = tools.get("diff", json!({ "from": at }));
    let of = |path: &str| items(&answer, "changes").iter().find(|change| change["path"] == path).unwrap();
    assert!(text(&of("/text")["text"]).contains("-b\n+c\n"), "{answer}");
    assert_eq!(of("/binary")["text_omitted"], "binary");
    assert_eq!(of("/long")["text_omitted"], "too-long");
    assert_eq!(of("/wide")["text_omitted"], "cut");
    assert!(answer.to_string().len() < 200_000, "the answer is bounded");
    let without = tools.get("diff", json!({ "from": at, "text": false }));
    assert!(items(&without, "changes").iter().all(|change| change.get("text").is_none()));
}

#[test]
fn a_server_that_only_looks_changes_nothing() {
    let tools = ToolFixture::within("/", ToolAccess::ReadOnly);
    let agent = tools.agent("agent");
    let at = tools.checkpoint();
    agent.write("/f", 0, b"x");
    for (tool, args) in [
        ("undo", json!({ "from": at, "dry_run": false })),
        ("restore", json!({ "path": "/f", "to": at, "dry_run": false })),
        ("checkpoint", json!({ "name": "n" })),
    ] {
        assert!(tools.refusal(tool, args).contains("--read-only"), "{tool}");
    }
    assert!(tools.get("undo", json!({ "from": at }))["changes"].as_u64().unwrap() > 0, "plans are shown");
    assert_eq!(tools.read("/f"), "x");
}

#[test]
fn a_server_that_is_down_is_named_and_is_used_again_when_it_is_up() {
    let mut served = LocalServer::at_socket();
    let options = Options { timeout: Duration::from_secs(1), ..options(&served) };
    let tools = |served: LocalServer| ToolFixture {
        context: ToolContext::new(options.clone(), ToolScope::new("/", None).unwrap(), ToolAccess::ReadWrite),
        served,
    };
    served.stop();
    let mut down = tools(served);
    let refusal = down.refusal("checkpoint", json!({}));
    assert!(refusal.contains(&down.served.socket()) && refusal.contains("frieze serve"), "{refusal}");
    down.served.start();
    let at = down.checkpoint();
    down.served.stop();
    let refusal = down.refusal("read_at", json!({ "at": at }));
    assert!(refusal.contains("start the server"), "{refusal}");
    down.served.start();
    assert_eq!(down.get("read_at", json!({ "at": at }))["kind"], "directory");
}

#[test]
fn the_changes_of_a_file_are_its_own() {
    let tools = ToolFixture::new();
    let agent = tools.agent("agent");
    agent.write("/f", 0, b"x");
    agent.write("/g", 0, b"y");
    let page = tools.get("changes", json!({ "path": "/f", "from": "1m-ago" }));
    let paths: Vec<&Value> = page["changes"].as_array().unwrap().iter().map(|change| &change["path"]).collect();
    assert_eq!(paths, ["/f", "/f"], "{page}");
}
