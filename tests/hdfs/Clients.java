import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileChecksum;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DFSUtilClient;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol;
import org.apache.hadoop.hdfs.protocol.LocatedBlock;
import org.apache.hadoop.ipc.RPC;
import org.apache.hadoop.security.AccessControlException;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.ToolRunner;

/** What unmodified Hadoop clients do with frieze. Prints a line for each thing that holds; the first that does not ends it. */
public class Clients {
    static Configuration conf;
    static DistributedFileSystem fs;

    interface Step {
        void run() throws Exception;
    }

    static void step(String what, Step step) throws Exception {
        long begun = System.nanoTime();
        try {
            step.run();
        } catch (Throwable wrong) {
            System.out.println("FAILED  " + what);
            wrong.printStackTrace(System.out);
            System.exit(1);
        }
        System.out.printf("ok  %5d ms  %s%n", (System.nanoTime() - begun) / 1_000_000, what);
    }

    static void check(boolean holds, String words) {
        if (!holds) throw new AssertionError(words);
    }

    static void same(Object expected, Object found) {
        check(expected.equals(found), "expected " + expected + ", found " + found);
    }

    /** Runs the shell, and gives what it printed. */
    static String shell(int status, String... arguments) throws Exception {
        PrintStream out = System.out, err = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        int found;
        try (PrintStream to = new PrintStream(printed, true)) {
            System.setOut(to);
            System.setErr(to);
            found = ToolRunner.run(conf, new FsShell(), arguments);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        String text = printed.toString(StandardCharsets.ISO_8859_1);
        check(found == status, String.join(" ", arguments) + " ended with " + found + ": " + text);
        return text;
    }

    static byte[] bytes(int len, int seed) {
        byte[] data = new byte[len];
        new Random(seed).nextBytes(data);
        return data;
    }

    static byte[] read(Path path) throws IOException {
        try (FSDataInputStream in = fs.open(path)) {
            return in.readAllBytes();
        }
    }

    static void write(Path path, byte[] data) throws IOException {
        try (FSDataOutputStream out = fs.create(path)) {
            out.write(data);
        }
    }

    static <E extends Throwable> String refused(Class<E> as, Step step) {
        try {
            step.run();
        } catch (Throwable wrong) {
            // What is no IOException stays a name.
            boolean named = wrong instanceof org.apache.hadoop.ipc.RemoteException
                    && ((org.apache.hadoop.ipc.RemoteException) wrong).getClassName().equals(as.getName());
            check(named || as.isInstance(wrong), "refused otherwise than as " + as + ": " + wrong);
            return wrong.toString();
        }
        throw new AssertionError("not refused, " + as + " expected");
    }

    static void theShell(java.nio.file.Path local) throws Exception {
        byte[] data = bytes(5_000_003, 1);
        java.nio.file.Path from = local.resolve("from"), to = local.resolve("to");
        Files.write(from, data);
        step("-ls / of nothing", () -> same("", shell(0, "-ls", "/")));
        step("-mkdir -p", () -> shell(0, "-mkdir", "-p", "/sh/a/b"));
        step("-put", () -> shell(0, "-put", from.toString(), "/sh/a/file"));
        step("-ls", () -> {
            String listed = shell(0, "-ls", "/sh/a");
            check(listed.contains("Found 2 items") && listed.contains("5000003") && listed.contains("/sh/a/file"), listed);
        });
        step("-cat", () -> check(Arrays.equals(data, shell(0, "-cat", "/sh/a/file").getBytes(StandardCharsets.ISO_8859_1)), "other bytes"));
        step("-get, verifying checksums", () -> {
            shell(0, "-get", "/sh/a/file", to.toString());
            check(Arrays.equals(data, Files.readAllBytes(to)), "other bytes");
        });
        step("-mv, and into a directory", () -> {
            shell(0, "-mv", "/sh/a/file", "/sh/a/moved");
            shell(0, "-mv", "/sh/a/moved", "/sh/a/b");
            shell(0, "-test", "-f", "/sh/a/b/moved");
            shell(1, "-test", "-e", "/sh/a/moved");
        });
        step("-cp", () -> shell(0, "-cp", "/sh/a/b/moved", "/sh/copy"));
        step("-stat", () -> same("5000003 regular file " + fs.getFileStatus(new Path("/sh/copy")).getOwner() + "\n", shell(0, "-stat", "%b %F %u", "/sh/copy")));
        step("-du -s", () -> check(shell(0, "-du", "-s", "/sh").startsWith("10000006  10000006"), shell(0, "-du", "-s", "/sh")));
        step("-count", () -> same("[3, 2, 10000006, /sh]", Arrays.toString(shell(0, "-count", "/sh").trim().split(" +"))));
        step("-touchz", () -> {
            shell(0, "-touchz", "/sh/empty");
            same(0L, fs.getFileStatus(new Path("/sh/empty")).getLen());
            same("", shell(0, "-cat", "/sh/empty"));
        });
        step("-appendToFile, to an empty file and to one that ends within a checksum's span", () -> {
            shell(0, "-appendToFile", from.toString(), "/sh/empty");
            shell(0, "-appendToFile", from.toString(), "/sh/empty");
            byte[] twice = Arrays.copyOf(data, 2 * data.length);
            System.arraycopy(data, 0, twice, data.length, data.length);
            check(Arrays.equals(twice, read(new Path("/sh/empty"))), "other bytes");
        });
        step("-tail", () -> {
            byte[] end = shell(0, "-tail", "/sh/copy").getBytes(StandardCharsets.ISO_8859_1);
            check(Arrays.equals(Arrays.copyOfRange(data, data.length - 1024, data.length), end), "other bytes");
        });
        step("-chmod", () -> {
            shell(0, "-chmod", "600", "/sh/copy");
            check(shell(0, "-ls", "/sh/copy").contains("-rw-------"), "another mode");
        });
        step("-rm refuses a directory, -rm -r removes it", () -> {
            check(shell(1, "-rm", "/sh/a").contains("Is a directory"), "other words");
            check(shell(1, "-rmdir", "/sh/a").contains("not empty"), "other words");
            shell(0, "-rm", "-r", "/sh/a");
            check(shell(1, "-ls", "/sh/a").contains("`/sh/a': No such file or directory"), "other words");
        });
        step("-checksum: the same for the same bytes however they were written, and what it has to be", () -> {
            byte[] other = bytes(150_000_001, 7);
            Path once = new Path("/sh/sum-once"), again = new Path("/sh/sum-again"), older = new Path("/sh/sum-older");
            write(once, other);
            try (FSDataOutputStream out = fs.create(again, true, 4096, (short) 3, 32 << 20)) {
                for (int at = 0; at < other.length; at += 9_999_991) {
                    out.write(other, at, Math.min(9_999_991, other.length - at));
                    out.hflush();
                }
            }
            Configuration crc32 = new Configuration(conf);
            crc32.set("dfs.checksum.type", "CRC32");
            try (FileSystem theirs = FileSystem.newInstance(crc32); FSDataOutputStream out = theirs.create(older)) {
                out.write(other);
            }
            FileChecksum sum = fs.getFileChecksum(once);
            same("MD5-of-262144MD5-of-512CRC32C", sum.getAlgorithmName());
            same(sum, fs.getFileChecksum(again));
            same(sum, fs.getFileChecksum(older));
            check(Arrays.equals(other, read(older)), "other bytes");
            check(!sum.equals(fs.getFileChecksum(new Path("/sh/copy"))), "the same of other bytes");
            check(shell(0, "-checksum", "/sh/sum-once").contains(sum.toString().split(":")[1]), "other words");
            Configuration composite = new Configuration(conf);
            composite.set("dfs.checksum.combine.mode", "COMPOSITE_CRC");
            try (FileSystem theirs = FileSystem.newInstance(composite)) {
                java.util.zip.CRC32C crc = new java.util.zip.CRC32C();
                crc.update(other);
                FileChecksum whole = theirs.getFileChecksum(once);
                same("COMPOSITE-CRC32C", whole.getAlgorithmName());
                same((int) crc.getValue(), java.nio.ByteBuffer.wrap(whole.getBytes()).getInt());
                crc.reset();
                crc.update(other, 0, 140_000_000);
                FileChecksum part = theirs.getFileChecksum(once, 140_000_000);
                same((int) crc.getValue(), java.nio.ByteBuffer.wrap(part.getBytes()).getInt());
            }
            for (Path path : new Path[] {once, again, older}) fs.delete(path, false);
        });
        step("-setfattr, -getfattr", () -> {
            shell(0, "-setfattr", "-n", "user.of", "-v", "somebody", "/sh/copy");
            check(shell(0, "-getfattr", "-d", "/sh/copy").contains("user.of=\"somebody\""), "other words");
            shell(0, "-setfattr", "-x", "user.of", "/sh/copy");
            check(!shell(0, "-getfattr", "-d", "/sh/copy").contains("user.of"), "it is gone");
        });
        step("-df", () -> check(shell(0, "-df", "/").contains("hdfs://"), "other words"));
    }

    static void theLibrary() throws Exception {
        Path dir = new Path("/lib");
        step("blocks: a file written in blocks of 1 MiB is read back whole, and from anywhere", () -> {
            Path path = new Path(dir, "blocks");
            byte[] data = bytes(3_700_001, 2);
            try (FSDataOutputStream out = fs.create(path, true, 4096, (short) 1, 1 << 20)) {
                for (int at = 0; at < data.length; at += 70_001) out.write(data, at, Math.min(70_001, data.length - at));
            }
            check(Arrays.equals(data, read(path)), "other bytes");
            Random random = new Random(3);
            try (FSDataInputStream in = fs.open(path)) {
                for (int i = 0; i < 200; i++) {
                    int at = random.nextInt(data.length), len = Math.min(random.nextInt(3000), data.length - at);
                    byte[] part = new byte[len];
                    in.readFully(at, part);
                    check(Arrays.equals(Arrays.copyOfRange(data, at, at + len), part), "other bytes at " + at);
                }
            }
        });
        step("create without overwriting is refused, with it the file is another", () -> {
            Path path = new Path(dir, "again");
            write(path, bytes(10, 1));
            refused(org.apache.hadoop.fs.FileAlreadyExistsException.class, () -> fs.create(path, false).close());
            write(path, bytes(7, 2));
            check(Arrays.equals(bytes(7, 2), read(path)), "other bytes");
            refused(org.apache.hadoop.fs.FileAlreadyExistsException.class, () -> fs.create(dir, true).close());
        });
        step("hflush: every other reader sees it at once, hsync too", () -> {
            Path path = new Path(dir, "flushed");
            byte[] data = bytes(100_000, 4);
            try (FSDataOutputStream out = fs.create(path)) {
                int at = 0;
                for (int len : new int[] {1, 511, 512, 513, 4096, 70_000}) {
                    out.write(data, at, len);
                    at += len;
                    if (len % 2 == 1) out.hflush(); else out.hsync();
                    check(Arrays.equals(Arrays.copyOf(data, at), read(path)), "other bytes after " + at);
                }
                ((HdfsDataOutputStream) out).hsync(EnumSet.of(HdfsDataOutputStream.SyncFlag.UPDATE_LENGTH));
                same((long) at, fs.getFileStatus(path).getLen());
                check(!fs.isFileClosed(path), "it is open");
                LocatedBlock block = fs.getClient().getLocatedBlocks(path.toString(), 0).getLastLocatedBlock();
                ClientDatanodeProtocol replica =
                        DFSUtilClient.createClientDatanodeProtocolProxy(block.getLocations()[0], conf, 10_000, false, block);
                same((long) at, replica.getReplicaVisibleLength(block.getBlock()));
                RPC.stopProxy(replica);
            }
            check(fs.isFileClosed(path), "it is closed");
        });
        step("append goes on where the file ends, a new block each time", () -> {
            Path path = new Path(dir, "appended");
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            write(path, new byte[0]);
            for (int len : new int[] {5, 600, 1, 200_000}) {
                try (FSDataOutputStream out = fs.append(path)) {
                    same((long) all.size(), out.getPos());
                    out.write(bytes(len, len));
                    all.write(bytes(len, len));
                }
            }
            check(Arrays.equals(all.toByteArray(), read(path)), "other bytes");
        });
        step("a second writer is refused, and may after the lease was recovered", () -> {
            Path path = new Path(dir, "two");
            FSDataOutputStream first = fs.create(path);
            first.write(bytes(100, 1));
            first.hflush();
            DistributedFileSystem other = (DistributedFileSystem) FileSystem.newInstance(conf);
            refused(org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException.class, () -> other.append(path).close());
            check(other.recoverLease(path), "it is closed");
            try (FSDataOutputStream out = other.append(path)) {
                out.write(bytes(50, 2));
            }
            refused(IOException.class, () -> {
                first.write(bytes(100, 3));
                first.close();
            });
            same(150L, fs.getFileStatus(path).getLen());
            other.close();
        });
        step("truncate, also within a checksum's span", () -> {
            Path path = new Path(dir, "cut");
            write(path, bytes(10_000, 5));
            check(fs.truncate(path, 777), "at once");
            check(Arrays.equals(Arrays.copyOf(bytes(10_000, 5), 777), read(path)), "other bytes");
        });
        step("rename, in both of its ways", () -> {
            write(new Path(dir, "r1"), bytes(1, 1));
            write(new Path(dir, "r2"), bytes(2, 2));
            check(!fs.rename(new Path(dir, "r1"), new Path(dir, "r2")), "a file is there");
            check(!fs.rename(new Path(dir, "none"), new Path(dir, "r3")), "it is not there");
            check(!fs.rename(dir, new Path(dir, "below")), "below itself");
            check(!fs.rename(new Path(dir, "r1"), new Path("/none/r1")), "no directory");
            fs.rename(new Path(dir, "r1"), new Path(dir, "r2"), Options.Rename.OVERWRITE);
            same(1L, fs.getFileStatus(new Path(dir, "r2")).getLen());
            refused(FileNotFoundException.class, () -> fs.rename(new Path(dir, "r1"), new Path(dir, "r2"), Options.Rename.OVERWRITE));
            write(new Path(dir, "r1"), bytes(1, 1));
            refused(org.apache.hadoop.fs.FileAlreadyExistsException.class, () -> fs.rename(new Path(dir, "r1"), new Path(dir, "r2"), Options.Rename.NONE));
        });
        step("times, modes, owners", () -> {
            Path path = new Path(dir, "attributes");
            write(path, bytes(1, 1));
            fs.setTimes(path, 1_234_567_890_123L, 1_234_567_891_456L);
            fs.setPermission(path, new FsPermission((short) 0640));
            fs.setOwner(path, "daemon", "bin");
            FileStatus status = fs.getFileStatus(path);
            same("1234567890123 1234567891456 rw-r----- daemon bin", status.getModificationTime() + " " + status.getAccessTime() + " " + status.getPermission() + " " + status.getOwner() + " " + status.getGroup());
        });
        step("names: spaces, other letters, colons as %3A, a percent sign", () -> {
            for (String name : new String[] {"a b", "gr\u00f6\u00dfe", "x%3Ay", "100%", "a+b"}) {
                Path path = new Path(new Path(dir, "names"), name);
                write(path, bytes(3, 1));
                same(3L, fs.getFileStatus(path).getLen());
                boolean listed = false;
                for (FileStatus status : fs.listStatus(path.getParent())) listed |= status.getPath().getName().equals(name);
                check(listed, name + " is not listed");
            }
        });
        step("a listing of 2,500 names, in pages, with locations", () -> {
            Path many = new Path("/many");
            fs.mkdirs(many);
            ExecutorService pool = Executors.newFixedThreadPool(16);
            List<Future<?>> made = new ArrayList<>();
            for (int i = 0; i < 2500; i++) {
                Path path = new Path(many, String.format("%05d", i));
                made.add(pool.submit((Callable<Void>) () -> {
                    fs.create(path).close();
                    return null;
                }));
            }
            for (Future<?> future : made) future.get();
            pool.shutdown();
            FileStatus[] listed = fs.listStatus(many);
            same(2500, listed.length);
            for (int i = 0; i < 2500; i++) same(String.format("%05d", i), listed[i].getPath().getName());
            RemoteIterator<LocatedFileStatus> located = fs.listFiles(dir, true);
            int files = 0;
            while (located.hasNext()) {
                LocatedFileStatus status = located.next();
                check(status.getLen() == 0 || status.getBlockLocations().length == 1, "a place for " + status.getPath());
                files++;
            }
            ContentSummary summary = fs.getContentSummary(dir);
            same((long) files, summary.getFileCount());
            check(fs.delete(many, true), "it was there");
            check(!fs.delete(many, true), "it is gone");
        });
        step("sixteen writers and readers at the same time", () -> {
            ExecutorService pool = Executors.newFixedThreadPool(16);
            List<Future<?>> done = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                int seed = i;
                done.add(pool.submit((Callable<Void>) () -> {
                    Path path = new Path(dir, "at-once-" + seed);
                    byte[] data = bytes(1_500_000 + seed, seed);
                    write(path, data);
                    check(Arrays.equals(data, read(path)), "other bytes");
                    return null;
                }));
            }
            for (Future<?> future : done) future.get();
            pool.shutdown();
        });
        step("snapshots of a directory are made, read, compared, renamed and deleted", () -> {
            Path path = new Path(dir, "kept"), file = new Path(path, "file");
            write(file, "then".getBytes());
            fs.allowSnapshot(path);
            Path made = fs.createSnapshot(path, "s1");
            same(path + "/.snapshot/s1", made.toUri().getPath());
            write(file, "now".getBytes());
            write(new Path(path, "new"), "new".getBytes());
            same("then", new String(read(new Path(made, "file"))));
            refused(org.apache.hadoop.hdfs.protocol.SnapshotException.class, () -> fs.createSnapshot(path, "s1"));
            List<String> lines = new ArrayList<>();
            for (var entry : fs.getSnapshotDiffReport(path, "s1", "").getDiffList()) lines.add(entry.toString());
            same("[M\t., -\t./file, +\t./file, +\t./new]", lines.toString());
            fs.renameSnapshot(path, "s1", "first");
            same("[" + path + "/.snapshot/first]", java.util.Arrays.stream(fs.getSnapshotListing(path)).map(one -> one.getFullPath().toString()).toList().toString());
            refused(org.apache.hadoop.hdfs.protocol.SnapshotException.class, () -> fs.delete(path, true));
            fs.deleteSnapshot(path, "first");
            fs.disallowSnapshot(path);
            check(fs.delete(path, true), "it is removed");
        });
        step("quotas hold, and say which is exceeded", () -> {
            Path path = new Path("/quotas");
            fs.mkdirs(path);
            fs.setQuota(path, 3, org.apache.hadoop.hdfs.protocol.HdfsConstants.QUOTA_DONT_SET);
            write(new Path(path, "a"), "four".getBytes());
            write(new Path(path, "b"), "x".getBytes());
            same(3L, fs.getQuotaUsage(path).getFileAndDirectoryCount());
            same(3L, fs.getQuotaUsage(path).getQuota());
            Path more = new Path(path, "more");
            refused(org.apache.hadoop.hdfs.protocol.NSQuotaExceededException.class, () -> fs.create(more));
            refused(org.apache.hadoop.hdfs.protocol.NSQuotaExceededException.class, () -> fs.mkdirs(more));
            fs.setQuota(path, org.apache.hadoop.hdfs.protocol.HdfsConstants.QUOTA_RESET, 5);
            refused(org.apache.hadoop.hdfs.protocol.DSQuotaExceededException.class, () -> fs.create(more));
            same("[none, inf, 5, 0, 1, 2, 5, /quotas]", Arrays.toString(shell(0, "-count", "-q", "/quotas").trim().split(" +")));
            fs.setQuota(path, 9, org.apache.hadoop.hdfs.protocol.HdfsConstants.QUOTA_RESET);
            write(more, "anew".getBytes());
            check(fs.delete(path, true), "it is removed");
        });
        step("what frieze has not is said", () -> {
            refused(UnsupportedOperationException.class, () -> fs.setQuotaByStorageType(dir, org.apache.hadoop.fs.StorageType.SSD, 10));
            check(fs.getErasureCodingPolicy(dir) == null, "none");
            check(fs.getEZForPath(dir) == null, "none");
            check(!fs.setSafeMode(org.apache.hadoop.fs.SafeModeAction.GET), "none");
        });
    }

