import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractLeaseRecoveryTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractMultipartUploaderTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSafeModeTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractSetTimesTest;
import org.apache.hadoop.fs.contract.AbstractContractUnbufferTest;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.junit.runner.JUnitCore;
import org.junit.runner.Result;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Hadoop's own contract tests on the file system of the configuration, with the options that Hadoop has for HDFS. */
public class Contract extends AbstractFSContract {
    static final Class<?>[] ALL = {
        Append.class, BulkDelete.class, Concat.class, ContentSummary.class, CopyFromLocal.class, Create.class, Delete.class,
        GetFileStatus.class, LeaseRecovery.class, Mkdir.class, Open.class, Rename.class, RootDirectory.class, SafeMode.class,
        Seek.class, SetTimes.class, Unbuffer.class, VectoredRead.class, PathHandle.class, MultipartUploader.class
    };

    Contract(Configuration conf) {
        super(conf);
        addConfResource("contract-hdfs.xml");
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return FileSystem.get(getConf());
    }

    @Override
    public String getScheme() {
        return FileSystem.getDefaultUri(getConf()).getScheme();
    }

    @Override
    public Path getTestPath() {
        return new Path("/test");
    }

    public static class Append extends AbstractContractAppendTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class BulkDelete extends AbstractContractBulkDeleteTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Concat extends AbstractContractConcatTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class ContentSummary extends AbstractContractContentSummaryTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class CopyFromLocal extends AbstractContractCopyFromLocalTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Create extends AbstractContractCreateTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Delete extends AbstractContractDeleteTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class GetFileStatus extends AbstractContractGetFileStatusTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class LeaseRecovery extends AbstractContractLeaseRecoveryTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Mkdir extends AbstractContractMkdirTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Open extends AbstractContractOpenTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Rename extends AbstractContractRenameTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class RootDirectory extends AbstractContractRootDirectoryTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class SafeMode extends AbstractContractSafeModeTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Seek extends AbstractContractSeekTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class SetTimes extends AbstractContractSetTimesTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class Unbuffer extends AbstractContractUnbufferTest {
        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class VectoredRead extends AbstractContractVectoredReadTest {
        public VectoredRead(String buffers) {
            super(buffers);
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class PathHandle extends AbstractContractPathHandleTest {
        public PathHandle(String name, Options.HandleOpt[] options, boolean serialized) {
            super(name, options, serialized);
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    public static class MultipartUploader extends AbstractContractMultipartUploaderTest {
        @Override
        protected int partSizeInBytes() {
            return 1024;
        }

        @Override
        protected boolean finalizeConsumesUploadIdImmediately() {
            return true;
        }

        @Override
        protected boolean supportsConcurrentUploadsToSamePath() {
            return true;
        }

        @Override
        protected AbstractFSContract createContract(Configuration conf) {
            return new Contract(conf);
        }
    }

    /** Arguments: tests that are known to fail. One that does not any more is a failure too, so that the list stays true. */
    public static void main(String[] known) {
        int run = 0;
        List<String> skipped = new ArrayList<>(), failed = new ArrayList<>();
        Set<String> missing = new TreeSet<>(List.of(known)), expected = Set.of(known);
        for (Class<?> tests : ALL) {
            JUnitCore core = new JUnitCore();
            core.addListener(new RunListener() {
                @Override
                public void testAssumptionFailure(Failure failure) {
                    skipped.add(name(tests, failure));
                }
            });
            Result result = core.run(tests);
            run += result.getRunCount();
            for (Failure failure : result.getFailures()) {
                String name = name(tests, failure);
                missing.remove(name);
                if (expected.contains(name)) continue;
                failed.add(name);
                System.out.println("FAILED  " + name);
                failure.getException().printStackTrace(System.out);
            }
        }
        System.out.println("skipped: " + skipped);
        for (String name : missing) System.out.println("FAILED  " + name + " is said to fail, and does not");
        System.out.println(run + " contract tests, " + known.length + " known to fail, " + failed.size() + " failed otherwise");
        System.exit(failed.isEmpty() && missing.isEmpty() ? 0 : 1);
    }

    static String name(Class<?> tests, Failure failure) {
        return tests.getSimpleName() + "." + failure.getDescription().getMethodName();
    }
}
