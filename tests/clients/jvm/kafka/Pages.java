import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.BytesDeserializer;
import org.apache.kafka.common.utils.Bytes;

/** The calls behind the pages of kafka-ui, as a user opens them one after the other. */
final class Pages {
    private final Recorder recorder;
    private final Admin admin;
    private final String bootstrap;

    Pages(Recorder recorder, String bootstrap) {
        this.recorder = recorder;
        this.admin = recorder.admin;
        this.bootstrap = bootstrap;
    }

    void all() throws Exception {
        cluster();
        brokers();
        topics();
        try (KafkaConsumer<Bytes, Bytes> consumer = consumer()) {
            messages(consumer);
        }
        groups();
        recorder.call("kafka-ui, ACLs", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        recorder.call("kafka-ui, quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
    }

    private void cluster() throws Exception {
        recorder.call("kafka-ui, dashboard: cluster", () -> {
            var found = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
            return found.nodes().get().size() + " " + found.controller().get().id() + " " + !found.clusterId().get().isEmpty()
                    + " " + new TreeSet<>(found.authorizedOperations().get());
        });
        recorder.call("kafka-ui, dashboard: version", () -> admin.describeFeatures()
                .featureMetadata()
                .get()
                .finalizedFeatures()
                .get("metadata.version"));
        recorder.call("kafka-ui, dashboard: whether topics may be deleted", () -> brokerConfig().stream()
                .filter(each -> each.name().equals("delete.topic.enable"))
                .map(ConfigEntry::value)
                .collect(Collectors.toList()));
        recorder.call("kafka-ui, dashboard: controller", () -> admin.describeMetadataQuorum()
                .quorumInfo()
                .get()
                .leaderId());
    }

    private Collection<ConfigEntry> brokerConfig() throws Exception {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        DescribeConfigsOptions full = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(broker), full).all().get().get(broker).entries();
    }

    private void brokers() throws Exception {
        recorder.call("kafka-ui, brokers: disks", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1)
                .values()
                .stream()
                .map(each -> each.error() == null && !each.replicaInfos().isEmpty())
                .collect(Collectors.toList()));
        recorder.call("kafka-ui, broker: settings without a description", () -> brokerConfig().stream()
                .filter(each -> each.documentation() == null)
                .map(ConfigEntry::name)
                .sorted()
                .collect(Collectors.toList()));
    }

