import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** The contender Redisson: {@code Peer NAME URL...}. README.md describes the protocol. */
public final class Peer {
    private static final long TTL = 10;
    /** What the names of semaphores begin with; then follows the limit. */
    private static final String PERMITS = "redisson-permits ";
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final String name;
    private final List<RedissonClient> clients;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private Peer(String name, List<String> urls) {
        this.name = name;
        this.clients = urls.stream().map(Peer::connect).toList();
    }

    public static void main(String[] arguments) throws Exception {
        var urls = Arrays.asList(arguments).subList(1, arguments.length);
        Requests.serve(new Peer(arguments[0], urls)::answer);
    }

    private static RedissonClient connect(String url) {
        var config = new Config();
        config.useSingleServer().setAddress(url);
        return Redisson.create(config);
    }

    /** Runs the cycles of each key in a thread. */
    private String answer(String request) throws InterruptedException {
        int cycles = (int) Requests.number(request, "cycles");
        var keys = IntStream.range(0, (int) Requests.number(request, "concurrency"));
        var all = keys.mapToObj(this::cycle).toList();
        long cpu = SYSTEM.getProcessCpuTime();
        long began = System.nanoTime();
        var loops = new ArrayList<Future<List<Double>>>();
        for (var cycle : all) {
            loops.add(threads.submit(() -> loop(cycle, cycles)));
        }
        var micros = new ArrayList<Double>();
        Throwable failure = null;
        for (var loop : loops) {
            try {
                micros.addAll(loop.get());
            } catch (ExecutionException error) {
                // Wait for the other loops: interrupting them would leave keys on the nodes.
                failure = error.getCause();
            }
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        double used = (SYSTEM.getProcessCpuTime() - cpu) / 1e9;
        if (failure != null) {
            return "{\"error\": \"" + failure.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}";
        }
        return "{\"micros\": " + micros + ", \"seconds\": " + seconds + ", \"cpu\": " + used + "}";
    }

    /** An acquire and a release. */
    private interface Cycle {
        void run() throws InterruptedException;
    }

    private Cycle cycle(int number) {
        if (name.startsWith(PERMITS)) {
            var semaphore = clients.get(0).getPermitExpirableSemaphore(name + "-" + number);
            semaphore.trySetPermits(Integer.parseInt(name.substring(PERMITS.length())));
            return () -> {
                String permit = semaphore.tryAcquire(TTL, TTL, TimeUnit.SECONDS);
                if (permit == null) {
                    throw new IllegalStateException("not acquired");
                }
                semaphore.release(permit);
            };
        }
        var lock = lock(number);
        return () -> {
            // With an explicit lease time, the watchdog does not renew the lock.
            if (!lock.tryLock(TTL, TTL, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not acquired");
            }
            lock.unlock();
        };
    }

    private RLock lock(int number) {
        switch (name) {
            case "redisson-read":
                return readWrite(number).readLock();
            case "redisson-write":
                return readWrite(number).writeLock();
            default:
        }
        var locks = clients.stream().map(client -> client.getLock(name + "-" + number));
        // RedissonRedLock is for several nodes; a single node needs a plain lock.
        return clients.size() == 1
                ? locks.findFirst().orElseThrow()
                : new RedissonRedLock(locks.toArray(RLock[]::new));
    }

    private RReadWriteLock readWrite(int number) {
        return clients.get(0).getReadWriteLock(name + "-" + number);
    }

    private static List<Double> loop(Cycle cycle, int cycles) throws InterruptedException {
        var micros = new ArrayList<Double>(cycles);
        for (int number = 0; number < cycles; number++) {
            long start = System.nanoTime();
            cycle.run();
            micros.add((System.nanoTime() - start) / 1e3);
        }
        return micros;
    }
}
