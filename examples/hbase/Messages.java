import java.io.BufferedReader;
import java.io.EOFException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.KeyValueUtil;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.CompactionState;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Delete;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptor;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.hbase.regionserver.HRegion;
import org.apache.hadoop.hbase.regionserver.HRegionFileSystem;
import org.apache.hadoop.hbase.regionserver.HStore;
import org.apache.hadoop.hbase.regionserver.RegionScanner;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.hbase.util.CommonFSUtils;
import org.apache.hadoop.hbase.util.FSTableDescriptors;
import org.apache.hadoop.hbase.wal.WAL;
import org.apache.hadoop.hbase.wal.WALFactory;
import org.apache.hadoop.hbase.wal.WALStreamReader;

/**
 * A table of messages under the load of the Facebook Messages study (60 % get, 34 % put, 6 % delete), with a truth beside it.
 *
 * Every row belongs to one thread, which records every answer: the version that the row must have, or two of them if a change
 * has no answer. A version is the cell's time stamp, so that what follows what needs no clock. Reads commands from standard
 * input, one a line, and answers each with a line.
 */
public class Messages {
    static final TableName TABLE = TableName.valueOf("messages");
    static final byte[] FAMILY = Bytes.toBytes("m"), QUALIFIER = Bytes.toBytes("body");
    static final int THREADS = 8, ROWS = 4000, REGIONS = 4;
    /** Stands for no row where a version is asked for. */
    static final long NONE = 0;

    final Configuration conf = HBaseConfiguration.create();
    final Connection connection = ConnectionFactory.createConnection(conf);
    final Admin admin = connection.getAdmin();
    final List<Worker> workers = new ArrayList<>();
    final AtomicLong versions = new AtomicLong();
    final Map<String, Map<Integer, long[]>> kept = new HashMap<>();

    Messages() throws Exception {
        for (int i = 0; i < THREADS; i++) workers.add(new Worker(i));
    }

    static byte[] key(int row) {
        // Rows of one thread are in all regions.
        return Bytes.toBytes(String.format("%02x-%06d", row * 37 % 256, row));
    }

    static byte[] value(int row, long version) {
        byte[] value = new byte[64 + (int) (version * 7919 % 1500)];
        new Random(row * 1_000_003L + version).nextBytes(value);
        return value;
    }

    /** One thread of the load. */
    class Worker {
        final int number;
        final Random random;
        final Map<Integer, long[]> truth = new HashMap<>();
        final List<Long> getsNs = new ArrayList<>(), changesNs = new ArrayList<>();
        int gets, puts, deletes, uncertain;
        volatile boolean stops;
        volatile long done;
        volatile String wrong;
        Thread thread;

        Worker(int number) {
            this.number = number;
            random = new Random(number);
        }

        void start() {
            stops = false;
            thread = new Thread(this::run, "worker-" + number);
            thread.start();
        }

        void run() {
            try (Table table = connection.getTable(TABLE)) {
                while (!stops && wrong == null) {
                    int row = random.nextInt(ROWS / THREADS) * THREADS + number, dice = random.nextInt(100);
                    long begun = System.nanoTime();
                    if (dice < 60) {
                        String found = differs(row, table.get(new Get(key(row))), truth);
                        if (found != null) wrong = found;
                        gets++;
                        getsNs.add(System.nanoTime() - begun);
                    } else {
                        change(table, row, dice < 94);
                        changesNs.add(System.nanoTime() - begun);
                    }
                    done++;
                }
            } catch (Exception failed) {
                wrong = "a get failed: " + failed;
            }
        }

        void change(Table table, int row, boolean puts) {
            long version = versions.incrementAndGet();
            long after = puts ? version : NONE;
            try {
                if (puts) {
                    table.put(new Put(key(row), version).addColumn(FAMILY, QUALIFIER, value(row, version)));
                    this.puts++;
                } else {
                    table.delete(new Delete(key(row), version));
                    deletes++;
                }
                truth.put(row, new long[] {after});
            } catch (Exception unknown) {
                uncertain++;
                long[] before = truth.getOrDefault(row, new long[] {NONE});
                long[] either = Arrays.copyOf(before, before.length + 1);
                either[before.length] = after;
                truth.put(row, either);
            }
        }
    }

    /** Null if a row is as the truth has it, else how it is not. */
    static String differs(int row, Result found, Map<Integer, long[]> truth) {
        Cell cell = found.isEmpty() ? null : found.getColumnLatestCell(FAMILY, QUALIFIER);
        return differs(row, cell, truth);
    }

    static String differs(int row, Cell cell, Map<Integer, long[]> truth) {
        long version = cell == null ? NONE : cell.getTimestamp();
        long[] may = truth.getOrDefault(row, new long[] {NONE});
        if (Arrays.stream(may).noneMatch(one -> one == version))
            return "row " + row + " has version " + version + " where " + Arrays.toString(may) + " was acknowledged";
        if (cell != null && !Arrays.equals(CellUtil.cloneValue(cell), value(row, version)))
            return "row " + row + " has other bytes than were put";
        return null;
    }

