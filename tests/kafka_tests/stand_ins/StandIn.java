package odradek;

import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.withSettings;

import java.util.Map;
import java.util.function.Function;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;
import org.opentest4j.TestAbortedException;

/** Creates objects of Kafka's classes that have only some members. A test that calls another member is skipped. */
final class StandIn {
    /** Members of kafka.utils.Logging and Object, which do nothing here. */
    private static final java.util.Set<String> IGNORED =
        java.util.Set.of("trace", "debug", "info", "warn", "error", "fatal", "logIdent", "logIdent_$eq", "close");

    private StandIn() {
    }

    static <T> T of(Class<T> type, Map<String, Function<Object[], Object>> members) {
        return mock(type, withSettings().stubOnly().defaultAnswer(answer(type, members)));
    }

    static Answer<Object> answer(Class<?> type, Map<String, Function<Object[], Object>> members) {
        return invocation -> answer(type, members, invocation);
    }

    private static Object answer(
        Class<?> type, Map<String, Function<Object[], Object>> members, InvocationOnMock invocation
    ) throws Throwable {
        String name = invocation.getMethod().getName();
        Function<Object[], Object> member = members.get(name);
        if (member != null) {
            return member.apply(invocation.getArguments());
        }
        if (name.equals("toString")) {
            return "stand-in for " + type.getSimpleName();
        }
        if (IGNORED.contains(name)) {
            return null;
        }
        if (name.contains("$default$")) {
            return invocation.callRealMethod();
        }
        throw new TestAbortedException("looks into a JVM broker: " + type.getSimpleName() + "." + name);
    }
}
