//! A server and its gateway, and clients connected to it.

use super::*;

pub(super) const SUMS: ChecksumKind = ChecksumKind::Crc32c(512);

/// A server and its gateway.
pub(super) struct HdfsFixture {
    pub(super) gateway: HdfsGateway,
    pub(super) local: LocalServer,
}

pub(super) fn options(listen: &str, trust: Trust) -> HdfsOptions {
    let (listen, data) = (listen.to_owned(), "127.0.0.1:0".to_owned());
    HdfsOptions { listen, data, trust, notes: None, admission: Admission::new(4096) }
}

impl HdfsFixture {
    pub(super) fn new() -> HdfsFixture {
        HdfsFixture::with(Settings::default())
    }

    pub(super) fn with(settings: Settings) -> HdfsFixture {
        let local = LocalServer::at_port(settings);
        let server = local.server();
        // As `frieze serve` opens it; the gateways beside it below are asked over a socket.
        let client = Options { server: server.home(), in_process: Some(server.in_process()), ..Options::default() };
        let gateway = HdfsGateway::open(&options("127.0.0.1:0", Trust::Kernel), [7; 32], client).unwrap();
        HdfsFixture { gateway, local }
    }

    pub(super) fn connect(&self) -> HadoopClient {
        connect_to(&self.gateway, "", 0)
    }

    pub(super) fn connect_as(&self, user: &str, authentication: u8) -> HadoopClient {
        connect_to(&self.gateway, user, authentication)
    }

    pub(super) fn stop(self) {
        drop(self.gateway);
        drop(self.local);
    }
}

pub(super) fn connect_to(gateway: &HdfsGateway, user: &str, authentication: u8) -> HadoopClient {
    connect_by(gateway, PROTOCOL, user, authentication)
}

pub(super) fn connect_by(gateway: &HdfsGateway, protocol: &str, user: &str, authentication: u8) -> HadoopClient {
    let mut stream = TcpStream::connect(gateway.address()).unwrap();
    stream.write_all(&[b'h', b'r', b'p', b'c', 9, 0, authentication]).unwrap();
    let mut client = HadoopClient { stream, next: 0 };
    if authentication != 0 {
        let negotiate = RpcSasl { state: sasl::NEGOTIATE, ..RpcSasl::default() };
        client.send(-33, &[negotiate.encode_length_delimited_to_vec()]);
        let (header, message) = client.receive();
        assert_eq!((header.call_id as i32, header.status), (-33, rpc_status::SUCCESS));
        assert_eq!(RpcSasl::decode(message.as_slice()).unwrap().state, sasl::SUCCESS);
    }
    let user_info = Some(UserInformation { effective_user: Some(user.to_owned()), real_user: None });
    let context = IpcConnectionContext { user_info, protocol: Some(protocol.to_owned()) };
    client.send(-3, &[context.encode_length_delimited_to_vec()]);
    client
}

pub(super) fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}
