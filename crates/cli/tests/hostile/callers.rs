//! Callers with a false identity, and callers that ask for what is not theirs.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use frieze_base::{InodeId, Reason, SessionId};
use frieze_client::{Client, CreateMode, Key, Options, SetAttr, Target};
use frieze_harness::requirements;
use frieze_wire::message::{Hello, List, Open, Ping, Prove, Read, Reply, Request, Stat, Status, View, Write};
use frieze_wire::txn::{
    Caller, CloseSession, DeleteSnapshot, Format, Grant, Make, MakeKind, MakeNameless, Op, OpenSession, Settle,
    SettleAll,
};
use rustix::process::{Gid, Uid};

use super::raw::{Raw, txn};
use super::{check_well, get, put, server};
use crate::support::client;
use crate::support::served::Said;

pub(super) const STRANGER: u32 = 4242;

/// Runs `act` in a thread that belongs to another user. False, with a line that says why, where this process may not.
pub(super) fn as_stranger(act: impl FnOnce() + Send) -> bool {
    as_user(STRANGER, act)
}

/// The same as any user.
pub(super) fn as_user(user: u32, act: impl FnOnce() + Send) -> bool {
    if !requirements::root() {
        return false;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Of this thread alone: the rest of the process goes on as root.
            let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            act();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    });
    true
}

/// A file of root's, open for writing.
struct Owned {
    raw: Raw,
    inode: u64,
    capability: Vec<u8>,
}

