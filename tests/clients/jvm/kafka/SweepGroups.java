import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Calls about groups: a classic one and a consumer group, with a member and after it has left. */
final class SweepGroups {
    private static final TopicPartition ORDERS = new TopicPartition("orders", 0);
    private static final Map<TopicPartition, OffsetAndMetadata> FIVE =
            Map.of(ORDERS, new OffsetAndMetadata(5, "note"));
    private final Recorder recorder;
    private final Admin admin;
    private final String bootstrap;

    SweepGroups(Recorder recorder, String bootstrap) {
        this.recorder = recorder;
        this.admin = recorder.admin;
        this.bootstrap = bootstrap;
    }

    void all() throws Exception {
        for (String protocol : List.of("classic", "consumer")) {
            try (KafkaConsumer<String, String> member = member(protocol)) {
                while (member.assignment().size() < 3) {
                    member.poll(Duration.ofMillis(50));
                }
                member.commitSync(FIVE);
                consumerGroup(protocol, "with a member");
            }
            Thread.sleep(200);
            consumerGroup(protocol, "left");
        }
        lists();
        removals();
        streams();
        shares();
    }

    private KafkaConsumer<String, String> member(String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", protocol + "-group");
        settings.put("group.protocol", protocol);
        settings.put("enable.auto.commit", "false");
        settings.put("client.id", "member");
        KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of("orders"));
        return consumer;
    }

    private static String shown(ConsumerGroupDescription found) {
        String members = found.members().stream()
                .map(each -> each.clientId() + " " + each.groupInstanceId() + " "
                        + each.assignment().topicPartitions().size() + " " + each.host().isEmpty() + " "
                        + each.memberEpoch() + " " + each.upgraded())
                .collect(Collectors.joining(","));
        return found.type() + " " + found.groupState() + " " + found.isSimpleConsumerGroup() + " "
                + found.partitionAssignor() + " " + found.coordinator().id() + " " + found.groupEpoch() + " "
                + found.targetAssignmentEpoch() + " " + found.authorizedOperations() + " [" + members + "]";
    }

    private void consumerGroup(String protocol, String when) throws Exception {
        String group = protocol + "-group";
        String is = " of a " + protocol + " group, " + when;
        recorder.call("describeConsumerGroups" + is, () -> shown(
                admin.describeConsumerGroups(List.of(group)).describedGroups().get(group).get()));
        recorder.call("describeClassicGroups" + is, () -> {
            var found = admin.describeClassicGroups(List.of(group)).describedGroups().get(group).get();
            return found.protocol() + " " + found.protocolData() + " " + found.state() + " " + found.members().size();
        });
        recorder.call("describeShareGroups" + is, () -> admin.describeShareGroups(List.of(group))
                .all()
                .get()
                .size());
        recorder.call("listConsumerGroupOffsets" + is, () -> admin.listConsumerGroupOffsets(group)
                .partitionsToOffsetAndMetadata()
                .get());
        recorder.call("listConsumerGroupOffsets of some" + is, () -> admin.listConsumerGroupOffsets(
                        Map.of(group, new ListConsumerGroupOffsetsSpec()
                                .topicPartitions(List.of(new TopicPartition("orders", 1)))))
                .all()
                .get());
        recorder.call("alterConsumerGroupOffsets" + is, () -> admin.alterConsumerGroupOffsets(group, FIVE).all().get());
        recorder.call("deleteConsumerGroupOffsets" + is, () -> admin.deleteConsumerGroupOffsets(group, Set.of(ORDERS))
                .all()
                .get());
        recorder.call("deleteConsumerGroups" + is, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
    }

    private static List<String> shown(Collection<GroupListing> found) {
        return found.stream()
                .map(each -> each.groupId() + " " + each.type() + " '" + each.protocol() + "' " + each.groupState())
                .sorted()
                .collect(Collectors.toList());
    }

    /** Calls about a group without members, whose offsets an AdminClient has committed. */
    @SuppressWarnings({"deprecation", "removal"})
    private void lists() throws Exception {
        recorder.call("alterConsumerGroupOffsets of a new group", () -> admin.alterConsumerGroupOffsets("simple", FIVE)
                .all()
                .get());
        recorder.call("alterConsumerGroupOffsets of no topic", () -> admin.alterConsumerGroupOffsets(
                        "simple", Map.of(new TopicPartition("nothing", 0), new OffsetAndMetadata(1)))
                .all()
                .get());
        recorder.call("listGroups", () -> shown(admin.listGroups().all().get()));
        recorder.call("listGroups by type", () -> shown(
                admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.CLASSIC))).all().get()));
        recorder.call("listGroups of consumers", () -> shown(
                admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get()));
        recorder.call("listConsumerGroups", () -> new TreeSet<>(admin.listConsumerGroups().all().get().stream()
                .map(each -> each.groupId() + " " + each.isSimpleConsumerGroup() + " " + each.state())
                .collect(Collectors.toSet())));
        recorder.call("describeConsumerGroups of a simple group", () -> shown(
                admin.describeConsumerGroups(List.of("simple")).all().get().get("simple")));
        recorder.call("describeConsumerGroups of none", () -> shown(
                admin.describeConsumerGroups(List.of("nothing")).describedGroups().get("nothing").get()));
        recorder.call("listConsumerGroupOffsets of none", () -> admin.listConsumerGroupOffsets("nothing").all().get());
        recorder.call("deleteConsumerGroupOffsets of none", () -> admin.deleteConsumerGroupOffsets(
                        "nothing", Set.of(ORDERS))
                .all()
                .get());
        recorder.call("deleteConsumerGroups of none", () -> admin.deleteConsumerGroups(List.of("nothing")).all().get());
    }

    private void removals() throws Exception {
        recorder.call("removeMembersFromConsumerGroup of all", () -> admin.removeMembersFromConsumerGroup(
                        "simple", new RemoveMembersFromConsumerGroupOptions())
                .all()
                .get());
        recorder.call("removeMembersFromConsumerGroup of one", () -> admin.removeMembersFromConsumerGroup(
                        "simple", new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("absent"))))
                .all()
                .get());
        try (KafkaConsumer<String, String> member = member("classic")) {
            while (member.assignment().size() < 3) {
                member.poll(Duration.ofMillis(50));
            }
            recorder.call("removeMembersFromConsumerGroup of a live one", () -> admin.removeMembersFromConsumerGroup(
                            "classic-group", new RemoveMembersFromConsumerGroupOptions())
                    .all()
                    .get());
            recorder.call("describeConsumerGroups after it", () -> shown(admin.describeConsumerGroups(
                            List.of("classic-group"))
                    .all()
                    .get()
                    .get("classic-group")));
        }
    }

    private void streams() throws Exception {
        recorder.call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of("simple")).all().get());
        recorder.call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(
                        Map.of("simple", new ListStreamsGroupOffsetsSpec()))
                .all()
                .get());
        recorder.call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets("simple", FIVE).all().get());
        recorder.call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets("simple", Set.of(ORDERS))
                .all()
                .get());
        recorder.call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of("simple")).all().get());
        recorder.call("listGroups of streams", () -> shown(
                admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get()));
    }

    private void shares() throws Exception {
        recorder.call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets("shared", Map.of(ORDERS, 1L))
                .all()
                .get());
        recorder.call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(
                        Map.of("shared", new ListShareGroupOffsetsSpec()))
                .all()
                .get()
                .size());
        recorder.call("describeShareGroups", () -> admin.describeShareGroups(List.of("shared")).all().get().size());
        recorder.call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets("shared", Set.of("orders"))
                .all()
                .get());
        recorder.call("deleteShareGroups", () -> admin.deleteShareGroups(List.of("shared")).all().get());
        recorder.call("listGroups of shares", () -> shown(
                admin.listGroups(ListGroupsOptions.forShareGroups()).all().get()));
    }
}
