package org.apache.kafka.common.test;

import java.io.File;
import java.io.IOException;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.raft.KafkaRaftManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaConfig;
import odradek.Cluster;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.api.DetectThreadLeak;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.opentest4j.TestAbortedException;

/** The clusters of the tests with the annotation ClusterTest, as nodes of Odradek. */
public class KafkaClusterTestKit implements AutoCloseable {
    private final TestKitNodes nodes;
    private final Map<Integer, ControllerServer> controllers;
    private final Map<Integer, BrokerServer> brokers;
    private final Cluster cluster;
    private final DetectThreadLeak threads = DetectThreadLeak.of(thread -> thread.getName().startsWith("pool-"));
    private final MockFaultHandler fatalFaultHandler = new MockFaultHandler("fatalFaultHandler");
    private final MockFaultHandler nonFatalFaultHandler = new MockFaultHandler("nonFatalFaultHandler");

    private KafkaClusterTestKit(
        TestKitNodes nodes, Cluster cluster, Map<Integer, ControllerServer> controllers, Map<Integer, BrokerServer> brokers
    ) {
        this.nodes = nodes;
        this.cluster = cluster;
        this.controllers = controllers;
        this.brokers = brokers;
    }

    public static class Builder {
        private final TestKitNodes nodes;
        private final Map<String, Object> configProps = new HashMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            configProps.put(key, value);
            return this;
        }

        public Builder setStandalone(boolean standalone) {
            return this;
        }

        public Builder setInitialVoterSet(Map<Integer, Uuid> initialVoterSet) {
            throw new TestAbortedException("has a quorum of several controllers");
        }

        public Builder setDeleteOnClose(boolean deleteOnClose) {
            return this;
        }

        public KafkaClusterTestKit build() throws Exception {
            if (nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
                JaasModule module = JaasModule.plainLoginModule(
                    JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD, true,
                    Map.of(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD,
                        JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD)
                );
                JaasUtils.JaasSection section =
                    new JaasUtils.JaasSection(JaasUtils.KAFKA_SERVER_CONTEXT_NAME, java.util.List.of(module));
                JaasUtils.refreshJavaLoginConfigParam(JaasUtils.writeJaasContextsToFile(java.util.Set.of(section)));
            }
            Cluster cluster = new Cluster(nodes.bootstrapMetadata(), nodes.clusterId());
            Map<Integer, ControllerServer> controllers = new TreeMap<>();
            nodes.controllerNodes().forEach((id, node) -> controllers.put(id, cluster.controller(config(node))));
            Map<Integer, BrokerServer> brokers = new TreeMap<>();
            nodes.brokerNodes().forEach((id, node) -> brokers.put(id, cluster.broker(config(node))));
            return new KafkaClusterTestKit(nodes, cluster, controllers, brokers);
        }

        private KafkaConfig config(TestKitNode node) {
            String broker = nodes.brokerListenerName().value();
            String controller = nodes.controllerListenerName().value();
            boolean isBroker = nodes.brokerNodes().containsKey(node.id());
            boolean isController = nodes.controllerNodes().containsKey(node.id());
            Map<String, Object> settings = new HashMap<>(configProps);
            settings.put("node.id", Integer.toString(node.id()));
            settings.put("process.roles", isBroker && isController ? "broker,controller" : isBroker ? "broker" : "controller");
            settings.put("metadata.log.dir", node.metadataDirectory());
            settings.put("log.dirs", isBroker ? String.join(",", node.logDataDirectories()) : node.metadataDirectory());
            settings.putIfAbsent("listener.security.protocol.map",
                broker + ":" + nodes.brokerListenerProtocol() + "," + controller + ":" + nodes.controllerListenerProtocol());
            settings.putIfAbsent("listeners", (isBroker ? broker + "://localhost:0" : "")
                + (isBroker && isController ? "," : "") + (isController ? controller + "://localhost:0" : ""));
            settings.putIfAbsent("inter.broker.listener.name", broker);
            settings.putIfAbsent("controller.listener.names", controller);
            settings.put("controller.quorum.voters", nodes.controllerNodes().keySet().stream()
                .map(id -> id + "@localhost:1").collect(Collectors.joining(",")));
            settings.putIfAbsent("log.cleaner.dedupe.buffer.size", "2097152");
            if (nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
                settings.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
                settings.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
                settings.putIfAbsent("sasl.mechanism.controller.protocol", "PLAIN");
                settings.putIfAbsent("authorizer.class.name", StandardAuthorizer.class.getName());
                settings.putIfAbsent("allow.everyone.if.no.acl.found", "false");
                settings.putIfAbsent("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
            }
            settings.putAll(node.propertyOverrides());
            return new KafkaConfig(settings, false);
        }
    }

    public void format() {
    }

    public void startup() {
        brokers.values().forEach(BrokerServer::startup);
    }

    public void waitForReadyBrokers() {
    }

    public Admin admin() {
        return admin(Map.of());
    }

    public Admin admin(Map<String, Object> configs) {
        return admin(configs, false);
    }

    public Admin admin(Map<String, Object> configs, boolean usesControllers) {
        if (usesControllers) {
            throw new TestAbortedException("connects to a controller");
        }
        Map<String, Object> settings = new HashMap<>(configs);
        settings.putIfAbsent("bootstrap.servers", bootstrapServers());
        settings.putIfAbsent("security.protocol", nodes.brokerListenerProtocol().name);
        if (nodes.brokerListenerProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
            settings.putIfAbsent("sasl.mechanism", "PLAIN");
            settings.putIfAbsent("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\";",
                JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD));
        }
        return Admin.create(settings);
    }

    public String bootstrapServers() {
        ListenerName listener = nodes.brokerListenerName();
        return brokers.values().stream().map(broker -> "localhost:" + broker.boundPort(listener)).collect(Collectors.joining(","));
    }

    public String bootstrapControllers() {
        throw new TestAbortedException("connects to a controller");
    }

    public Map<Integer, ControllerServer> controllers() {
        return controllers;
    }

    public Controller waitForActiveController() {
        throw new TestAbortedException("looks into a controller");
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    public Map<Integer, KafkaRaftManager<ApiMessageAndVersion>> raftManagers() {
        throw new TestAbortedException("looks into a raft manager");
    }

    public TestKitNodes nodes() {
        return nodes;
    }

    public MockFaultHandler fatalFaultHandler() {
        return fatalFaultHandler;
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return nonFatalFaultHandler;
    }

    @Override
    public void close() throws InterruptedException {
        cluster.close();
        // A thread of a terminated executor may still run for an instant, in which a broker in the JVM would still stop.
        for (int waits = 0; waits < 100 && !threads.newThreads().isEmpty(); waits++) {
            Thread.sleep(10);
        }
    }
}
