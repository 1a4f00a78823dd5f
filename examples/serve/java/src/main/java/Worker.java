import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/**
 * Waits for the payment of an order, and records it. One worker at a time handles an order, whatever its language.
 *
 * <pre>
 * QUORLOCK_SOCKET=/run/quorlock/quorlock.sock SHOP_URL=redis://127.0.0.1:6379 \
 *     java -cp 'target/classes:target/dependency/*' Worker 42
 * </pre>
 */
public final class Worker {
    public static void main(String[] arguments) throws IOException {
        var order = arguments[0];
        var write = Files.readString(Path.of("../write.lua"));
        // A lease belongs to a connection: with a pool, hold one Jedis from LOCK to UNLOCK.
        try (var locks = connect(System.getenv("QUORLOCK_SOCKET"));
                var shop = new Jedis(System.getenv("SHOP_URL"))) {
            List<?> lease;
            try {
                lease = (List<?>) ask(locks, "LOCK", "orders:" + order, "WAIT", "1000");
            } catch (JedisDataException error) {
                if (!error.getMessage().startsWith("TIMEOUT ")) throw error;
                System.out.printf("order %s is being handled%n", order);
                return;
            }
            var id = new String((byte[]) lease.get(0));
            var fence = lease.get(1).toString();
            System.out.printf("order %s locked, fence %s%n", order, fence);
            shop.blpop(0, "payments:" + order);
            ask(locks, "CHECK", id); // throws if the lease was lost
            if (!shop.eval(write, List.of("order:" + order), List.of(fence, "paid")).equals(1L)) {
                throw new IllegalStateException("a later worker has written");
            }
            System.out.printf("order %s paid%n", order);
            ask(locks, "UNLOCK", id);
        }
    }

    private static Object ask(Jedis locks, String command, String... words) {
        return locks.sendCommand(command::getBytes, words);
    }

    private static Jedis connect(String path) {
        return new Jedis(() -> {
            try {
                return AFUNIXSocket.connectTo(AFUNIXSocketAddress.of(new File(path)));
            } catch (IOException error) {
                throw new JedisConnectionException(error);
            }
        });
    }
}
