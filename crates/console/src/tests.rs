//! The console as browsers meet it: good ones, forged requests, and what people store.

mod fixture;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Shutdown, TcpStream};

use frieze_client::{CreateMode, ForgetOptions, Fs, Hlc, RenameMode, Target};
use frieze_testkit::wait;

use self::fixture::ConsoleFixture;

fn write(fs: &Fs, path: &str, bytes: &[u8]) {
    let file = fs.create(&Target::path(path), 0o644, CreateMode::OpenExisting).unwrap();
    file.write_at(0, bytes).unwrap();
    file.close().unwrap();
}

#[test]
fn a_link_signs_a_browser_in_once_and_a_cookie_opens_every_page() {
    let fixture = ConsoleFixture::new();
    for path in ["/", "/files/", "/cluster", "/sessions", "/activity/?from=1&to=2", "/raw/x"] {
        assert_eq!(fixture.send("GET", path, &[], "").status, 401, "{path}");
    }
    let link = fixture.send("POST", "/links", &[], "").json();
    let path = link["url"].as_str().unwrap().strip_prefix(&format!("http://{}", fixture.host)).unwrap().to_owned();
    let ask = fixture.send("GET", &path, &[("sec-fetch-site", "cross-site")], "");
    assert_eq!(ask.status, 200, "a person may follow the link from anywhere");
    assert!(ask.text.contains("Sign in as"));
    let key = path.split("key=").nth(1).unwrap();
    let origin = format!("http://{}", fixture.host);
    let signed_in = fixture.send("POST", "/login", &[("origin", &*origin)], &format!("key={key}"));
    assert_eq!((signed_in.status, signed_in.header("location")), (303, "/"));
    let cookie = signed_in.header("set-cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(fixture.send("GET", "/files/", &[("cookie", cookie)], "").status, 200);
    let used = fixture.send("POST", "/login", &[("origin", &*origin)], &format!("key={key}"));
    assert_eq!(used.status, 410);
    assert!(used.text.contains("each link works once") && used.text.contains("frieze console logout"), "{}", used.text);
    assert_eq!(fixture.send("GET", "/login?key=invented", &[], "").status, 404);
    let out = fixture.send("POST", "/sign-out-all", &[], "").json();
    assert_eq!(out["signed_out"], 1);
    assert_eq!(fixture.send("GET", "/files/", &[("cookie", cookie)], "").status, 401);
}

#[test]
fn pages_of_other_origins_get_nothing() {
    let fixture = ConsoleFixture::new();
    let browser = fixture.browser(0);
    let cookie = browser.cookie();
    let token = browser.token();
    write(&fixture.client.fs(), "/f", b"one");
    for headers in [
        &[("cookie", &*cookie), ("origin", "http://evil.example")][..],
        &[("cookie", &*cookie), ("sec-fetch-site", "cross-site")],
        &[("cookie", &*cookie), ("sec-fetch-site", "same-site")],
        &[("cookie", &*cookie), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        &[("cookie", &*cookie), ("origin", "null")],
        &[("cookie", &*cookie), ("host", "evil.example")],
    ] {
        assert_eq!(fixture.send("GET", "/files/", headers, "").status, 403, "{headers:?}");
        let forged = fixture.send("POST", "/restore/f?to=1s-ago", headers, &format!("token={token}"));
        assert_eq!(forged.status, 403, "{headers:?}");
    }
    // A person may follow a link from anywhere: the page that comes goes on by itself, and shows nothing.
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    let followed = fixture.send("GET", "/files/f?at=1s-ago", &link, "");
    assert_eq!(followed.after("content=\"0;url="), "/files/f?at=1s-ago");
    assert_eq!(fixture.send("GET", "//evil.example/files", &link, "").after("content=\"0;url="), "/evil.example/files");
    // A program of the user has no business with forms, and a form of another page does not know the token.
    let bare = fixture.send("POST", "/restore/f?to=1s-ago", &[("cookie", &*cookie)], &format!("token={token}"));
    assert_eq!(bare.status, 403);
    for form in ["", "token=", "token=guess"] {
        assert_eq!(browser.post("/undo/?from=1h-ago", form).status, 403, "{form}");
    }
    // A page in a browser gets no link, whichever page it is.
    let origin = format!("http://{}", fixture.host);
    assert_eq!(fixture.send("POST", "/links", &[("origin", &*origin)], "").status, 403);
    assert_eq!(browser.post("/files/", &"x".repeat(100 << 10)).status, 413);
}

#[test]
fn names_and_contents_never_become_code() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    let evil = "<img src=x onerror=alert(1)>";
    let script = "<script>alert('content')</script>";
    write(&fs, &format!("/{evil}"), script.as_bytes());
    write(&fs, "/x.svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>");
    write(&fs, "/t.csv", format!("a,{script}\n{evil},\"\"\"\n").as_bytes());
    let browser = fixture.browser(0);
    let escaped = "/%3Cimg%20src=x%20onerror=alert(1)%3E";
    fs.unlink(&Target::path(format!("/{evil}"))).unwrap();
    let pages = ["/files/?at=now", "/changes/", "/deleted/", "/files/t.csv", "/files/x.svg", "/sessions", "/space/"];
    let absent = format!("/files{escaped}");
    for page in pages.iter().copied().chain([&*absent]) {
        let answer = browser.get(page);
        assert!(!answer.text.contains("<img src=x") && !answer.text.contains("<script>alert"), "{page}");
        assert!(!answer.text.contains("<svg xmlns='"), "{page}");
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("script-src 'self'") && policy.contains("default-src 'none'"), "{page}: {policy}");
    }
    write(&fs, "/a;filename=evil.exe", b"x");
    let forged = browser.get("/raw/a;filename=evil.exe");
    assert_eq!(forged.header("content-disposition"), "attachment; filename*=UTF-8''a%3Bfilename%3Devil.exe");
    let raw = browser.get("/raw/x.svg");
    assert_eq!(raw.header("content-type"), "application/octet-stream");
    assert!(raw.header("content-security-policy").contains("sandbox"));
    assert!(raw.header("content-disposition").starts_with("attachment"));
    assert_eq!(browser.get("/raw/x.svg?inline=1").status, 400, "a picture that can run scripts is not shown");
}