    static void thePast() throws Exception {
        Path path = new Path("/past/report");
        write(path, "v1".getBytes());
        write(new Path("/past/gone"), "gone".getBytes());
        Thread.sleep(20);
        long then = System.currentTimeMillis();
        Thread.sleep(20);
        String at = String.format("@%d.%03d", then / 1000, then % 1000);
        write(path, "v2, which is longer".getBytes());
        fs.delete(new Path("/past/gone"), false);
        fs.rename(new Path("/past"), new Path("/renamed"));
        step("a file as it was: its bytes, its length, by its name of then", () -> {
            same("v1", new String(read(new Path("/.at/" + at + "/past/report"))));
            same(2L, fs.getFileStatus(new Path("/.at/" + at + "/past/report")).getLen());
            same("v1", new String(read(new Path("/renamed/.at/" + at + "/report"))));
            same("gone", shell(0, "-cat", "/.at/" + at + "/past/gone"));
            same(2, fs.listStatus(new Path("/.at/" + at + "/past")).length);
            refused(FileNotFoundException.class, () -> fs.getFileStatus(new Path("/.at/" + at + "/renamed")));
        });
        step("copying a tree out of the past", () -> {
            shell(0, "-cp", "/.at/" + at + "/past", "/rescued");
            same("gone", shell(0, "-cat", "/rescued/gone"));
        });
        step("a name whose meaning moves goes on meaning the same to a program", () -> {
            String before = new String(read(new Path("/.at/now/renamed/report")));
            write(new Path("/renamed/report"), "v3".getBytes());
            same(before, new String(read(new Path("/.at/now/renamed/report"))));
        });
        step("the past cannot be changed, nor instants that are none be read", () -> {
            Path old = new Path("/.at/" + at + "/past/report");
            Class<? extends Exception> past = org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException.class;
            refused(past, () -> fs.create(old).close());
            refused(past, () -> fs.append(old).close());
            refused(past, () -> fs.delete(old, false));
            refused(past, () -> fs.mkdirs(new Path("/.at/" + at + "/x")));
            refused(past, () -> fs.rename(old, new Path("/x")));
            refused(past, () -> fs.setPermission(old, new FsPermission((short) 0777)));
            refused(org.apache.hadoop.fs.InvalidPathException.class, () -> fs.getFileStatus(new Path("/.at/@x/past")));
            refused(FileNotFoundException.class, () -> fs.getFileStatus(new Path("/.at/no-such-snapshot/past")));
        });
        step("snapshots are listed in .at, which is not listed", () -> {
            same("[monday]", names(fs.listStatus(new Path("/.at"))));
            check(!names(fs.listStatus(new Path("/"))).contains(".at"), "it is hidden");
            check(fs.getFileStatus(new Path("/.at/monday")).isDirectory(), "it is a directory");
        });
    }

