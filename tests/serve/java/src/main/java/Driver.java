import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.json.JSONObject;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisException;

/** The driver of Jedis: {@code Driver SOCKET}. ../../../../clients.py describes the protocol. */
public final class Driver {
    private Driver() {}

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (var client = connect(arguments[0])) {
            for (String line; (line = lines.readLine()) != null; ) {
                System.out.write((ask(client, line.split("\t", -1)) + "\n").getBytes(StandardCharsets.UTF_8));
                System.out.flush();
            }
        }
    }

    private static String ask(Jedis client, String[] words) {
        try {
            var rest = Arrays.copyOfRange(words, 1, words.length);
            return JSONObject.valueToString(text(client.sendCommand(() -> words[0].getBytes(), rest)));
        } catch (JedisException error) {
            return new JSONObject(Map.of("error", error.getMessage())).toString();
        }
    }

    /** Returns a connection to the daemon, without a time limit for replies: LOCK waits. */
    static Jedis connect(String path) {
        var client = new Jedis(() -> {
            try {
                return AFUNIXSocket.connectTo(AFUNIXSocketAddress.of(new File(path)));
            } catch (java.io.IOException error) {
                throw new JedisConnectionException(error);
            }
        });
        client.getConnection().setTimeoutInfinite();
        return client;
    }

    /** Returns a reply with strings instead of bytes. */
    private static Object text(Object reply) {
        if (reply instanceof List<?> items) {
            return items.stream().map(Driver::text).toList();
        }
        return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : reply;
    }
}
