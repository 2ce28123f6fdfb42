import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.scalatest.Args;
import org.scalatest.DynaTags;
import org.scalatest.Filter;
import org.scalatest.Reporter;
import org.scalatest.Suite;
import org.scalatest.events.Event;
import org.scalatest.events.SuiteAborted;
import org.scalatest.events.TestCanceled;
import org.scalatest.events.TestFailed;
import org.scalatest.events.TestIgnored;
import org.scalatest.events.TestPending;
import org.scalatest.events.TestStarting;
import org.scalatest.events.TestSucceeded;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Runs suites with ScalaTest, and writes a line of JSON to standard output when a test begins and when it ends.
 *
 * <p>Arguments: the classes of the suites. A line of standard input is {@code +suite} or {@code +suite.test} for tests
 * to run, or {@code -suite.test}, a tab and the reason for a test to leave out.
 * What the tests print goes to the standard error output.
 */
public final class RunSuites implements Reporter {
    private static final scala.collection.immutable.Set<String> CHOSEN = set("chosen");
    private static final scala.collection.immutable.Set<String> NONE = set();

    private final Lines lines = new Lines();
    private String suite = "";
    private long began;

    private RunSuites() throws IOException {
    }

    public static void main(String[] names) throws Exception {
        RunSuites suites = new RunSuites();
        for (String name : names) {
            suites.run(name);
        }
        System.exit(0);  // a failed test may have left clients, whose threads keep running
    }

    private void run(String name) throws Exception {
        suite = name;
        began = System.nanoTime();
        try {
            Suite tests = (Suite) Class.forName(name).getDeclaredConstructor().newInstance();
            var tags = CollectionConverters.asJava(tests.testNames()).stream()
                .filter(this::isChosen).collect(Collectors.toMap(test -> test, test -> CHOSEN));
            DynaTags dynamic = new DynaTags(map(Map.of()), map(Map.of(name, map(tags))));
            Filter filter = new Filter(Option.apply(CHOSEN), NONE, true, dynamic);
            tests.run(Option.empty(), new Args(
                this, Args.apply$default$2(), filter, Args.apply$default$4(), Args.apply$default$5(), Args.apply$default$6(),
                Args.apply$default$7(), Args.apply$default$8(), Args.apply$default$9(), Args.apply$default$10()
            ));
        } catch (Throwable error) {  // of beforeAll or afterAll
            ended("", "failed", described(error));
        }
        lines.write(Map.of("event", "class", "class", name));
    }

    private boolean isChosen(String test) {
        String name = suite + "." + test;
        boolean isChosen = lines.chosen.contains(suite) || lines.chosen.contains(name);
        if (isChosen && lines.left.containsKey(name)) {
            ended(test, "skipped", lines.left.get(name));
        }
        return isChosen && !lines.left.containsKey(name);
    }

    @SafeVarargs
    private static <T> scala.collection.immutable.Set<T> set(T... elements) {
        return CollectionConverters.asScala(Set.of(elements)).toSet();
    }

    private static <K, V> scala.collection.immutable.Map<K, V> map(Map<K, V> map) {
        return scala.collection.immutable.Map.from(CollectionConverters.asScala(map));
    }

    @Override
    public synchronized void apply(Event event) {
        if (event instanceof TestStarting each) {
            began = System.nanoTime();
            lines.write(line("began", each.testName()));
        } else if (event instanceof TestSucceeded each) {
            ended(each.testName(), "passed", "");
        } else if (event instanceof TestFailed each) {
            ended(each.testName(), "failed", each.throwable().isEmpty() ? each.message() : described(each.throwable().get()));
        } else if (event instanceof TestCanceled each) {
            ended(each.testName(), "skipped", each.message());
        } else if (event instanceof TestIgnored each) {
            ended(each.testName(), "skipped", "Spark ignores it");
        } else if (event instanceof TestPending each) {
            ended(each.testName(), "skipped", "Spark has not written it");
        } else if (event instanceof SuiteAborted each) {
            ended("", "failed", each.message());
        }
    }

    private void ended(String test, String verdict, String reason) {
        Map<String, Object> line = line("ended", test);
        line.put("verdict", verdict);
        line.put("ms", (System.nanoTime() - began) / 1_000_000);
        line.put("reason", reason);
        lines.write(line);
    }

    private Map<String, Object> line(String event, String test) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", event);
        line.put("test", test.isEmpty() ? suite : suite + "." + test);
        line.put("display", "");
        return line;
    }

    private static String described(Throwable error) {
        return Lines.described(error, name -> name.contains("Kafka") || name.contains("kafka"));
    }
}
