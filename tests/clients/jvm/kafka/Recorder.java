import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;

/** Writes the outcome of each call of an AdminClient, and records which of its methods were called. */
final class Recorder {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final Set<String> called = new TreeSet<>();
    private final long settleMs;
    final Admin admin;

    Recorder(Properties settings, long settleMs) {
        this.settleMs = settleMs;
        Admin real = Admin.create(settings);
        admin = (Admin) Proxy.newProxyInstance(
                Recorder.class.getClassLoader(), new Class<?>[] {Admin.class}, (proxy, method, arguments) -> {
                    called.add(method.getName());
                    try {
                        return method.invoke(real, arguments);
                    } catch (InvocationTargetException thrown) {
                        throw thrown.getCause();
                    }
                });
    }

    /** Makes one call: writes its result, or the class of its exception, and waits until its changes are visible. */
    void call(String name, Callable<Object> call) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("call", name);
        try {
            Object returned = call.call();
            line.put("outcome", "ok");
            line.put("returned", returned == null ? "" : String.valueOf(returned));
        } catch (ExecutionException | CompletionException failed) {
            line.put("outcome", failed.getCause().getClass().getSimpleName());
        } catch (Exception thrown) {
            line.put("outcome", "thrown " + thrown.getClass().getSimpleName());
        }
        System.out.println(JSON.writeValueAsString(line));
        Thread.sleep(settleMs);
    }

    /** The methods of Admin that were not called. */
    Set<String> uncalled() {
        Set<String> names = new TreeSet<>();
        for (Method method : Admin.class.getMethods()) {
            if (!Modifier.isStatic(method.getModifiers())) {
                names.add(method.getName());
            }
        }
        names.removeAll(called);
        return names;
    }
}
