import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;

/** What all programs share: requests on standard input, one per line, and their answers on standard output. */
final class Requests {
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private Requests() {}

    interface Answer {
        String to(String request) throws Exception;
    }

    /** Returns the turns of one task until {@code end}. */
    interface Task {
        List<String> run(long end) throws Exception;
    }

    static void serve(Answer answer) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            System.out.println(answer.to(line));
        }
        // Do not wait for clients that wait for a frozen node.
        Runtime.getRuntime().halt(0);
    }

    /** Runs the tasks of a request. Returns the answer with all their turns. */
    static String turns(String request, Task task) throws Exception {
        long end = System.nanoTime() + nanos(request, "seconds");
        var tasks = new ArrayList<Future<List<String>>>();
        for (int number = 0; number < (int) number(request, "tasks"); number++) {
            tasks.add(THREADS.submit(() -> task.run(end)));
        }
        var turns = new ArrayList<String>();
        for (var each : tasks) {
            turns.addAll(each.get());
        }
        return "{\"turns\": " + turns + "}";
    }

    static long nanos(String request, String field) {
        return (long) (number(request, field) * 1e9);
    }

    /** Returns a number in a request. The format is simple enough to do without a JSON parser. */
    static double number(String request, String field) {
        var found = Pattern.compile("\"" + field + "\":\\s*([\\d.]+)").matcher(request);
        if (!found.find()) {
            throw new IllegalArgumentException("no " + field + " in " + request);
        }
        return Double.parseDouble(found.group(1));
    }
}
