import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.redisson.Redisson;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.config.Config;

/**
 * Holders of Redisson's RPermitExpirableSemaphore that come and go, on one master: {@code Permits LIMIT URL}.
 * {@code bench/semaphores/README.md} describes the protocol.
 */
public final class Permits {
    private static final long TTL = 10;
    private static final long WAIT = 10;

    public static void main(String[] arguments) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress(arguments[1]);
        var semaphore = Redisson.create(config).getPermitExpirableSemaphore("held by many");
        semaphore.trySetPermits(Integer.parseInt(arguments[0]));
        ExecutorService threads = Executors.newCachedThreadPool();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String request = line;
            long end = System.nanoTime() + nanos(request, "seconds");
            var loops = new ArrayList<Future<ArrayList<String>>>();
            for (int task = 0; task < (int) field(request, "tasks"); task++) {
                loops.add(threads.submit(() -> loop(semaphore, request, end)));
            }
            var turns = new ArrayList<String>();
            for (var loop : loops) {
                turns.addAll(loop.get());
            }
            System.out.println("{\"turns\": " + turns + "}");
        }
        Runtime.getRuntime().halt(0);
    }

    private static ArrayList<String> loop(
            RPermitExpirableSemaphore semaphore, String request, long end)
            throws InterruptedException {
        long hold = nanos(request, "hold");
        long spread = nanos(request, "spread");
        var turns = new ArrayList<String>();
        while (System.nanoTime() < end) {
            long began = System.nanoTime();
            String permit = semaphore.tryAcquire(WAIT, TTL, TimeUnit.SECONDS);
            if (permit == null) {
                turns.add("[" + began + ", null, null, null]");
                continue;
            }
            long granted = System.nanoTime();
            long chance = ThreadLocalRandom.current().nextLong(-spread, spread + 1);
            TimeUnit.NANOSECONDS.sleep(hold + chance);
            long ended = System.nanoTime();
            semaphore.release(permit);
            long released = System.nanoTime();
            turns.add("[" + began + ", " + granted + ", " + ended + ", " + released + "]");
        }
        return turns;
    }

    private static long nanos(String request, String field) {
        return (long) (field(request, field) * 1e9);
    }

    /** Returns a number in a request. The format is simple enough to do without a JSON parser. */
    private static double field(String request, String field) {
        var found = Pattern.compile("\"" + field + "\":\\s*([\\d.]+)").matcher(request);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + field + " in " + request);
        }
        return Double.parseDouble(found.group(1));
    }
}
