import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
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
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Copies records with Flink's KafkaSink and a cluster inside this process; a start continues from the latest checkpoint. */
public final class FlinkCopier {
    private FlinkCopier() {}

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0];
        Configuration settings = settings(Path.of(args[2], "checkpoints"));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(1);
        flink.fromSource(source(bootstrap), WatermarkStrategy.noWatermarks(), "in")
                .map(value -> value.toUpperCase())
                .sinkTo(sink(bootstrap));
        flink.execute("copier");
    }

    private static Configuration settings(Path checkpoints) throws IOException {
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(200));
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, "filesystem");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, checkpoints.toUri().toString());
        settings.set(
                CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, Integer.MAX_VALUE);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(100));
        newest(checkpoints)
                .ifPresent(path -> settings.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
        return settings;
    }

    private static Optional<Path> newest(Path checkpoints) throws IOException {
        if (!Files.exists(checkpoints)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparing(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static KafkaSource<String> source(String bootstrap) {
        return KafkaSource.<String>builder()
                .setBootstrapServers(bootstrap)
                .setTopics("in")
                .setGroupId("copier")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .setProperty("reconnect.backoff.max.ms", "100")
                .build();
    }

    private static KafkaSink<String> sink(String bootstrap) {
        return KafkaSink.<String>builder()
                .setBootstrapServers(bootstrap)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("copier")
                // Transactions of a checkpoint are committed after a restart, so they must not time out before it.
                .setProperty("transaction.timeout.ms", "600000")
                .setProperty("reconnect.backoff.max.ms", "100")
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic("out")
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
    }
}
