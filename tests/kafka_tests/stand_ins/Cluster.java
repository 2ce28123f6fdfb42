package odradek;

import com.fasterxml.jackson.databind.JsonNode;
import com.yammer.metrics.core.Gauge;
import java.io.File;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.network.SocketServer;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import kafka.server.SharedServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DeleteAclsResult;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ChannelBuilders;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder;
import org.apache.kafka.common.security.scram.ScramCredential;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.common.security.token.delegation.TokenInformation;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.image.loader.MetadataLoader;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.DelegationTokenData;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.RaftLog;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.server.BrokerLifecycleManager;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.AclDeleteResult.AclBindingDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.opentest4j.TestAbortedException;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** A cluster of Odradek for one test, with a stand-in for each broker and controller of Kafka's test kits. */
public final class Cluster implements AutoCloseable {
    /** The listener on which ACLs are changed. The runner adds it to brokers with an authorizer. */
    private static final String STAND_IN = "STAND-IN";
    private static final String AUTHORIZER = "authorizer.class.name";
    private static final String PRINCIPAL_BUILDER = "principal.builder.class";
    private static final com.yammer.metrics.core.MetricName EXPIRED_CONNECTIONS =
        KafkaYammerMetrics.getMetricName("kafka.network", "SocketServer", "ExpiredConnectionsKilledCount");
    private static final Pattern SCRAM_ARGUMENT =
        Pattern.compile("(?<mechanism>SCRAM-SHA-\\d+)=\\[name=(?<name>[^,]+),password=(?<password>[^,]+)\\]");
    private static final Map<ControllerServer, BootstrapMetadata> FORMATTED = new java.util.WeakHashMap<>();

    private final Control control = new Control();
    private final File directory = org.apache.kafka.test.TestUtils.tempDirectory();
    private final BootstrapMetadata formatted;
    private final String clusterId;
    private final List<String> scramUsers;
    private final Map<Integer, KafkaConfig> configs = new TreeMap<>();
    private final Set<Integer> running = ConcurrentHashMap.newKeySet();
    private final StandardAuthorizer authorizer = new StandardAuthorizer();
    private MetadataLog metadata;
    private JsonNode ports;
    private boolean isProcess;
    /** Whether a configuration has changed since the start of the process. */
    private boolean isChanged;

    public Cluster(BootstrapMetadata formatted, String clusterId) {
        this(formatted, clusterId, List.of());
    }

    private Cluster(BootstrapMetadata formatted, String clusterId, List<String> scramArguments) {
        this.formatted = formatted;
        this.clusterId = clusterId;
        this.scramUsers = scramArguments.stream().map(SCRAM_ARGUMENT::matcher).filter(Matcher::matches)
            .map(found -> String.join(":", found.group("name"), found.group("password"), found.group("mechanism"))).toList();
    }

    /** Replaces the controllers that QuorumTestHarness creates. The launcher calls this method before the first test. */
    public static void prepare() {
        Mockito.mockConstruction(
            ControllerServer.class,
            context -> Mockito.withSettings().stubOnly().defaultAnswer(invocation -> {
                Cluster cluster = OF_CONTROLLER.get(invocation.getMock());
                return StandIn.answer(ControllerServer.class, controllerMembers(cluster)).answer(invocation);
            }),
            (controller, context) -> FORMATTED.put(controller, (BootstrapMetadata) context.arguments().get(2))
        );
    }

    private static final Map<Object, Cluster> OF_CONTROLLER = new java.util.WeakHashMap<>();

    /** Creates the cluster for a controller that QuorumTestHarness has created. */
    public static Cluster of(ControllerServer controller, String clusterId, List<String> scramArguments) {
        Cluster cluster = new Cluster(FORMATTED.get(controller), clusterId, scramArguments);
        OF_CONTROLLER.put(controller, cluster);
        return cluster;
    }

    // ---- brokers

    /** Declares a broker, which is started with the cluster. */
    public void configure(KafkaConfig config) {
        Object authorizer = config.originals().getOrDefault(AUTHORIZER, "");
        if (!authorizer.equals("") && !authorizer.equals(StandardAuthorizer.class.getName())) {
            throw new TestAbortedException(AUTHORIZER + " names a Java class, which cannot be plugged in");
        }
        if (running.isEmpty()) {
            isChanged |= !config.equals(configs.put(config.nodeId(), config));
        } else if (!configs.containsKey(config.nodeId())) {
            throw new TestAbortedException("adds a broker to a running cluster");
        }
    }

