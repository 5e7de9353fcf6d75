import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.RedisNodeNotFoundException;
import org.redisson.config.Config;

/**
 * Executes commands, line by line, with Redisson's own locks: lock, fenced, spin, fair, read, write, permits; latch;
 * multi, whose name is several with spaces between; red, one lock on each of several servers.
 * Arguments: lockWatchdogTimeout in ms, "single", "cluster" or "servers", and addresses. Fields are separated by tabs;
 * names are percent-encoded. Each contender has an id and a thread of its own, since a lock belongs to its thread;
 * answers begin with the id and come when there is one. Times are of the clock that all processes of a host share.
 */
public final class Contender {
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static final Map<String, ExecutorService> THREADS = new ConcurrentHashMap<>();
    private static final Map<String, Thread> RUNNING = new ConcurrentHashMap<>();
    /** Of a contender, semaphores and names: the ids of its permits. */
    private static final Map<String, Deque<String>> PERMITS = new ConcurrentHashMap<>();
    private static final long FOR_EVER = -1, RENEWED = -1, NO_TOKEN = -1;
    /** Redisson reads the table of slots every 5 s. In ns. */
    private static final long SLOTS_ARE_READ = 25_000_000_000L;

    /** Of the server or cluster; of several servers the first. */
    private static RedissonClient client;
    private static final List<RedissonClient> CLIENTS = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        String[] addresses = Arrays.copyOfRange(arguments, 2, arguments.length);
        if (arguments[1].equals("cluster")) {
            Config config = configured(arguments[0]);
            for (String address : addresses) {
                config.useClusterServers().addNodeAddress("redis://" + address);
            }
            config.useClusterServers().setMasterConnectionMinimumIdleSize(2).setSlaveConnectionMinimumIdleSize(1);
            CLIENTS.add(Redisson.create(config));
        } else {
            for (String address : addresses) {
                Config config = configured(arguments[0]);
                config.useSingleServer().setAddress("redis://" + address).setConnectionMinimumIdleSize(2);
                CLIENTS.add(Redisson.create(config));
            }
        }
        client = CLIENTS.get(0);
        OUT.println("ready");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split("\t");
            THREADS.computeIfAbsent(words[1], id -> Executors.newSingleThreadExecutor())
                    .submit(() -> {
                        RUNNING.put(words[1], Thread.currentThread());
                        OUT.println(words[1] + "\t" + answer(words));
                    });
        }
        System.exit(0); // without client.shutdown(): a test that failed may have left waiters
    }

    private static Config configured(String watchdog) {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(watchdog)).setThreads(4).setNettyThreads(4);
        return config;
    }

    /** The words: a command, the contender's id, a kind of lock, its name, and what the command needs. */
    private static String answer(String[] words) {
        try {
            String id = words[1], kind = words[2], name = URLDecoder.decode(words[3], StandardCharsets.UTF_8);
            switch (words[0]) {
                case "acquire":
                    long wait = Long.parseLong(words[4]), lease = Long.parseLong(words[5]);
                    long token = again(() -> acquire(id, kind, name, wait, lease));
                    return token == BUSY ? "busy" : "held\t" + System.nanoTime() + "\t" + token;
                case "release":
                    long before = System.nanoTime();
                    again(() -> release(id, kind, name));
                    return "released\t" + before;
                case "force":
                    return String.valueOf(lock(kind, name).forceUnlock());
                case "state":
                    RLock lock = lock(kind, name);
                    return lock.isLocked() + "\t" + lock.getHoldCount() + "\t" + lock.remainTimeToLive();
                case "token":
                    return String.valueOf(client.getFencedLock(name).getToken());
                case "resize":
                    semaphore(name).setPermits(Integer.parseInt(words[4]));
                    return "resized";
                case "available":
                    return String.valueOf(semaphore(name).availablePermits());
                case "set count":
                    return String.valueOf(client.getCountDownLatch(name).trySetCount(Long.parseLong(words[4])));
                case "count down":
                    long began = System.nanoTime();
                    client.getCountDownLatch(name).countDown();
                    return "counted\t" + began;
                case "count":
                    return String.valueOf(client.getCountDownLatch(name).getCount());
                case "await":
                    return await(client.getCountDownLatch(name), Long.parseLong(words[4]))
                            ? "open\t" + System.nanoTime() : "closed";
                case "sleeping": // the kind is the id of another contender
                    return String.valueOf(RUNNING.containsKey(kind) && sleeps(RUNNING.get(kind)));
                case "contend":
                    return contend(id, kind, name, Path.of(words[4]), Path.of(words[5]), Long.parseLong(words[6]));
                case "turns":
                    return takeTurns(lock(kind, name), Long.parseLong(words[4]), Long.parseLong(words[5]), Long.parseLong(words[6]));
                default:
                    return "error\twhat is " + words[0] + "?";
            }
        } catch (IllegalMonitorStateException error) {
            return "not held";
        } catch (Exception error) {
            return "error\t" + error + (error.getCause() == null ? "" : ", because of " + error.getCause());
        }
    }

    private static final long BUSY = -2;

    /** Wait and lease in ms. The token of a fenced lock, NO_TOKEN of the other kinds, or BUSY. */
    private static long acquire(String id, String kind, String name, long wait, long lease) throws Exception {
        if (kind.equals("permits")) {
            String permit = wait == FOR_EVER
                    ? semaphore(name).acquire(lease, TimeUnit.MILLISECONDS)
                    : semaphore(name).tryAcquire(wait, lease, TimeUnit.MILLISECONDS);
            if (permit != null) {
                PERMITS.computeIfAbsent(id + "\t" + name, each -> new ArrayDeque<>()).push(permit);
            }
            return permit == null ? BUSY : NO_TOKEN;
        }
        if (kind.equals("fenced")) {
            RFencedLock lock = client.getFencedLock(name);
            // Of those without a limit, the one that returns the token ignores a lease.
            Long token = wait == FOR_EVER
                    ? lock.lockAndGetToken()
                    : lock.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
            return token == null ? BUSY : token;
        }
        RLock lock = lock(kind, name);
        if (wait == FOR_EVER) {
            lock.lock(lease, TimeUnit.MILLISECONDS);
            return NO_TOKEN;
        }
        return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS) ? NO_TOKEN : BUSY;
    }

    private static boolean release(String id, String kind, String name) {
        if (kind.equals("permits")) {
            if (!semaphore(name).tryRelease(PERMITS.get(id + "\t" + name).pop())) {
                throw new IllegalMonitorStateException("the permit is no longer this contender's");
            }
        } else {
            lock(kind, name).unlock();
        }
        return true;
    }

    private interface Step<T> {
        T run() throws Exception;
    }

    /**
     * For a moment after a slot has moved, Redisson 4.7.0 does not know its node. In place of a request it throws a
     * NullPointerException ("entry" is null), or after some attempts that the node is not found. Its user tries again.
     */
    private static <T> T again(Step<T> step) throws Exception {
        for (long end = System.nanoTime() + SLOTS_ARE_READ; ; Thread.sleep(50)) {
            try {
                return step.run();
            } catch (RedisException error) {
                boolean unsent =
                        error instanceof RedisNodeNotFoundException || error.getCause() instanceof NullPointerException;
                if (!unsent || System.nanoTime() > end) {
                    throw error;
                }
            }
        }
    }

    private static boolean await(RCountDownLatch latch, long wait) throws InterruptedException {
        if (wait != FOR_EVER) {
            return latch.await(wait, TimeUnit.MILLISECONDS);
        }
        latch.await();
        return true;
    }

    private static RLock lock(String kind, String name) {
        switch (kind) {
            case "multi":
                return client.getMultiLock(Arrays.stream(name.split(" ")).map(client::getLock).toArray(RLock[]::new));
            case "red":
                return new RedissonRedLock(CLIENTS.stream().map(each -> each.getLock(name)).toArray(RLock[]::new));
            case "lock":
                return client.getLock(name);
            case "fenced":
                return client.getFencedLock(name);
            case "spin":
                return client.getSpinLock(name);
            case "fair":
                return client.getFairLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** Whether it waits for a message. */
    private static boolean sleeps(Thread thread) {
        for (StackTraceElement frame : thread.getStackTrace()) {
            String name = frame.getClassName();
            if (name.equals("java.util.concurrent.Semaphore") || name.endsWith(".ReclosableLatch")) {
                return true;
            }
        }
        return false;
    }

    private static RPermitExpirableSemaphore semaphore(String name) {
        return client.getPermitExpirableSemaphore(name);
    }

    /**
     * Read a number, add one and write it, again and again for some ms: an update is lost if anybody else does so at the
     * same time. A reader sees whether it changes. Tokens are written in the order of grants. How many times it had the
     * lock, how many updates it made, and its longest wait in ms.
     */
    private static String contend(String id, String kind, String name, Path register, Path tokens, long milliseconds)
            throws Exception {
        long grants = 0, updates = 0, longest = 0;
        long lease = kind.equals("permits") ? 60_000 : RENEWED;
        for (long end = System.nanoTime() + milliseconds * 1_000_000; System.nanoTime() < end; grants++) {
            long before = System.nanoTime();
            long token = again(() -> acquire(id, kind, name, FOR_EVER, lease));
            longest = Math.max(longest, System.nanoTime() - before);
            try {
                String number = Files.readString(register);
                Thread.sleep(1);
                if (!kind.equals("read")) {
                    Files.writeString(register, String.valueOf(Long.parseLong(number) + 1));
                    updates++;
                } else if (!number.equals(Files.readString(register))) {
                    return "error\tthe number changed while it was read";
                }
                if (token != NO_TOKEN) {
                    Files.writeString(tokens, token + "\n", StandardOpenOption.APPEND);
                }
            } finally {
                again(() -> release(id, kind, name));
            }
            Thread.sleep(2);
        }
        return "contended\t" + grants + "\t" + updates + "\t" + longest / 1_000_000;
    }

    /** Hold it, then leave it, for some ms each, again and again for some ms. How many times, and the longest wait in ms. */
    private static String takeTurns(RLock lock, long hold, long think, long milliseconds) throws Exception {
        long grants = 0, longest = 0;
        for (long end = System.nanoTime() + milliseconds * 1_000_000; System.nanoTime() < end; grants++) {
            long before = System.nanoTime();
            lock.lock();
            longest = Math.max(longest, System.nanoTime() - before);
            try {
                if (hold > 0) {
                    Thread.sleep(hold);
                }
            } finally {
                lock.unlock();
            }
            if (think > 0) {
                Thread.sleep(think);
            }
        }
        return "turns\t" + grants + "\t" + longest / 1_000_000;
    }
}
