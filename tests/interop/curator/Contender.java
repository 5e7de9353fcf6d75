import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Collection;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryNTimes;

/**
 * Executes commands with Curator's own recipes: mutex, single (InterProcessSemaphoreMutex), read, write, permits, latch
 * and barrier. Arguments: connect string, session time-out in ms. Commands are read from standard input, one in each
 * line, with fields separated by tabs. Each contender has an id and a thread of its own, since a mutex belongs to its
 * thread; answers begin with the id. Times are of the clock that all processes of a host share.
 */
public final class Contender {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final long FOR_EVER = TimeUnit.DAYS.toMillis(1);
    private static final String NO_TOKEN = "0\t-";

    private static final Map<String, ExecutorService> EXECUTORS = new ConcurrentHashMap<>();
    private static final Map<String, Thread> THREADS = new ConcurrentHashMap<>();
    /** By id and recipe: a contender may read and write at a time, and hold a lock several times. */
    private static final Map<String, Deque<Release>> HELD = new ConcurrentHashMap<>();
    /** One object for all contenders: it knows which thread holds the lock, and how many times. */
    private static final Map<String, InterProcessMutex> MUTEXES = new ConcurrentHashMap<>();
    private static final Map<String, InterProcessReadWriteLock> RW_LOCKS = new ConcurrentHashMap<>();
    private static final Map<String, LeaderLatch> LATCHES = new ConcurrentHashMap<>();
    private static final Map<String, DistributedDoubleBarrier> BARRIERS = new ConcurrentHashMap<>();

    private interface Release {
        void run() throws Exception;
    }

    /** Of a lock: when, before anything more is asked of the servers; and its fencing token, with the node. */
    private static final class Grant {
        final long at = System.nanoTime();
        String token = NO_TOKEN;
    }

    private static CuratorFramework client;

