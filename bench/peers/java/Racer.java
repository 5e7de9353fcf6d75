import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Acquires and releases locks of Redisson or Curator as the benchmark asks. Arguments: the library, and the server's
 * address. Commands and answers are one text each, with fields separated by tabs. Times are in nanoseconds of the clock
 * that all processes of a host share.
 */
public final class Racer {
    private interface Mutex {
        void acquire() throws Exception;

        void release() throws Exception;
    }

    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] arguments) throws Exception {
        Function<String, Mutex> locks =
                arguments[0].equals("redisson") ? redisson(arguments[1]) : curator(arguments[1]);
        Map<String, Mutex> held = new HashMap<>();
        OUT.println("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String command; (command = commands.readLine()) != null; ) {
            String[] words = command.split("\t");
            switch (words[0]) {
                case "acquire":
                    Mutex mutex = held.computeIfAbsent(words[1], locks);
                    mutex.acquire();
                    OUT.println(System.nanoTime());
                    break;
                case "release":
                    long before = System.nanoTime();
                    held.get(words[1]).release();
                    OUT.println(before);
                    break;
                default: // pairs: names' prefix, threads, milliseconds
                    OUT.println(pairs(locks, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3])));
            }
        }
        System.exit(0);
    }

    /** Each thread acquires and releases a name of its own. How many times all of them did, and the process's CPU time. */
    private static String pairs(Function<String, Mutex> locks, String prefix, int threads, long milliseconds)
            throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        long cpu = cpu(), end = System.nanoTime() + milliseconds * 1_000_000;
        List<Future<Long>> running = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            Mutex mutex = locks.apply(prefix + thread);
            running.add(pool.submit(() -> {
                long done = 0;
                for (; System.nanoTime() < end; done++) {
                    mutex.acquire();
                    mutex.release();
                }
                return done;
            }));
        }
        long total = 0;
        for (Future<Long> each : running) {
            total += each.get();
        }
        pool.shutdown();
        return total + "\t" + (cpu() - cpu);
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                .getProcessCpuTime();
    }

    private static Function<String, Mutex> redisson(String address) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + address);
        RedissonClient client = Redisson.create(config);
        return name -> {
            RLock lock = client.getLock(name);
            return new Mutex() {
                public void acquire() {
                    lock.lock();
                }

                public void release() {
                    lock.unlock();
                }
            };
        };
    }

    private static Function<String, Mutex> curator(String address) {
        CuratorFramework client = CuratorFrameworkFactory.newClient(address, 30_000, 5_000, new RetryOneTime(100));
        client.start();
        return name -> {
            InterProcessMutex mutex = new InterProcessMutex(client, "/bench/" + name);
            return new Mutex() {
                public void acquire() throws Exception {
                    mutex.acquire();
                }

                public void release() throws Exception {
                    mutex.release();
                }
            };
        };
    }
}