    public BrokerServer broker(KafkaConfig config) {
        configure(config);
        int id = config.nodeId();
        KRaftMetadataCache cache = metadataCache(id);
        SocketServer socketServer = StandIn.of(SocketServer.class, Map.of("boundPort", args -> boundPort(id, (ListenerName) args[0])));
        MetadataLoader loader = StandIn.of(MetadataLoader.class, Map.of("lastAppliedOffset", args -> Long.MAX_VALUE));
        SharedServer shared = StandIn.of(SharedServer.class, Map.of("loader", args -> loader, "clusterId", args -> clusterId));
        KafkaApis apis = StandIn.of(
            KafkaApis.class,
            Map.of("isConsumerGroupProtocolEnabled", args -> true, "metadataCache", args -> cache, "brokerId", args -> id, "clusterId", args -> clusterId,
                "authorizerPlugin", args -> authorizerPlugin())
        );
        Map<String, Function<Object[], Object>> members = new HashMap<>();
        // After a broker's shutdown the harness deletes the log directories of its configuration: not those of the node.
        members.put("config", args -> running.contains(id) ? located(id) : config);
        members.put("clusterId", args -> clusterId);
        members.put("startup", args -> start(id));
        members.put("shutdown", args -> stop(id));
        members.put("awaitShutdown", args -> null);
        members.put("isShutdown", args -> !running.contains(id));
        members.put("brokerState", args -> running.contains(id) ? BrokerState.RUNNING
            : ports == null ? BrokerState.NOT_RUNNING : BrokerState.SHUTTING_DOWN);  // as in Kafka, a stopped broker stays in this state
        members.put("boundPort", args -> boundPort(id, (ListenerName) args[0]));
        members.put("socketServer", args -> socketServer);
        members.put("metadataCache", args -> cache);
        members.put("sharedServer", args -> shared);
        members.put("dataPlaneRequestProcessor", args -> apis);
        members.put("authorizerPlugin", args -> authorizerPlugin());
        members.put("credentialProvider", args -> credentialProvider());
        members.put("metrics", args -> StandIn.of(Metrics.class, Map.of("metrics", none -> metrics())));
        members.put("tokenCache", args -> StandIn.of(DelegationTokenCache.class, Map.of("tokens", none -> tokens())));
        members.put("groupCoordinator", args -> groupCoordinator(config));
        members.put("replicaManager", args -> replicaManager(id));
        members.put("logManager", args -> logManager(id));
        members.put("lifecycleManager", args -> lifecycleManager(id));
        return StandIn.of(BrokerServer.class, members);
    }

    private synchronized Object start(int id) {
        if (running.isEmpty() && (isChanged || configs.size() == 1)) {
            if (isProcess) {
                control.ask(Map.of("do", "stop"));
            }
            control.ask(Map.of("do", "configure", "directory", directory.getPath(), "cluster_id", clusterId,
                "features", features(), "nodes", configs.values().stream().map(Cluster::settings).toList(),
                "login_config", System.getProperty("java.security.auth.login.config", ""), "users", scramUsers,
                "principals", principals(configs.values().iterator().next())));
            ports = control.ask(Map.of("do", "start")).get("ports");
            running.addAll(configs.keySet());
            isProcess = true;
            isChanged = false;
            closeMetadata();
            KafkaYammerMetrics.defaultRegistry().newGauge(EXPIRED_CONNECTIONS, new Gauge<Double>() {
                @Override
                public Double value() {
                    return control.ask(Map.of("do", "count_closed")).get("expired").asDouble();
                }
            });
            File first = new File(logDirectory(configs.keySet().iterator().next()));
            metadata = new MetadataLog(new File(first, "__cluster_metadata-0"));
        } else if (running.add(id)) {
            control.ask(Map.of("do", "start_node", "id", id));
        }
        return null;
    }

    private synchronized Object stop(int id) {
        if (running.remove(id)) {
            // A node of several is stopped alone, so that the next start of a node does not start the others.
            isProcess = configs.size() > 1;
            control.ask(isProcess ? Map.of("do", "stop_node", "id", id) : Map.of("do", "stop"));
        }
        return null;
    }

    private Map<String, Short> features() {
        return Map.of("transaction.version", level("transaction.version", 2), "group.version", level("group.version", 1),
            "eligible.leader.replicas.version", level("eligible.leader.replicas.version", 1),
            "share.version", level("share.version", 2));
    }

