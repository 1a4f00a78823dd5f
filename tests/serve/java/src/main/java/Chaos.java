import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.json.JSONArray;
import org.json.JSONObject;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;

/** The Java client of the chaos run. It does what {@code go/chaos/main.go} does. */
public final class Chaos {
    /** Milliseconds between two checks of a lease. */
    private static final int STEP = 20;

    /** Milliseconds before another connection. */
    private static final int BACKOFF = 20;

    private static final String DISCONNECTED = "DISCONNECTED";

    /** The codes of errors, as the clients in other languages record them. */
    private static final Map<String, String> CODES = Map.of(
            "TIMEOUT", "TIMEOUT", "NOQUORUM", "NO_QUORUM", "LEASELOST", "LEASE_LOST", "CLOSED", "CLOSED");

    private static final AtomicLong ASKS = new AtomicLong();
    private static JSONObject settings;
    private static FileOutputStream history;
    private static volatile boolean isOver;

    private Chaos() {}

    public static void main(String[] arguments) throws Exception {
        settings = new JSONObject(arguments[0]);
        history = new FileOutputStream(settings.getString("history"), true);
        var threads = new ArrayList<Thread>();
        int loops = settings.getInt("loops");
        for (int number = 0; number < loops + settings.getInt("permit_loops"); number++) {
            boolean locks = number < loops;
            threads.add(new Thread(() -> run(locks)));
        }
        threads.forEach(Thread::start);
        System.in.read();
        isOver = true;
        for (var thread : threads) {
            thread.join();
        }
        record("closed", Map.of("at", System.nanoTime()));
        while (System.in.read() >= 0) {}
    }

