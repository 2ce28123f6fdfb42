import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * The consume-process-produce loop, until it is killed. Arguments: bootstrap, source, sink, and a step with a number at
 * which it says "here" and waits to be killed.
 */
public final class Worker {
    private static String fatalStep;
    private static int passages;

    private static void step(String name) throws InterruptedException {
        if (name.equals(fatalStep) && --passages == 0) {
            System.out.println("here");
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    public static void main(String[] args) throws Exception {
        fatalStep = args[3].split(":")[0];
        passages = Integer.parseInt(args[3].split(":")[1]);
        Properties common = new Properties();
        common.put("bootstrap.servers", args[0]);
        common.put("reconnect.backoff.ms", "20");
        common.put("reconnect.backoff.max.ms", "100");
        common.put("retry.backoff.ms", "20");
        Properties forProducer = new Properties();
        forProducer.putAll(common);
        forProducer.put("transactional.id", "loop");
        forProducer.put("max.block.ms", "20000");
        forProducer.put("linger.ms", "0");
        Properties forConsumer = new Properties();
        forConsumer.putAll(common);
        forConsumer.put("group.id", "loop");
        forConsumer.put("group.instance.id", "loop-1");
        forConsumer.put("enable.auto.commit", "false");
        forConsumer.put("auto.offset.reset", "earliest");
        forConsumer.put("isolation.level", "read_committed");
        forConsumer.put("max.poll.records", "5");
        KafkaProducer<String, String> producer =
                new KafkaProducer<>(forProducer, new StringSerializer(), new StringSerializer());
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(forConsumer, new StringDeserializer(), new StringDeserializer());
        producer.initTransactions();
        step("init");
        consumer.subscribe(Set.of(args[1]));
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            try {
                transact(producer, consumer, records, args[2]);
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                throw fenced;
            } catch (KafkaException failed) {
                System.err.println(failed);
                producer.abortTransaction();
                goBack(consumer);
            }
        }
    }

    private static void transact(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String sink) throws InterruptedException {
        step("poll");
        producer.beginTransaction();
        step("begin");
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(sink, record.partition(), record.key(), "<" + record.value() + ">"));
            positions.put(
                    new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.flush();
        step("send");
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        step("offsets");
        producer.commitTransaction();
        step("commit");
    }

    private static void goBack(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, offset) -> consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }
}
