import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.RaftVoterEndpoint;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.Measurable;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.utils.Time;

/** Calls about the cluster: users, quotas, features, its quorum; and the client's own metrics. */
final class SweepCluster {
    private static final byte[] HMAC = "secret".getBytes(StandardCharsets.UTF_8);
    private final Recorder recorder;
    private final Admin admin;

    SweepCluster(Recorder recorder) {
        this.recorder = recorder;
        this.admin = recorder.admin;
    }

    void all() throws Exception {
        security();
        quotas();
        features();
        quorum();
        itself();
    }

    private void security() throws Exception {
        AclBinding binding = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
                new AccessControlEntry("User:ann", "*", AclOperation.READ, AclPermissionType.ALLOW));
        recorder.call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
        recorder.call("createAcls", () -> admin.createAcls(List.of(binding)).all().get());
        recorder.call("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all().get());
        recorder.call("createDelegationToken", () -> admin.createDelegationToken().delegationToken().get());
        recorder.call("renewDelegationToken", () -> admin.renewDelegationToken(HMAC).expiryTimestamp().get());
        recorder.call("expireDelegationToken", () -> admin.expireDelegationToken(HMAC).expiryTimestamp().get());
        recorder.call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens().get());
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        ScramCredentialInfo weak = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 1);
        recorder.call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(
                        List.of(new UserScramCredentialUpsertion("ann", info, "password")))
                .all()
                .get());
        recorder.call("alterUserScramCredentials with few rounds", () -> admin.alterUserScramCredentials(
                        List.of(new UserScramCredentialUpsertion("ann", weak, "password")))
                .all()
                .get());
        recorder.call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all().get());
        recorder.call("describeUserScramCredentials of none", () -> admin.describeUserScramCredentials(List.of("bob"))
                .description("bob")
                .get());
        recorder.call("alterUserScramCredentials deletes", () -> delete("ann"));
        recorder.call("alterUserScramCredentials deletes none", () -> delete("bob"));
    }

    private Object delete(String user) throws Exception {
        return admin.alterUserScramCredentials(
                        List.of(new UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)))
                .all()
                .get();
    }

    private void quotas() throws Exception {
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "ann"));
        ClientQuotaEntity odd = new ClientQuotaEntity(Map.of("planet", "mars"));
        recorder.call("alterClientQuotas", () -> alter(user, "producer_byte_rate", 1e6));
        recorder.call("alterClientQuotas of what is none", () -> alter(user, "speed", 1.0));
        recorder.call("alterClientQuotas of an unknown kind", () -> alter(odd, "producer_byte_rate", 1e6));
        recorder.call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get());
        recorder.call("alterClientQuotas removes", () -> alter(user, "producer_byte_rate", null));
        recorder.call("describeClientQuotas of none", () -> admin.describeClientQuotas(ClientQuotaFilter.all())
                .entities()
                .get());
    }

    private Object alter(ClientQuotaEntity entity, String key, Double value) throws Exception {
        return admin.alterClientQuotas(
                        List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, value)))))
                .all()
                .get();
    }

    private void features() throws Exception {
        recorder.call("describeFeatures", () -> {
            var found = admin.describeFeatures().featureMetadata().get();
            TreeMap<String, String> levels = new TreeMap<>();
            for (String name : List.of("transaction.version", "group.version", "metadata.version")) {
                levels.put(name, String.valueOf(found.finalizedFeatures().get(name)));
            }
            return levels + " " + found.finalizedFeaturesEpoch().isPresent();
        });
        recorder.call("updateFeatures validated", () -> update("group.version", 0, true));
        recorder.call("updateFeatures to the same", () -> update("transaction.version", 2, false));
        recorder.call("updateFeatures to an unknown level", () -> update("transaction.version", 9, false));
        recorder.call("updateFeatures of none", () -> update("flying.version", 1, false));
    }

    private Object update(String feature, int level, boolean validated) throws Exception {
        FeatureUpdate.UpgradeType type =
                level == 0 ? FeatureUpdate.UpgradeType.SAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE;
        return admin.updateFeatures(
                        Map.of(feature, new FeatureUpdate((short) level, type)),
                        new UpdateFeaturesOptions().validateOnly(validated))
                .all()
                .get();
    }

    private void quorum() throws Exception {
        Uuid directory = new Uuid(7, 7);
        recorder.call("describeMetadataQuorum", () -> {
            QuorumInfo found = admin.describeMetadataQuorum().quorumInfo().get();
            return found.leaderId() + " " + found.voters().size() + " " + found.observers().size() + " "
                    + (found.highWatermark() > 0);
        });
        recorder.call("addRaftVoter", () -> admin.addRaftVoter(
                        7, directory, Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 9)))
                .all()
                .get());
        recorder.call("removeRaftVoter", () -> admin.removeRaftVoter(7, directory).all().get());
        recorder.call("unregisterBroker of none", () -> admin.unregisterBroker(9).all().get());
        recorder.call("unregisterController of none", () -> admin.unregisterController(9).all().get());
    }

    private void itself() throws Exception {
        KafkaMetric metric = new KafkaMetric(
                new Object(),
                new MetricName("own", "sweep", "a metric of the application", Map.of()),
                (Measurable) (config, now) -> 1.0,
                new MetricConfig(),
                Time.SYSTEM);
        recorder.call("registerMetricForSubscription", () -> {
            admin.registerMetricForSubscription(metric);
            return null;
        });
        recorder.call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(10)) != null);
        recorder.call("unregisterMetricFromSubscription", () -> {
            admin.unregisterMetricFromSubscription(metric);
            return null;
        });
        recorder.call("metrics", () -> new TreeSet<>(admin.metrics().keySet().stream()
                .map(MetricName::group)
                .collect(Collectors.toSet())));
    }
}
