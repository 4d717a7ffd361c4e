import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.XAttrSetFlag;
import org.apache.hadoop.fs.permission.FsAction;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.web.WebHdfsFileSystem;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;

/** What Hadoop's own webhdfs:// client does with frieze, beside hdfs:// to the same files. As Clients. */
public class Web {
    static WebHdfsFileSystem web;
    static FileSystem rpc;

    static byte[] read(FileSystem from, String path) throws IOException {
        try (FSDataInputStream in = from.open(new Path(path))) {
            return in.readAllBytes();
        }
    }

    static void write(String path, byte[] data) throws IOException {
        try (FSDataOutputStream out = web.create(new Path(path))) {
            out.write(data);
        }
    }

    static void theShell(java.nio.file.Path local) throws Exception {
        byte[] data = Clients.bytes(5_000_003, 1);
        java.nio.file.Path from = local.resolve("from"), to = local.resolve("to"), few = local.resolve("few");
        Files.write(from, data);
        Files.write(few, new byte[] {1, 2, 3});
        Clients.step("-mkdir -p", () -> Clients.shell(0, "-mkdir", "-p", "/sh/a/b"));
        Clients.step("-put: both gateways read what one wrote", () -> {
            Clients.shell(0, "-put", from.toString(), "/sh/a/file");
            Clients.check(Arrays.equals(data, read(rpc, "/sh/a/file")), "other bytes by hdfs://");
        });
        Clients.step("-ls", () -> {
            String listed = Clients.shell(0, "-ls", "/sh/a");
            Clients.check(listed.contains("5000003") && listed.contains("/sh/a/file") && listed.contains("drwx"), listed);
        });
        Clients.step("-cat", () -> Clients.check(
                Arrays.equals(data, Clients.shell(0, "-cat", "/sh/a/file").getBytes(StandardCharsets.ISO_8859_1)), "other bytes"));
        Clients.step("-get", () -> {
            Clients.shell(0, "-get", "/sh/a/file", to.toString());
            Clients.check(Arrays.equals(data, Files.readAllBytes(to)), "other bytes");
        });
        Clients.step("-mv", () -> {
            Clients.shell(0, "-mv", "/sh/a/file", "/sh/a/b");
            Clients.shell(0, "-test", "-f", "/sh/a/b/file");
        });
        Clients.step("-du -s, -count", () -> {
            Clients.check(Clients.shell(0, "-du", "-s", "/sh").startsWith("5000003  5000003"), "other sums");
            Clients.same("[3, 1, 5000003, /sh]", Arrays.toString(Clients.shell(0, "-count", "/sh").trim().split(" +")));
        });
        Clients.step("-appendToFile", () -> {
            Clients.shell(0, "-appendToFile", few.toString(), "/sh/a/b/file");
            Clients.same(5_000_006L, web.getFileStatus(new Path("/sh/a/b/file")).getLen());
        });
        Clients.step("-checksum: the same as by hdfs://, of nothing too", () -> {
            Clients.shell(0, "-touchz", "/sh/none");
            for (String path : new String[] {"/sh/a/b/file", "/sh/none"}) {
                Clients.same(rpc.getFileChecksum(new Path(path)), web.getFileChecksum(new Path(path)));
            }
            Clients.check(Clients.shell(0, "-checksum", "/sh/a/b/file").contains("MD5-of-0MD5-of-512CRC32C"), "another kind");
        });
        Clients.step("-setfattr, -getfattr", () -> {
            Clients.shell(0, "-setfattr", "-n", "user.colour", "-v", "blue", "/sh/none");
            Clients.check(Clients.shell(0, "-getfattr", "-d", "/sh/none").contains("user.colour=\"blue\""), "another value");
        });
        Clients.step("-df", () -> Clients.check(Clients.shell(0, "-df", "/").contains("webhdfs://"), "other words"));
        Clients.step("-rm refuses a directory, -rm -r removes it", () -> {
            Clients.shell(1, "-rm", "/sh");
            Clients.shell(0, "-rm", "-r", "/sh");
            Clients.check(!web.exists(new Path("/sh")), "it is there");
        });
    }

