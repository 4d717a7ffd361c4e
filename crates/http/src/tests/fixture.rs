//! A server, its gateway, and requests to it.

use std::io::{Read, Write};
use std::net::TcpStream;

use frieze_client::{Admission, Client, Gateway, Options, Recorder};
use frieze_hdfs::Calls;
use frieze_node::Settings;
use frieze_testkit::local::LocalServer;
use serde_json::Value;

use crate::{Error, Trust, WebHdfsGateway, WebHdfsOptions};

/// A server and its gateway.
pub(super) struct WebHdfsFixture {
    pub(super) gateway: WebHdfsGateway,
    pub(super) calls: Calls,
    pub(super) client: Client,
    pub(super) local: LocalServer,
    pub(super) agent: ureq::Agent,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct WebAnswer {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) body: Vec<u8>,
}

impl WebAnswer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Status and simple name of the exception.
    pub(super) fn refused(&self) -> (u16, String) {
        let told = self.json();
        let exception = told["RemoteException"]["exception"].as_str().unwrap_or_else(|| panic!("{self:?}"));
        (self.status, exception.to_owned())
    }

    pub(super) fn message(&self) -> String {
        self.json()["RemoteException"]["message"].as_str().unwrap().to_owned()
    }
}

pub(super) fn options(listen: &str, trust: Trust) -> WebHdfsOptions {
    WebHdfsOptions { listen: listen.to_owned(), trust, admission: Admission::new(4096) }
}

impl WebHdfsFixture {
    pub(super) fn new() -> WebHdfsFixture {
        WebHdfsFixture::recorded(None)
    }

    /// With a recorder, whose calls are those of another gateway too.
    pub(super) fn recorded(trace: Option<Recorder>) -> WebHdfsFixture {
        let local = LocalServer::at_port(Settings::default());
        let server = local.server();
        let client =
            || Options { server: server.nearby(), trace: trace.clone(), gateway: Gateway::Hdfs, ..Options::default() };
        let mut calls = None;
        let gateway = WebHdfsGateway::open(&options("127.0.0.1:0", Trust::Kernel), |at| {
            let made = Calls::connect(client(), [7; 32], at, None)?;
            calls = Some(made.clone());
            Ok::<_, Error>(made)
        });
        let config = ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build();
        let (gateway, calls, client) =
            (gateway.unwrap(), calls.unwrap(), Client::connect(Options { trace: None, ..client() }).unwrap());
        WebHdfsFixture { gateway, calls, client, local, agent: config.into() }
    }

    pub(super) fn url(&self, path_and_query: &str) -> String {
        format!("http://{}/webhdfs/v1{path_and_query}", self.gateway.address())
    }

    pub(super) fn send(&self, method: &str, url: &str, body: &[u8]) -> WebAnswer {
        let answered = match method {
            "GET" => self.agent.get(url).call(),
            "DELETE" => self.agent.delete(url).call(),
            "PUT" => self.agent.put(url).send(body),
            "POST" => self.agent.post(url).send(body),
            other => panic!("{other}"),
        };
        let mut response = answered.unwrap();
        let location = response.headers().get("location").map(|value| value.to_str().unwrap().to_owned());
        let body = response.body_mut().with_config().limit(64 << 20).read_to_vec().unwrap();
        WebAnswer { status: response.status().as_u16(), location, body }
    }

    pub(super) fn ask(&self, method: &str, path_and_query: &str) -> WebAnswer {
        self.send(method, &self.url(path_and_query), b"")
    }

    pub(super) fn get(&self, path_and_query: &str) -> Value {
        let answer = self.ask("GET", path_and_query);
        assert_eq!(answer.status, 200, "{path_and_query}: {answer:?}");
        answer.json()
    }

    pub(super) fn refused(&self, method: &str, path_and_query: &str) -> (u16, String) {
        self.ask(method, path_and_query).refused()
    }

    /// Both steps of an operation that moves bytes.
    pub(super) fn two_steps(&self, method: &str, path_and_query: &str, body: &[u8]) -> WebAnswer {
        let first = self.ask(method, path_and_query);
        if first.status != 307 {
            return first;
        }
        assert_eq!(first.body, b"");
        self.send(method, &first.location.unwrap(), body)
    }

    pub(super) fn write(&self, path: &str, body: &[u8]) {
        let answer = self.two_steps("PUT", &format!("{path}?op=CREATE&overwrite=true"), body);
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    pub(super) fn read(&self, path: &str) -> Vec<u8> {
        let answer = self.two_steps("GET", &format!("{path}?op=OPEN"), b"");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Sends bytes on a connection of their own, and reads until the gateway ends it.
    pub(super) fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.gateway.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The name of this instant.
    pub(super) fn now(&self) -> String {
        self.client.now().unwrap().to_string()
    }

    pub(super) fn stop(self) {
        drop((self.gateway, self.calls, self.client));
        drop(self.local);
    }
}

/// The interim response to a client that asks whether it may send a body.
pub(super) const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

pub(super) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}
