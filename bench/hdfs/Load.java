import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Loads of a stock Hadoop client, on the server of its configuration. A line in is a load, "NAME NUMBER...", a line out what it took:
 * how much was done (bytes or calls), seconds, seconds of this process's processors. What is made ready or removed is not in it.
 */
public class Load {
    static final int BLOCK = 128 << 20;
    static final OperatingSystemMXBean SYSTEM = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    /** As the client comes, and with a wait of 5 ms where a file that is closed is not complete yet. */
    static FileSystem fs, tuned;
    static ExecutorService threads;
    static byte[] data = new byte[64 << 20];
    static int round;

    interface Work {
        void run() throws Exception;
    }

    interface Numbered {
        void run(int number) throws Exception;
    }

    static void measured(double amount, Work work) throws Exception {
        long cpu = SYSTEM.getProcessCpuTime(), wall = System.nanoTime();
        work.run();
        double seconds = (System.nanoTime() - wall) / 1e9;
        System.out.println(amount + " " + seconds + " " + (SYSTEM.getProcessCpuTime() - cpu) / 1e9);
    }

    /** Calls number 0 to count, by so many threads. */
    static void each(int count, int by, Numbered call) throws Exception {
        List<Future<Void>> parts = new ArrayList<>();
        for (int part = 0; part < by; part++) {
            int first = part;
            parts.add(threads.submit((Callable<Void>) () -> {
                for (int number = first; number < count; number += by) call.run(number);
                return null;
            }));
        }
        for (Future<Void> part : parts) part.get();
    }

    static void write(Path path, long bytes, int at_a_time, boolean flushed) throws Exception {
        try (FSDataOutputStream out = fs.create(path, true, 4096, (short) 1, BLOCK)) {
            for (long done = 0; done < bytes; done += at_a_time) {
                out.write(data, (int) (done % data.length), at_a_time);
                if (flushed) out.hflush();
            }
        }
    }

    static void read(Path path, long bytes) throws Exception {
        byte[] into = new byte[1 << 20];
        long left = bytes;
        try (FSDataInputStream in = fs.open(path)) {
            for (int count; (count = in.read(into)) > 0; ) left -= count;
        }
        if (left != 0) throw new AssertionError(left + " bytes of " + path + " are missing");
    }

    static void make(FileSystem fs, Path path, int bytes) throws Exception {
        try (FSDataOutputStream out = fs.create(path, false, 4096, (short) 1, BLOCK)) {
            if (bytes > 0) out.write(data, 0, bytes);
        }
    }

    /** Asks again and again: a connection to a server that has died is found out by the first call on it. */
    static void await(Path path) throws Exception {
        long until = System.nanoTime() + 120_000_000_000L;
        while (true) {
            try {
                fs.getFileStatus(path);
                return;
            } catch (FileNotFoundException error) {
                throw error;
            } catch (IOException error) {
                if (System.nanoTime() > until) throw error;
                Thread.sleep(10);
            }
        }
    }

    static void answer(String name, int[] of) throws Exception {
        Path directory = new Path("/load-" + round++), large = new Path("/large");
        switch (name) {
            case "write": { // MiB, bytes at a time
                long bytes = (long) of[0] << 20;
                measured(bytes, () -> write(large, bytes, of[1], false));
                break;
            }
            case "read": { // MiB, as many as were written last
                long bytes = (long) of[0] << 20;
                measured(bytes, () -> read(large, bytes));
                break;
            }
            case "hflush": { // MiB
                long bytes = (long) of[0] << 20;
                measured(bytes, () -> write(directory, bytes, 4096, true));
                fs.delete(directory, true);
                break;
            }
            case "told": { // MiB, to a server that keeps nothing: closing the file fails
                long bytes = (long) of[0] << 20;
                // Another client of the same server has names of its own.
                Path told = new Path("/told-" + ProcessHandle.current().pid() + "-" + round);
                FSDataOutputStream out = fs.create(told, true, 4096, (short) 1, BLOCK);
                measured(bytes, () -> {
                    for (long done = 0; done < bytes; done += 4096) {
                        out.write(data, (int) (done % data.length), 4096);
                        out.hflush();
                    }
                });
                try {
                    out.close();
                } catch (IOException expected) {
                    // No server has what was written.
                }
                fs.delete(told, true);
                break;
            }
            case "small": case "tuned": case "empty": { // files, threads
                FileSystem by = name.equals("tuned") ? tuned : fs;
                int bytes = name.equals("empty") ? 0 : 1024;
                fs.mkdirs(directory);
                measured(of[0], () -> each(of[0], of[1], number -> make(by, new Path(directory, "f" + number), bytes)));
                fs.delete(directory, true);
                break;
            }
            case "stat": { // calls, threads
                fs.mkdirs(directory);
                each(64, 8, number -> make(fs, new Path(directory, "f" + number), 0));
                measured(of[0], () -> each(of[0], of[1], number -> fs.getFileStatus(new Path(directory, "f" + number % 64))));
                fs.delete(directory, true);
                break;
            }
            case "fill": { // files, threads, files a directory; they stay
                measured(of[0], () -> each(of[0], of[1], number -> make(fs, new Path("/fill/d" + number / of[2] + "/f" + number), 0)));
                break;
            }
            case "look": { // a file that fill made: waits until the server answers
                measured(1, () -> await(new Path("/fill/d0/f" + of[0])));
                break;
            }
            default:
                throw new AssertionError("no load of the name " + name);
        }
    }

    public static void main(String[] args) throws Exception {
        new java.util.Random(1).nextBytes(data);
        Configuration conf = new Configuration(), quick = new Configuration();
        quick.setInt("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", 5);
        URI uri = FileSystem.getDefaultUri(conf);
        fs = FileSystem.newInstance(uri, conf);
        tuned = FileSystem.newInstance(uri, quick);
        threads = Executors.newCachedThreadPool();
        System.out.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.trim().split(" ");
            int[] of = new int[words.length - 1];
            for (int i = 0; i < of.length; i++) of[i] = Integer.parseInt(words[i + 1]);
            answer(words[0], of);
        }
        threads.shutdownNow();
        fs.close();
        tuned.close();
    }
}
