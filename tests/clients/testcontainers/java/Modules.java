import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.kafka.ConfluentKafkaContainer;
import org.testcontainers.kafka.KafkaContainer;
import org.testcontainers.utility.DockerImageName;

/** Runs the unmodified Kafka modules of Testcontainers: each argument NAME=IMAGE starts a container, and prints what was read. */
public final class Modules {
    private static final Duration POLL = Duration.ofSeconds(1);
    private static final int POLLS_MAX = 60;

    private static final Map<String, Function<DockerImageName, GenericContainer<?>>> MODULES = Map.of(
        "kafka.KafkaContainer",
        image -> new KafkaContainer(image.asCompatibleSubstituteFor("apache/kafka")),
        "kafka.ConfluentKafkaContainer",
        image -> new ConfluentKafkaContainer(image.asCompatibleSubstituteFor("confluentinc/cp-kafka")),
        "containers.KafkaContainer",
        image -> old(image),
        "containers.KafkaContainer.withKraft",
        image -> old(image).withKraft()
    );

    @SuppressWarnings("deprecation")
    private static org.testcontainers.containers.KafkaContainer old(DockerImageName image) {
        return new org.testcontainers.containers.KafkaContainer(
            image.asCompatibleSubstituteFor("confluentinc/cp-kafka")
        );
    }

    private static String bootstrap(GenericContainer<?> container) throws Exception {
        return (String) container.getClass().getMethod("getBootstrapServers").invoke(container);
    }

    private static Properties settings(String bootstrap, String... more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (int i = 0; i < more.length; i += 2) {
            settings.put(more[i], more[i + 1]);
        }
        return settings;
    }

    /** Aborts one transaction, commits another, and returns what a read_committed consumer reads. */
    private static List<String> transaction(String bootstrap) throws Exception {
        Properties of = settings(bootstrap, "transactional.id", "orders");
        try (var producer = new KafkaProducer<>(of, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (String value : List.of("lost", "paid")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("orders", value)).get();
                if (value.equals("paid")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        of = settings(
            bootstrap, "group.id", "test", "auto.offset.reset", "earliest", "isolation.level", "read_committed"
        );
        List<String> read = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(of, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            for (int polls = 0; polls < POLLS_MAX; polls++) {
                consumer.poll(POLL).forEach(record -> read.add('"' + record.value() + '"'));
                if (read.contains("\"paid\"")) {
                    break;
                }
            }
        }
        return read;
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] parts = argument.split("=");
            try (var container = MODULES.get(parts[0]).apply(DockerImageName.parse(parts[1]))) {
                container.start();
                System.out.printf(
                    "{\"module\": \"%s\", \"read\": %s}%n", parts[0], transaction(bootstrap(container))
                );
            }
        }
        System.exit(0);
    }
}