    private Map<String, TopicDescription> described() throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        return admin.describeTopics(names).allTopicNames().get();
    }

    private static Map<TopicPartition, OffsetSpec> all(Map<String, TopicDescription> topics, OffsetSpec spec) {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        topics.values()
                .forEach(topic -> topic.partitions()
                        .forEach(each -> asked.put(new TopicPartition(topic.name(), each.partition()), spec)));
        return asked;
    }

    private void topics() throws Exception {
        recorder.call("kafka-ui, topics", () -> new TreeMap<>(described().values().stream()
                .filter(each -> !each.name().equals("__share_group_state"))
                .collect(Collectors.toMap(TopicDescription::name, each -> each.partitions().size()))));
        recorder.call("kafka-ui, topics: settings", () -> {
            List<ConfigResource> resources = described().keySet().stream()
                    .map(name -> new ConfigResource(ConfigResource.Type.TOPIC, name))
                    .collect(Collectors.toList());
            Set<Integer> counts = new TreeSet<>();
            admin.describeConfigs(resources, new DescribeConfigsOptions().includeSynonyms(true))
                    .all()
                    .get()
                    .values()
                    .forEach(config -> counts.add(config.entries().size()));
            return counts;
        });
        recorder.call("kafka-ui, topics: messages", () -> {
            var topics = described();
            topics.remove("__share_group_state");
            var newest = admin.listOffsets(all(topics, OffsetSpec.latest())).all().get();
            var oldest = admin.listOffsets(all(topics, OffsetSpec.earliest())).all().get();
            return newest.size() + " " + oldest.size() + " " + newest.keySet().stream()
                    .filter(place -> !place.topic().startsWith("__"))
                    .map(place -> place + "=" + (newest.get(place).offset() - oldest.get(place).offset()))
                    .sorted()
                    .collect(Collectors.toList());
        });
        TopicPartition plain = new TopicPartition("plain", 0);
        recorder.call("kafka-ui, topic: producers", () -> admin.describeProducers(List.of(plain))
                .partitionResult(plain)
                .get()
                .activeProducers()
                .size());
    }

    private KafkaConsumer<Bytes, Bytes> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("allow.auto.create.topics", "false");
        return new KafkaConsumer<>(settings, new BytesDeserializer(), new BytesDeserializer());
    }

    private void messages(KafkaConsumer<Bytes, Bytes> consumer) throws Exception {
        List<TopicPartition> places = new ArrayList<>();
        consumer.partitionsFor("orders").forEach(each -> places.add(new TopicPartition("orders", each.partition())));
        places.sort((a, b) -> a.partition() - b.partition());
        Map<TopicPartition, Long> begins = consumer.beginningOffsets(places);
        Map<TopicPartition, Long> ends = consumer.endOffsets(places);
        recorder.call("kafka-ui, messages: range", () -> new TreeMap<>(Map.of(
                "begin", places.stream().map(begins::get).collect(Collectors.toList()),
                "end", places.stream().map(ends::get).collect(Collectors.toList()))));
        TopicPartition first = places.get(0);
        recorder.call("kafka-ui, messages: oldest", () -> read(consumer, first, begins.get(first), ends.get(first)));
        recorder.call("kafka-ui, messages: newest", () -> read(consumer, first, ends.get(first) - 2, ends.get(first)));
        recorder.call("kafka-ui, messages: from a time", () -> {
            Map<TopicPartition, Long> times = Map.of(first, System.currentTimeMillis() - 3_600_000);
            OffsetAndTimestamp found = consumer.offsetsForTimes(times).get(first);
            return found == null ? null : found.offset();
        });
    }

    private static Object read(KafkaConsumer<Bytes, Bytes> consumer, TopicPartition place, long from, long to) {
        consumer.assign(List.of(place));
        consumer.seek(place, from);
        List<Long> offsets = new ArrayList<>();
        while (consumer.position(place) < to) {
            consumer.poll(Duration.ofMillis(100)).forEach(each -> offsets.add(each.offset()));
        }
        return offsets;
    }

    @SuppressWarnings({"deprecation", "removal"})
    private void groups() throws Exception {
        TopicPartition orders = new TopicPartition("orders", 0);
        recorder.call("kafka-ui, consumer: offsets are reset", () -> admin.alterConsumerGroupOffsets(
                        "ui", Map.of(orders, new OffsetAndMetadata(4)))
                .all()
                .get());
        recorder.call("kafka-ui, consumers", () -> {
            Set<String> names = admin.listConsumerGroups().all().get().stream()
                    .map(each -> each.groupId())
                    .collect(Collectors.toCollection(TreeSet::new));
            return admin.describeConsumerGroups(names).all().get().values().stream()
                    .map(each -> each.groupId() + " " + each.groupState() + " " + each.members().size())
                    .sorted()
                    .collect(Collectors.toList());
        });
        recorder.call("kafka-ui, consumer", () -> {
            Map<String, ListConsumerGroupOffsetsSpec> asked = Map.of("ui", new ListConsumerGroupOffsetsSpec());
            Map<TopicPartition, OffsetAndMetadata> committed =
                    admin.listConsumerGroupOffsets(asked).all().get().get("ui");
            Map<TopicPartition, OffsetSpec> ends = new HashMap<>();
            committed.keySet().forEach(place -> ends.put(place, OffsetSpec.latest()));
            var found = admin.listOffsets(ends).all().get();
            return found.keySet().stream()
                    .map(place -> place + " behind by " + (found.get(place).offset() - committed.get(place).offset()))
                    .collect(Collectors.toList());
        });
    }
}
