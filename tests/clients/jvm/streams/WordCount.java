import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;

/**
 * Counts the words of a topic of lines: repartitioned by word, in a state store with a changelog. Each new count is
 * written to a topic.
 *
 * WordCount BOOTSTRAP DIRECTORY GUARANTEE...
 *
 * For each processing guarantee it runs one application, which writes to the topic "counts-GUARANTEE". It ends
 * when its standard input ends.
 */
public final class WordCount {
    private static synchronized void say(String name, String value) {
        System.out.println("{\"" + name + "\": \"" + value + "\"}");
    }

    private static Topology topology(String guarantee) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream("lines", Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Materialized.as("store"))
                .toStream()
                .mapValues(String::valueOf)
                .to("counts-" + guarantee, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    private static Properties settings(String bootstrap, String directory, String guarantee) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "app-" + guarantee);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(directory, guarantee).toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        // Without a cache each new count is written.
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 500);
        settings.put(StreamsConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 100);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG), 5_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 2_000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 200);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        return settings;
    }

    /** Number of changelog records from which a store was restored. */
    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long last, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            say("restored", String.valueOf(total));
        }
    }

    private static KafkaStreams application(String bootstrap, String directory, String guarantee) {
        KafkaStreams streams = new KafkaStreams(topology(guarantee), settings(bootstrap, directory, guarantee));
        streams.setStateListener((now, before) -> say(guarantee, now.name()));
        streams.setGlobalStateRestoreListener(new Restored());
        streams.setUncaughtExceptionHandler(thrown -> {
            say("replaced", String.valueOf(thrown).replace('"', '\'').replace('\n', ' '));
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.start();
        return streams;
    }

    public static void main(String[] args) throws Exception {
        List<KafkaStreams> applications = new ArrayList<>();
        for (String guarantee : Arrays.asList(args).subList(2, args.length)) {
            applications.add(application(args[0], args[1], guarantee));
        }
        while (System.in.read() >= 0) {}
        applications.forEach(each -> each.close(Duration.ofSeconds(60)));
    }
}
