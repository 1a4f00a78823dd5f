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
import org.redisson.api.RLock;
import org.redisson.config.Config;

/**
 * Readers or writers of Redisson's RReadWriteLock, on one master: {@code ReadWrite KIND URL}.
 * {@code bench/shared/README.md} describes the protocol.
 */
public final class ReadWrite {
    private static final long WAIT = 10;

    public static void main(String[] arguments) throws Exception {
        boolean writes = arguments[0].equals("writer");
        var config = new Config();
        config.useSingleServer().setAddress(arguments[1]);
        var both = Redisson.create(config).getReadWriteLock("read by many");
        RLock lock = writes ? both.writeLock() : both.readLock();
        ExecutorService threads = Executors.newCachedThreadPool();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            double hold = field(line, "hold");
            long end = System.nanoTime() + (long) (field(line, "seconds") * 1e9);
            var loops = new ArrayList<Future<ArrayList<String>>>();
            for (int task = 0; task < (int) field(line, "tasks"); task++) {
                loops.add(threads.submit(() -> loop(lock, writes, hold, end)));
            }
            var turns = new ArrayList<String>();
            for (var loop : loops) {
                turns.addAll(loop.get());
            }
            System.out.println("{\"turns\": " + turns + "}");
        }
        Runtime.getRuntime().halt(0);
    }

    private static ArrayList<String> loop(RLock lock, boolean writes, double hold, long end)
            throws InterruptedException {
        var turns = new ArrayList<String>();
        while (System.nanoTime() < end) {
            if (writes) {
                sleep(about(hold * 5));
            }
            long began = System.nanoTime();
            // The watchdog renews the lock, as quorlock does.
            if (!lock.tryLock(WAIT, TimeUnit.SECONDS)) {
                turns.add("[" + began + ", null, null]");
                continue;
            }
            long granted = System.nanoTime();
            sleep(writes ? 0.001 : about(hold));
            turns.add("[" + began + ", " + granted + ", " + System.nanoTime() + "]");
            lock.unlock();
        }
        return turns;
    }

    /** Returns a time between half and one and a half of the mean. */
    private static double about(double mean) {
        return mean * (0.5 + ThreadLocalRandom.current().nextDouble());
    }

    private static void sleep(double seconds) throws InterruptedException {
        TimeUnit.NANOSECONDS.sleep((long) (seconds * 1e9));
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
