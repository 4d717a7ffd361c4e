//! A client of the name service: calls as the definitions say, nothing of Hadoop's.

use super::*;

/// A client of the name service.
pub(super) struct HadoopClient {
    pub(super) stream: TcpStream,
    pub(super) next: i32,
}

/// Class and words of an exception.
pub(super) type CallFailure = (String, String);

impl HadoopClient {
    pub(super) fn send(&mut self, number: i32, messages: &[Vec<u8>]) {
        self.stream.write_all(&HadoopClient::frame(number, messages)).unwrap();
    }

    pub(super) fn frame(number: i32, messages: &[Vec<u8>]) -> Vec<u8> {
        let header = RpcRequestHeader {
            rpc_kind: Some(2),
            rpc_op: Some(0),
            call_id: number,
            client_id: vec![7; 16],
            retry_count: Some(0),
        };
        let body = [header.encode_length_delimited_to_vec(), messages.concat()].concat();
        [(body.len() as u32).to_be_bytes().as_slice(), &body].concat()
    }

    pub(super) fn receive(&mut self) -> (RpcResponseHeader, Vec<u8>) {
        let mut len = [0; 4];
        self.stream.read_exact(&mut len).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(len) as usize];
        self.stream.read_exact(&mut frame).unwrap();
        let mut rest = frame.as_slice();
        let header = RpcResponseHeader::decode_length_delimited(&mut rest).unwrap();
        let reply = if rest.is_empty() { Vec::new() } else { Vec::<u8>::from(split_delimited(rest)) };
        (header, reply)
    }

    pub(super) fn ask(&mut self, method: &str, request: &impl Message) -> Result<Vec<u8>, CallFailure> {
        self.next += 1;
        self.ask_numbered(self.next, PROTOCOL, method, &request.encode_to_vec())
    }

    pub(super) fn ask_numbered(
        &mut self,
        number: i32,
        protocol: &str,
        method: &str,
        request: &[u8],
    ) -> Result<Vec<u8>, CallFailure> {
        let header = RequestHeader {
            method_name: method.to_owned(),
            declaring_class_protocol_name: protocol.to_owned(),
            client_protocol_version: 1,
        };
        let mut delimited = Vec::new();
        prost::encoding::encode_varint(request.len() as u64, &mut delimited);
        delimited.extend(request);
        self.send(number, &[header.encode_length_delimited_to_vec(), delimited]);
        let (header, reply) = self.receive();
        match header.status {
            rpc_status::SUCCESS => {
                assert_eq!(header.call_id as i32, number);
                Ok(reply)
            }
            _ => Err((header.exception_class_name.unwrap(), header.error_msg.unwrap())),
        }
    }

    pub(super) fn call<R: Message + Default>(&mut self, method: &str, request: &impl Message) -> R {
        let reply = self.ask(method, request).unwrap_or_else(|refused| panic!("{method}: {refused:?}"));
        R::decode(reply.as_slice()).unwrap()
    }

    pub(super) fn refused(&mut self, method: &str, request: &impl Message) -> String {
        let (class, _) = self.ask(method, request).expect_err("it is refused");
        class.rsplit('.').next().unwrap().to_owned()
    }

    pub(super) fn info(&mut self, path: &str) -> Option<HdfsFileStatus> {
        self.call::<GetFileInfoResponse>("getFileInfo", &path_of(path)).fs
    }

    pub(super) fn create(&mut self, path: &str, holder: &str) -> HdfsFileStatus {
        self.call::<CreateResponse>("create", &create(path, holder)).fs.unwrap()
    }

    pub(super) fn add_block(&mut self, path: &str, holder: &str, previous: Option<ExtendedBlock>) -> LocatedBlock {
        let request = AddBlockRequest {
            src: path.to_owned(),
            client_name: holder.to_owned(),
            previous,
            ..AddBlockRequest::default()
        };
        self.call::<AddBlockResponse>("addBlock", &request).block.unwrap()
    }

    pub(super) fn complete(&mut self, path: &str, holder: &str, last: Option<ExtendedBlock>) -> bool {
        let request = CompleteRequest { src: path.to_owned(), client_name: holder.to_owned(), last, file_id: None };
        self.call::<ResultResponse>("complete", &request).result
    }

    /// Writes a file of one block.
    pub(super) fn write(&mut self, path: &str, data: &[u8]) {
        self.create(path, "w");
        let block = self.add_block(path, "w", None);
        let mut transfer = Transfer::write(&block);
        assert_eq!(transfer.put(0, 0, data, true), status::SUCCESS);
        assert!(self.complete(path, "w", Some(of_len(&block, data.len()))));
    }

    pub(super) fn locations(&mut self, path: &str) -> LocatedBlocks {
        let request = GetBlockLocationsRequest { src: path.to_owned(), offset: 0, length: u64::MAX };
        self.call::<GetBlockLocationsResponse>("getBlockLocations", &request).locations.unwrap()
    }

    pub(super) fn read(&mut self, path: &str) -> Vec<u8> {
        let located = self.locations(path);
        located
            .blocks
            .iter()
            .flat_map(|block| Transfer::read(block, 0, block.b.as_ref().unwrap().num_bytes.unwrap()).unwrap().1)
            .collect()
    }
}

pub(super) fn split_delimited(mut rest: &[u8]) -> &[u8] {
    let len = prost::encoding::decode_varint(&mut rest).unwrap();
    assert_eq!(len as usize, rest.len());
    rest
}

pub(super) fn path_of(path: &str) -> PathRequest {
    PathRequest { path: path.to_owned() }
}

pub(super) fn create(path: &str, holder: &str) -> CreateRequest {
    CreateRequest {
        src: path.to_owned(),
        masked: Some(FsPermission { perm: 0o644 }),
        client_name: holder.to_owned(),
        create_flag: 1 | create_flag::OVERWRITE,
        create_parent: true,
        replication: 1,
        block_size: 1 << 20,
        ..CreateRequest::default()
    }
}

pub(super) fn mkdirs(path: &str) -> MkdirsRequest {
    let masked = Some(FsPermission { perm: 0o755 });
    MkdirsRequest { src: path.to_owned(), masked, create_parent: true, unmasked: None }
}

pub(super) fn of_len(block: &LocatedBlock, len: usize) -> ExtendedBlock {
    ExtendedBlock { num_bytes: Some(len as u64), ..block.b.clone().unwrap() }
}