#[test]
fn large_things_are_shown_in_part() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    let file = fs.create(&Target::path("/large"), 0o644, CreateMode::Replace).unwrap();
    file.write_at(0, b"begin").unwrap();
    file.write_at(2 << 30, b"end").unwrap();
    file.close().unwrap();
    let browser = fixture.browser(0);
    let page = browser.get("/files/large");
    assert_eq!(page.status, 200);
    assert!(page.text.contains("2.0 GiB") && page.text.len() < 64 << 10, "{} bytes", page.text.len());
    fs.mkdir(&Target::path("/many"), 0o755).unwrap();
    for number in 0..450 {
        fs.create(&Target::path(format!("/many/n{number:03}")), 0o644, CreateMode::Replace).unwrap().close().unwrap();
    }
    let (mut names, mut next) = (BTreeSet::new(), "/files/many".to_owned());
    for _ in 0..3 {
        let page = browser.get(&next);
        assert!(page.text.len() < 100 << 10, "{} bytes", page.text.len());
        let found: Vec<&str> =
            page.text.split("class=\"file\" href=\"/files/many/").skip(1).map(|at| &at[..4]).collect();
        assert!(found.len() <= 200);
        names.extend(found.into_iter().map(str::to_owned));
        if page.text.contains("class=\"more\"") {
            next = page.after("class=\"more\" href=\"");
        }
    }
    assert_eq!(names.len(), 450);
}

#[test]
fn instants_that_are_none_are_refused_with_a_way_on() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    let first = fixture.client.now().unwrap();
    write(&fs, "/f", b"one");
    let second = fixture.client.now().unwrap();
    write(&fs, "/f", b"two");
    let browser = fixture.browser(0);
    for (query, status) in [
        ("at=2999-01-01T00:00:00Z", 400),
        ("at=nonsense", 400),
        ("at=hlc-ffffffffffffffff", 400),
        ("at=%00", 400),
        ("after=zz", 400),
        ("at=1970-01-01T00:00:00Z", 410),
    ] {
        let answer = browser.get(&format!("/files/?{query}"));
        assert_eq!(answer.status, status, "{query}: {}", answer.text);
        assert!(answer.text.contains("class=\"what\""), "{query}");
    }
    let absent = browser.get(&format!("/files/f?at={first}"));
    assert_eq!(absent.status, 404);
    assert!(absent.text.contains("It is there at"), "{}", absent.text);
    assert!(browser.get(&format!("/files/f?at={second}")).text.contains("<code>one</code>"));
    fs.forget(&Target::path("/f"), fixture.client.now().unwrap(), ForgetOptions::default()).unwrap();
    let forgotten = browser.get(&format!("/files/f?at={second}"));
    assert_eq!(forgotten.status, 410, "{}", forgotten.text);
    for path in ["/nowhere", "/files/../etc/passwd%00", "/step/?to=sideways", "/cluster/x", "/assets/console.js"] {
        assert!([400, 404].contains(&browser.get(path).status), "{path}");
    }
}