    Map<Integer, long[]> truth() {
        Map<Integer, long[]> all = new TreeMap<>();
        for (Worker worker : workers) all.putAll(worker.truth);
        return all;
    }

    void create() throws Exception {
        TableDescriptor table = TableDescriptorBuilder.newBuilder(TABLE)
            .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
            .build();
        byte[][] splits = new byte[REGIONS - 1][];
        for (int i = 1; i < REGIONS; i++) splits[i - 1] = Bytes.toBytes(String.format("%02x", 256 / REGIONS * i));
        admin.createTable(table, splits);
    }

    String stop() throws Exception {
        for (Worker worker : workers) worker.stops = true;
        for (Worker worker : workers) worker.thread.join();
        for (Worker worker : workers) if (worker.wrong != null) throw new IllegalStateException(worker.wrong);
        return figures();
    }

    String figures() {
        int gets = 0, puts = 0, deletes = 0, uncertain = 0;
        List<Long> getsNs = new ArrayList<>(), changesNs = new ArrayList<>();
        for (Worker worker : workers) {
            gets += worker.gets;
            puts += worker.puts;
            deletes += worker.deletes;
            uncertain += worker.uncertain;
            getsNs.addAll(worker.getsNs);
            changesNs.addAll(worker.changesNs);
        }
        return String.format(
            "{\"gets\":%d,\"puts\":%d,\"deletes\":%d,\"uncertain\":%d,\"get_ms\":%s,\"change_ms\":%s}",
            gets, puts, deletes, uncertain, halves(getsNs), halves(changesNs));
    }

    static String halves(List<Long> ns) {
        Collections.sort(ns);
        if (ns.isEmpty()) return "[]";
        return String.format("[%.2f,%.2f,%.2f]", ns.get(ns.size() / 2) / 1e6, ns.get(ns.size() * 99 / 100) / 1e6, ns.get(ns.size() - 1) / 1e6);
    }

    /** Until every thread has done so many operations more: after a failure the load continues. */
    void goOn(int count) throws Exception {
        long until = System.nanoTime() + 100_000_000_000L;
        for (Worker worker : workers) {
            long from = worker.done;
            while (worker.done < from + count) {
                if (worker.wrong != null) throw new IllegalStateException(worker.wrong);
                if (System.nanoTime() > until) throw new IllegalStateException("the load does not go on");
                Thread.sleep(20);
            }
        }
    }

    /** Compares a table with a truth, row by row. */
    String check(TableName name, Map<Integer, long[]> truth) throws Exception {
        Map<String, Cell> found = new TreeMap<>();
        try (Table table = connection.getTable(name); ResultScanner scanner = table.getScanner(new Scan())) {
            for (Result row : scanner) found.put(Bytes.toString(row.getRow()), row.getColumnLatestCell(FAMILY, QUALIFIER));
        }
        return compared(found, truth);
    }

    static String compared(Map<String, Cell> found, Map<Integer, long[]> truth) {
        int rows = 0, wrong = 0;
        String first = null;
        for (int row = 0; row < ROWS; row++) {
            Cell cell = found.remove(Bytes.toString(key(row)));
            if (cell != null) rows++;
            String differs = differs(row, cell, truth);
            if (differs != null) {
                wrong++;
                if (first == null) first = differs;
            }
        }
        wrong += found.size();
        if (wrong > 0) throw new IllegalStateException(wrong + " rows are wrong: " + first);
        return "{\"rows\":" + rows + "}";
    }

