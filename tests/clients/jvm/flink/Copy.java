import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import java.time.Duration;

/**
 * A job in a Flink cluster inside this JVM that copies a topic into another exactly once. It continues from the newest
 * checkpoint.
 *
 * Copy BOOTSTRAP DIRECTORY NAMING
 *
 * NAMING is the strategy for the transactional ids of the sink. The job is cancelled when the standard input ends.
 */
public final class Copy {
    private static Optional<Path> newestCheckpoint(Path directory) throws IOException {
        if (!Files.exists(directory)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(directory)) {
            return files.filter(file -> file.getFileName().toString().equals("_metadata"))
                    .max(Comparator.comparing(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static Configuration configuration(Path directory) throws IOException {
        Configuration configuration = new Configuration();
        configuration.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(200));
        configuration.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        configuration.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, directory.toUri().toString());
        configuration.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, Integer.MAX_VALUE);
        configuration.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(200));
        Optional<Path> newest = newestCheckpoint(directory);
        newest.ifPresent(path -> configuration.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
        System.out.println("{\"restored\": " + newest.isPresent() + "}");
        return configuration;
    }

    private static KafkaSource<String> source(String bootstrap) {
        return KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics("in")
                .setGroupId("copy")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("reconnect.backoff.max.ms", "100")
                .build();
    }

    private static KafkaSink<String> sink(String bootstrap, TransactionNamingStrategy naming) {
        return KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("copy")
                .setTransactionNamingStrategy(naming)
                // The sink of a restored job commits the transactions of its checkpoint, which must still exist.
                .setProperty("transaction.timeout.ms", "600000")
                .setProperty("reconnect.backoff.max.ms", "100")
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic("out")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
    }

    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration(Path.of(args[1])));
        environment.setParallelism(2);
        environment
                .fromSource(source(args[0]), WatermarkStrategy.noWatermarks(), "in")
                .map(value -> "<" + value + ">")
                .sinkTo(sink(args[0], TransactionNamingStrategy.valueOf(args[2])));
        JobClient job = environment.executeAsync("copy");
        while (System.in.read() >= 0) {}
        job.cancel().get();
        System.exit(0);
    }
}
