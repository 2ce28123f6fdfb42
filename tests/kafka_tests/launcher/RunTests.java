import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.opentest4j.TestAbortedException;

/**
 * Runs test classes with JUnit, and writes a line of JSON to standard output when a test begins and when it ends.
 *
 * <p>Arguments: the seconds after which a test is interrupted, then the test classes. A line of standard input is
 * {@code +class} or {@code +class.method} for a test to run, or {@code -}, a key of {@link LeftOut}, a tab and the reason.
 * What the tests print goes to the standard error output.
 */
public final class RunTests implements TestExecutionListener, PostDiscoveryFilter {
    private final Lines lines = new Lines();
    private long began;

    private RunTests() throws IOException {
        LeftOut.REASONS.putAll(lines.left);
    }

    public static void main(String[] arguments) throws Exception {
        RunTests tests = new RunTests();
        String prepared = System.getProperty("prepare");
        if (prepared != null) {
            Class.forName(prepared).getMethod("prepare").invoke(null);
        }
        for (String name : List.of(arguments).subList(1, arguments.length)) {
            LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
                .selectors(DiscoverySelectors.selectClass(name))
                .filters(tests)
                .configurationParameter("junit.jupiter.execution.timeout.testable.method.default", arguments[0] + " s")
                .build();
            LauncherFactory.create().execute(request, tests);
            tests.lines.write(Map.of("event", "class", "class", name));
        }
        System.exit(0);  // a failed test may have left clients, whose threads keep running
    }

    @Override
    public FilterResult apply(org.junit.platform.engine.TestDescriptor test) {
        return FilterResult.includedIf(name(test.getSource()).map(this::isChosen).orElse(true));
    }

    private boolean isChosen(String name) {
        String itsClass = name.substring(0, name.lastIndexOf('.')).replaceFirst("\\$.*", "");  // of a nested class, the outer one
        return lines.chosen.contains(itsClass) || lines.chosen.contains(name);
    }

    private static Optional<String> name(Optional<TestSource> source) {
        if (source.isPresent() && source.get() instanceof MethodSource method) {
            return Optional.of(method.getClassName() + "." + method.getMethodName());
        }
        return Optional.empty();
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        began = System.nanoTime();
        if (test.isTest()) {
            lines.write(line("began", test));
        }
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        Map<String, Object> line = line("ended", test);
        line.put("verdict", "skipped");
        line.put("reason", reason);
        lines.write(line);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (!test.isTest() && result.getThrowable().isEmpty()) {
            return;
        }
        Map<String, Object> line = line("ended", test);
        line.put("verdict", switch (result.getStatus()) {
            case SUCCESSFUL -> "passed";
            case ABORTED -> "skipped";
            case FAILED -> result.getThrowable().map(RunTests::isAborted).orElse(false) ? "skipped" : "failed";
        });
        line.put("ms", (System.nanoTime() - began) / 1_000_000);
        result.getThrowable().ifPresent(error -> line.put("reason", described(error)));
        lines.write(line);
    }

    /** Whether a test was aborted inside of an assertion, which then has failed. */
    private static boolean isAborted(Throwable error) {
        return error instanceof TestAbortedException || error.getCause() != null && isAborted(error.getCause());
    }

    private static Map<String, Object> line(String event, TestIdentifier test) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("test", name(test.getSource()).orElse(test.getLegacyReportingName()));
        line.put("display", test.getDisplayName());
        return line;
    }

    private static String described(Throwable error) {
        return Lines.described(error, name -> !name.startsWith("org.junit.") && !name.startsWith("java."));
    }
}