    public static void main(String[] arguments) throws Exception {
        client = CuratorFrameworkFactory.newClient(
                arguments[0], Integer.parseInt(arguments[1]), 5000, new RetryNTimes(50, 100));
        client.start();
        client.blockUntilConnected();
        OUT.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            EXECUTORS.computeIfAbsent(words[1], id -> Executors.newSingleThreadExecutor()).submit(() -> {
                THREADS.put(words[1], Thread.currentThread());
                OUT.println(words[1] + "\t" + answer(words));
            });
        }
        client.close();
        System.exit(0);
    }

    private static String answer(String[] words) {
        String id = words[1], subject = words.length > 2 ? words[2] : "";
        try {
            switch (words[0]) {
                case "acquire":
                    return acquire(id, subject, words[3], words[4], Integer.parseInt(words[5]), Integer.parseInt(words[6]));
                case "release":
                    long before = System.nanoTime();
                    HELD.get(id + subject).pop().run();
                    return "released\t" + before;
                case "contend":
                    return contend(id, subject, words[3], Path.of(words[4]), Path.of(words[5]), Long.parseLong(words[6]));
                case "lead":
                    return lead(id, subject, Long.parseLong(words[3]));
                case "leads":
                    return "leads\t" + LATCHES.get(subject).hasLeadership();
                case "resign":
                    before = System.nanoTime();
                    LATCHES.remove(id).close();
                    return "resigned\t" + before;
                case "leader":
                    try (LeaderLatch latch = new LeaderLatch(client, subject)) {
                        latch.start();
                        return "leader\t" + latch.getLeader().getId();
                    }
                case "enter":
                    DistributedDoubleBarrier barrier =
                            new DistributedDoubleBarrier(client, subject, Integer.parseInt(words[4]));
                    BARRIERS.put(id, barrier);
                    before = System.nanoTime();
                    return passed(before, barrier.enter(limit(words[3]), TimeUnit.MILLISECONDS));
                case "leave":
                    before = System.nanoTime();
                    return passed(before, BARRIERS.remove(id).leave(limit(words[2]), TimeUnit.MILLISECONDS));
                case "holds":
                    return "holds\t" + MUTEXES.get(subject).isAcquiredInThisProcess();
                case "sleeps":
                    return "sleeps\t" + sleeps(THREADS.get(subject));
                case "participants":
                    return "participants\t" + String.join("\t", mutex(subject).getParticipantNodes());
                case "delete":
                    client.delete().forPath(subject);
                    return "deleted";
                case "resize":
                    try (SharedCount count = counted(subject)) {
                        count.setCount(Integer.parseInt(words[3]));
                    }
                    return "resized";
                case "revoke":
                    Revoker.attemptRevoke(client, subject);
                    return "revoked";
                default:
                    return "error\tunknown command: " + words[0];
            }
        } catch (Exception error) {
            return "error\t" + error;
        }
    }

    private static String passed(long began, boolean through) {
        return (through ? "passed\t" : "busy\t") + System.nanoTime() + "\t" + began;
    }

    private static InterProcessMutex mutex(String path) {
        return MUTEXES.computeIfAbsent(path, each -> new InterProcessMutex(client, each));
    }

    private static InterProcessMutex mutex(String path, String recipe) {
        if (recipe.equals("mutex")) {
            return mutex(path);
        }
        InterProcessReadWriteLock lock =
                RW_LOCKS.computeIfAbsent(path, each -> new InterProcessReadWriteLock(client, each));
        return recipe.equals("read") ? lock.readLock() : lock.writeLock();
    }

    /**
     * When it was granted, and the fencing token: the id of the transaction that created the node, of a lock with one
     * holder or of a permit, and the node. ``size``: how many permits there are (0: as the SharedCount says).
     */
    private static String acquire(String id, String path, String milliseconds, String recipe, int size, int count)
            throws Exception {
        Grant grant = take(id, path, limit(milliseconds), recipe, size, count);
        return grant == null ? "busy" : "held\t" + grant.at + "\t" + grant.token;
    }

    private static Grant take(String id, String path, long milliseconds, String recipe, int size, int count)
            throws Exception {
        Release release;
        Grant grant;
        if (recipe.equals("permits")) {
            InterProcessSemaphoreV2 semaphore = size > 0
                    ? new InterProcessSemaphoreV2(client, path, size)
                    : new InterProcessSemaphoreV2(client, path, counted(path + "/permits"));
            Collection<Lease> leases = semaphore.acquire(count, milliseconds, TimeUnit.MILLISECONDS);
            if (leases == null) {
                return null;
            }
            grant = new Grant();
            release = () -> semaphore.returnAll(leases);
            grant.token = tokenOf(path + "/leases/" + leases.iterator().next().getNodeName());
        } else if (recipe.equals("single")) {
            InterProcessSemaphoreMutex mutex = new InterProcessSemaphoreMutex(client, path);
            if (!mutex.acquire(milliseconds, TimeUnit.MILLISECONDS)) {
                return null;
            }
            grant = new Grant();
            release = mutex::release;
        } else {
            InterProcessMutex mutex = mutex(path, recipe);
            if (!mutex.acquire(milliseconds, TimeUnit.MILLISECONDS)) {
                return null;
            }
            grant = new Grant();
            release = mutex::release;
            if (!recipe.equals("read")) {
                grant.token = tokenOf(mutex.getParticipantNodes().iterator().next());
            }
        }
        HELD.computeIfAbsent(id + recipe, each -> new ArrayDeque<>()).push(release);
        return grant;
    }

    private static String tokenOf(String node) throws Exception {
        return client.checkExists().forPath(node).getCzxid() + "\t" + node;
    }

    private static long limit(String milliseconds) {
        long limit = Long.parseLong(milliseconds);
        return limit < 0 ? FOR_EVER : limit;
    }

    private static SharedCount counted(String path) throws Exception {
        SharedCount count = new SharedCount(client, path, 1);
        count.start();
        return count;
    }

    /** Takes part in an election until "resign". When it leads; its node, and the transaction that created that. */
    private static String lead(String id, String path, long milliseconds) throws Exception {
        LeaderLatch latch = LATCHES.get(id);
        if (latch == null) {
            latch = new LeaderLatch(client, path, id);
            LATCHES.put(id, latch);
            latch.start();
        }
        if (!latch.await(milliseconds, TimeUnit.MILLISECONDS)) {
            return "busy";
        }
        return "held\t" + System.nanoTime() + "\t" + tokenOf(latch.getOurPath());
    }

    /** Whether it waits for a watch. */
    private static boolean sleeps(Thread thread) {
        StackTraceElement[] frames = thread == null ? new StackTraceElement[0] : thread.getStackTrace();
        return frames.length > 1
                && frames[0].getMethodName().startsWith("wait")
                && Arrays.stream(frames).anyMatch(each -> each.getClassName().contains(".recipes."))
                && Arrays.stream(frames).noneMatch(each -> each.getClassName().endsWith(".ClientCnxn"));
    }

    /**
     * Read a number, add one and write it, again and again for some ms: an update is lost if any other holder does so at
     * the same time. A reader checks that it does not change. Tokens of mutexes are written in the order of grants. How
     * many times it had the lock, how many updates it made, and its longest wait in ms.
     */
    private static String contend(String id, String path, String recipe, Path register, Path tokens, long milliseconds)
            throws Exception {
        long grants = 0, updates = 0, longest = 0;
        for (long end = System.nanoTime() + milliseconds * 1_000_000; System.nanoTime() < end; grants++) {
            long before = System.nanoTime();
            Grant grant = take(id, path, FOR_EVER, recipe, 1, 1);
            longest = Math.max(longest, grant.at - before);
            try {
                String number = Files.readString(register);
                Thread.sleep(1);
                if (!recipe.equals("read")) {
                    Files.writeString(register, String.valueOf(Long.parseLong(number) + 1));
                    updates++;
                } else if (!number.equals(Files.readString(register))) {
                    return "error\tthe number changed while it was read";
                }
                if (recipe.equals("mutex")) {
                    Files.writeString(tokens, grant.token.split("\t")[0] + "\n", StandardOpenOption.APPEND);
                }
            } finally {
                HELD.get(id + recipe).pop().run();
            }
            Thread.sleep(2);
        }
        return "contended\t" + grants + "\t" + updates + "\t" + longest / 1_000_000;
    }
}