#[test]
fn a_plan_changes_nothing_and_its_form_changes_all_of_it() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    fs.mkdir(&Target::path("/d"), 0o755).unwrap();
    write(&fs, "/d/a", b"old a");
    write(&fs, "/d/b", b"old b");
    let then = fixture.client.now().unwrap();
    write(&fs, "/d/a", b"new a");
    fs.unlink(&Target::path("/d/b")).unwrap();
    let browser = fixture.browser(0);
    let plan = browser.get(&format!("/restore/d?to={then}"));
    assert!(plan.text.contains("2 changes would be made"), "{}", plan.text);
    assert!(browser.get("/files/d/a").text.contains("<code>new a</code>"), "a plan changes nothing");
    let done = browser.post(
        &plan.after("method=\"post\" action=\"/restore").replacen("/d", "/restore/d", 1),
        &format!("token={}", browser.token()),
    );
    assert!(done.text.contains("Done: 2 changes"), "{}", done.text);
    assert!(browser.get("/files/d/a").text.contains("<code>old a</code>"));
    assert!(browser.get("/files/d/b").text.contains("<code>old b</code>"));
    let undo = done.after("class=\"button\" href=\"/undo");
    assert!(browser.get("/sessions").text.contains("Restored /d to"), "it is found later, too");
    let undone = browser.post(&format!("/undo{undo}"), &format!("token={}", browser.token()));
    assert!(undone.text.contains("Done: 2 changes"), "{}", undone.text);
    assert!(browser.get("/files/d/a").text.contains("<code>new a</code>"));
}

#[test]
fn a_browser_that_goes_away_leaves_all_of_a_restore_or_none() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    fs.mkdir(&Target::path("/d"), 0o755).unwrap();
    for number in 0..200 {
        write(&fs, &format!("/d/{number}"), b"old");
    }
    let then = fixture.client.now().unwrap();
    for number in 0..200 {
        write(&fs, &format!("/d/{number}"), b"new");
    }
    let browser = fixture.browser(0);
    let form = format!("token={}", browser.token());
    let host = &fixture.host;
    let head = format!(
        "POST /restore/d?to={then} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nCookie: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
        browser.cookie(),
        form.len()
    );
    let mut socket = TcpStream::connect(host).unwrap();
    socket.write_all(head.as_bytes()).unwrap();
    socket.shutdown(Shutdown::Both).unwrap();
    drop(socket);
    let old = || (0..200).filter(|n| browser.get(&format!("/files/d/{n}")).text.contains("<code>old</code>")).count();
    // The request may still be on its way: after it, each file is old again.
    wait::wait_until("the restore", || browser.get("/sessions").text.contains("Restored /d to"));
    assert_eq!(old(), 200);
}

#[test]
fn a_user_sees_and_changes_what_that_user_may() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    fs.mkdir(&Target::path("/private"), 0o700).unwrap();
    let before = fixture.client.now().unwrap();
    write(&fs, "/private/secret", b"secret");
    let root = fixture.browser(0);
    let other = fixture.browser(4711);
    assert_eq!(root.get("/files/private").status, 200);
    let plan = other.get(&format!("/restore/private?delete=1&to={before}"));
    assert!(plan.status == 403 && !plan.text.contains("secret"), "{}", plan.text);
    for page in ["/files/private", "/files/private/secret", "/raw/private/secret"] {
        let answer = other.get(page);
        assert!(![200, 303].contains(&answer.status), "{page}: {}", answer.text);
        assert!(!answer.text.contains("secret</"), "{page}");
    }
    assert!(!other.get("/changes/").text.contains("/private/secret"));
    let sessions = other.get("/sessions").text;
    assert!(sessions.contains("another user"), "{sessions}");
    assert!(!sessions.contains("console-"), "programs of others stay theirs: {sessions}");
    assert!(!other.get("/files/?at=1us-ago").text.contains("Restore this directory"));
    fs.mkdir(&Target::path("/shared"), 0o755).unwrap();
    assert!(!other.get("/changes/shared?from=1us-ago").text.contains("Undo these"));
    let changes = root.get("/changes/shared?from=1us-ago").text;
    assert!(changes.contains("Undo these"), "{changes}");
}

