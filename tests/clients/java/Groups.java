import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.UnknownMemberIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The orders of GroupContract in tests/clients/contract.py with Kafka's own client, one order per run. */
public final class Groups {
    private static final Duration POLL = Duration.ofMillis(50);
    private static volatile boolean over;
    private static String fatalStep = "never";
    private static int passages;
    private static int rounds;
    private static int committed;

    private static void say(String name, String json) {
        System.out.println("{\"" + name + "\": " + json + "}");
    }

    private static void step(String name) throws InterruptedException {
        if (name.equals(fatalStep) && --passages == 0) {
            say("here", '"' + name + '"');
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    public static void main(String[] args) throws Exception {
        Thread listener = new Thread(() -> {
            try {
                System.in.read();
            } catch (IOException closed) {
                // A closed input counts as a line.
            }
            over = true;
        });
        listener.setDaemon(true);
        listener.start();
        if (args[0].equals("group-member")) {
            member(args[1], args[2], args[3], args[4], args[5]);
        } else {
            loop(args[1], args[2], args[3], args[4], args[5], args[6], args[7]);
        }
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("reconnect.backoff.ms", "20");
        properties.put("reconnect.backoff.max.ms", "100");
        properties.put("retry.backoff.ms", "20");
        properties.put("retry.backoff.max.ms", "100");
        properties.put("enable.metrics.push", "false");
        return properties;
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String protocol, String group, String instance) {
        Properties properties = properties(bootstrap);
        properties.put("group.id", group);
        properties.put("group.protocol", protocol);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        properties.put("max.poll.records", "5");
        properties.put("fetch.max.wait.ms", "50");
        if (protocol.equals("classic")) {
            properties.put("session.timeout.ms", instance.equals("-") ? "1500" : "45000");
            properties.put("heartbeat.interval.ms", "100");
        }
        if (!instance.equals("-")) {
            properties.put("group.instance.id", instance);
        }
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }

    /** Says the assignment whenever it has changed. */
    private static final class Teller implements ConsumerRebalanceListener {
        private final Set<TopicPartition> owned = new java.util.HashSet<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            if (owned.addAll(partitions)) {
                tell();
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (owned.removeAll(partitions)) {
                tell();
            }
        }

        private void tell() {
            Set<String> names = new TreeSet<>();
            owned.forEach(each -> names.add('"' + each.toString() + '"'));
            say("assigned", names.toString());
        }
    }

    private static void member(String bootstrap, String protocol, String group, String subscription, String instance) {
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, protocol, group, instance)) {
            if (subscription.startsWith("^")) {
                consumer.subscribe(new SubscriptionPattern(subscription), new Teller());
            } else {
                consumer.subscribe(List.of(subscription), new Teller());
            }
            while (!over) {
                consumer.poll(POLL);
            }
        }
    }

    private static void loop(
            String bootstrap, String protocol, String source, String sink, String group, String id, String fatal)
            throws InterruptedException {
        if (!fatal.equals("never")) {
            fatalStep = fatal.split(":")[0];
            passages = Integer.parseInt(fatal.split(":")[1]);
        }
        Properties forProducer = properties(bootstrap);
        forProducer.put("transactional.id", id);
        forProducer.put("linger.ms", "0");
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(forProducer, new StringSerializer(), new StringSerializer());
                KafkaConsumer<String, String> consumer = consumer(bootstrap, protocol, group, "-")) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            boolean isBehind = false;
            while (!over) {
                ConsumerRecords<String, String> records;
                try {
                    if (isBehind) {
                        goBack(consumer);
                        isBehind = false;
                    }
                    records = consumer.poll(POLL);
                } catch (IllegalStateException unassigned) {
                    // The consumer of the new protocol can lose a partition while it collects records: the records that it
                    // had collected from other partitions are lost (like KAFKA-16227, in another place).
                    System.err.println("polls again: " + unassigned);
                    isBehind = true;
                    continue;
                } catch (UnknownMemberIdException fenced) {
                    // OffsetFetch v9 and later has the member id and epoch (KIP-848). A removed member sends it before it
                    // has joined again with its next heartbeat, and the client raises the error.
                    System.err.println("asks again: " + fenced);
                    isBehind = true;
                    continue;
                }
                if (!records.isEmpty()) {
                    isBehind = !process(producer, consumer, records, sink);
                }
            }
        }
    }

    /** False if the transaction was aborted: the records must be read again. */
    private static boolean process(
            KafkaProducer<String, String> producer,
            KafkaConsumer<String, String> consumer,
            ConsumerRecords<String, String> records,
            String sink) throws InterruptedException {
        step("poll");
        rounds++;
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(sink, "done " + record.value()));
                TopicPartition partition = new TopicPartition(record.topic(), record.partition());
                positions.put(partition, new OffsetAndMetadata(record.offset() + 1));
            }
            producer.flush();
            step("send");
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            if (rounds % 3 != 0) {
                producer.commitTransaction();
                step("commit");
                committed += records.count();
                say("committed", String.valueOf(committed));
                return true;
            }
        } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
            throw fenced;
        } catch (KafkaException failed) {
            System.err.println("aborting: " + failed);
        }
        producer.abortTransaction();
        return false;
    }

    /** Seeks to the group's committed offsets, as a partition may have been assigned to another member meanwhile. */
    private static void goBack(KafkaConsumer<String, String> consumer) {
        List<TopicPartition> mine = new ArrayList<>(consumer.assignment());
        consumer.committed(Set.copyOf(mine)).forEach(
                (partition, offset) -> consumer.seek(partition, offset == null ? 0 : offset.offset()));
    }
}
