import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs Kafka's own Java clients and console tools for tests: one JSON object per line on standard input, one response per
 * line on standard output. Many tests share one JVM in this way.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Object> clients = new HashMap<>();
    private static final Diverted out = new Diverted();
    private static final Diverted err = new Diverted();
    private static int count = 0;

    /** A stream whose target can be changed: Scala's println uses the first System.out of the process forever. */
    private static final class Diverted extends OutputStream {
        private volatile OutputStream target = OutputStream.nullOutputStream();

        @Override
        public void write(int value) throws IOException {
            target.write(value);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            target.write(bytes, from, length);
        }
    }

    /** Thrown in place of the end of the process when a console tool calls exit. */
    private static final class ToolEnded extends Error {
        private final int status;

        ToolEnded(int status, String message) {
            super(message);
            this.status = status;
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(out, true));
        PrintStream log = System.err;
        err.target = log;
        System.setErr(new PrintStream(err, true));
        String line;
        while ((line = orders.readLine()) != null) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", JSON.valueToTree(obey(JSON.readTree(line))));
            } catch (Throwable thrown) {
                ArrayNode names = answer.putArray("error");
                for (Throwable each = thrown; each != null; each = each.getCause()) {
                    names.add(each.getClass().getSimpleName());
                }
                answer.put("message", String.valueOf(thrown));
                thrown.printStackTrace(log);
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object obey(JsonNode order) throws Exception {
        String what = order.get("do").asText();
        switch (what) {
            case "producer":
                return keep(new KafkaProducer<>(properties(order), new StringSerializer(), new StringSerializer()));
            case "consumer":
                return keep(new KafkaConsumer<>(properties(order), new StringDeserializer(), new StringDeserializer()));
            case "share-member":
                return keep(new ShareMember(properties(order), order.get("topic").asText()));
            case "tool":
                return tool(order);
            case "property":
                System.setProperty(order.get("name").asText(), order.get("value").asText());
                return true;
            default:
                Object client = clients.get(order.get("on").asText());
                if (client instanceof KafkaProducer) {
                    return produce(what, order, asProducer(client));
                }
                if (client instanceof ShareMember) {
                    return ((ShareMember) client).obey(what, order);
                }
                return consume(what, order, asConsumer(client));
        }
    }

    @SuppressWarnings("unchecked")
    private static KafkaProducer<String, String> asProducer(Object client) {
        return (KafkaProducer<String, String>) client;
    }

    @SuppressWarnings("unchecked")
    private static KafkaConsumer<String, String> asConsumer(Object client) {
        return (KafkaConsumer<String, String>) client;
    }

    private static String keep(Object client) {
        String name = "client-" + ++count;
        clients.put(name, client);
        return name;
    }

    private static Properties properties(JsonNode order) {
        Properties properties = new Properties();
        order.get("config").fields().forEachRemaining(e -> properties.put(e.getKey(), e.getValue().asText()));
        return properties;
    }

    private static Object produce(String what, JsonNode order, KafkaProducer<String, String> producer) throws Exception {
        switch (what) {
            case "init":
                producer.initTransactions();
                return true;
            case "begin":
                producer.beginTransaction();
                return true;
            case "send":
                return send(order, producer);
            case "offsets":
                producer.sendOffsetsToTransaction(offsets(order.get("offsets")), member(order));
                return true;
            case "commit":
                producer.commitTransaction();
                return true;
            case "abort":
                producer.abortTransaction();
                return true;
            case "close":
                producer.close(Duration.ofMillis(order.path("timeout_ms").asLong(5000)));
                clients.remove(order.get("on").asText());
                return true;
            default:
                throw new IllegalArgumentException(what);
        }
    }

    private static ConsumerGroupMetadata member(JsonNode order) {
        if (order.hasNonNull("consumer")) {
            return asConsumer(clients.get(order.get("consumer").asText())).groupMetadata();
        }
        return new ConsumerGroupMetadata(order.get("group").asText());
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode list) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode each : list) {
            offsets.put(partition(each), new OffsetAndMetadata(each.get(2).asLong()));
        }
        return offsets;
    }

    private static TopicPartition partition(JsonNode list) {
        return new TopicPartition(list.get(0).asText(), list.get(1).asInt());
    }

    private static Object send(JsonNode order, KafkaProducer<String, String> producer) throws Exception {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonNode each : order.get("records")) {
            Integer partition = each.get(1).isNull() ? null : each.get(1).asInt();
            String key = each.get(2).isNull() ? null : each.get(2).asText();
            futures.add(producer.send(new ProducerRecord<>(each.get(0).asText(), partition, key, each.get(3).asText())));
        }
        List<List<Object>> places = new ArrayList<>();
        for (Future<RecordMetadata> future : futures) {
            try {
                RecordMetadata place = future.get();
                places.add(List.of(place.partition(), place.offset()));
            } catch (ExecutionException failed) {
                throw (Exception) failed.getCause();
            }
        }
        return places;
    }

    private static Object consume(String what, JsonNode order, KafkaConsumer<String, String> consumer) {
        switch (what) {
            case "subscribe":
                List<String> topics = new ArrayList<>();
                order.get("topics").forEach(each -> topics.add(each.asText()));
                consumer.subscribe(topics);
                return true;
            case "assign":
                Set<TopicPartition> partitions = new HashSet<>();
                order.get("partitions").forEach(each -> partitions.add(partition(each)));
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
                return true;
            case "poll":
                List<Object> records = new ArrayList<>();
                for (ConsumerRecord<String, String> each :
                        consumer.poll(Duration.ofMillis(order.get("timeout_ms").asLong()))) {
                    List<Object> record = new ArrayList<>();
                    record.add(each.topic());
                    record.add(each.partition());
                    record.add(each.offset());
                    record.add(each.key());
                    record.add(each.value());
                    records.add(record);
                }
                return records;
            case "assignment":
                List<Object> assigned = new ArrayList<>();
                consumer.assignment().forEach(each -> assigned.add(List.of(each.topic(), each.partition())));
                return assigned;
            case "position":
                return consumer.position(partition(order.get("partition")));
            case "commit":
                consumer.commitSync(offsets(order.get("offsets")));
                return true;
            case "committed":
                TopicPartition asked = partition(order.get("partition"));
                OffsetAndMetadata found = consumer.committed(Set.of(asked)).get(asked);
                return found == null ? -1 : found.offset();
            case "close":
                consumer.close();
                clients.remove(order.get("on").asText());
                return true;
            default:
                throw new IllegalArgumentException(what);
        }
    }

    /** Runs the main method of one of Kafka's tools, as its shell script would. */
    private static Object tool(JsonNode order) throws Exception {
        List<Runnable> hooks = new ArrayList<>();
        int[] status = {-1};
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        InvocationHandler end = (procedure, method, given) -> {
            int code = (int) given[0];
            if (status[0] < 0) {
                status[0] = code;
            }
            // The process would have ended: drop the output of code that catches this exception.
            divert(OutputStream.nullOutputStream(), OutputStream.nullOutputStream());
            throw new ToolEnded(code, (String) given[1]);
        };
        setInExit("setExitProcedure", end);
        setInExit("setHaltProcedure", end);
        setInExit("setShutdownHookAdder", (adder, method, given) -> {
            hooks.add((Runnable) given[1]);
            return null;
        });
        List<String> args = new ArrayList<>();
        order.get("args").forEach(each -> args.add(each.asText()));
        OutputStream log = err.target;
        Set<Thread> others = Set.copyOf(hooksOfTheProcess().keySet());
        divert(said, complained);
        System.setIn(new ByteArrayInputStream(order.path("input").asText("").getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(order.get("main").asText())
                    .getMethod("main", String[].class)
                    .invoke(null, (Object) args.toArray(new String[0]));
        } catch (InvocationTargetException thrown) {
            if (status[0] < 0) {
                thrown.getCause().printStackTrace();
                status[0] = 1;
            }
        } finally {
            divert(said, complained);
            hooks.forEach(Runnable::run);
            runHooksOfTheProcess(others);
            divert(OutputStream.nullOutputStream(), log);
        }
        return Map.of("status", Math.max(status[0], 0), "out", said.toString(), "err", complained.toString());
    }

    /** Calls a setter of Kafka's Exit, by which the tools end. Kafka 4.4 moved the class. */
    private static void setInExit(String setter, InvocationHandler handler) throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        } catch (ClassNotFoundException before44) {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        }
        for (Method method : exit.getMethods()) {
            if (method.getName().equals(setter)) {
                Class<?> type = method.getParameterTypes()[0];
                method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
            }
        }
    }

    private static void divert(OutputStream newOut, OutputStream newErr) {
        System.out.flush();
        System.err.flush();
        out.target = newOut;
        err.target = newErr;
    }

    /** Shutdown hooks of the process. Some tools register hooks there instead of in Kafka's Exit. */
    @SuppressWarnings("unchecked")
    private static Map<Thread, Thread> hooksOfTheProcess() throws ReflectiveOperationException {
        Field hooks = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        hooks.setAccessible(true);
        return (Map<Thread, Thread>) hooks.get(null);
    }

    private static void runHooksOfTheProcess(Set<Thread> except) throws Exception {
        for (Thread hook : List.copyOf(hooksOfTheProcess().keySet())) {
            if (!except.contains(hook)) {
                Runtime.getRuntime().removeShutdownHook(hook);
                hook.start();
                hook.join();
            }
        }
    }
}