    static void theLibrary() throws Exception {
        Clients.step("a file is written and read from anywhere", () -> {
            byte[] data = Clients.bytes(3_000_001, 2);
            write("/lib/file", data);
            try (FSDataInputStream in = web.open(new Path("/lib/file"))) {
                byte[] some = new byte[1000];
                for (long at : new long[] {2_999_001, 0, 1_234_567}) {
                    in.seek(at);
                    in.readFully(some);
                    Clients.check(Arrays.equals(Arrays.copyOfRange(data, (int) at, (int) at + 1000), some), "other bytes at " + at);
                }
            }
        });
        Clients.step("create without overwriting is refused, with it the file is another", () -> {
            Path path = new Path("/lib/once");
            write("/lib/once", Clients.bytes(10, 3));
            Clients.refused(FileAlreadyExistsException.class, () -> web.create(path, false).close());
            write("/lib/once", Clients.bytes(5, 4));
            Clients.check(Arrays.equals(Clients.bytes(5, 4), read(web, "/lib/once")), "other bytes");
            Clients.refused(IOException.class, () -> web.createNonRecursive(new Path("/nowhere/x"), true, 4096, (short) 1, 1 << 20, null).close());
        });
        Clients.step("a second writer is refused, at both gateways", () -> {
            Path path = new Path("/lib/two");
            try (FSDataOutputStream out = web.create(path)) {
                out.write(new byte[100_000]);
                out.flush();
                // What is being sent is there before all of it is.
                while (!rpc.exists(path)) Thread.onSpinWait();
                Clients.check(Clients.refused(IOException.class, () -> rpc.append(path).close()).contains("AlreadyBeingCreated"), "other words");
                Clients.check(Clients.refused(IOException.class, () -> web.append(path).close()).contains("AlreadyBeingCreated"), "other words");
            }
            Clients.same(100_000L, web.getFileStatus(path).getLen());
        });
        Clients.step("truncate, concat", () -> {
            write("/lib/first", Clients.bytes(1000, 5));
            write("/lib/second", Clients.bytes(500, 6));
            Clients.check(web.truncate(new Path("/lib/first"), 700), "not at once");
            web.concat(new Path("/lib/first"), new Path[] {new Path("/lib/second")});
            Clients.same(1200L, web.getFileStatus(new Path("/lib/first")).getLen());
            Clients.check(!web.exists(new Path("/lib/second")), "it is there");
        });
        Clients.step("rename, in both of its ways", () -> {
            Clients.check(web.rename(new Path("/lib/first"), new Path("/lib/moved")), "not moved");
            Clients.check(!web.rename(new Path("/lib/none"), new Path("/lib/x")), "moved");
            write("/lib/other", Clients.bytes(1, 1));
            web.rename(new Path("/lib/moved"), new Path("/lib/other"), Options.Rename.OVERWRITE);
            Clients.same(1200L, web.getFileStatus(new Path("/lib/other")).getLen());
        });
        Clients.step("times, modes, owners, replication", () -> {
            Path path = new Path("/lib/other");
            web.setTimes(path, 1_000_000_000_000L, -1);
            web.setPermission(path, new FsPermission((short) 0640));
            FileStatus status = web.getFileStatus(path);
            Clients.same(1_000_000_000_000L, status.getModificationTime());
            Clients.same(new FsPermission((short) 0640), status.getPermission());
            web.setOwner(path, status.getOwner(), null);
            Clients.check(web.setReplication(path, (short) 2), "not agreed");
            web.access(path, FsAction.READ);
        });
        Clients.step("names: spaces, other letters, colons as %3A, a percent sign, a plus", () -> {
            for (String name : new String[] {"a b", "é", "at 12%3A00", "100%", "a+b&c=d;e", "q?x#y"}) {
                Path path = new Path(new Path("/lib/names"), name);
                try (FSDataOutputStream out = web.create(path)) {
                    out.write(7);
                }
                Clients.same(1L, web.getFileStatus(path).getLen());
                Clients.check(rpc.exists(path), name + " is not there by hdfs://");
                Clients.check(Clients.names(web.listStatus(path.getParent())).contains(name), name + " is not listed");
                Clients.check(web.delete(path, false), name);
            }
        });
        Clients.step("a listing of 1,500 names, whole and in pages", () -> {
            for (int at = 0; at < 1500; at++) rpc.create(new Path(String.format("/lib/many/%04d", at))).close();
            Clients.same(1500, web.listStatus(new Path("/lib/many")).length);
            int count = 0;
            RemoteIterator<FileStatus> listed = web.listStatusIterator(new Path("/lib/many"));
            while (listed.hasNext()) {
                Clients.same(String.format("%04d", count), listed.next().getPath().getName());
                count++;
            }
            Clients.same(1500, count);
            Clients.check(web.delete(new Path("/lib/many"), true), "not removed");
        });
        Clients.step("where bytes are, sums, quotas, defaults, home", () -> {
            Path path = new Path("/lib/file");
            BlockLocation[] located = web.getFileBlockLocations(path, 0, Long.MAX_VALUE);
            Clients.same(1, located.length);
            Clients.same(3_000_001L, located[0].getLength());
            Clients.check(located[0].getHosts().length > 0, "nowhere");
            ContentSummary sums = web.getContentSummary(path);
            Clients.same(3_000_001L, sums.getLength());
            Clients.same(1L, web.getQuotaUsage(path).getFileAndDirectoryCount());
            web.setQuota(new Path("/lib"), 9_999, 1L << 40);
            Clients.same(9_999L, web.getQuotaUsage(new Path("/lib")).getQuota());
            Clients.same(1L << 40, web.getContentSummary(new Path("/lib")).getSpaceQuota());
            Clients.same(128L << 20, web.getServerDefaults(path).getBlockSize());
            Clients.check(web.getHomeDirectory().toUri().getPath().startsWith("/user/"), "no home");
            Clients.check(web.getStatus().getCapacity() > 0, "no room");
            Clients.check(web.getAclStatus(path).getEntries().isEmpty(), "an access list");
        });
        Clients.step("extended attributes, of any bytes", () -> {
            Path path = new Path("/lib/file");
            web.setXAttr(path, "user.a", new byte[] {0, -1, 7}, EnumSet.of(XAttrSetFlag.CREATE));
            web.setXAttr(path, "user.b", "text".getBytes(StandardCharsets.UTF_8));
            Clients.check(Arrays.equals(new byte[] {0, -1, 7}, web.getXAttr(path, "user.a")), "other bytes");
            Map<String, byte[]> all = web.getXAttrs(path);
            Clients.same(2, all.size());
            Clients.same("[user.a, user.b]", web.listXAttrs(path).toString());
            web.removeXAttr(path, "user.a");
            Clients.same("[user.b]", web.listXAttrs(path).toString());
        });
        Clients.step("what frieze has not, or will not, is said", () -> {
            Clients.check(!web.delete(new Path("/lib/none"), false), "removed");
            Clients.refused(java.io.FileNotFoundException.class, () -> web.getFileStatus(new Path("/lib/none")));
            Clients.refused(java.io.FileNotFoundException.class, () -> web.open(new Path("/lib/none")).read());
            Clients.refused(PathIsNotEmptyDirectoryException.class, () -> web.delete(new Path("/lib"), false));
            Clients.refused(UnsupportedOperationException.class, () -> web.createSymlink(new Path("/lib/file"), new Path("/lib/link"), false));
            Clients.refused(UnsupportedOperationException.class, () -> web.setStoragePolicy(new Path("/lib"), "COLD"));
        });
        Clients.step("access lists", () -> {
            Path path = new Path("/lib");
            web.modifyAclEntries(path, org.apache.hadoop.fs.permission.AclEntry.parseAclSpec("user:nobody:r-x", true));
            Clients.same("[user:nobody:r-x, group::r-x]", web.getAclStatus(path).getEntries().toString());
            web.removeAcl(path);
            Clients.same("[]", web.getAclStatus(path).getEntries().toString());
        });
    }

