package org.apache.spark.sql.kafka010;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import odradek.Control;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupsResult;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.requests.DeleteRecordsRequest;
import org.apache.kafka.common.serialization.StringSerializer;
import scala.Function1;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** The helper of Spark's Kafka suites, with a broker of Odradek in the place of an embedded Kafka. */
public class KafkaTestUtils {
    private static final String SEGMENT_BYTES = "log.segment.bytes";
    private static final int SEGMENT_BYTES_MIN = 1 << 20;

    private final java.util.Map<String, Object> withBrokerProps;
    private Control control;
    private Admin admin;
    private String brokerAddress;
    private java.util.Map<String, String> topicConfigs = java.util.Map.of();

    public KafkaTestUtils(Map<String, Object> withBrokerProps, boolean secure) {
        if (secure) {
            throw new IllegalStateException("needs Kerberos");
        }
        this.withBrokerProps = CollectionConverters.asJava(withBrokerProps);
    }

    public String brokerAddress() {
        return brokerAddress;
    }

    public void setup() {
        Properties properties = brokerConfiguration();
        // Kafka 4 has a minimum for segments, which only a configuration of topics for tests can undercut (KIP-1030).
        if (Integer.parseInt(properties.getProperty(SEGMENT_BYTES, "1073741824")) < SEGMENT_BYTES_MIN) {
            topicConfigs = java.util.Map.of("internal.segment.bytes", (String) properties.remove(SEGMENT_BYTES));
        }
        control = new Control();
        control.ask(java.util.Map.of(
            "do", "configure",
            "directory", newDirectory(),
            "cluster_id", Uuid.randomUuid().toString(),
            "nodes", List.of(java.util.Map.of("id", 0, "settings", properties))
        ));
        int port = control.ask(java.util.Map.of("do", "start")).get("ports").get("0").get("PLAINTEXT").asInt();
        brokerAddress = "127.0.0.1:" + port;
        admin = Admin.create(java.util.Map.of("bootstrap.servers", brokerAddress));
    }

    public void teardown() {
        if (admin != null) {
            admin.close();
        }
        if (control != null) {
            control.close();
        }
    }

    /** The settings of the broker. Some suites override this method. */
    public Properties brokerConfiguration() {
        Properties properties = new Properties();
        properties.putAll(java.util.Map.of(
            "listeners", "PLAINTEXT://127.0.0.1:0",
            // The default of Kafka 3 (KIP-1030).
            "log.message.timestamp.after.max.ms", Long.toString(Long.MAX_VALUE),
            "group.initial.rebalance.delay.ms", "10",
            "offsets.topic.num.partitions", "1",
            "offsets.topic.replication.factor", "1",
            "transaction.state.log.replication.factor", "1",
            "transaction.state.log.min.isr", "1"
        ));
        withBrokerProps.forEach((name, value) -> properties.put(name, value.toString()));
        return properties;
    }

