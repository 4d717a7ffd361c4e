//! The structures of `ffi` lie as the headers of libfabric have them, where headers and a C compiler are installed.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use frieze_fabric::ffi::{
    AddressAttr, AddressOps, ConnectionOps, DomainAttr, DomainFid, DomainOps, EndpointAttr, EndpointFid, FabricAttr,
    FabricFid, FabricOps, FidOps, Info, MemoryFid, MemoryOps, QueueAttr, QueueEntry, QueueError, QueueOps, RemoteVec,
    TransferMsg, TransferOps, TransmitAttr,
};

/// Each: the member in C, and where it lies here.
fn members() -> Vec<(&'static str, usize)> {
    vec![
        ("struct fi_info, domain_attr", offset_of!(Info, domain_attr)),
        ("struct fi_info, nic", offset_of!(Info, nic)),
        ("struct fi_ops, control", offset_of!(FidOps, control)),
        ("struct fi_tx_attr, size", offset_of!(TransmitAttr, size)),
        ("struct fi_ep_attr, max_msg_size", offset_of!(EndpointAttr, max_msg_size)),
        ("struct fi_domain_attr, threading", offset_of!(DomainAttr, threading)),
        ("struct fi_domain_attr, mr_mode", offset_of!(DomainAttr, mr_mode)),
        ("struct fi_domain_attr, mr_key_size", offset_of!(DomainAttr, mr_key_size)),
        ("struct fi_fabric_attr, prov_name", offset_of!(FabricAttr, prov_name)),
        ("struct fid_fabric, ops", offset_of!(FabricFid, ops)),
        ("struct fi_ops_fabric, trywait", offset_of!(FabricOps, trywait)),
        ("struct fid_domain, mr", offset_of!(DomainFid, mr)),
        ("struct fi_ops_domain, endpoint", offset_of!(DomainOps, endpoint)),
        ("struct fi_ops_mr, reg", offset_of!(MemoryOps, reg)),
        ("struct fid_mr, key", offset_of!(MemoryFid, key)),
        ("struct fi_av_attr, flags", offset_of!(AddressAttr, flags)),
        ("struct fi_ops_av, remove", offset_of!(AddressOps, remove)),
        ("struct fi_cq_attr, wait_set", offset_of!(QueueAttr, wait_set)),
        ("struct fi_ops_cq, strerror", offset_of!(QueueOps, strerror)),
        ("struct fi_cq_data_entry, data", offset_of!(QueueEntry, data)),
        ("struct fi_cq_err_entry, err_data_size", offset_of!(QueueError, err_data_size)),
        ("struct fid_ep, rma", offset_of!(EndpointFid, rma)),
        ("struct fi_ops_cm, getname", offset_of!(ConnectionOps, getname)),
        ("struct fi_ops_rma, readmsg", offset_of!(TransferOps, readmsg)),
        ("struct fi_ops_rma, writemsg", offset_of!(TransferOps, writemsg)),
        ("struct fi_msg_rma, data", offset_of!(TransferMsg, data)),
        ("struct fi_rma_iov, key", offset_of!(RemoteVec, key)),
    ]
}

#[test]
fn structures_lie_as_the_headers_have_them() {
    if !Path::new("/usr/include/rdma/fabric.h").exists() || Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: needs the headers of libfabric (libfabric-dev) and a C compiler");
        return;
    }
    let headers = ["fabric", "fi_domain", "fi_endpoint", "fi_cm", "fi_eq", "fi_rma"];
    let mut source: String = headers.iter().map(|name| format!("#include <rdma/{name}.h>\n")).collect();
    source += "#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n";
    for (member, _) in members() {
        source += &format!("printf(\"%zu\\n\", offsetof({member}));\n");
    }
    source += "return 0; }\n";
    let directory = std::env::temp_dir().join(format!("frieze-headers-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (file, program) = (directory.join("offsets.c"), directory.join("offsets"));
    std::fs::write(&file, source).unwrap();
    assert!(Command::new("cc").arg(&file).arg("-o").arg(&program).status().unwrap().success());
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    let found: Vec<usize> = printed.lines().map(|line| line.parse().unwrap()).collect();
    let expected: Vec<usize> = members().iter().map(|(_, offset)| *offset).collect();
    assert_eq!(expected, found, "{:?}", members());
}
