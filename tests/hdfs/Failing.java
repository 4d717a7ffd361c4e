import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Random;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;

/**
 * What an unmodified client does while a server is killed. It says what it is about to do and waits for a line; the script
 * kills in between.
 */
public class Failing {
    static DistributedFileSystem fs;

    static void check(boolean holds, String words) {
        if (!holds) throw new AssertionError(words);
    }

    static byte[] bytes(int len, int seed) {
        byte[] data = new byte[len];
        new Random(seed).nextBytes(data);
        return data;
    }

    static void tell(String words) throws IOException {
        System.out.println(words);
        while (System.in.read() != '\n') {}
    }

    static byte[] read(Path path) throws IOException {
        try (FSDataInputStream in = fs.open(path)) {
            return in.readAllBytes();
        }
    }

    /** Writes at the data service of the server to be killed, flushing, and continues when that server is lost. */
    static void write(InetSocketAddress killed) throws Exception {
        byte[] data = bytes(8_000_000, 1);
        Path path = new Path("/written-" + killed.getAddress().getHostAddress());
        int at = 0;
        try (FSDataOutputStream out = fs.createFile(path).favoredNodes(new InetSocketAddress[] {killed}).blockSize(3 << 20).build()) {
            while (at < 4_000_000) at = flushed(out, data, at);
            String where = Arrays.toString(((HdfsDataOutputStream) out).getWrappedStream() instanceof org.apache.hadoop.hdfs.DFSOutputStream
                    ? ((org.apache.hadoop.hdfs.DFSOutputStream) ((HdfsDataOutputStream) out).getWrappedStream()).getPipeline() : null);
            check(where.startsWith("[DatanodeInfoWithStorage[" + killed.getAddress().getHostAddress()), "it is written elsewhere: " + where);
            tell("writing");
            while (at < data.length) {
                at = flushed(out, data, at);
                if (at % 400_000 == 0) check(Arrays.equals(Arrays.copyOf(data, at), read(path)), "other bytes than were flushed");
            }
        }
        check(Arrays.equals(data, read(path)), "other bytes");
    }

    /** Writes at whichever server gives the lease, flushing, and continues at another server when that one is lost. */
    static void move() throws Exception {
        byte[] data = bytes(8_000_000, 3);
        Path path = new Path("/moved");
        int at = 0;
        try (FSDataOutputStream out = fs.createFile(path).blockSize(3 << 20).build()) {
            while (at < 4_000_000) at = flushed(out, data, at);
            // The first place of a block is the server that gave the lease.
            var stream = (org.apache.hadoop.hdfs.DFSOutputStream) ((HdfsDataOutputStream) out).getWrappedStream();
            tell("writing " + stream.getPipeline()[0].getIpAddr());
            while (at < data.length) {
                at = flushed(out, data, at);
                if (at % 400_000 == 0) check(Arrays.equals(Arrays.copyOf(data, at), read(path)), "other bytes than were flushed");
            }
        }
        check(Arrays.equals(data, read(path)), "other bytes");
    }

    static int flushed(FSDataOutputStream out, byte[] data, int at) throws IOException {
        int len = Math.min(10_000, data.length - at);
        out.write(data, at, len);
        out.hflush();
        return at + len;
    }

    /** Flushes after each few bytes, and says how many were. */
    static void flush(Path path) throws Exception {
        byte[] data = bytes(100_000_000, 4);
        try (FSDataOutputStream out = fs.create(path)) {
            for (int at = 0; at < data.length; ) {
                int len = Math.min(3_000, data.length - at);
                out.write(data, at, len);
                out.hflush();
                at += len;
                System.out.println(at);
            }
        }
    }

    /** What was flushed is there. */
    static void look(Path path, int flushed) throws Exception {
        byte[] found = read(path);
        check(found.length >= flushed, found.length + " bytes of " + flushed);
        check(Arrays.equals(found, Arrays.copyOf(bytes(100_000_000, 4), found.length)), "other bytes");
    }

    /** Reads from a server that is killed in the middle. */
    static void read() throws Exception {
        byte[] data = bytes(20_000_000, 2);
        Path path = new Path("/read");
        try (FSDataOutputStream out = fs.create(path)) {
            out.write(data);
        }
        BlockLocation[] blocks = fs.getFileBlockLocations(path, 0, data.length);
        check(blocks[0].getNames().length >= 2, "one place alone: " + Arrays.toString(blocks[0].getNames()));
        try (FSDataInputStream in = fs.open(path)) {
            byte[] found = new byte[data.length];
            in.readFully(0, found, 0, 3_000_000);
            in.seek(3_000_000);
            in.readFully(found, 3_000_000, 10);
            tell("reading " + ((org.apache.hadoop.hdfs.client.HdfsDataInputStream) in).getCurrentDatanode().getIpAddr());
            in.readFully(found, 3_000_010, data.length - 3_000_010);
            check(Arrays.equals(data, found), "other bytes");
        }
        // Whichever server answered calls before.
        check(fs.getFileStatus(path).getLen() == data.length, "another length");
        check(Arrays.equals(data, read(path)), "other bytes");
    }

    public static void main(String[] arguments) throws Exception {
        Configuration conf = new Configuration();
        fs = (DistributedFileSystem) FileSystem.get(conf);
        if (arguments[0].equals("write")) {
            write(new InetSocketAddress(arguments[1], Integer.parseInt(arguments[2])));
        } else if (arguments[0].equals("move")) {
            move();
        } else if (arguments[0].equals("flush")) {
            flush(new Path(arguments[1]));
        } else if (arguments[0].equals("look")) {
            look(new Path(arguments[1]), Integer.parseInt(arguments[2]));
        } else {
            read();
        }
        fs.close();
        System.out.println("holds");
    }
}
