import java.io.IOException;
import java.io.Reader;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Copies records in transactions; stores its offsets in a file. */
public final class ReportedEarly {
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;

    private final Path file;
    private final Properties positions = new Properties();

    private ReportedEarly(String bootstrap, String instance, String data) throws IOException {
        file = Path.of(data, "positions.properties");
        if (Files.exists(file)) {
            try (Reader reader = Files.newBufferedReader(file)) {
                positions.load(reader);
            }
        }
        producer = new KafkaProducer<>(producing(bootstrap, instance), new StringSerializer(), new StringSerializer());
        consumer = new KafkaConsumer<>(consuming(bootstrap), new StringDeserializer(), new StringDeserializer());
    }

    private static Properties quick(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        settings.put("request.timeout.ms", "10000");
        return settings;
    }

    private static Properties producing(String bootstrap, String instance) {
        Properties settings = quick(bootstrap);
        settings.put("transactional.id", "copier-" + instance);
        settings.put("delivery.timeout.ms", "20000");
        return settings;
    }

    private static Properties consuming(String bootstrap) {
        Properties settings = quick(bootstrap);
        settings.put("group.id", "copier");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        return settings;
    }

    public static void main(String[] args) throws IOException {
        new ReportedEarly(args[0], args[1], args[2]).run();
    }

    private void run() throws IOException {
        producer.initTransactions();
        consumer.subscribe(List.of("in"), new Seeking());
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            try {
                transact(records);
            } catch (ProducerFencedException
                    | InvalidProducerEpochException
                    | OutOfOrderSequenceException
                    | AuthorizationException fatal) {
                throw fatal;
            } catch (KafkaException failed) {
                System.err.println("aborted, and read again: " + failed);
                producer.abortTransaction();
                rewind(consumer.assignment());
            }
        }
    }

    private void transact(ConsumerRecords<String, String> records) throws IOException {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> copied = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>("out", record.key(), record.value().toUpperCase()));
            copied.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        save(copied);
        producer.commitTransaction();
        consumer.commitSync(copied);
    }

    private void save(Map<TopicPartition, OffsetAndMetadata> copied) throws IOException {
        copied.forEach((partition, next) ->
                positions.setProperty(String.valueOf(partition.partition()), String.valueOf(next.offset())));
        Path written = file.resolveSibling("positions.new");
        try (Writer writer = Files.newBufferedWriter(written)) {
            positions.store(writer, null);
        }
        Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
    }

    private void rewind(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            String saved = positions.getProperty(String.valueOf(partition.partition()), "0");
            consumer.seek(partition, Long.parseLong(saved));
        }
    }

    private final class Seeking implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rewind(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }
}
