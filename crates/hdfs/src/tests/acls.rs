//! Access lists, as Hadoop's clients set and meet them.

use super::*;

/// `default:user:1000:rw-`, several with commas between them.
fn spec(text: &str) -> Vec<AclEntry> {
    let entry = |text: &str| {
        let (scope, text) = match text.strip_prefix("default:") {
            Some(rest) => (acl_scope::DEFAULT, rest),
            None => (acl_scope::ACCESS, text),
        };
        let words: Vec<&str> = text.split(':').collect();
        let kinds = ["user", "group", "mask", "other"];
        let kind = kinds.iter().position(|kind| *kind == words[0]).unwrap() as i32;
        let bit = |letter: char, bit: i32| if words[2].contains(letter) { bit } else { 0 };
        let name = Some(words[1].to_owned()).filter(|name| !name.is_empty());
        AclEntry { kind, scope, permissions: bit('r', 4) | bit('w', 2) | bit('x', 1), name }
    };
    text.split(',').filter(|text| !text.is_empty()).map(entry).collect()
}

fn change(client: &mut HadoopClient, method: &str, path: &str, entries: &str) -> Result<(), CallFailure> {
    client.ask(method, &AclRequest { src: path.to_owned(), entries: spec(entries) }).map(|_| ())
}

fn listed(client: &mut HadoopClient, path: &str) -> (u32, Vec<AclEntry>) {
    let found: GetAclStatusResponse = client.call("getAclStatus", &path_of(path));
    let status = found.result.unwrap();
    (status.permission.unwrap().perm, status.entries)
}

fn status(client: &mut HadoopClient, path: &str) -> HdfsFileStatus {
    client.call::<GetFileInfoResponse>("getFileInfo", &path_of(path)).fs.unwrap()
}

#[test]
fn an_access_list_is_set_listed_and_removed() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/d/f", b"x");
    let chmod = SetPermissionRequest { src: "/d/f".to_owned(), permission: Some(FsPermission { perm: 0o640 }) };
    client.call::<()>("setPermission", &chmod);
    assert_eq!((status(&mut client, "/d/f").flags, listed(&mut client, "/d/f")), (None, (0o640, Vec::new())));
    change(&mut client, "modifyAclEntries", "/d/f", "user:4711:rw-,group:4712:r-x").unwrap();
    // The mask, which the mode shows, is what these and the group have together.
    let told = spec("user:4711:rw-,group::r--,group:4712:r-x");
    assert_eq!(listed(&mut client, "/d/f"), (0o670, told));
    let found = status(&mut client, "/d/f");
    assert_eq!((found.flags, found.permission.unwrap().perm), (Some(HAS_ACL), 0o670 | ACL_BIT));
    // Every gateway has the same list.
    let own = frieze_client::Client::connect(Options { server: opened.local.server().nearby(), ..Options::default() })
        .unwrap();
    let lists = own.fs().access_lists(&frieze_client::Target::path("/d/f")).unwrap();
    let named = |id, permissions| vec![frieze_client::AclNamedEntry { id, permissions }];
    assert_eq!((lists.access.users, lists.access.groups), (named(4711, 6), named(4712, 5)));
    assert_eq!((lists.access.group, lists.access.mask), (4, Some(7)));
    change(&mut client, "removeAclEntries", "/d/f", "group:4712:---").unwrap();
    assert_eq!(listed(&mut client, "/d/f"), (0o660, spec("user:4711:rw-,group::r--")));
    change(&mut client, "setAcl", "/d/f", "user::rwx,user:4713:r-x,group::---,mask::r--,other::---").unwrap();
    assert_eq!(listed(&mut client, "/d/f"), (0o740, spec("user:4713:r-x,group::---")));
    change(&mut client, "removeAcl", "/d/f", "").unwrap();
    assert_eq!((status(&mut client, "/d/f").flags, listed(&mut client, "/d/f")), (None, (0o700, Vec::new())));
    opened.stop();
}

#[test]
fn new_entries_inherit_the_default_list_and_the_mode_without_the_umask() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.call::<ResultResponse>("mkdirs", &mkdirs("/d"));
    change(&mut client, "modifyAclEntries", "/d", "default:user:4711:rwx").unwrap();
    let default = "default:user::rwx,default:user:4711:rwx,default:group::r-x,default:mask::rwx,default:other::r-x";
    assert_eq!(listed(&mut client, "/d"), (0o755, spec(default)));
    let bits = |perm| Some(FsPermission { perm });
    let below = MkdirsRequest { masked: bits(0o755), unmasked: bits(0o777), ..mkdirs("/d/below") };
    client.call::<ResultResponse>("mkdirs", &below);
    let inherited = format!("user:4711:rwx,group::r-x,{default}");
    assert_eq!(listed(&mut client, "/d/below"), (0o775, spec(&inherited)));
    client.call::<CreateResponse>("create", &CreateRequest { unmasked: bits(0o666), ..create("/d/f", "w") });
    assert_eq!(listed(&mut client, "/d/f"), (0o664, spec("user:4711:rwx,group::r-x")));
    assert!(client.complete("/d/f", "w", None));
    change(&mut client, "removeDefaultAcl", "/d", "").unwrap();
    assert_eq!(listed(&mut client, "/d"), (0o755, Vec::new()));
    client.call::<ResultResponse>("mkdirs", &MkdirsRequest { src: "/d/plain".to_owned(), ..below });
    assert_eq!(listed(&mut client, "/d/plain"), (0o755, Vec::new()));
    opened.stop();
}

#[test]
fn an_invalid_access_list_raises_the_exception_that_clients_know() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/f", b"x");
    for (method, entries, words) in [
        ("modifyAclEntries", "user:nobody of that name:r--", "not known on the frieze server"),
        ("modifyAclEntries", "user:4711:r--,user:4711:rw-", "multiple entries"),
        ("modifyAclEntries", "other:4711:r--", "must not have a name"),
        ("modifyAclEntries", "default:user:4711:r--", "only directories may have a default ACL"),
        ("removeAclEntries", "user::---", "are required"),
        ("setAcl", "user:4711:rw-", "are required"),
    ] {
        let (class, said) = change(&mut client, method, "/f", entries).unwrap_err();
        assert_eq!(class, "org.apache.hadoop.hdfs.protocol.AclException", "{entries}: {said}");
        assert!(said.starts_with("Invalid ACL: ") && said.contains(words) && said.contains("/f"), "{entries}: {said}");
    }
    change(&mut client, "modifyAclEntries", "/f", "user:4711:r--").unwrap();
    let (class, said) = change(&mut client, "removeAclEntries", "/f", "mask::---").unwrap_err();
    assert!(class.ends_with("AclException") && said.contains("mask is required and cannot be deleted"), "{said}");
    let mut other = opened.connect_as("daemon", 0);
    let (class, _) = change(&mut other, "setAcl", "/f", "user::rwx,group::rwx,other::rwx").unwrap_err();
    assert_eq!(class, "org.apache.hadoop.security.AccessControlException");
    opened.stop();
}
