//! Quotas, as Hadoop's administrators set and its clients meet them.

use super::*;

fn set(client: &mut HadoopClient, path: &str, files: i64, bytes: i64) -> Result<Vec<u8>, CallFailure> {
    let (namespace_quota, storagespace_quota) = (files.cast_unsigned(), bytes.cast_unsigned());
    let request = SetQuotaRequest { path: path.to_owned(), namespace_quota, storagespace_quota, storage_type: None };
    client.ask("setQuota", &request)
}

fn usage(client: &mut HadoopClient, path: &str) -> (u64, i64, u64, i64) {
    let told: GetQuotaUsageResponse = client.call("getQuotaUsage", &path_of(path));
    let QuotaUsage { file_and_directory_count, quota, space_consumed, space_quota } = told.usage.unwrap();
    (file_and_directory_count, quota.cast_signed(), space_consumed, space_quota.cast_signed())
}

const RESET: i64 = -1;
const AS_IT_IS: i64 = i64::MAX;

#[test]
fn a_quota_that_is_exceeded_is_the_exception_that_clients_know() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/q/f", b"four");
    assert_eq!(usage(&mut client, "/q"), (2, -1, 4, -1));
    set(&mut client, "/q", 3, AS_IT_IS).unwrap();
    assert_eq!(usage(&mut client, "/q"), (2, 3, 4, -1));
    client.write("/q/g", b"x");
    let (class, words) = client.ask("create", &create("/q/h", "w")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException");
    assert!(words.contains("The NameSpace quota (directories and files) of") && words.contains("/q/h"), "{words}");
    set(&mut client, "/q", RESET, 5).unwrap();
    let (class, words) = client.ask("create", &create("/q/h", "w")).unwrap_err();
    assert_eq!(class, "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException");
    assert!(words.contains("The DiskSpace quota of") && words.contains("/q/h"), "{words}");
    let summary: GetContentSummaryResponse = client.call("getContentSummary", &path_of("/q"));
    let summary = summary.summary.unwrap();
    assert_eq!((summary.quota.cast_signed(), summary.space_quota.cast_signed()), (-1, 5));
    // It is told by its own calls, and not as an attribute.
    assert_eq!(client.call::<XAttrsResponse>("listXAttrs", &path_of("/q")).xattrs, []);
    set(&mut client, "/q", AS_IT_IS, RESET).unwrap();
    client.write("/q/h", b"anew");
    assert_eq!(usage(&mut client, "/q"), (4, -1, 9, -1));
    opened.stop();
}

#[test]
fn a_block_is_refused_where_the_space_is_used_up_and_the_file_stays_as_it_was() {
    let opened = HdfsFixture::with(Settings { chunk_bytes: 1 << 20, ..Settings::default() });
    let mut client = opened.connect();
    client.call::<ResultResponse>("mkdirs", &mkdirs("/q"));
    // Blocks of a mebibyte.
    client.create("/q/f", "w");
    set(&mut client, "/q", RESET, 1 << 20).unwrap();
    let first = client.add_block("/q/f", "w", None);
    let mut transfer = Transfer::write(&first);
    assert_eq!(transfer.put(0, 0, &vec![7; 1 << 20], true), status::SUCCESS);
    let request = AddBlockRequest {
        src: "/q/f".to_owned(),
        client_name: "w".to_owned(),
        previous: Some(of_len(&first, 1 << 20)),
        ..AddBlockRequest::default()
    };
    assert_eq!(client.refused("addBlock", &request), "DSQuotaExceededException");
    assert!(client.complete("/q/f", "w", Some(of_len(&first, 1 << 20))));
    assert_eq!(client.read("/q/f"), vec![7; 1 << 20]);
    opened.stop();
}

#[test]
fn operators_alone_set_quotas_of_directories_in_whole_numbers() {
    let opened = HdfsFixture::new();
    let mut client = opened.connect();
    client.write("/d/f", b"x");
    let class = |refused: Result<Vec<u8>, CallFailure>| {
        let (class, _) = refused.expect_err("it is refused");
        class.rsplit('.').next().unwrap().to_owned()
    };
    assert_eq!(class(set(&mut client, "/d/f", 9, 9)), "FileNotFoundException");
    assert_eq!(class(set(&mut client, "/nowhere", 9, 9)), "FileNotFoundException");
    assert_eq!(class(set(&mut client, "/d", 0, 9)), "IllegalArgumentException");
    assert_eq!(class(set(&mut client, "/d", 9, -2)), "IllegalArgumentException");
    assert_eq!(class(set(&mut client, "/.at/1m-ago/d", 9, 9)), "SnapshotAccessControlException");
    let of_disks = SetQuotaRequest {
        path: "/d".to_owned(),
        namespace_quota: AS_IT_IS.cast_unsigned(),
        storagespace_quota: 9,
        storage_type: Some(DISK),
    };
    assert_eq!(client.refused("setQuota", &of_disks), "UnsupportedOperationException");
    if frieze_harness::requirements::root() {
        let mut other = opened.connect_as("daemon", 0);
        assert_eq!(class(set(&mut other, "/d", 9, 9)), "AccessControlException");
        set(&mut client, "/d", 9, 9).unwrap();
        assert_eq!(usage(&mut other, "/d"), (2, 9, 1, 9), "everybody sees it");
    }
    opened.stop();
}
