import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.MemoryCompactionPolicy;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Durability;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * The load of the Facebook Messages study on a table of HBase's: eight column families (table 2), 60 % get, 34 % put,
 * 6 % delete, sixteen records a put.
 *
 * A row is a user, a record a column, the newest first. A few users are very active. Each family has its size of a
 * record, its chance that a get reads it, and its share of the records of a put: those of crates/load/messages.toml.
 * Reads commands from standard input, one a line, and answers each with a line of JSON. Arguments: users, threads.
 */
public class FamiliesLoad {
    static final TableName TABLE = TableName.valueOf("study");
    static final int REGIONS = 4, RECORDS = 16;
    /** Exponent of a user's rank: a third of the calls go to a tenth of the users at 0.5, more below. */
    static final double SKEW = 2.0;
    /** Records that a get wants of a family at most: the newest state, not the history. */
    static final int NEWEST = 16;

    /** A column family: bytes of its records, its share of the records, and the chance that a get reads it. */
    enum Family {
        Actions(400, 0.26, 0.5),
        MessageMeta(350, 0.19, 0.3),
        ThreadMeta(300, 0.12, 0.4),
        PrefetchMeta(250, 0.08, 0.9),
        Keywords(150, 0.06, 0.005),
        ThreaderThread(120, 0.10, 0.15),
        ThreadingIdx(100, 0.10, 0.1),
        ActionLogIdx(100, 0.09, 0.1);

        final int bytes;
        final double records, touch;
        final byte[] name = Bytes.toBytes(name());

        Family(int bytes, double records, double touch) {
            this.bytes = bytes;
            this.records = records;
            this.touch = touch;
        }

        static Family of(double chance) {
            double sum = 0;
            for (Family family : values()) {
                sum += family.records;
                if (chance < sum) return family;
            }
            return Actions;
        }
    }

    final Configuration conf = HBaseConfiguration.create();
    final Connection connection = ConnectionFactory.createConnection(conf);
    final Admin admin = connection.getAdmin();
    final List<Worker> workers = new ArrayList<>();
    final int users;
    /** Records of each user so far: the number of the next one. */
    final AtomicIntegerArray next;

    FamiliesLoad(int users, int threads) throws Exception {
        this.users = users;
        next = new AtomicIntegerArray(users);
        for (int i = 0; i < threads; i++) workers.add(new Worker(i));
    }

    static byte[] row(int user) {
        return Bytes.toBytes(String.format("%02x-%06d", user * 37 % 256, user));
    }

    /** Counted down, so that the newest record is the first of its row. */
    static byte[] column(int record) {
        return Bytes.toBytes(Integer.MAX_VALUE - record);
    }

    /** Words of a small language: a compressor leaves about a third of them. */
    static byte[] words(Random random, int bytes) {
        byte[] text = new byte[bytes / 2 + random.nextInt(bytes)];
        for (int i = 0; i < text.length; ) {
            int word = (int) (4096 * Math.pow(random.nextDouble(), 3));
            for (int length = 3 + word % 5; length > 0 && i < text.length; length--, word = word * 31 + 7) {
                text[i++] = (byte) ('a' + Math.floorMod(word, 26));
            }
            if (i < text.length) text[i++] = ' ';
        }
        return text;
    }

    Put put(Random random, int user) {
        Put put = new Put(row(user));
        for (int i = 0; i < RECORDS; i++) {
            Family family = Family.of(random.nextDouble());
            put.addColumn(family.name, column(next.getAndIncrement(user)), words(random, family.bytes));
        }
        return put;
    }

    /** One thread of the load. */
    class Worker {
        final Random random;
        final List<Long> getsNs = new ArrayList<>(), changesNs = new ArrayList<>();
        long gets, puts, deletes, found;
        volatile boolean stops;
        volatile Exception failed;
        Thread thread;

        Worker(int number) {
            random = new Random(number);
        }

        void start() {
            stops = false;
            thread = new Thread(this::run, "worker");
            thread.start();
        }

        void run() {
            try (Table table = connection.getTable(TABLE)) {
                while (!stops) step(table);
            } catch (Exception e) {
                failed = e;
            }
        }

        void step(Table table) throws Exception {
            // Ranks are spread over the key range, so that active users are in all regions.
            int user = (int) ((long) (users * Math.pow(random.nextDouble(), SKEW)) * 7919 % users);
            int dice = random.nextInt(100);
            long begun = System.nanoTime();
            if (dice < 60) {
                Get get = new Get(row(user)).setMaxResultsPerColumnFamily(NEWEST);
                for (Family family : Family.values()) {
                    if (random.nextDouble() < family.touch) get.addFamily(family.name);
                }
                if (!get.hasFamilies()) get.addFamily(Family.PrefetchMeta.name);
                found += table.get(get).size();
                gets++;
                getsNs.add(System.nanoTime() - begun);
                return;
            }
            if (dice < 94) {
                table.put(put(random, user));
                puts++;
            } else {
                Delete delete = new Delete(row(user));
                int record = Math.max(0, next.get(user) - 1 - random.nextInt(RECORDS));
                delete.addColumns(Family.Actions.name, column(record));
                delete.addColumns(Family.MessageMeta.name, column(record));
                table.delete(delete);
                deletes++;
            }
            changesNs.add(System.nanoTime() - begun);
        }
    }