    static void thePast() throws Exception {
        Clients.step("a file as it was", () -> {
            write("/past/file", Clients.bytes(1000, 8));
            String then = java.time.Instant.now().plusMillis(1).toString().replace(":", "%3A");
            // The instant has to be over.
            while (java.time.Instant.now().toString().compareTo(then.replace("%3A", ":")) <= 0) Thread.onSpinWait();
            write("/past/file", Clients.bytes(10, 9));
            String old = "/past/.at/" + then + "/file";
            Clients.check(Arrays.equals(Clients.bytes(1000, 8), read(web, old)), "other bytes");
            Clients.same(1000L, web.getFileStatus(new Path(old)).getLen());
            Clients.same(1, web.listStatus(new Path("/past/.at/" + then)).length);
            Clients.check(Arrays.equals(Clients.bytes(10, 9), read(web, "/past/file")), "other bytes");
            Clients.check(Clients.refused(IOException.class, () -> write(old, new byte[1])).contains("past cannot be changed"), "other words");
            Clients.refused(IOException.class, () -> web.delete(new Path(old), false));
        });
    }

    static void others() throws Exception {
        Clients.step("another user may what he may, and no more; who is nobody is refused", () -> {
            web.mkdirs(new Path("/private"));
            web.mkdirs(new Path("/shared"));
            web.setPermission(new Path("/shared"), new FsPermission((short) 01777));
            write("/shared/secret", Clients.bytes(10, 1));
            web.setPermission(new Path("/shared/secret"), new FsPermission((short) 0600));
            UserGroupInformation.createRemoteUser("daemon").doAs((java.security.PrivilegedExceptionAction<Void>) () -> {
                FileSystem theirs = FileSystem.newInstance(web.getUri(), Clients.conf);
                Clients.refused(AccessControlException.class, () -> theirs.open(new Path("/shared/secret")).read());
                Clients.refused(AccessControlException.class, () -> theirs.create(new Path("/private/x")).close());
                theirs.create(new Path("/shared/theirs")).close();
                Clients.same("daemon", theirs.getFileStatus(new Path("/shared/theirs")).getOwner());
                theirs.close();
                return null;
            });
            UserGroupInformation.createRemoteUser("nobody-of-that-name").doAs((java.security.PrivilegedExceptionAction<Void>) () -> {
                FileSystem theirs = FileSystem.newInstance(web.getUri(), Clients.conf);
                Clients.check(Clients.refused(IOException.class, () -> theirs.getFileStatus(new Path("/"))).contains("not known"), "other words");
                theirs.close();
                return null;
            });
        });
    }

    public static void main(String[] arguments) throws Exception {
        Clients.conf = new Configuration();
        web = (WebHdfsFileSystem) FileSystem.get(Clients.conf);
        rpc = FileSystem.get(URI.create(arguments[1]), Clients.conf);
        theShell(Files.createTempDirectory(java.nio.file.Path.of(arguments[0]), "local"));
        theLibrary();
        thePast();
        if (arguments.length > 2 && arguments[2].equals("root")) others();
        web.close();
        rpc.close();
        System.out.println("all hold");
    }
}
