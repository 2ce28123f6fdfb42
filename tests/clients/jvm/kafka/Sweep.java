import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DeleteRecordsOptions;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Calls each method of Admin at least once, with valid and invalid arguments; a line of JSON for each call.
 *
 * Sweep BOOTSTRAP SETTLE_MS
 *
 * SETTLE_MS is how long to wait after a call until its changes are visible to the next one.
 */
public final class Sweep {
    /** Timeout of calls that are retried until then, as the resource does not exist. */
    private static final int SOON_MS = 500;

    private final Recorder recorder;
    private final Admin admin;
    private final String bootstrap;

    private Sweep(String bootstrap, long settleMs) {
        this.bootstrap = bootstrap;
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("request.timeout.ms", "10000");
        settings.put("default.api.timeout.ms", "20000");
        recorder = new Recorder(settings, settleMs);
        admin = recorder.admin;
    }

    public static void main(String[] args) throws Exception {
        Sweep sweep = new Sweep(args[0], Long.parseLong(args[1]));
        Recorder recorder = sweep.recorder;
        sweep.topics();
        sweep.configurations();
        sweep.records();
        sweep.transactions();
        new SweepGroups(recorder, args[0]).all();
        new SweepCluster(recorder).all();
        new Pages(recorder, args[0]).all();
        sweep.deletions();
        recorder.admin.close(Duration.ofSeconds(10));
        recorder.admin.close();
        System.out.println("{\"uncalled\": \"" + recorder.uncalled() + "\"}");
        Runtime.getRuntime().halt(0);
    }

    static TopicPartition place(String topic, int partition) {
        return new TopicPartition(topic, partition);
    }

    private static NewTopic topic(String name, int partitions, int replicas) {
        return new NewTopic(name, partitions, (short) replicas);
    }

    private Object create(NewTopic topic) throws Exception {
        CreateTopicsResult result = admin.createTopics(List.of(topic));
        return result.numPartitions(topic.name()).get() + " " + result.replicationFactor(topic.name()).get() + " "
                + changed(result.config(topic.name()).get());
    }

    /** The entries that are not defaults. */
    private static Map<String, String> changed(Config config) {
        return config.entries().stream()
                .filter(each -> each.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
                .collect(Collectors.toMap(ConfigEntry::name, ConfigEntry::value, (a, b) -> a, TreeMap::new));
    }

    private void topics() throws Exception {
        recorder.call("createTopics", () -> create(topic("orders", 2, 1).configs(Map.of("retention.ms", "60000"))));
        recorder.call("createTopics by defaults", () -> create(new NewTopic("plain", Optional.empty(), Optional.empty())));
        recorder.call("createTopics again", () -> create(topic("orders", 2, 1)));
        recorder.call("createTopics of no partitions", () -> create(topic("none", 0, 1)));
        recorder.call("createTopics of too many replicas", () -> create(topic("many", 1, 3)));
        recorder.call("createTopics by a bad name", () -> create(topic("bad name", 1, 1)));
        recorder.call(
                "createTopics with a bad setting",
                () -> create(topic("bad", 1, 1).configs(Map.of("retention.ms", "soon"))));
        recorder.call("createTopics with replicas named", () -> create(new NewTopic("named", Map.of(0, List.of(1)))));
        recorder.call("createTopics with unknown replicas", () -> create(new NewTopic("far", Map.of(0, List.of(9)))));
        recorder.call("createTopics validated", () -> admin.createTopics(
                        List.of(topic("only", 1, 1)), new CreateTopicsOptions().validateOnly(true))
                .all()
                .get());
        recorder.call("listTopics", () -> new TreeSet<>(admin.listTopics().names().get()));
        recorder.call("describeTopics", () -> describe(admin.describeTopics(List.of("orders"))
                .topicNameValues()
                .get("orders")));
        recorder.call("describeTopics with operations", () -> describe(admin.describeTopics(
                        List.of("orders"), new DescribeTopicsOptions().includeAuthorizedOperations(true))
                .topicNameValues()
                .get("orders")));
        recorder.call("describeTopics by id", () -> {
            Uuid id = admin.describeTopics(List.of("plain")).allTopicNames().get().get("plain").topicId();
            return describe(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).topicIdValues().get(id));
        });
        recorder.call("describeTopics of none", () -> describe(
                admin.describeTopics(List.of("nothing")).topicNameValues().get("nothing")));
        recorder.call("createPartitions", () -> admin.createPartitions(Map.of("orders", NewPartitions.increaseTo(3)))
                .all()
                .get());
        recorder.call("createPartitions to fewer", () -> admin.createPartitions(
                        Map.of("orders", NewPartitions.increaseTo(1)))
                .all()
                .get());
        recorder.call("createPartitions of none", () -> admin.createPartitions(
                        Map.of("nothing", NewPartitions.increaseTo(4)))
                .all()
                .get());
        recorder.call("createPartitions with unknown replicas", () -> admin.createPartitions(
                        Map.of("orders", NewPartitions.increaseTo(4, List.of(List.of(9)))))
                .all()
                .get());
        recorder.call("describeTopics after growth", () -> describe(
                admin.describeTopics(List.of("orders")).topicNameValues().get("orders")));
    }

