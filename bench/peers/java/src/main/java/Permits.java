import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.retry.RetryOneTime;
import org.redisson.Redisson;
import org.redisson.config.Config;

/**
 * Holders of one semaphore that come and go: {@code Permits LIBRARY LIMIT URL...}. The library is {@code redisson}
 * on one master, or {@code curator} on servers of ZooKeeper. {@code bench/README.md} describes the protocol.
 */
public final class Permits {
    private static final String NAME = "held by many";
    private static final long TTL = 10;
    private static final long WAIT = 10;

    /** Waits for a permit. Returns what releases it, or null if there was none within {@code WAIT}. */
    private interface Semaphore {
        Release acquire() throws Exception;
    }

    private interface Release {
        void run() throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        int limit = Integer.parseInt(arguments[1]);
        var urls = Arrays.asList(arguments).subList(2, arguments.length);
        boolean isCurator = arguments[0].equals("curator");
        var semaphore = isCurator ? curator(limit, urls) : redisson(limit, urls.get(0));
        Requests.serve(request -> Requests.turns(request, end -> loop(semaphore, request, end)));
    }

    private static Semaphore redisson(int limit, String url) {
        var config = new Config();
        config.useSingleServer().setAddress(url);
        var semaphore = Redisson.create(config).getPermitExpirableSemaphore(NAME);
        semaphore.trySetPermits(limit);
        return () -> {
            String permit = semaphore.tryAcquire(WAIT, TTL, TimeUnit.SECONDS);
            return permit == null ? null : () -> semaphore.release(permit);
        };
    }

    private static Semaphore curator(int limit, List<String> servers) throws InterruptedException {
        var retry = new RetryOneTime(100);
        var client = CuratorFrameworkFactory.newClient(String.join(",", servers), retry);
        client.start();
        client.blockUntilConnected();
        var semaphore = new InterProcessSemaphoreV2(client, "/" + NAME, limit);
        return () -> {
            var lease = semaphore.acquire(WAIT, TimeUnit.SECONDS);
            return lease == null ? null : () -> semaphore.returnLease(lease);
        };
    }

    private static List<String> loop(Semaphore semaphore, String request, long end)
            throws Exception {
        long hold = Requests.nanos(request, "hold");
        long spread = Requests.nanos(request, "spread");
        var turns = new ArrayList<String>();
        // The tasks do not all begin at once.
        TimeUnit.NANOSECONDS.sleep(ThreadLocalRandom.current().nextLong(hold));
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            Release release = semaphore.acquire();
            if (release == null) {
                turns.add("[" + began + ", null, null, null]");
                continue;
            }
            long granted = System.nanoTime();
            long difference = ThreadLocalRandom.current().nextLong(-spread, spread + 1);
            TimeUnit.NANOSECONDS.sleep(hold + difference);
            long ended = System.nanoTime();
            release.run();
            long released = System.nanoTime();
            turns.add("[" + began + ", " + granted + ", " + ended + ", " + released + "]");
        }
        return turns;
    }
}
