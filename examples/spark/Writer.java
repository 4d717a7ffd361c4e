import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.Rename;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Sensors of an electric grid, each with a thread that writes what it measures into files of a directory, and keeps the truth.
 *
 * <p>A row is visible when it is flushed. After some rows a file is closed and the next one begun. Now and then an old file is put right
 * (a new one is renamed over it) or removed. For everything that is done one line goes to standard output: which file, from when until when
 * (microseconds: before it was asked for, after it was acknowledged), and what the file holds since: rows and the sum of its values,
 * or that it was removed. Ends with its standard input.
 */
public class Writer {
    static final int ROWS_OF_A_FILE = 10;
    static volatile boolean ends;

    static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    static synchronized void tell(String file, long from, int rows, long sum) {
        System.out.println(file + " " + from + " " + now() + " " + rows + " " + sum);
    }

    static void sensor(FileSystem fs, String directory, int number, int pauseMs) throws Exception {
        Random random = new Random(number);
        List<String> closed = new ArrayList<>();
        long millihertz = 50_000;
        for (int file = 0; !ends; file++) {
            String name = String.format("sensor-%02d-%04d.csv", number, file);
            Path path = new Path(directory, name);
            long begun = now();
            long sum = 0;
            try (FSDataOutputStream out = fs.create(path, false)) {
                tell(name, begun, 0, 0);
                for (int row = 1; row <= ROWS_OF_A_FILE && !ends; row++) {
                    millihertz += random.nextInt(21) - 10;
                    String line = now() + "," + number + "," + millihertz + "\n";
                    sum += millihertz;
                    long from = now();
                    out.write(line.getBytes(StandardCharsets.UTF_8));
                    out.hflush();
                    tell(name, from, row, sum);
                    Thread.sleep(random.nextInt(2 * pauseMs));
                }
            }
            closed.add(name);
            if (file % 3 == 2) replace(fs, directory, closed.get(random.nextInt(closed.size())), number, random);
            if (file % 4 == 3) {
                String old = closed.remove(0);
                long from = now();
                fs.delete(new Path(directory, old), false);
                tell(old, from, -1, 0);
            }
        }
    }

    /** A file is put right: a new one takes its name. */
    static void replace(FileSystem fs, String directory, String name, int number, Random random) throws Exception {
        Path draft = new Path(directory + "-drafts", name);
        int rows = 1 + random.nextInt(ROWS_OF_A_FILE);
        long sum = 0;
        try (FSDataOutputStream out = fs.create(draft, true)) {
            for (int row = 0; row < rows; row++) {
                int millihertz = 49_000 + random.nextInt(2000);
                sum += millihertz;
                out.write((now() + "," + number + "," + millihertz + "\n").getBytes(StandardCharsets.UTF_8));
            }
        }
        long from = now();
        ((DistributedFileSystem) fs).rename(draft, new Path(directory, name), Rename.OVERWRITE);
        tell(name, from, rows, sum);
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.defaultFS", args[0]);
        int sensors = Integer.parseInt(args[2]), pauseMs = Integer.parseInt(args[3]);
        FileSystem fs = FileSystem.get(conf);
        fs.mkdirs(new Path(args[1]));
        fs.mkdirs(new Path(args[1] + "-drafts"));
        CountDownLatch done = new CountDownLatch(sensors);
        for (int i = 0; i < sensors; i++) {
            int number = i;
            new Thread(() -> {
                try {
                    sensor(fs, args[1], number, pauseMs);
                } catch (Throwable failed) {
                    failed.printStackTrace();
                    System.exit(1);
                }
                done.countDown();
            }).start();
        }
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        ends = true;
        done.await();
        System.exit(0);
    }
}