    private static Object describe(KafkaFuture<TopicDescription> future) throws Exception {
        TopicDescription found = future.get();
        return found.name() + " " + found.isInternal() + " " + new TreeSet<>(found.authorizedOperations()) + " "
                + found.partitions().stream()
                        .map(each -> each.partition() + ":" + each.leader().id() + each.replicas().size()
                                + each.isr().size())
                        .collect(Collectors.toList());
    }

    private static ConfigResource resource(ConfigResource.Type type, String name) {
        return new ConfigResource(type, name);
    }

    private Object settings(ConfigResource resource, DescribeConfigsOptions options) throws Exception {
        Config config = admin.describeConfigs(List.of(resource), options).values().get(resource).get();
        return config.entries().stream()
                .filter(each -> !each.isDefault() && each.source() != ConfigEntry.ConfigSource.STATIC_BROKER_CONFIG)
                .filter(each -> !each.name().equals("min.insync.replicas"))
                .map(each -> each.name() + "=" + each.value() + " " + each.source() + " " + each.type() + " "
                        + (each.documentation() != null) + " " + synonyms(each))
                .sorted()
                .limit(5)
                .collect(Collectors.toList());
    }

    private static String synonyms(ConfigEntry entry) {
        return entry.synonyms().stream()
                .map(each -> each.name() + "=" + each.value() + " " + each.source())
                .collect(Collectors.joining(", ", "[", "]"));
    }

