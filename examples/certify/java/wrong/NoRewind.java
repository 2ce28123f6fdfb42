import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
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

/** Copies records in transactions together with the offsets. */
public final class NoRewind {
    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;

    private NoRewind(String bootstrap, String instance) {
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

    public static void main(String[] args) {
        new NoRewind(args[0], args[1]).run();
    }

    private void run() {
        producer.initTransactions();
        consumer.subscribe(List.of("in"));
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
                System.err.println("aborted: " + failed);
                producer.abortTransaction();
            }
        }
    }

    private void transact(ConsumerRecords<String, String> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>("out", record.key(), record.value().toUpperCase()));
            positions.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        producer.commitTransaction();
    }
}
