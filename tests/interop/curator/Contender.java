import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryOneTime;

/**
 * Does what it is told, line by line, with Curator's own recipes: mutex, read, write, permits. Arguments: connect string, session time-out
 * in ms. Fields are separated by tabs. Each contender has an id and a thread of its own, since a mutex belongs to its
 * thread; answers begin with the id and come when there is one. Times are of the clock that all processes of a host
 * share.
 */
public final class Contender {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();
    /** By id and recipe: a contender may read and write at a time. */
    private static final Map<String, Release> HELD = new ConcurrentHashMap<>();
    /** A read inside a write must be of the same object. */
    private static final Map<String, InterProcessReadWriteLock> RW_LOCKS = new ConcurrentHashMap<>();

    private interface Release {
        void run() throws Exception;
    }

    private static CuratorFramework client;

    public static void main(String[] arguments) throws Exception {
        client = CuratorFrameworkFactory.newClient(
                arguments[0], Integer.parseInt(arguments[1]), 5000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        OUT.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            THREADS.computeIfAbsent(words[1], id -> Executors.newSingleThreadExecutor())
                    .submit(() -> OUT.println(words[1] + "\t" + answer(words)));
        }
        client.close();
        System.exit(0);
    }

    private static String answer(String[] words) {
        try {
            switch (words[0]) {
                case "acquire":
                    return acquire(words);
                case "release":
                    long before = System.nanoTime();
                    HELD.remove(words[1] + words[2]).run();
                    return "released\t" + before;
                case "count":
                    return count(words[2], Path.of(words[3]), Integer.parseInt(words[4]));
                case "participants":
                    return "participants\t" + String.join("\t", mutex(words[2]).getParticipantNodes());
                case "revoke":
                    Revoker.attemptRevoke(client, words[2]);
                    return "revoked";
                default:
                    return "error\twhat is " + words[0] + "?";
            }
        } catch (Exception error) {
            return "error\t" + error;
        }
    }

    private static InterProcessMutex mutex(String path) {
        return new InterProcessMutex(client, path);
    }

    /**
     * When it was granted; of a mutex also the id of the transaction that created its node, and the node. The words: id,
     * path, milliseconds, recipe, how many permits there are (0: as the SharedCount says).
     */
    private static String acquire(String[] words) throws Exception {
        String id = words[1], path = words[2], recipe = words[4];
        long milliseconds = Long.parseLong(words[3]);
        InterProcessMutex mutex = null;
        if (recipe.equals("permits")) {
            int size = Integer.parseInt(words[5]);
            InterProcessSemaphoreV2 semaphore = size > 0
                    ? new InterProcessSemaphoreV2(client, path, size)
                    : new InterProcessSemaphoreV2(client, path, counted(path + "/permits"));
            Lease lease = semaphore.acquire(limit(milliseconds), TimeUnit.MILLISECONDS);
            if (lease == null) {
                return "busy";
            }
            HELD.put(id + recipe, () -> semaphore.returnLease(lease));
        } else {
            mutex = recipe.equals("mutex") ? mutex(path) : ofReadWriteLock(path, recipe);
            if (!mutex.acquire(limit(milliseconds), TimeUnit.MILLISECONDS)) {
                return "busy";
            }
            HELD.put(id + recipe, mutex::release);
        }
        long held = System.nanoTime();
        if (!recipe.equals("mutex")) {
            return "held\t" + held + "\t0\t-";
        }
        String node = mutex.getParticipantNodes().iterator().next();
        return "held\t" + held + "\t" + client.checkExists().forPath(node).getCzxid() + "\t" + node;
    }

    private static long limit(long milliseconds) {
        return milliseconds < 0 ? TimeUnit.DAYS.toMillis(1) : milliseconds;
    }

    private static InterProcessMutex ofReadWriteLock(String path, String recipe) {
        InterProcessReadWriteLock lock =
                RW_LOCKS.computeIfAbsent(path, each -> new InterProcessReadWriteLock(client, each));
        return recipe.equals("read") ? lock.readLock() : lock.writeLock();
    }

    private static SharedCount counted(String path) throws Exception {
        SharedCount count = new SharedCount(client, path, 1);
        count.start();
        return count;
    }

    /** Read, add one and write, again and again: an update is lost if anybody else does so at the same time. */
    private static String count(String path, Path file, int rounds) throws Exception {
        InterProcessMutex mutex = mutex(path);
        for (int round = 0; round < rounds; round++) {
            mutex.acquire();
            try {
                int number = Integer.parseInt(Files.readString(file));
                Thread.sleep(1);
                Files.writeString(file, String.valueOf(number + 1));
            } finally {
                mutex.release();
            }
        }
        return "counted";
    }
}