    private short level(String feature, int latest) {
        return formatted == null ? (short) latest : formatted.featureLevel(feature);
    }

    private static Map<String, Object> settings(KafkaConfig config) {
        Map<String, String> settings = new TreeMap<>();
        config.originals().forEach((name, value) -> {
            if (value != null) {
                settings.put(name, text(value));
            }
        });
        return Map.of("id", config.nodeId(), "settings", settings);
    }

    private static String text(Object value) {
        if (value instanceof Password password) {
            return password.value();
        }
        return value instanceof List<?> list ? list.stream().map(Object::toString).collect(Collectors.joining(",")) : value.toString();
    }

    /** The principals that the test's principal builder returns for PLAINTEXT listeners, by listener name. */
    private static Map<String, String> principals(KafkaConfig config) {
        Map<String, String> principals = new TreeMap<>();
        for (Endpoint listener : CollectionConverters.asJava(config.effectiveAdvertisedBrokerListeners())) {
            Map<String, Object> settings = config.valuesWithPrefixOverride(new ListenerName(listener.listener()).configPrefix());
            if (settings.get(PRINCIPAL_BUILDER) == DefaultKafkaPrincipalBuilder.class) {
                continue;
            }
            if (listener.securityProtocol() != SecurityProtocol.PLAINTEXT) {
                throw new TestAbortedException(PRINCIPAL_BUILDER + " names a Java class, which cannot be plugged in");
            }
            principals.put(listener.listener(), ChannelBuilders.createPrincipalBuilder(settings, null, null)
                .build(new PlaintextAuthenticationContext(InetAddress.getLoopbackAddress(), listener.listener())).toString());
        }
        return principals;
    }

    private String logDirectory(int id) {
        return configs.size() == 1 ? directory.getPath() : new File(directory, "node-" + id).getPath();
    }

    /** The broker's current configuration with the log directory of its node, and without unstable versions of APIs. */
    private KafkaConfig located(int id) {
        Map<String, Object> settings = new HashMap<>(configs.get(id).originals());
        for (String broker : List.of("", Integer.toString(id))) {
            settings.putAll(image().configs().configMapForResource(new ConfigResource(ConfigResource.Type.BROKER, broker)));
        }
        settings.remove("unstable.api.versions.enable");
        settings.remove("log.dir");
        settings.put("log.dirs", logDirectory(id));
        return new KafkaConfig(settings, false);
    }

    private int boundPort(int id, ListenerName listener) {
        return ports.get(Integer.toString(id)).get(listener.value()).asInt();
    }

    // ---- what tests wait for

    private void closeMetadata() {
        Utils.closeQuietly(metadata, "metadata");
    }

    private MetadataImage image() {
        return metadata == null ? MetadataImage.EMPTY : metadata.image();
    }

    private KRaftMetadataCache metadataCache(int id) {
        KRaftMetadataCache cache = new KRaftMetadataCache(id, () -> KRaftVersion.KRAFT_VERSION_1);
        return Mockito.mock(KRaftMetadataCache.class, Mockito.withSettings().stubOnly().defaultAnswer(invocation -> {
            cache.setImage(image());
            try {
                return invocation.getMethod().invoke(cache, invocation.getArguments());
            } catch (java.lang.reflect.InvocationTargetException error) {
                throw error.getCause();
            }
        }));
    }

    @SuppressWarnings("unchecked")
    private Option<Plugin<Authorizer>> authorizerPlugin() {
        if (!hasAuthorizer()) {
            return Option.empty();
        }
        Authorizer current = StandIn.of(Authorizer.class, Map.of(
            "acls", args -> {
                authorizer.loadSnapshot(image().acls().acls());
                return authorizer.acls((AclBindingFilter) args[0]);
            },
            "createAcls", args -> createAcls((List<AclBinding>) args[1]),
            "deleteAcls", args -> deleteAcls((List<AclBindingFilter>) args[1])
        ));
        return Option.apply(Plugin.wrapInstance(current, null, AUTHORIZER));
    }

    private boolean hasAuthorizer() {
        return !configs.values().iterator().next().originals().getOrDefault(AUTHORIZER, "").equals("");
    }