    /** What the table at `root` holds, read without any server: what its HFiles have, and behind them what its logs have. */
    String past(Path root, Map<Integer, long[]> truth) throws Exception {
        Configuration then = new Configuration(conf);
        CommonFSUtils.setRootDir(then, root);
        // What only a region server has: memory of its own for what is written.
        then.setBoolean("hbase.hregion.memstore.mslab.enabled", false);
        FileSystem fs = root.getFileSystem(then);
        Path directory = CommonFSUtils.getTableDir(root, TABLE);
        TableDescriptor descriptor = FSTableDescriptors.getTableDescriptorFromFs(fs, root, TABLE);
        Newest newest = new Newest();
        Map<String, Long> flushed = new HashMap<>();
        int files = 0;
        for (FileStatus region : fs.listStatus(directory)) {
            if (!region.isDirectory() || region.getPath().getName().startsWith(".")) continue;
            RegionInfo info = HRegionFileSystem.loadRegionInfoFileContent(fs, region.getPath());
            HRegion opened = HRegion.openReadOnlyFileSystemHRegion(then, fs, directory, info, descriptor);
            try (RegionScanner scanner = opened.getScanner(new Scan().setRaw(true).readAllVersions())) {
                List<Cell> cells = new ArrayList<>();
                boolean more;
                do {
                    cells.clear();
                    more = scanner.next(cells);
                    for (Cell cell : cells) newest.add(cell);
                } while (more);
            }
            for (HStore store : opened.getStores()) {
                flushed.put(info.getEncodedName(), store.getMaxSequenceId().orElse(-1));
                files += store.getStorefilesCount();
            }
            opened.close();
        }
        int logs = 0, edits = 0;
        for (String folder : new String[] {"WALs", "oldWALs"}) {
            if (!fs.exists(new Path(root, folder))) continue;
            RemoteIterator<LocatedFileStatus> list = fs.listFiles(new Path(root, folder), true);
            while (list.hasNext()) {
                Path log = list.next().getPath();
                // The table of tables has a log of its own, the master's store another.
                if (log.getName().endsWith(".meta") || log.getName().contains("$masterlocalwal$")) continue;
                int before = edits;
                try (WALStreamReader reader = WALFactory.createStreamReader(fs, log, then)) {
                    for (WAL.Entry entry = reader.next(); entry != null; entry = reader.next()) {
                        Long upto = flushed.get(Bytes.toString(entry.getKey().getEncodedRegionName()));
                        if (upto == null || entry.getKey().getSequenceId() <= upto) continue;
                        for (Cell cell : entry.getEdit().getCells()) {
                            if (!CellUtil.matchingFamily(cell, FAMILY)) continue;
                            newest.add(cell);
                            edits++;
                        }
                    }
                } catch (EOFException begun) {
                    // A log that was made at that instant, and had nothing yet.
                }
                if (edits > before) logs++;
            }
        }
        String rows = compared(newest.live(), truth);
        // How many rows are another today: were it none, the present would do as well.
        Map<Integer, long[]> now = truth();
        long other = now.keySet().stream().filter(row -> !Arrays.equals(now.get(row), truth.getOrDefault(row, new long[] {NONE}))).count();
        return rows.replace(
            "}", ",\"changed_since\":" + other + ",\"hfiles\":" + files + ",\"logs\":" + logs + ",\"edits\":" + edits + "}");
    }

    /** The newest cell of each row; of a put and a delete of one version the delete. */
    static class Newest {
        final Map<String, Cell> cells = new TreeMap<>();

        void add(Cell cell) {
            String row = Bytes.toString(CellUtil.cloneRow(cell));
            Cell before = cells.get(row);
            if (before == null || before.getTimestamp() < cell.getTimestamp()) cells.put(row, KeyValueUtil.copyToNewKeyValue(cell));
        }

        Map<String, Cell> live() {
            Map<String, Cell> live = new TreeMap<>(cells);
            live.values().removeIf(cell -> cell.getType() != Cell.Type.Put);
            return live;
        }
    }

    int files() throws Exception {
        Path directory = CommonFSUtils.getTableDir(CommonFSUtils.getRootDir(conf), TABLE);
        FileSystem fs = directory.getFileSystem(conf);
        int files = 0;
        RemoteIterator<LocatedFileStatus> list = fs.listFiles(directory, true);
        while (list.hasNext()) if (list.next().getPath().getParent().getName().equals("m")) files++;
        return files;
    }

    String compact() throws Exception {
        int before = files();
        admin.majorCompact(TABLE);
        long until = System.nanoTime() + 60_000_000_000L;
        // What was compacted away is moved to the archive a little later.
        while (admin.getCompactionState(TABLE) != CompactionState.NONE || files() != REGIONS) {
            if (System.nanoTime() > until) throw new IllegalStateException("compaction ends with " + files() + " files");
            Thread.sleep(100);
        }
        return "{\"before\":" + before + ",\"after\":" + files() + "}";
    }

    String run(String[] words) throws Exception {
        switch (words[0]) {
            case "create":
                create();
                return "{}";
            case "start":
                for (Worker worker : workers) worker.start();
                return "{}";
            case "more":
                goOn(Integer.parseInt(words[1]));
                return "{}";
            case "stop":
                return stop();
            case "flush":
                admin.flush(TABLE);
                return "{\"files\":" + files() + "}";
            case "compact":
                return compact();
            case "roll":
                for (ServerName server : admin.getRegionServers()) admin.rollWALWriter(server);
                return "{}";
            case "snapshot":
                admin.snapshot(words[1], TABLE);
                return "{}";
            case "clone":
                TableName clone = TableName.valueOf(words[1] + "-clone");
                admin.cloneSnapshot(words[1], clone);
                return check(clone, kept.get(words[1]));
            case "keep":
                kept.put(words[1], truth());
                return "{}";
            case "check":
                return check(TABLE, truth());
            case "past":
                return past(new Path(words[1]), kept.get(words[2]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Messages messages = new Messages();
        System.out.println("{}");
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            try {
                System.out.println(messages.run(line.split(" ")));
            } catch (Throwable failed) {
                failed.printStackTrace();
                System.out.println("failed: " + failed);
                System.exit(1);
            }
        }
        System.exit(0);
    }
}