    static String names(FileStatus[] listed) {
        List<String> names = new ArrayList<>();
        for (FileStatus status : listed) names.add(status.getPath().getName());
        return names.toString();
    }

    static void others() throws Exception {
        step("another user may what he may, and no more", () -> {
            fs.mkdirs(new Path("/private"));
            fs.mkdirs(new Path("/shared"));
            fs.setPermission(new Path("/shared"), new FsPermission((short) 01777));
            write(new Path("/shared/secret"), bytes(10, 1));
            fs.setPermission(new Path("/shared/secret"), new FsPermission((short) 0600));
            UserGroupInformation.createRemoteUser("daemon").doAs((java.security.PrivilegedExceptionAction<Void>) () -> {
                FileSystem theirs = FileSystem.newInstance(conf);
                refused(AccessControlException.class, () -> theirs.open(new Path("/shared/secret")).close());
                refused(AccessControlException.class, () -> theirs.create(new Path("/private/x")).close());
                refused(AccessControlException.class, () -> theirs.delete(new Path("/shared/secret"), false));
                theirs.create(new Path("/shared/theirs")).close();
                same("daemon", theirs.getFileStatus(new Path("/shared/theirs")).getOwner());
                theirs.close();
                return null;
            });
            UserGroupInformation.createRemoteUser("nobody-of-that-name").doAs((java.security.PrivilegedExceptionAction<Void>) () -> {
                FileSystem theirs = FileSystem.newInstance(conf);
                check(refused(IOException.class, () -> theirs.getFileStatus(new Path("/"))).contains("not known"), "other words");
                theirs.close();
                return null;
            });
        });
    }

    public static void main(String[] arguments) throws Exception {
        conf = new Configuration();
        fs = (DistributedFileSystem) FileSystem.get(conf);
        theShell(Files.createTempDirectory(java.nio.file.Path.of(arguments[0]), "local"));
        theLibrary();
        thePast();
        if (arguments.length > 1 && arguments[1].equals("root")) others();
        fs.close();
        System.out.println("all hold");
    }
}
