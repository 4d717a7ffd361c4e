import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.DoubleBuffer;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream.SyncFlag;

/**
 * A hundred cameras that stream into a directory of HDFS's or of frieze's by Hadoop's client, and films that are read from it.
 *
 * <pre>
 * Cameras stream URL DIRECTORY SAMPLES ARRIVALS LOG HOW
 * Cameras film URL FOLDERS FILM TAKEN
 * </pre>
 *
 * Each camera appends its records to a file of its own. HOW says what it does after each: `hflush`, or `lengths`, which flushes it and reports
 * the length of the file to HDFS's name node. With `+snapshots` behind it a snapshot is taken for each frame. LOG gets for each record when it was sent and when it was acknowledged, in microseconds; TAKEN, when each image that a
 * film shows was taken.
 */
public class Cameras {
    static final int CAMERAS = 100, MESH = 10, IMAGE = 10, CELLS = 100, RECORD = 8 + 8 * IMAGE * IMAGE;
    static final int FRAMES = 100, FIRST_SAMPLE = 10;
    static final long SAMPLE_US = 50_000, FRAME_US = 100_000, LEAD_US = 1_500_000;

    static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    static void waitUntil(long us) throws Exception {
        long left = us - now();
        if (left > 0) Thread.sleep(left / 1000, (int) (left % 1000) * 1000);
    }

    static ByteBuffer read(String path) throws Exception {
        return ByteBuffer.wrap(Files.readAllBytes(Paths.get(path))).order(ByteOrder.LITTLE_ENDIAN);
    }

    static Path file(String directory, int camera) {
        return new Path(directory, "camera-" + camera / MESH + "-" + camera % MESH);
    }

    static byte[] record(DoubleBuffer samples, int sample, int camera, long takenUs) {
        ByteBuffer record = ByteBuffer.allocate(RECORD).order(ByteOrder.LITTLE_ENDIAN).putLong(takenUs);
        int first = sample * CELLS * CELLS + camera / MESH * IMAGE * CELLS + camera % MESH * IMAGE;
        for (int cell = 0; cell < IMAGE * IMAGE; cell++) record.putDouble(samples.get(first + cell / IMAGE * CELLS + cell % IMAGE));
        return record.array();
    }

    static void stream(FileSystem fs, String directory, String[] args) throws Exception {
        DoubleBuffer samples = read(args[3]).asDoubleBuffer();
        LongBuffer arrivals = read(args[4]).asLongBuffer();
        boolean snapshots = args[6].endsWith("+snapshots");
        int count = samples.capacity() / (CELLS * CELLS);
        FSDataOutputStream[] files = new FSDataOutputStream[CAMERAS];
        for (int camera = 0; camera < CAMERAS; camera++) {
            files[camera] = fs.create(file(directory, camera), true);
            // Before it begins: its first block is made, its connection is there.
            files[camera].hflush();
        }
        long[][] sent = new long[CAMERAS][count], acknowledged = new long[CAMERAS][count];
        long begins = now() + LEAD_US;
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<?>> all = IntStream.range(0, CAMERAS).mapToObj(camera -> threads.submit(() -> {
            for (int sample = 0; sample < count; sample++) {
                byte[] record = record(samples, sample, camera, begins + sample * SAMPLE_US);
                waitUntil(begins + arrivals.get(camera * count + sample));
                sent[camera][sample] = now();
                files[camera].write(record);
                if (args[6].startsWith("lengths")) {
                    ((HdfsDataOutputStream) files[camera]).hsync(EnumSet.of(SyncFlag.UPDATE_LENGTH));
                } else {
                    files[camera].hflush();
                }
                acknowledged[camera][sample] = now();
            }
            return null;
        })).collect(Collectors.toList());
        long latest = 0;
        for (int frame = 0; snapshots && frame < FRAMES; frame++) {
            long at = begins + FIRST_SAMPLE * SAMPLE_US + frame * FRAME_US;
            waitUntil(at);
            fs.createSnapshot(new Path(directory), "frame-" + frame);
            latest = Math.max(latest, now() - at);
        }
        for (Future<?> one : all) one.get();
        for (FSDataOutputStream file : files) file.close();
        try (DataOutputStream log = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(args[5])))) {
            for (int camera = 0; camera < CAMERAS; camera++) {
                for (int sample = 0; sample < count; sample++) {
                    log.writeLong(sent[camera][sample]);
                    log.writeLong(acknowledged[camera][sample]);
                }
            }
        }
        System.out.println("{\"begins_us\":" + begins + ",\"snapshot_late_us\":" + latest + "}");
        System.exit(0);
    }

    /** The newest whole record of a camera's file; none if there is no such. */
    static byte[] newest(FileSystem fs, Path path) throws Exception {
        try (FSDataInputStream in = fs.open(path)) {
            long whole = fs.getFileStatus(path).getLen() / RECORD;
            if (whole == 0) return null;
            byte[] record = new byte[RECORD];
            in.readFully((whole - 1) * RECORD, record);
            return record;
        }
    }

    static void film(FileSystem fs, String[] args) throws Exception {
        List<String> folders = Files.readAllLines(Paths.get(args[2]));
        ByteBuffer film = ByteBuffer.allocate(folders.size() * CELLS * CELLS * 8).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer taken = ByteBuffer.allocate(folders.size() * CAMERAS * 8).order(ByteOrder.LITTLE_ENDIAN);
        ExecutorService threads = Executors.newFixedThreadPool(4);
        List<Future<?>> all = IntStream.range(0, folders.size()).mapToObj(frame -> threads.submit(() -> {
            for (int camera = 0; camera < CAMERAS; camera++) {
                byte[] bytes = newest(fs, file(folders.get(frame), camera));
                if (bytes == null) continue;
                ByteBuffer record = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
                taken.putLong((frame * CAMERAS + camera) * 8, record.getLong());
                int first = frame * CELLS * CELLS + camera / MESH * IMAGE * CELLS + camera % MESH * IMAGE;
                for (int cell = 0; cell < IMAGE * IMAGE; cell++)
                    film.putDouble((first + cell / IMAGE * CELLS + cell % IMAGE) * 8, record.getDouble());
            }
            return null;
        })).collect(Collectors.toList());
        for (Future<?> one : all) one.get();
        Files.write(Paths.get(args[3]), film.array());
        Files.write(Paths.get(args[4]), taken.array());
        System.exit(0);
    }

    public static void main(String[] args) throws Exception {
        Configuration conf = new Configuration();
        conf.set("fs.defaultFS", args[1]);
        FileSystem fs = FileSystem.get(conf);
        if (args[0].equals("film")) {
            film(fs, args);
            return;
        }
        Path directory = new Path(args[2]);
        fs.mkdirs(directory);
        if (args[6].endsWith("+snapshots")) ((DistributedFileSystem) fs).allowSnapshot(directory);
        try {
            stream(fs, args[2], args);
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1);
        }
    }
}