    private List<CompletableFuture<AclCreateResult>> createAcls(List<AclBinding> bindings) {
        try (Admin admin = admin(running.iterator().next())) {
            admin.createAcls(bindings).all().get();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return bindings.stream().map(each -> CompletableFuture.completedFuture(AclCreateResult.SUCCESS)).toList();
    }

    private List<CompletableFuture<AclDeleteResult>> deleteAcls(List<AclBindingFilter> filters) {
        List<CompletableFuture<AclDeleteResult>> results = new ArrayList<>();
        try (Admin admin = admin(running.iterator().next())) {
            Map<AclBindingFilter, KafkaFuture<DeleteAclsResult.FilterResults>> deleted = admin.deleteAcls(filters).values();
            for (AclBindingFilter filter : filters) {
                List<AclBindingDeleteResult> bindings = deleted.get(filter).get().values().stream()
                    .map(each -> new AclBindingDeleteResult(each.binding())).toList();
                results.add(CompletableFuture.completedFuture(new AclDeleteResult(bindings)));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return results;
    }

    private CredentialProvider credentialProvider() {
        Set<String> mechanisms = new HashSet<>(mechanismNames());
        CredentialProvider provider = new CredentialProvider(mechanisms, new DelegationTokenCache(mechanisms));
        image().scram().mechanisms().forEach((mechanism, users) -> users.forEach((user, data) -> provider.updateCredential(
            mechanism, user, new ScramCredential(data.salt(), data.storedKey(), data.serverKey(), data.iterations())
        )));
        return provider;
    }

    private List<TokenInformation> tokens() {
        return image().delegationTokens().tokens().values().stream().map(DelegationTokenData::tokenInformation).toList();
    }

    private static List<String> mechanismNames() {
        List<String> names = new ArrayList<>();
        for (ScramMechanism mechanism : ScramMechanism.values()) {
            if (mechanism != ScramMechanism.UNKNOWN) {
                names.add(mechanism.mechanismName());
            }
        }
        return names;
    }

    private GroupCoordinator groupCoordinator(KafkaConfig config) {
        Properties topic = new Properties();
        topic.put("cleanup.policy", "compact");
        topic.put("compression.type", "producer");
        topic.put("segment.bytes", Integer.toString(config.groupCoordinatorConfig().offsetsTopicSegmentBytes()));
        int partitions = config.groupCoordinatorConfig().offsetsTopicPartitions();
        return StandIn.of(GroupCoordinator.class, Map.of(
            "groupMetadataTopicConfigs", args -> topic,
            "partitionFor", args -> Utils.abs(args[0].hashCode()) % partitions
        ));
    }

    private ReplicaManager replicaManager(int id) {
        return StandIn.of(ReplicaManager.class, Map.of(
            "onlinePartition", args -> online((TopicPartition) args[0], id),
            "localLog", args -> log((TopicPartition) args[0], id),
            "metadataCache", args -> metadataCache(id),
            "logManager", args -> logManager(id)
        ));
    }

    private LogManager logManager(int id) {
        return StandIn.of(LogManager.class, Map.of(
            "getLog", args -> log((TopicPartition) args[0], id),
            "liveLogDirs", args -> CollectionConverters.asScala(List.of(new File(logDirectory(id)))).toSeq(),
            "producerStateManagerConfig", args -> producerStateManagerConfig(id)
        ));
    }

    private ProducerStateManagerConfig producerStateManagerConfig(int id) {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
        try (Admin admin = admin(id)) {
            Config config = admin.describeConfigs(List.of(broker)).all().get().get(broker);
            return new ProducerStateManagerConfig(
                Integer.parseInt(config.get("producer.id.expiration.ms").value()),
                Boolean.parseBoolean(config.get("transaction.partition.verification.enable").value())
            );
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private Option<Partition> online(TopicPartition partition, int id) {
        PartitionRegistration found = registration(partition);
        if (found == null || !running.contains(id)) {
            return Option.empty();
        }
        return Option.apply(StandIn.of(Partition.class, Map.of(
            "leaderReplicaIdOpt", args -> Option.apply(found.leader),
            "isLeader", args -> found.leader == id,
            "leaderIdIfLocal", args -> found.leader == id ? Option.apply(id) : Option.empty(),
            "getLeaderEpoch", args -> found.leaderEpoch,
            "leaderLogIfLocal", args -> found.leader == id ? log(partition, id) : Option.empty()
        )));
    }

    private Option<UnifiedLog> log(TopicPartition partition, int id) {
        PartitionRegistration found = registration(partition);
        if (found == null || !Arrays.stream(found.replicas).boxed().toList().contains(id)) {
            return Option.empty();
        }
        return Option.apply(new Logs(bootstrapServer(id), id, new File(logDirectory(id))).of(partition));
    }

    /** The address of a listener of a broker that needs no login: the stand-in's own, or one of the test. */
    private String bootstrapServer(int id) {
        String listener = hasAuthorizer() ? STAND_IN
            : CollectionConverters.asJava(configs.get(id).effectiveAdvertisedBrokerListeners()).stream()
                .filter(each -> each.securityProtocol() == SecurityProtocol.PLAINTEXT).map(Endpoint::listener).findFirst()
                .orElseThrow(() -> new TestAbortedException("looks into a broker that has no PLAINTEXT listener"));
        return "localhost:" + boundPort(id, new ListenerName(listener));
    }

    private Admin admin(int id) {
        return Admin.create(Map.of("bootstrap.servers", bootstrapServer(id)));
    }

    private PartitionRegistration registration(TopicPartition partition) {
        TopicImage topic = image().topics().getTopic(partition.topic());
        return topic == null ? null : topic.partitions().get(partition.partition());
    }

    private BrokerLifecycleManager lifecycleManager(int id) {
        return StandIn.of(BrokerLifecycleManager.class, Map.of(
            "brokerEpoch", args -> image().cluster().broker(id).epoch(),
            "initialUnfenceFuture", args -> CompletableFuture.completedFuture(null)
        ));
    }

    /** Kafka's metrics of closed connections, as the log of all nodes has them. The log does not say which logins were repeated. */
    private Map<MetricName, KafkaMetric> metrics() {
        JsonNode closed = control.ask(Map.of("do", "count_closed"));
        Map<MetricName, KafkaMetric> metrics = new HashMap<>();
        Map.of(
            "expired-connections-killed-count", "expired", "failed-authentication-total", "failed",
            "failed-reauthentication-total", "failed"
        ).forEach((name, reason) -> {
            MetricName metric = new MetricName(name, "socket-server-metrics", "", Map.of());
            Measurable value = (config, now) -> closed.get(reason).asDouble();
            metrics.put(metric, new KafkaMetric(new Object(), metric, value, new MetricConfig(), Time.SYSTEM));
        });
        return metrics;
    }

    // ---- controllers

    public ControllerServer controller(KafkaConfig config) {
        Map<String, Function<Object[], Object>> members = new HashMap<>(controllerMembers(this));
        members.put("config", args -> config);
        return StandIn.of(ControllerServer.class, members);
    }

    @SuppressWarnings("unchecked")
    private static Map<String, Function<Object[], Object>> controllerMembers(Cluster cluster) {
        Map<String, Function<Object[], Object>> members = new HashMap<>();
        members.put("startup", args -> null);
        members.put("shutdown", args -> null);
        members.put("awaitShutdown", args -> null);
        members.put("socketServerFirstBoundPortFuture", args -> new CompletableFuture<Integer>());
        if (cluster == null) {
            return members;
        }
        RaftLog log = StandIn.of(RaftLog.class, Map.of("endOffset", args -> new LogOffsetMetadata(0)));
        members.put("clusterId", args -> cluster.clusterId);
        members.put("raftManager", args -> StandIn.of(KafkaRaftManager.class, Map.of("raftLog", none -> log)));
        members.put("authorizerPlugin", args -> cluster.authorizerPlugin());
        members.put("credentialProvider", args -> cluster.credentialProvider());
        members.put("controller", args -> StandIn.of(Controller.class, Map.of(
            "isActive", none -> true,
            "findAllTopicIds", context -> CompletableFuture.completedFuture(cluster.topicIds()),
            "findTopicIds", of -> found((Collection<String>) of[1], cluster.topicIds()),
            "findTopicNames", of -> found((Collection<Uuid>) of[1], cluster.topicNames())
        )));
        return members;
    }

    private Map<String, Uuid> topicIds() {
        return image().topics().topicNameToIdView();
    }

    private Map<Uuid, String> topicNames() {
        return image().topics().topicIdToNameView();
    }

    private static <K, V> CompletableFuture<Map<K, ResultOrError<V>>> found(Collection<K> wanted, Map<K, V> all) {
        Map<K, ResultOrError<V>> results = new HashMap<>();
        wanted.forEach(key -> results.put(key, all.containsKey(key)
            ? new ResultOrError<>(all.get(key)) : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null)));
        return CompletableFuture.completedFuture(results);
    }

    @Override
    public void close() {
        KafkaYammerMetrics.defaultRegistry().removeMetric(EXPIRED_CONNECTIONS);
        control.close();
        closeMetadata();
        try {
            Utils.delete(directory);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
