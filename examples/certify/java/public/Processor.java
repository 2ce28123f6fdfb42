import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.NoOffsetForPartitionException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic until nothing is left of it, with the settings, the rewinding and the retries of Apache Kafka's own
 * example (ExactlyOnceMessageProcessor in its module "examples", at 4.3).
 */
public final class Processor {
    private static final int MAX_RETRIES = 5;
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private int retries;
    private boolean closed;

    private Processor(String bootstrap, String instance) {
        Properties producing = new Properties();
        producing.put("bootstrap.servers", bootstrap);
        producing.put("client.id", "processor-producer");
        producing.put("enable.idempotence", "true");
        producing.put("transactional.id", "tid-processor-" + instance);
        producing.put("transaction.timeout.ms", "10000");
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        Properties consuming = new Properties();
        consuming.put("bootstrap.servers", bootstrap);
        consuming.put("client.id", "processor-consumer");
        consuming.put("group.id", "processor-group");
        consuming.put("group.instance.id", "giid-processor-" + instance);
        consuming.put("enable.auto.commit", "false");
        consuming.put("isolation.level", "read_committed");
        consuming.put("auto.offset.reset", "earliest");
        consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] args) {
        Processor processor = new Processor(args[0], args[1]);
        try {
            processor.run();
        } finally {
            processor.producer.close();
            processor.consumer.close();
        }
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(Set.of("in"));
        long remaining = Long.MAX_VALUE;
        while (!closed && remaining > 0) {
            try {
                process(consumer.poll(Duration.ofMillis(200)));
            } catch (AuthorizationException
                    | UnsupportedVersionException
                    | ProducerFencedException
                    | FencedInstanceIdException
                    | OutOfOrderSequenceException
                    | SerializationException fatal) {
                System.err.println("fatal: " + fatal);
                closed = true;
            } catch (OffsetOutOfRangeException | NoOffsetForPartitionException absent) {
                consumer.seekToEnd(List.of());
                consumer.commitSync();
                retries = 0;
            } catch (KafkaException failed) {
                System.err.println("aborted: " + failed);
                producer.abortTransaction();
                tryAgain();
            }
            remaining = remaining();
        }
    }

    private void process(ConsumerRecords<String, String> records) {
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>("out", record.key(), record.value() + "-ok"));
        }
        producer.sendOffsetsToTransaction(positions(), consumer.groupMetadata());
        producer.commitTransaction();
        retries = 0;
    }

    private Map<TopicPartition, OffsetAndMetadata> positions() {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (TopicPartition each : consumer.assignment()) {
            positions.put(each, new OffsetAndMetadata(consumer.position(each), null));
        }
        return positions;
    }

    private void tryAgain() {
        if (retries == MAX_RETRIES) {
            consumer.commitSync();
            retries = 0;
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition each : consumer.assignment()) {
            if (committed.get(each) == null) {
                consumer.seekToBeginning(List.of(each));
            } else {
                consumer.seek(each, committed.get(each).offset());
            }
        }
        retries++;
    }

    private long remaining() {
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        if (ends.isEmpty()) {
            return Long.MAX_VALUE;
        }
        return ends.entrySet().stream()
                .mapToLong(end -> end.getValue() - consumer.position(end.getKey()))
                .sum();
    }
}