fn owned(address: &str, path: &str) -> Owned {
    let mut raw = Raw::in_session(address);
    let open = Open { target: Target::path(path), view: View::NOW, read: true, write: true, made_at: 0 };
    match raw.ask(Request::Open(open)) {
        Ok(Reply::Open(reply)) => Owned { raw, inode: reply.attr.inode, capability: reply.capability },
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_caller_has_the_identity_from_the_kernel_whatever_its_frames_claim() {
    let mut server = server("", "127.0.0.1:0");
    let root = client(&server.address);
    let fs = root.fs();
    fs.mkdir(&Target::path("/private"), 0o700).unwrap();
    put(&root, "/private/secret", b"secret");
    put(&root, "/program", b"#!/bin/true");
    fs.set_attr(SetAttr { target: Target::path("/program"), mode: Some(0o4755), ..SetAttr::default() }).unwrap();
    root.make_snapshot("roots", None).unwrap();
    let secret = fs.stat(&Target::path("/private/secret")).unwrap().attr.inode;
    let address = server.addresses[1].clone();
    let owned = owned(&address, "/program");
    let at = root.now().unwrap();

    let ran = as_stranger(|| {
        let mut raw = Raw::connect(&address);
        let hello = raw.greet();
        assert_eq!((hello.uid, hello.may_impersonate), (STRANGER, false));
        let refused = |raw: &mut Raw, caller: Option<Caller>, request: Request| match raw.ask_as(caller, request) {
            Err(fault) => fault,
            Ok(reply) => panic!("a stranger was answered {reply:?}"),
        };
        let stat = |target: Target| Request::Stat(Stat { target, view: View::NOW, ..Stat::default() });

        // To speak for another user, or with another user's groups.
        for caller in [Caller::root(), Caller { uid: STRANGER, gid: 0, groups: vec![] }] {
            let fault = refused(&mut raw, Some(caller.clone()), stat(Target::path("/kept")));
            assert_eq!(fault.reason, Reason::NotPermitted, "{fault}");
            let words = format!("user {STRANGER} may not speak for user {}", caller.uid);
            assert!(fault.message.contains(&words), "{fault}");
        }
        // To use another user's session, or to end it.
        let mut thief = Raw::greeted(&address);
        thief.session = owned.raw.session;
        for request in [Request::Ping(Ping {}), txn(Op::CloseSession(CloseSession::default()))] {
            let fault = refused(&mut thief, None, request);
            assert_eq!(fault.reason, Reason::UnknownSession);
            assert!(fault.message.contains("belongs to another user"), "{fault}");
        }
        // A session for root is a session for the stranger.
        let open = OpenSession { command: "x".to_owned(), host: "x".to_owned(), uid: 0, keeps: false };
        let Ok(Reply::Txn(opened)) = raw.ask(txn(Op::OpenSession(open))) else { panic!("a session is opened") };
        raw.session = SessionId(opened.id);

        // By number, past the directory that is closed to it; now and then.
        for view in [View::NOW, View { at: Some(at.0), user_at: None }] {
            let fault = refused(
                &mut raw,
                None,
                Request::Stat(Stat { target: Target::inode(InodeId(secret)), view, ..Stat::default() }),
            );
            assert_eq!(fault.reason, Reason::AccessDenied, "{fault}");
            let open = Open { target: Target::inode(InodeId(secret)), view, read: true, write: false, made_at: 0 };
            assert_eq!(refused(&mut raw, None, Request::Open(open)).reason, Reason::AccessDenied);
        }
        let private = fs.stat(&Target::path("/private")).unwrap().attr.inode;
        let list =
            List { target: Target::inode(InodeId(private)), view: View::NOW, by_handle: true, ..List::default() };
        assert_eq!(refused(&mut raw, None, Request::List(list)).reason, Reason::AccessDenied);

        // With the capability of another, or a made-up one.
        for capability in [owned.capability.clone(), vec![7; owned.capability.len()], Vec::new()] {
            let read = Request::Read(Read {
                capability: capability.clone(),
                offset: 0,
                len: 10,
                in_steps: false,
                ..Read::default()
            });
            let fault = refused(&mut raw, None, read);
            assert_eq!(fault.reason, Reason::StaleHandle);
            assert!(fault.message.contains("open the file again"), "{fault}");
            let write = Request::Write(Write { capability, ..Write::default() });
            assert_eq!(refused(&mut raw, None, write).reason, Reason::StaleHandle);
        }
        // A claim to have opened it, or to have made it.
        let target = Target::inode(InodeId(owned.inode));
        let cut = SetAttr { target: target.clone(), size: Some(0), by_handle: true, ..SetAttr::default() };
        let fault = refused(&mut raw, None, txn(Op::SetAttr(cut)));
        assert_eq!(fault.reason, Reason::AccessDenied, "{fault}");
        let born = fs.stat(&target).unwrap().attr.born;
        let open = Open { target, view: View::NOW, read: false, write: true, made_at: born };
        assert_eq!(refused(&mut raw, None, Request::Open(open)).reason, Reason::AccessDenied);
        let grant = txn(Op::Grant(Grant { inode: owned.inode, first: 0, count: 1 }));
        let fault = refused(&mut raw, None, grant);
        assert_eq!(fault.reason, Reason::AccessDenied, "{fault}");
        // Nor is there room for bytes beside what is not its own to write.
        let nameless = txn(Op::MakeNameless(MakeNameless { beside: owned.inode }));
        assert_eq!(refused(&mut raw, None, nameless).reason, Reason::AccessDenied);
        // What a settled size is, the server measures itself.
        let settle = Settle {
            inode: owned.inode,
            keep_grant: false,
            stamp: u64::MAX - 1,
            size: 1 << 40,
            mtime_ns: 1,
            ..Settle::default()
        };
        let _ = raw.ask(txn(Op::Settle(settle.clone())));
        let _ = raw.ask(txn(Op::SettleAll(SettleAll { files: vec![settle.clone(); 2] })));
        let all = SettleAll { files: vec![settle; 257] };
        assert_eq!(refused(&mut raw, None, txn(Op::SettleAll(all))).reason, Reason::TooLarge);
        // Another file system in place of this one.
        let format = Format { chunk_bytes: 1 << 16, chain_count: 1, uid: STRANGER, gid: STRANGER, mode: 0o777 };
        assert_eq!(refused(&mut raw, None, txn(Op::Format(format))).reason, Reason::NotPermitted);
        let forget = txn(Op::DeleteSnapshot(DeleteSnapshot { name: "roots".to_owned() }));
        assert_eq!(refused(&mut raw, None, forget).reason, Reason::NotPermitted);
        // And what is its own is still its own.
        let target = Target::path("/of-the-stranger");
        let make = Make { target, mode: 0o600, or_open: false, kind: Some(MakeKind::File(true)), ..Make::default() };
        assert!(raw.ask(txn(Op::Make(make))).is_ok());
        assert!(raw.ask(Request::Status(Status {})).is_ok());
    });
    if ran {
        let attr = fs.stat(&Target::path("/of-the-stranger")).unwrap().attr;
        assert_eq!((attr.uid, attr.gid), (STRANGER, STRANGER));
    }
    let attr = fs.stat(&Target::path("/program")).unwrap().attr;
    assert_eq!((attr.size, attr.mode & 0o7777, attr.uid), (11, 0o4755, attr.uid));
    assert_eq!(get(&root, "/program"), b"#!/bin/true");
    assert_eq!(get(&root, "/private/secret"), b"secret");
    assert_eq!(root.snapshots().unwrap().len(), 1);
    let mut owner = owned.raw;
    let read =
        Request::Read(Read { capability: owned.capability, offset: 0, len: 10, in_steps: false, ..Read::default() });
    assert!(owner.ask(read).is_ok(), "the session of its owner goes on");
    check_well(&mut server);
}

#[test]
fn the_command_of_a_stranger_is_refused_in_words() {
    let server = server("", "127.0.0.1:0");
    let root = client(&server.address);
    root.fs().mkdir(&Target::path("/private"), 0o700).unwrap();
    put(&root, "/private/secret", b"secret");
    if !requirements::root() {
        return;
    }
    // Where anybody may run it.
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("frieze");
    fs::copy(env!("CARGO_BIN_EXE_frieze"), &program).unwrap();
    let run = |args: &[&str]| -> Said {
        let mut command = Command::new(&program);
        command.args(args).env("FRIEZE_SERVER", &server.addresses[1]).current_dir("/").uid(STRANGER).gid(STRANGER);
        command.output().unwrap().into()
    };
    let at = root.now().unwrap().to_string();
    const STICKY: &str = "operation not permitted: the directory is sticky: only the owner may take a name from it\n";
    for (args, line) in [
        (&["cat", "/private/secret"][..], "frieze: cat: /private/secret: permission denied\n"),
        (&["cat", "/private/secret", "--at", &at], "frieze: cat: /private/secret: permission denied\n"),
        (&["ls", "/private"], "frieze: ls: /private: permission denied\n"),
        (&["rm", "/kept"], &format!("frieze: rm: /kept: {STICKY}")),
        (&["mv", "/kept", "/taken"], &format!("frieze: mv: /kept: {STICKY}")),
        (&["cp", "/kept", "/private/copy"], "frieze: cp: /private/copy: permission denied\n"),
    ] {
        let said = run(args);
        assert_eq!((said.status, said.out().as_str(), said.err.as_str()), (1, "", line), "{args:?}");
    }
    assert_eq!(run(&["cat", "/kept"]).ok(), "as it was", "what anybody may read, a stranger may");
}

/// An address of this machine that is not loopback: to the server, its clients come from outside.
fn outside() -> Option<String> {
    // Nothing is sent: the kernel only says from where it would be.
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()).ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

#[test]
fn a_remote_caller_has_no_identity_until_a_key_proves_it() {
    let Some(address) = outside() else {
        requirements::missing("address", "an address beside loopback", "give the machine a network interface");
        return;
    };
    let secret = "0123456789abcdef0123456789abcdef";
    let settings = format!("[[keys]]\nname = \"mine\"\nsecret = \"{secret}\"\nuser = \"0\"\n");
    let mut server = server(&settings, "0.0.0.0:0");
    let port = server.addresses[1].rsplit(':').next().unwrap();
    let address = format!("{address}:{port}");

    let mut raw = Raw::connect(&address);
    assert_eq!(raw.greet().uid, 65534, "nobody");
    let stat = || Request::Stat(Stat { target: Target::path("/kept"), view: View::NOW, ..Stat::default() });
    let fault = raw.ask(stat()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unproven);
    assert!(fault.message.contains("the caller is not proven") && fault.message.contains("--key"), "{fault}");
    let fault = raw.ask_as(Some(Caller::root()), stat()).unwrap_err();
    assert_eq!(fault.reason, Reason::Unproven);

    // A wrong answer and an unknown name get the same words; neither proves anything.
    let mut words = Vec::new();
    for name in ["mine", "nobodys"] {
        let mut raw = Raw::connect(&address);
        let hello = Hello { key_name: name.to_owned(), nonce: vec![3; 32], ..Hello::default() };
        let Ok(Reply::Hello(reply)) = raw.ask(Request::Hello(hello)) else { panic!("a greeting is answered") };
        assert_eq!(reply.challenge.len(), 32);
        let fault = raw.ask(Request::Prove(Prove { mac: vec![0; 32] })).unwrap_err();
        assert_eq!(fault.reason, Reason::Unproven);
        words.push(fault.message);
        assert_eq!(raw.ask(stat()).unwrap_err().reason, Reason::Unproven);
    }
    assert_eq!(words[0], words[1]);

    let said = server.fails(1, &["ls", "/", "--server", &address]);
    assert!(said.starts_with("frieze: ls: ") && said.contains("not proven"), "{said}");
    let wrong = server.private_file("wrong-key", "mine:00000000000000000000000000000000\n");
    let said = server.fails(1, &["ls", "/", "--server", &address, "--key", &wrong]);
    assert!(said.contains("the key was not accepted"), "{said}");
    let key = server.private_file("key", format!("mine:{secret}\n"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let said = server.fails(2, &["ls", "/", "--server", &address, "--key", &key]);
    assert!(said.contains(&format!("can be read by others (mode 0644): refused; chmod 600 {key}")), "{said}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(server.ok(&["ls", "/", "--server", &address, "--key", &key]), "kept\n");

    let key = Key::new("mine", secret).unwrap();
    let options = Options { server: address.parse().unwrap(), key: Some(key), ..Options::default() };
    let client = Client::connect(options).unwrap();
    // The key speaks for root, but not for others.
    let other = client.fs().as_caller(Caller { uid: STRANGER, gid: STRANGER, groups: vec![] });
    let refused = other.create(&Target::path("/theirs"), 0o600, CreateMode::Exclusive).unwrap_err();
    assert_eq!(refused.reason(), Reason::NotPermitted, "{refused}");
    check_well(&mut server);
}