    private Object alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType type) throws Exception {
        return admin.incrementalAlterConfigs(
                        Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), type))))
                .all()
                .get();
    }

    private void configurations() throws Exception {
        ConfigResource orders = resource(ConfigResource.Type.TOPIC, "orders");
        ConfigResource broker = resource(ConfigResource.Type.BROKER, "1");
        ConfigResource all = resource(ConfigResource.Type.BROKER, "");
        ConfigResource logger = resource(ConfigResource.Type.BROKER_LOGGER, "1");
        ConfigResource metrics = resource(ConfigResource.Type.CLIENT_METRICS, "speed");
        ConfigResource group = resource(ConfigResource.Type.GROUP, "readers");
        AlterConfigOp.OpType set = AlterConfigOp.OpType.SET;
        DescribeConfigsOptions plain = new DescribeConfigsOptions();
        DescribeConfigsOptions full = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        recorder.call("describeConfigs of a topic", () -> settings(orders, full));
        recorder.call("describeConfigs of no topic", () -> settings(resource(ConfigResource.Type.TOPIC, "nothing"), plain));
        recorder.call("describeConfigs of a broker", () -> settings(broker, full));
        recorder.call("describeConfigs of no broker", () -> settings(
                resource(ConfigResource.Type.BROKER, "9"), new DescribeConfigsOptions().timeoutMs(SOON_MS)));
        recorder.call("describeConfigs of no broker's name", () -> settings(resource(ConfigResource.Type.BROKER, "x"), plain));
        recorder.call("describeConfigs of all brokers", () -> settings(all, plain));
        recorder.call("incrementalAlterConfigs of a topic", () -> alter(orders, "retention.ms", "70000", set));
        recorder.call("incrementalAlterConfigs appends", () -> alter(
                orders, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND));
        recorder.call("incrementalAlterConfigs subtracts", () -> alter(
                orders, "cleanup.policy", "compact", AlterConfigOp.OpType.SUBTRACT));
        recorder.call("incrementalAlterConfigs appends to no list", () -> alter(
                orders, "retention.ms", "1", AlterConfigOp.OpType.APPEND));
        recorder.call("incrementalAlterConfigs by a bad value", () -> alter(orders, "retention.ms", "soon", set));
        recorder.call("incrementalAlterConfigs by a bad name", () -> alter(orders, "retention.days", "1", set));
        recorder.call("incrementalAlterConfigs of no topic", () -> alter(
                resource(ConfigResource.Type.TOPIC, "nothing"), "retention.ms", "1", set));
        recorder.call("incrementalAlterConfigs of a broker", () -> alter(broker, "log.retention.ms", "80000", set));
        recorder.call("incrementalAlterConfigs of a broker, read-only", () -> alter(broker, "broker.id", "4", set));
        recorder.call("incrementalAlterConfigs of all brokers", () -> alter(all, "log.retention.ms", "90000", set));
        recorder.call("describeConfigs of a broker after it", () -> settings(broker, full));
        recorder.call("incrementalAlterConfigs deletes", () -> alter(
                broker, "log.retention.ms", "", AlterConfigOp.OpType.DELETE));
        recorder.call("describeConfigs of loggers", () -> admin.describeConfigs(List.of(logger)).all().get().size());
        recorder.call("incrementalAlterConfigs of a logger", () -> alter(logger, "no.such.logger", "DEBUG", set));
        recorder.call("incrementalAlterConfigs of metrics", () -> alter(metrics, "interval.ms", "1000", set));
        recorder.call("describeConfigs of metrics", () -> settings(metrics, full));
        recorder.call("incrementalAlterConfigs of a group", () -> alter(
                group, "consumer.session.timeout.ms", "50000", set));
        recorder.call("describeConfigs of a group", () -> settings(group, plain));
        recorder.call("incrementalAlterConfigs of a group, out of range", () -> alter(
                group, "consumer.session.timeout.ms", "1", set));
        recorder.call("listConfigResources", () -> admin.listConfigResources().all().get().stream()
                .map(each -> each.type() + " " + each.name())
                .sorted()
                .collect(Collectors.toList()));
        recorder.call("listConfigResources of topics", () -> admin.listConfigResources(
                        Set.of(ConfigResource.Type.TOPIC), new org.apache.kafka.clients.admin.ListConfigResourcesOptions())
                .all()
                .get()
                .size());
        recorder.call("listClientMetricsResources", () -> admin.listClientMetricsResources().all().get());
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        if (transactionalId != null) {
            settings.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private Object offset(TopicPartition place, OffsetSpec spec, IsolationLevel level) throws Exception {
        ListOffsetsResultInfo found = admin.listOffsets(Map.of(place, spec), new ListOffsetsOptions(level))
                .partitionResult(place)
                .get();
        return found.offset() + " " + (found.timestamp() >= 0);
    }

    private void records() throws Exception {
        long began = System.currentTimeMillis() - 1000;
        try (KafkaProducer<String, String> producer = producer(null)) {
            for (int number = 0; number < 10; number++) {
                producer.send(new ProducerRecord<>("orders", 0, began + number, "key", "value")).get();
            }
        }
        TopicPartition orders = place("orders", 0);
        IsolationLevel every = IsolationLevel.READ_UNCOMMITTED;
        recorder.call("deleteRecords", () -> admin.deleteRecords(Map.of(orders, RecordsToDelete.beforeOffset(3)))
                .lowWatermarks()
                .get(orders)
                .get()
                .lowWatermark());
        recorder.call("deleteRecords beyond the end", () -> admin.deleteRecords(
                        Map.of(orders, RecordsToDelete.beforeOffset(99)))
                .all()
                .get());
        recorder.call("deleteRecords of none", () -> admin.deleteRecords(
                        Map.of(place("nothing", 0), RecordsToDelete.beforeOffset(1)),
                        new DeleteRecordsOptions().timeoutMs(SOON_MS))
                .all()
                .get());
        recorder.call("listOffsets earliest", () -> offset(orders, OffsetSpec.earliest(), every));
        recorder.call("listOffsets latest", () -> offset(orders, OffsetSpec.latest(), every));
        recorder.call("listOffsets by time", () -> offset(orders, OffsetSpec.forTimestamp(began + 5), every));
        recorder.call("listOffsets after all", () -> offset(orders, OffsetSpec.forTimestamp(began + 500), every));
        recorder.call("listOffsets of the newest time", () -> offset(orders, OffsetSpec.maxTimestamp(), every));
        recorder.call("listOffsets earliest here", () -> offset(orders, OffsetSpec.earliestLocal(), every));
        recorder.call("listOffsets latest elsewhere", () -> offset(orders, OffsetSpec.latestTiered(), every));
        recorder.call("listOffsets to be moved", () -> offset(orders, OffsetSpec.earliestPendingUpload(), every));
        recorder.call("listOffsets of none", () -> offset(place("nothing", 0), OffsetSpec.latest(), every));
        TopicPartitionReplica here = new TopicPartitionReplica("orders", 0, 1);
        TopicPartitionReplica missing = new TopicPartitionReplica("nothing", 0, 1);
        recorder.call("describeLogDirs", () -> admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1).values()
                .stream()
                .map(each -> each.error() + " " + each.replicaInfos().containsKey(orders) + " "
                        + each.totalBytes().isPresent())
                .collect(Collectors.toList()));
        recorder.call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(here, missing))
                .all()
                .get()
                .entrySet()
                .stream()
                .map(each -> each.getKey().topic() + " " + (each.getValue().getCurrentReplicaLogDir() != null) + " "
                        + each.getValue().getCurrentReplicaOffsetLag() + " "
                        + (each.getValue().getFutureReplicaLogDir() != null))
                .sorted()
                .collect(Collectors.toList()));
        recorder.call("alterReplicaLogDirs to none", () -> admin.alterReplicaLogDirs(Map.of(here, "/no/such/folder"))
                .all()
                .get());
        recorder.call("electLeaders preferred", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(orders))
                .all()
                .get());
        recorder.call("electLeaders unclean", () -> admin.electLeaders(ElectionType.UNCLEAN, Set.of(orders)).all().get());
        recorder.call("electLeaders of none", () -> admin.electLeaders(
                        ElectionType.PREFERRED, Set.of(place("nothing", 0)))
                .all()
                .get());
        recorder.call("electLeaders of all", () -> admin.electLeaders(ElectionType.PREFERRED, null).partitions().get());
        recorder.call("alterPartitionReassignments", () -> reassign(orders, 1));
        recorder.call("alterPartitionReassignments to an unknown broker", () -> reassign(orders, 9));
        recorder.call("alterPartitionReassignments of none", () -> reassign(place("nothing", 0), 1));
        recorder.call("alterPartitionReassignments cancelled", () -> admin.alterPartitionReassignments(
                        Map.of(orders, Optional.empty()))
                .all()
                .get());
        recorder.call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments().get());
    }

    private Object reassign(TopicPartition place, int broker) throws Exception {
        return admin.alterPartitionReassignments(
                        Map.of(place, Optional.of(new NewPartitionReassignment(List.of(broker)))))
                .all()
                .get();
    }

    private static String shown(TransactionDescription found) {
        return found.state() + " " + found.coordinatorId() + " " + found.producerEpoch() + " "
                + found.transactionTimeoutMs() + " " + found.transactionStartTimeMs().isPresent() + " "
                + found.topicPartitions();
    }

    private static String shown(ProducerState found) {
        return found.producerEpoch() + " " + found.lastSequence() + " "
                + found.currentTransactionStartOffset() + " " + found.coordinatorEpoch();
    }

    private Object transactions(ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream()
                .map(each -> each.transactionalId() + " " + each.state())
                .sorted()
                .collect(Collectors.toList());
    }

    private void transactions() throws Exception {
        TopicPartition plain = place("plain", 0);
        KafkaProducer<String, String> done = producer("done");
        done.initTransactions();
        done.beginTransaction();
        done.send(new ProducerRecord<>("plain", 0, "key", "value"));
        done.commitTransaction();
        done.close();
        KafkaProducer<String, String> open = producer("open");
        open.initTransactions();
        open.beginTransaction();
        open.send(new ProducerRecord<>("plain", 0, "key", "value")).get();
        open.commitTransaction();
        open.beginTransaction();
        open.send(new ProducerRecord<>("plain", 0, "key", "value")).get();
        ListTransactionsOptions options = new ListTransactionsOptions();
        recorder.call("listTransactions", () -> transactions(options));
        recorder.call("listTransactions by pattern", () -> transactions(
                new ListTransactionsOptions().filterOnTransactionalIdPattern("op.*")));
        recorder.call("listTransactions by state", () -> transactions(new ListTransactionsOptions()
                .filterStates(Set.of(org.apache.kafka.clients.admin.TransactionState.ONGOING))));
        recorder.call("listTransactions by duration", () -> transactions(
                new ListTransactionsOptions().filterOnDuration(3_600_000)));
        recorder.call("describeTransactions", () -> shown(
                admin.describeTransactions(List.of("open")).description("open").get()));
        recorder.call("describeTransactions of none", () -> shown(
                admin.describeTransactions(List.of("nothing")).description("nothing").get()));
        recorder.call("describeProducers", () -> admin.describeProducers(List.of(plain))
                .partitionResult(plain)
                .get()
                .activeProducers()
                .stream()
                .map(Sweep::shown)
                .sorted()
                .collect(Collectors.toList()));
        recorder.call("describeProducers of none", () -> admin.describeProducers(
                        List.of(place("nothing", 0)), new DescribeProducersOptions().timeoutMs(SOON_MS))
                .all()
                .get());
        IsolationLevel committed = IsolationLevel.READ_COMMITTED;
        recorder.call("listOffsets latest, committed", () -> offset(plain, OffsetSpec.latest(), committed));
        TransactionDescription found = admin.describeTransactions(List.of("open")).description("open").get();
        AbortTransactionSpec stale = new AbortTransactionSpec(
                plain, found.producerId(), (short) (found.producerEpoch() - 1), 0);
        recorder.call("abortTransaction of an old epoch", () -> admin.abortTransaction(stale).all().get());
        AbortTransactionSpec right = new AbortTransactionSpec(
                plain, found.producerId(), (short) found.producerEpoch(), 0);
        recorder.call("abortTransaction", () -> admin.abortTransaction(right).all().get());
        recorder.call("listOffsets after the abort", () -> offset(plain, OffsetSpec.latest(), committed));
        recorder.call("forceTerminateTransaction", () -> admin.forceTerminateTransaction("open").result().get());
        recorder.call("forceTerminateTransaction of none", () -> admin.forceTerminateTransaction("nothing")
                .result()
                .get());
        recorder.call("describeTransactions after it", () -> admin.describeTransactions(List.of("open"))
                .description("open")
                .get()
                .topicPartitions());
        recorder.call("fenceProducers", () -> admin.fenceProducers(List.of("done", "new")).epochId("done").get());
        recorder.call("the fenced one", () -> {
            open.commitTransaction();
            return null;
        });
        open.close(Duration.ZERO);
    }

    private void deletions() throws Exception {
        recorder.call("describeCluster", () -> {
            DescribeClusterResult found = admin.describeCluster(
                    new DescribeClusterOptions().includeAuthorizedOperations(true).includeFencedBrokers(true));
            return found.nodes().get().size() + " " + found.controller().get().id() + " "
                    + new TreeSet<>(found.authorizedOperations().get()) + " " + !found.clusterId().get().isEmpty();
        });
        recorder.call("deleteTopics", () -> admin.deleteTopics(List.of("orders")).all().get());
        recorder.call("deleteTopics by id", () -> {
            Uuid id = admin.describeTopics(List.of("named")).allTopicNames().get().get("named").topicId();
            return admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        });
        recorder.call("deleteTopics of none", () -> admin.deleteTopics(List.of("nothing")).all().get());
        recorder.call("deleteTopics by an unknown id", () -> admin.deleteTopics(
                        TopicCollection.ofTopicIds(List.of(new Uuid(7, 7))))
                .all()
                .get());
        recorder.call("listTopics with internal ones", () -> new TreeSet<>(
                admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get()));
    }
}
