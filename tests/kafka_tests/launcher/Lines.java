import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Predicate;

/** The lines that the runner and a launcher exchange: tests on standard input, events as JSON on standard output. */
final class Lines {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int REASON_CHARACTERS_MAX = 3000;

    /** Tests to run, from lines {@code +test}. */
    final Set<String> chosen = new HashSet<>();
    /** Reasons of tests to leave out, from lines {@code -test}, a tab and the reason. */
    final Map<String, String> left = new LinkedHashMap<>();
    private final PrintStream out = System.out;

    /**
     * Reads standard input up to an empty line. What the tests print from then on goes to the standard error output.
     *
     * <p>The end of standard input is the end of the runner, however it has ended, and ends this JVM.
     */
    Lines() throws IOException {
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null && !line.isEmpty(); line = in.readLine()) {
            if (line.startsWith("+")) {
                chosen.add(line.substring(1));
            } else {
                String[] parts = line.substring(1).split("\t");
                left.put(parts[0], parts[1]);
            }
        }
        Thread watch = new Thread(() -> haltAtEnd(in), "end of the runner");
        watch.setDaemon(true);
        watch.start();
    }

    private static void haltAtEnd(BufferedReader in) {
        try {
            in.read();
        } catch (IOException error) {
            // the pipe is broken
        }
        Runtime.getRuntime().halt(1);
    }

    void write(Map<String, Object> event) {
        try {
            out.println(JSON.writeValueAsString(event));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** An error and its causes, with the frames of classes whose names are {@code shown}. */
    static String described(Throwable error, Predicate<String> shown) {
        StringBuilder text = new StringBuilder();
        for (Throwable each = error; each != null && text.length() < REASON_CHARACTERS_MAX; each = each.getCause()) {
            text.append(text.isEmpty() ? "" : "caused by ").append(each).append("\n");
            for (StackTraceElement frame : each.getStackTrace()) {
                if (shown.test(frame.getClassName())) {
                    text.append("  ").append(frame).append("\n");
                }
            }
        }
        return text.substring(0, Math.min(text.length(), REASON_CHARACTERS_MAX)).strip();
    }
}
