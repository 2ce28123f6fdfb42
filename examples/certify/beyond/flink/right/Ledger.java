import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.Optional;
import java.util.stream.Stream;
import javax.sql.XADataSource;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.jdbc.JdbcExactlyOnceOptions;
import org.apache.flink.connector.jdbc.JdbcExecutionOptions;
import org.apache.flink.connector.jdbc.core.datastream.sink.JdbcSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.postgresql.xa.PGXADataSource;

/** Adds a row for each record, with a cluster inside this process; a start continues from the latest checkpoint: Ledger DATA. */
public final class Ledger {
    private Ledger() {}

    public static void main(String[] args) throws Exception {
        Configuration settings = settings(Path.of(args[0], "checkpoints"));
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        flink.setParallelism(1);
        flink.fromSource(source(), WatermarkStrategy.noWatermarks(), "in").sinkTo(sink());
        flink.execute("ledger");
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
        latest(checkpoints)
                .ifPresent(path -> settings.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
        return settings;
    }

    private static Optional<Path> latest(Path checkpoints) throws IOException {
        if (!Files.exists(checkpoints)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparing(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    private static KafkaSource<String> source() {
        return KafkaSource.<String>builder()
                .setBootstrapServers(System.getenv("KAFKA_BOOTSTRAP_SERVERS"))
                .setTopics("in")
                .setGroupId("ledger")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .setProperty("reconnect.backoff.max.ms", "100")
                .build();
    }

    private static JdbcSink<String> sink() {
        return JdbcSink.<String>builder()
                .withQueryStatement("INSERT INTO journal (id, amount) VALUES (?, ?)", (row, value) -> {
                    row.setString(1, value);
                    row.setLong(2, Long.parseLong(value.substring(1)));
                })
                .withExecutionOptions(JdbcExecutionOptions.builder().withMaxRetries(0).build())
                .buildExactlyOnce(
                        JdbcExactlyOnceOptions.builder().withTransactionPerConnection(true).build(), Ledger::database);
    }

    private static XADataSource database() {
        PGXADataSource database = new PGXADataSource();
        database.setServerNames(new String[] {System.getenv("ODRADEK_POSTGRES_HOST")});
        database.setPortNumbers(new int[] {Integer.parseInt(System.getenv("ODRADEK_POSTGRES_PORT"))});
        database.setDatabaseName(System.getenv("ODRADEK_POSTGRES_DATABASE"));
        database.setUser(System.getenv("ODRADEK_POSTGRES_USER"));
        database.setPassword(System.getenv("ODRADEK_POSTGRES_PASSWORD"));
        return database;
    }
}
