import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.config.Config;

/**
 * Readers or writers of Redisson's RReadWriteLock, on one master: {@code ReadWrite KIND URL}.
 * {@code bench/README.md} describes the protocol.
 */
public final class ReadWrite {
    private static final long WAIT = 10;

    public static void main(String[] arguments) throws Exception {
        boolean writes = arguments[0].equals("writer");
        var config = new Config();
        config.useSingleServer().setAddress(arguments[1]);
        var both = Redisson.create(config).getReadWriteLock("read by many");
        RLock lock = writes ? both.writeLock() : both.readLock();
        Requests.serve(request -> {
            long hold = Requests.nanos(request, "hold");
            return Requests.turns(request, end -> loop(lock, writes, hold, end));
        });
    }

    private static List<String> loop(RLock lock, boolean writes, long hold, long end)
            throws InterruptedException {
        var turns = new ArrayList<String>();
        while (System.nanoTime() < end) {
            if (writes) {
                TimeUnit.NANOSECONDS.sleep(about(hold * 5));
            }
            long began = System.nanoTime();
            // The watchdog renews the lock, as quorlock does.
            if (!lock.tryLock(WAIT, TimeUnit.SECONDS)) {
                turns.add("[" + began + ", null, null]");
                continue;
            }
            long granted = System.nanoTime();
            TimeUnit.NANOSECONDS.sleep(writes ? 1_000_000 : about(hold));
            turns.add("[" + began + ", " + granted + ", " + System.nanoTime() + "]");
            lock.unlock();
        }
        return turns;
    }

    /** Returns a time between half and one and a half of the mean. */
    private static long about(long mean) {
        return mean / 2 + ThreadLocalRandom.current().nextLong(mean);
    }
}