#[test]
fn a_file_is_found_under_the_name_that_it_had() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    write(&fs, "/a%41b to=1", b"old words");
    let then = fixture.client.now().unwrap();
    write(&fs, "/a%41b to=1", b"new words");
    fs.rename(&Target::path("/a%41b to=1"), &Target::path("/n"), RenameMode::Replace).unwrap();
    let browser = fixture.browser(0);
    let absent = browser.get(&format!("/files/n?at={then}"));
    assert!(absent.text.contains("it was called"), "{}", absent.text);
    let compared = browser.get(&format!("/compare/n?from={then}"));
    assert!(compared.text.contains("old words") && compared.text.contains("new words"), "{}", compared.text);
    let changes = browser.get(&format!("/changes/?from={then}"));
    let compared = browser.get(&changes.after("<span class=\"what\">9 B <a href=\""));
    assert!(compared.text.contains("old words"), "{}", compared.text);
    let plan = browser.get(&format!("/restore/a%2541b%20to=1?to={then}"));
    assert_eq!(plan.after("name=\"to\" value=\""), then.to_string());
    // Of a name that is not there any more, too.
    fs.unlink(&Target::path("/n")).unwrap();
    assert_eq!(browser.get("/step/n?to=previous&as=json").status, 200);
}

#[test]
fn times_are_understood_as_the_page_shows_them() {
    let fixture = ConsoleFixture::new();
    let browser = fixture.browser(0);
    let now = browser.get("/instant?text=Now").json();
    let shown = now["time"].as_str().unwrap();
    for text in [shown.to_owned(), format!("{shown} UTC")] {
        let found = browser.get(&format!("/instant?text={}", text.replace(' ', "%20"))).json();
        assert_eq!(found["time"].as_str(), Some(shown), "{text}");
    }
}

#[test]
fn the_heat_counts_changes_and_steps_lead_from_one_to_the_next() {
    let fixture = ConsoleFixture::new();
    let fs = fixture.client.fs();
    let begin = fixture.client.now().unwrap();
    write(&fs, "/f", b"one");
    let first = fixture.client.now().unwrap();
    write(&fs, "/f", b"two, longer");
    let end = fixture.client.now().unwrap();
    let browser = fixture.browser(0);
    let query = format!("from={}&to={}&cells=16", begin.micros() - 10, end.micros() + 1);
    let heat = browser.get(&format!("/activity/?{query}")).json();
    let counts = heat["counts"].as_array().unwrap();
    assert!((16..=18).contains(&counts.len()), "{heat}");
    let sum: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
    assert!((3..=6).contains(&sum), "a file made, and written twice: {heat}");
    // Of a long time there is as little to read.
    let year =
        browser.get(&format!("/activity/?from={}&to={}&cells=120", end.micros() - 31_536_000_000_000, end.micros()));
    assert_eq!(year.json()["whole"], true);
    let next = browser.get(&format!("/step/f?at={first}&to=next&as=json")).json();
    let at = next["at"].as_str().unwrap();
    assert!(at.parse::<Hlc>().unwrap() > first, "{next}");
    let before = browser.get(&format!("/step/f?at={end}&to=previous&as=json")).json();
    let at = before["at"].as_str().unwrap().parse::<Hlc>().unwrap();
    assert!(at < end && at >= begin, "{before}");
    assert_eq!(browser.get("/activity/?from=5&to=5").status, 400);
    assert_eq!(browser.get("/activity/?from=x&to=5").status, 400);
    let typed = browser.get("/instant?text=1s-ago").json();
    assert!(typed["us"].as_u64().unwrap() > 0);
}
