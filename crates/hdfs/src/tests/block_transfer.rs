//! A client of the data service: packets, acknowledgements, checksums.

use super::*;

/// A connection to the data service.
pub(super) struct Transfer(pub(super) TcpStream);

impl Transfer {
    pub(super) fn connect(block: &LocatedBlock) -> Transfer {
        let id = block.locs[0].id.as_ref().unwrap();
        let address = (id.ip_addr.as_str(), id.xfer_port as u16).to_socket_addrs().unwrap().next().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        Transfer(stream)
    }

    pub(super) fn base(block: &LocatedBlock) -> Option<ClientOperationHeader> {
        let base_header = Some(BaseHeader { block: block.b.clone(), token: block.block_token.clone() });
        Some(ClientOperationHeader { base_header, client_name: "t".to_owned() })
    }

    pub(super) fn begin(&mut self, operation: u8, request: &impl Message) -> BlockOpResponse {
        self.0.write_all(&[&[0, 28, operation], request.encode_length_delimited_to_vec().as_slice()].concat()).unwrap();
        self.message()
    }

    pub(super) fn message<M: Message + Default>(&mut self) -> M {
        let len = self.byte();
        let len = if len & 0x80 == 0 { len } else { len & 0x7f | self.byte() << 7 };
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        M::decode(bytes.as_slice()).unwrap()
    }

    pub(super) fn byte(&mut self) -> usize {
        let mut byte = [0];
        self.0.read_exact(&mut byte).unwrap();
        byte[0].into()
    }

    pub(super) fn asks_to_write(block: &LocatedBlock) -> OpWriteBlock {
        OpWriteBlock {
            header: Transfer::base(block),
            targets: Vec::new(),
            stage: stage::SETUP_CREATE,
            pipeline_size: 1,
            min_bytes_rcvd: 0,
            max_bytes_rcvd: 0,
            latest_generation_stamp: 0,
            requested_checksum: Some(Checksum { kind: checksum::CRC32C, bytes_per_checksum: 512 }),
        }
    }

    pub(super) fn write(block: &LocatedBlock) -> Transfer {
        let mut transfer = Transfer::connect(block);
        let response = transfer.begin(80, &Transfer::asks_to_write(block));
        assert_eq!((response.status, response.first_bad_link.as_deref()), (status::SUCCESS, Some("")));
        transfer
    }

    pub(super) fn packet(seqno: i64, at: u64, data: &[u8], is_last: bool) -> Vec<u8> {
        let header = PacketHeader {
            offset_in_block: at as i64,
            seqno,
            last_packet_in_block: is_last,
            data_len: data.len() as i32,
            sync_block: None,
        };
        let mut bytes = Vec::new();
        put_packet(&header, data, SUMS, &mut bytes);
        bytes
    }

    /// Sends a packet and gives the status of its acknowledgement.
    pub(super) fn put(&mut self, seqno: i64, at: u64, data: &[u8], is_last: bool) -> i32 {
        self.0.write_all(&Transfer::packet(seqno, at, data, is_last)).unwrap();
        self.acknowledged(seqno)
    }

    pub(super) fn acknowledged(&mut self, seqno: i64) -> i32 {
        let ack: PipelineAck = self.message();
        assert_eq!((ack.seqno, ack.reply.len()), (seqno, 1));
        ack.reply[0]
    }

    /// Reads a range of a block: where what came begins, and what came; or the status it was refused with.
    pub(super) fn read(block: &LocatedBlock, offset: u64, len: u64) -> Result<(u64, Vec<u8>), i32> {
        Transfer::connect(block).read_on(block, offset, len).map(|read| read.unwrap())
    }

    /// The same over this connection; or what was wrong with a packet.
    pub(super) fn read_on(
        &mut self,
        block: &LocatedBlock,
        offset: u64,
        len: u64,
    ) -> Result<Result<(u64, Vec<u8>), transfer::PacketError>, i32> {
        let request = OpReadBlock { header: Transfer::base(block), offset, len, send_checksums: Some(true) };
        let response = self.begin(81, &request);
        if response.status != status::SUCCESS {
            return Err(response.status);
        }
        let begins = response.read_op_checksum_info.unwrap().chunk_offset;
        let mut all = Vec::new();
        loop {
            let mut lengths = [0; LENGTHS_BYTES];
            self.0.read_exact(&mut lengths).unwrap();
            let lengths = Lengths::read(lengths).unwrap();
            let mut bytes = vec![0; lengths.header + lengths.body];
            self.0.read_exact(&mut bytes).unwrap();
            let (header, body) = bytes.split_at(lengths.header);
            let DataPacket { header, data, .. } = match packet(header, body, SUMS) {
                Ok(packet) => packet,
                Err(error) => return Ok(Err(error)),
            };
            assert_eq!(header.offset_in_block as u64, begins + all.len() as u64);
            assert!(data.is_empty() || header.offset_in_block % 512 == 0, "a packet begins with a span");
            all.extend(data);
            if header.last_packet_in_block {
                return Ok(Ok((begins, all)));
            }
        }
    }
}