    private static void run(boolean locks) {
        try (var loop = new Loop()) {
            while (!isOver) {
                loop.turn(locks);
                Thread.sleep(choose("pauses"));
            }
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    /** Appends an event with a single write, so a kill leaves no partial line. */
    private static void record(String event, Map<String, ?> entry) throws IOException {
        var line = new JSONObject(entry).put("event", event) + "\n";
        history.write(line.getBytes(StandardCharsets.UTF_8));
    }

    private static boolean happens(String setting) {
        return ThreadLocalRandom.current().nextDouble() < settings.getDouble(setting);
    }

    private static int choose(String setting) {
        var from = settings.getJSONArray(setting);
        return from.getInt(ThreadLocalRandom.current().nextInt(from.length()));
    }

    private static List<String> strings(JSONArray array) {
        return array.toList().stream().map(Object::toString).toList();
    }

    private static final class Lease {
        private final String token = "%016x".formatted(ThreadLocalRandom.current().nextLong());
        private final String id;
        private final long fence;
        private final List<String> resources;
        private final List<String> shared;
        /** Whether the connection has ended. */
        private boolean isOver;

        private Lease(String id, long fence, List<String> resources, List<String> shared) {
            this.id = id;
            this.fence = fence;
            this.resources = resources;
            this.shared = shared;
        }
    }

    /** The reply to a request, or the code of the error. */
    private record Answer(Object reply, String code) {
        private boolean isGood() {
            return code == null;
        }

        private boolean isDisconnected() {
            return DISCONNECTED.equals(code);
        }
    }

    private static final class Loop implements AutoCloseable {
        private final OutputStream requests;
        private final BufferedReader answers;
        /** The connection to the daemon; null if there is none. */
        private Jedis daemon;

        private Loop() throws IOException {
            var register = SocketChannel.open(StandardProtocolFamily.UNIX);
            register.connect(UnixDomainSocketAddress.of(settings.getString("register")));
            requests = Channels.newOutputStream(register);
            answers = new BufferedReader(new InputStreamReader(Channels.newInputStream(register)));
        }

        @Override
        public void close() {
            if (daemon != null) {
                daemon.close();
                daemon = null;
            }
        }

        /** Sends a request to the daemon. Gives up after {@code limit} milliseconds, unless it is 0. */
        private Answer ask(int limit, String command, String... words) throws InterruptedException {
            try {
                if (daemon == null) {
                    daemon = Driver.connect(settings.getString("socket"));
                }
                daemon.getConnection().setSoTimeout(limit);
                return new Answer(daemon.sendCommand(command::getBytes, words), null);
            } catch (JedisDataException error) {
                var code = CODES.get(error.getMessage().split(" ")[0]);
                if (code == null) {
                    throw error;
                }
                return new Answer(null, code);
            } catch (JedisConnectionException error) {
                close();
                Thread.sleep(BACKOFF);
                return new Answer(null, DISCONNECTED);
            }
        }

        /** Sends a request to the register, and returns its answer. */
        private JSONObject tell(Map<String, ?> request) throws IOException {
            var line = new JSONObject(request).put("client", settings.getString("name")) + "\n";
            requests.write(line.getBytes(StandardCharsets.UTF_8));
            return new JSONObject(answers.readLine());
        }

        /** Checks the lease, and records how long it is still valid. */
        private void look(String event, Lease lease, Map<String, ?> entry) throws Exception {
            if (lease.isOver) {
                return;
            }
            long at = System.nanoTime();
            var answer = ask(0, "CHECK", lease.id);
            long left = answer.isGood() ? (Long) answer.reply * 1_000_000 : 0;
            var all = new LinkedHashMap<String, Object>(entry);
            all.putAll(Map.of("token", lease.token, "at", at, "left", left));
            record(event, all);
            if (answer.isDisconnected()) {
                end(lease);
            }
        }

        private void end(Lease lease) throws IOException {
            lease.isOver = true;
            record("disconnected", Map.of("token", lease.token, "at", System.nanoTime()));
        }

        /** Acquires a lock or permits, holds them for a while, and releases or detaches them. */
        private void turn(boolean locks) throws Exception {
            var lease = acquire(locks);
            if (lease == null) {
                return;
            }
            if (!locks) {
                think(lease);
            } else {
                write(lease);
                if (happens("detaching") && detach(lease)) {
                    return;
                }
            }
            if (lease.isOver) {
                return;
            }
            record("release", Map.of("token", lease.token, "at", System.nanoTime()));
            var answer = ask(0, "UNLOCK", lease.id);
            if (answer.isGood()) {
                boolean ok = answer.reply.equals(1L);
                record("released", Map.of("token", lease.token, "at", System.nanoTime(), "ok", ok));
            }
        }

        private Lease acquire(boolean locks) throws Exception {
            List<String> resources = List.of(settings.getString("pool"));
            List<String> shared = List.of();
            String text = null;
            Object giver = JSONObject.NULL;
            if (locks) {
                resources = new ArrayList<>(strings(settings.getJSONArray("resources")));
                Collections.shuffle(resources);
                resources = resources.subList(0, happens("pairs") ? 2 : 1);
                if (happens("sharing")) {
                    shared = resources;
                }
                var offer = happens("adopting") ? tell(Map.of("op", "take")) : new JSONObject();
                if (offer.optBoolean("ok")) {
                    text = offer.getString("text");
                    giver = offer.getString("giver");
                    resources = strings(offer.getJSONArray("resources"));
                    shared = strings(offer.getJSONArray("shared"));
                }
            }
            var words = new ArrayList<String>();
            int permits = 0;
            if (text != null) {
                words.add(text);
            } else {
                words.addAll(List.of("RESOURCES", "" + resources.size()));
                words.addAll(resources);
                if (!shared.isEmpty()) {
                    words.addAll(List.of("MODE", "shared"));
                }
                if (!locks) {
                    permits = choose("permits");
                    words.addAll(List.of("LIMIT", "" + settings.getInt("limit"), "PERMITS", "" + permits));
                }
            }
            var waits = settings.getJSONArray("waits");
            var wait = waits.get(ThreadLocalRandom.current().nextInt(waits.length()));
            words.addAll(List.of("WAIT", wait == JSONObject.NULL ? "FOREVER" : wait.toString()));
            int limit = happens("cancelled") ? 1 + choose("cancels") : 0;
            long asked = System.nanoTime();
            var about = new LinkedHashMap<String, Object>();
            about.putAll(Map.of("ask", ASKS.incrementAndGet(), "asked", asked, "giver", giver, "owner", "daemon"));
            about.putAll(Map.of("resources", resources, "wait", wait, "at", asked));
            record("ask", about);
            var answer = ask(limit, text == null ? "LOCK" : "ADOPT", words.toArray(String[]::new));
            long now = System.nanoTime();
            long given = asked + limit * 1_000_000L;
            if (answer.isDisconnected() && limit > 0 && now >= given) {
                about.put("at", given);
                record("cancel", about);
                about.put("at", now);
                record("cancelled", about);
                return null;
            }
            if (!answer.isGood()) {
                about.putAll(Map.of("at", now, "code", answer.code));
                record("error", about);
                return null;
            }
            var items = (List<?>) answer.reply;
            if (permits > 0) {
                var slots = (List<?>) items.get(3);
                resources = slots.stream().map(slot -> settings.getString("pool") + " " + slot).toList();
                about.put("permits", permits);
            }
            var lease = new Lease(new String((byte[]) items.get(0)), (Long) items.get(1), resources, shared);
            var fences = resources.stream().collect(Collectors.toMap(name -> name, name -> lease.fence));
            about.putAll(Map.of("resources", resources, "fences", fences, "shared", shared));
            about.put("extended", true);
            look("granted", lease, about);
            return lease;
        }

        private JSONObject send(Lease lease, String op, String resource, int value) throws Exception {
            var mode = lease.shared.contains(resource) ? "shared" : "exclusive";
            var request = Map.of("op", op, "resource", resource, "fence", lease.fence, "mode", mode, "value", value);
            var answer = tell(request);
            if (!answer.getBoolean("ok")) {
                look("refused", lease, Map.of("resource", resource));
            }
            return answer;
        }

        /** Reads the register, pauses, and writes the values plus one, except those of resources in shared mode. */
        private void write(Lease lease) throws Exception {
            var values = new LinkedHashMap<String, Integer>();
            for (var resource : lease.resources) {
                var answer = send(lease, "read", resource, 0);
                if (answer.getBoolean("ok")) {
                    values.put(resource, answer.getInt("value"));
                }
            }
            if (values.keySet().equals(Set.copyOf(lease.resources))) {
                think(lease);
            }
            for (var value : values.entrySet()) {
                if (!lease.shared.contains(value.getKey())) {
                    send(lease, "write", value.getKey(), value.getValue() + 1);
                }
            }
        }

        /** Pauses, and checks the lease now and then. */
        private void think(Lease lease) throws Exception {
            for (int left = choose("thinks"); left > 0; left -= STEP) {
                Thread.sleep(Math.min(left, STEP));
                look("look", lease, Map.of());
            }
        }

        /** Leaves the lease at the register for another client. Returns whether it did, or the connection has ended. */
        private boolean detach(Lease lease) throws Exception {
            if (lease.isOver) {
                return true;
            }
            int within = choose("withins");
            record("detach", Map.of("token", lease.token, "at", System.nanoTime(), "within", within));
            var answer = ask(0, "DETACH", lease.id, "WITHIN", "" + within);
            if (answer.isDisconnected()) {
                end(lease);
                return true;
            }
            long now = System.nanoTime();
            record("detached", Map.of("token", lease.token, "at", now, "ok", answer.isGood()));
            if (answer.isGood()) {
                var text = new String((byte[]) answer.reply);
                var offer = new LinkedHashMap<String, Object>(Map.of("op", "offer", "text", text));
                offer.putAll(Map.of("giver", lease.token, "resources", lease.resources, "shared", lease.shared));
                tell(offer);
            }
            return answer.isGood();
        }
    }
}