    private static String newDirectory() {
        try {
            return Files.createTempDirectory("broker").toString();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    // ---- topics

    public void createTopic(String topic) {
        createTopic(topic, 1, false);
    }

    public boolean createTopic$default$3() {
        return false;
    }

    public void createTopic(String topic, int partitions, boolean overwrite) {
        NewTopic newTopic = new NewTopic(topic, partitions, (short) 1).configs(topicConfigs);
        try {
            get(admin.createTopics(List.of(newTopic)).all());
        } catch (TopicExistsException error) {
            if (overwrite) {
                deleteTopic(topic);
                createTopic(topic, partitions, false);
            }
        }
        waitForPartitions(topic, partitions);
    }

    public void addPartitions(String topic, int partitions) {
        get(admin.createPartitions(java.util.Map.of(topic, NewPartitions.increaseTo(partitions))).all());
        waitForPartitions(topic, partitions);
    }

    public void deleteTopic(String topic) {
        get(admin.deleteTopics(List.of(topic)).all());
        while (partitions(List.of(topic)).size() > 0) {
            Thread.onSpinWait();
        }
    }

    private void waitForPartitions(String topic, int partitions) {
        while (partitions(List.of(topic)).size() < partitions) {
            Thread.onSpinWait();
        }
    }

    public Seq<Tuple2<String, Object>> getAllTopicsAndPartitionSize() {
        Set<String> topics = get(admin.listTopics(new ListTopicsOptions().listInternal(true)).names());
        return CollectionConverters.asScala(get(admin.describeTopics(topics).allTopicNames()).values().stream()
            .map(each -> new Tuple2<String, Object>(each.name(), each.partitions().size())).toList()).toSeq();
    }

    /** Deletes what retention deletes with the settings of the suite that calls this method: all records. */
    public void cleanupLogs() {
        RecordsToDelete all = RecordsToDelete.beforeOffset(DeleteRecordsRequest.HIGH_WATERMARK);
        get(admin.deleteRecords(
            partitions(get(admin.listTopics().names())).stream().collect(Collectors.toMap(each -> each, each -> all))
        ).all());
    }

    private Set<TopicPartition> partitions(Collection<String> topics) {
        try {
            Collection<TopicDescription> described = get(admin.describeTopics(topics).allTopicNames()).values();
            return described.stream().flatMap(topic -> topic.partitions().stream().filter(each -> each.leader() != null)
                .map(each -> new TopicPartition(topic.name(), each.partition()))).collect(Collectors.toSet());
        } catch (UnknownTopicOrPartitionException error) {
            return Set.of();
        }
    }

    // ---- records

    public Seq<Tuple2<String, RecordMetadata>> sendMessages(String topic, String[] messages) {
        return sendMessages(topic, messages, Option.empty());
    }

    public Seq<Tuple2<String, RecordMetadata>> sendMessages(String topic, String[] messages, Option<Object> partition) {
        Integer number = partition.isEmpty() ? null : (Integer) partition.get();
        return send(Arrays.stream(messages).map(each -> new ProducerRecord<String, String>(topic, number, null, each)).toList());
    }

    public Seq<Tuple2<String, RecordMetadata>> sendMessage(ProducerRecord<String, String> message) {
        return send(List.of(message));
    }

    public Seq<Tuple2<String, RecordMetadata>> sendMessages(ProducerRecord<String, String>[] messages) {
        return send(List.of(messages));
    }

    public Seq<Tuple2<String, RecordMetadata>> sendMessages(Seq<ProducerRecord<String, String>> messages) {
        return send(CollectionConverters.asJava(messages));
    }

    /** Sends one record after the other, so that each has a batch of its own. */
    private Seq<Tuple2<String, RecordMetadata>> send(List<ProducerRecord<String, String>> records) {
        try (KafkaProducer<String, String> producer = producer(java.util.Map.of())) {
            return CollectionConverters.asScala(
                records.stream().map(each -> new Tuple2<>(each.value(), get(producer.send(each)))).toList()
            ).toSeq();
        }
    }

    public void withTransactionalProducer(Function1<KafkaProducer<String, String>, BoxedUnit> use) {
        try (KafkaProducer<String, String> producer = producer(java.util.Map.of("transactional.id", UUID.randomUUID().toString()))) {
            producer.initTransactions();
            use.apply(producer);
        }
    }

    @SuppressWarnings("deprecation")
    private KafkaProducer<String, String> producer(java.util.Map<String, Object> configs) {
        java.util.Map<String, Object> all = new HashMap<>(configs);
        all.put("bootstrap.servers", brokerAddress);
        // Spark's suites expect the sticky partitioner of Kafka 2.4 (KIP-480).
        all.put("partitioner.class", org.apache.kafka.clients.producer.internals.DefaultPartitioner.class.getName());
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    // ---- offsets and groups

    public Map<TopicPartition, Object> getEarliestOffsets(scala.collection.immutable.Set<String> topics) {
        return offsets(CollectionConverters.asJava(topics), OffsetSpec.earliest());
    }

    public Map<TopicPartition, Object> getLatestOffsets(scala.collection.immutable.Set<String> topics) {
        return offsets(CollectionConverters.asJava(topics), OffsetSpec.latest());
    }

    public void waitUntilOffsetAppears(TopicPartition partition, long offset) {
        Set<String> topic = Set.of(partition.topic());
        while (offsets(topic, OffsetSpec.latest()).get(partition).forall(latest -> (Long) latest < offset)) {
            Thread.onSpinWait();
        }
    }

    private Map<TopicPartition, Object> offsets(Set<String> topics, OffsetSpec spec) {
        java.util.Map<TopicPartition, OffsetSpec> asked =
            partitions(topics).stream().collect(Collectors.toMap(each -> each, each -> spec));
        java.util.Map<TopicPartition, Object> found = new HashMap<>();
        get(admin.listOffsets(asked).all()).forEach((partition, result) -> found.put(partition, result.offset()));
        return Map.from(CollectionConverters.asScala(found));
    }

    public ListConsumerGroupsResult listConsumerGroups() {
        return admin.listConsumerGroups();
    }

    private static <T> T get(java.util.concurrent.Future<T> future) {
        try {
            return future.get();
        } catch (ExecutionException error) {
            throw (RuntimeException) error.getCause();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