    void create(MemoryCompactionPolicy inMemory) throws Exception {
        TableDescriptorBuilder table = TableDescriptorBuilder.newBuilder(TABLE);
        for (Family family : Family.values()) {
            // Store files are compressed and logs are not, as in the study; the JDK's own compressor needs no library.
            table.setColumnFamily(ColumnFamilyDescriptorBuilder.newBuilder(family.name)
                .setCompressionType(Compression.Algorithm.GZ)
                .setInMemoryCompaction(inMemory)
                .build());
        }
        byte[][] splits = new byte[REGIONS - 1][];
        for (int i = 1; i < REGIONS; i++) splits[i - 1] = Bytes.toBytes(String.format("%02x", 256 / REGIONS * i));
        admin.createTable(table.build(), splits);
    }

    /** Records of all users, before the load: what the study's servers had in store. */
    void fill(int putsPerUser) throws Exception {
        Random random = new Random(4711);
        try (Table table = connection.getTable(TABLE)) {
            for (int round = 0; round < putsPerUser; round++) {
                List<Put> batch = new ArrayList<>();
                for (int user = 0; user < users; user++) {
                    batch.add(put(random, user).setDurability(Durability.SKIP_WAL));
                    if (batch.size() == 200 || user == users - 1) {
                        table.put(batch);
                        batch.clear();
                    }
                }
            }
        }
        admin.flush(TABLE);
    }

    /** Merges the files of each family. */
    void settle(int seconds) throws Exception {
        admin.majorCompact(TABLE);
        Thread.sleep(2000);
        long until = System.nanoTime() + seconds * 1_000_000_000L;
        while (admin.getCompactionState(TABLE) != CompactionState.NONE) {
            if (System.nanoTime() > until) throw new IllegalStateException("the compaction does not end");
            Thread.sleep(200);
        }
    }

    /** Closes and opens the regions: each store file is opened by name. */
    void reopen() throws Exception {
        admin.disableTable(TABLE);
        admin.enableTable(TABLE);
    }

    String load(int seconds) throws Exception {
        for (Worker worker : workers) worker.start();
        long until = System.nanoTime() + seconds * 1_000_000_000L;
        while (System.nanoTime() < until && workers.stream().allMatch(worker -> worker.failed == null)) {
            Thread.sleep(100);
        }
        for (Worker worker : workers) worker.stops = true;
        for (Worker worker : workers) worker.thread.join();
        for (Worker worker : workers) if (worker.failed != null) throw worker.failed;
        long gets = 0, puts = 0, deletes = 0, found = 0;
        List<Long> getsNs = new ArrayList<>(), changesNs = new ArrayList<>();
        for (Worker worker : workers) {
            gets += worker.gets;
            puts += worker.puts;
            deletes += worker.deletes;
            found += worker.found;
            getsNs.addAll(worker.getsNs);
            changesNs.addAll(worker.changesNs);
        }
        return String.format(
            "{\"gets\":%d,\"puts\":%d,\"deletes\":%d,\"cells_found\":%d,\"get_ms\":%s,\"change_ms\":%s}",
            gets, puts, deletes, found, quantiles(getsNs), quantiles(changesNs));
    }

    /** Median and 99 %, in milliseconds. */
    static String quantiles(List<Long> ns) {
        Collections.sort(ns);
        if (ns.isEmpty()) return "[]";
        long median = ns.get(ns.size() / 2), late = ns.get(ns.size() * 99 / 100);
        return String.format(Locale.ROOT, "[%.2f,%.2f]", median / 1e6, late / 1e6);
    }

    String run(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                create(MemoryCompactionPolicy.valueOf(words[1]));
                return "{}";
            case "fill":
                fill(Integer.parseInt(words[1]));
                return "{}";
            case "settle":
                settle(Integer.parseInt(words[1]));
                return "{}";
            case "reopen":
                reopen();
                return "{}";
            case "load":
                return load(Integer.parseInt(words[1]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        FamiliesLoad load = new FamiliesLoad(Integer.parseInt(args[0]), Integer.parseInt(args[1]));
        System.out.println("{}");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                System.out.println(load.run(line.split(" ")));
            } catch (Throwable failed) {
                failed.printStackTrace();
                System.out.println("failed: " + failed);
                System.exit(1);
            }
        }
        System.exit(0);
    }
}
