package kafka.server;

import java.io.File;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import kafka.integration.KafkaServerTestHarness;
import kafka.utils.Logging;
import odradek.Cluster;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.storage.Formatter;
import org.apache.kafka.server.fault.FaultHandler;
import org.opentest4j.TestAbortedException;
import scala.Option;

/** The brokers of the tests that extend QuorumTestHarness, as nodes of Odradek. */
public class KRaftQuorumImplementation implements QuorumImplementation {
    private final ControllerServer controllerServer;
    private final FaultHandlerFactory faultHandlerFactory;
    private final String clusterId;
    private final Logging harness;
    private final Cluster cluster;

    public KRaftQuorumImplementation(
        ControllerServer controllerServer,
        FaultHandlerFactory faultHandlerFactory,
        File metadataDir,
        CompletableFuture<Map<Integer, InetSocketAddress>> controllerQuorumVotersFuture,
        String clusterId,
        Logging harness,
        FaultHandler faultHandler
    ) {
        this.controllerServer = controllerServer;
        this.faultHandlerFactory = faultHandlerFactory;
        this.clusterId = clusterId;
        this.harness = harness;
        this.cluster = Cluster.of(controllerServer, clusterId, scramArguments(harness));
    }

    /** The users that the harness gives to the formatter. The formatted metadata has only salted passwords. */
    private static List<String> scramArguments(Logging harness) {
        List<String> arguments = new ArrayList<>();
        if (harness instanceof QuorumTestHarness test) {
            test.addFormatterSettings(new Formatter() {
                @Override
                public Formatter setScramArguments(List<String> given) {
                    arguments.addAll(given);
                    return this;
                }
            });
        }
        return arguments;
    }

    public ControllerServer controllerServer() {
        return controllerServer;
    }

    public FaultHandlerFactory faultHandlerFactory() {
        return faultHandlerFactory;
    }

    public String clusterId() {
        return clusterId;
    }

    @Override
    public KafkaBroker createBroker(KafkaConfig config, Time time, boolean startup, Option<String> threadNamePrefix) {
        if (time != Time.SYSTEM) {
            throw new TestAbortedException("sets the time of a JVM broker");
        }
        if (harness instanceof KafkaServerTestHarness all) {
            // The nodes of Odradek start together.
            all.configs().foreach(each -> {
                cluster.configure(each);
                return null;
            });
        }
        BrokerServer broker = cluster.broker(config);
        if (startup) {
            broker.startup();
        }
        return broker;
    }

    @Override
    public void shutdown() {
        cluster.close();
    }
}
