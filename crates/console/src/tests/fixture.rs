//! A server, its console, and a browser that is signed in.

use std::net::TcpListener;
use std::sync::Arc;

use frieze_client::{Acceptor, Admission, Client, Options};
use frieze_node::Settings;
use frieze_testkit::local::LocalServer;
use ureq::http::Response;
use ureq::{Agent, Body};

use crate::gateway::Gateway;
use crate::listen::Audience;

/// A server and its console.
pub(super) struct ConsoleFixture {
    // Before the server: it is its client.
    _acceptor: Acceptor,
    gateway: Arc<Gateway>,
    pub(super) client: Client,
    _local: LocalServer,
    pub(super) host: String,
    agent: Agent,
}

/// A browser, with the cookie of a user.
pub(super) struct TestBrowser<'f> {
    fixture: &'f ConsoleFixture,
    cookie: String,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct ConsoleAnswer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) text: String,
}

impl ConsoleAnswer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of the first attribute that begins so.
    pub(super) fn after(&self, before: &str) -> String {
        let start = self.text.find(before).unwrap_or_else(|| panic!("no {before} in {}", self.text)) + before.len();
        let rest = &self.text[start..];
        rest[..rest.find('"').unwrap()].replace("&amp;", "&").replace("&#38;", "&")
    }
}

impl ConsoleFixture {
    pub(super) fn new() -> ConsoleFixture {
        let local = LocalServer::at_port(Settings::default());
        let options = || Options { server: local.server().nearby(), ..Options::default() };
        let (client, of_console) = (Client::connect(options()).unwrap(), Client::connect(options()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let gateway = Arc::new(Gateway::new(of_console, "127.0.0.1".to_owned(), Audience::ThisMachine));
        let acceptor = Acceptor::start(listener, gateway.clone(), Admission::new(4096)).unwrap();
        let config = Agent::config_builder().http_status_as_error(false).max_redirects(0).build();
        ConsoleFixture { _acceptor: acceptor, gateway, client, _local: local, host, agent: config.into() }
    }

    /// A browser of a user. The kernel reports the connections of these tests as root's, which may use any cookie.
    pub(super) fn browser(&self, uid: u32) -> TestBrowser<'_> {
        let link = self.gateway.sign_ins.new_link(uid).unwrap();
        TestBrowser { fixture: self, cookie: self.gateway.sign_ins.sign_in(&link, None).unwrap() }
    }

    /// A request with these headers.
    pub(super) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> ConsoleAnswer {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("http://{}{path}", self.host));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(self.agent.run(request.body(body.to_owned()).unwrap()).unwrap())
    }
}

fn answer(mut response: Response<Body>) -> ConsoleAnswer {
    let headers = response.headers().iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    let body = response.body_mut().with_config().limit(64 << 20).read_to_vec().unwrap();
    let text = String::from_utf8_lossy(&body);
    ConsoleAnswer { status: response.status().as_u16(), headers, text: text.into_owned() }
}

impl TestBrowser<'_> {
    pub(super) fn cookie(&self) -> String {
        let port = self.fixture.host.rsplit(':').next().unwrap();
        format!("frieze-console-{port}={}", self.cookie)
    }

    pub(super) fn get(&self, path: &str) -> ConsoleAnswer {
        let headers = [("cookie", &*self.cookie()), ("sec-fetch-site", "same-origin")];
        self.fixture.send("GET", path, &headers, "")
    }

    /// Sends a form as a page of the console does.
    pub(super) fn post(&self, path: &str, form: &str) -> ConsoleAnswer {
        let origin = format!("http://{}", self.fixture.host);
        let headers = [
            ("cookie", &*self.cookie()),
            ("origin", &*origin),
            ("sec-fetch-site", "same-origin"),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.fixture.send("POST", path, &headers, form)
    }

    /// The token that forms of this browser carry.
    pub(super) fn token(&self) -> String {
        self.get("/files/").after("name=\"token\" value=\"")
    }
}
