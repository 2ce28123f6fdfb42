package odradek;

import java.io.File;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.DescribeProducersOptions;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/** Stand-ins for the logs of a broker: the leader's offsets and the broker's producers, as an AdminClient gets them. */
final class Logs {
    private final String bootstrapServers;
    private final int id;
    private final File directory;

    Logs(String bootstrapServers, int id, File directory) {
        this.bootstrapServers = bootstrapServers;
        this.id = id;
        this.directory = directory;
    }

    UnifiedLog of(TopicPartition partition) {
        Map<String, Function<Object[], Object>> members = new HashMap<>();
        members.put("topicPartition", args -> partition);
        members.put("logStartOffset", args -> offset(partition, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED));
        members.put("logEndOffset", args -> offset(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        members.put("highWatermark", args -> offset(partition, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED));
        members.put("lastStableOffset", args -> offset(partition, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED));
        members.put("dir", args -> new File(directory, partition.toString()));
        ProducerStateManager producers =
            StandIn.of(ProducerStateManager.class, Map.of("activeProducers", args -> activeProducers(partition)));
        members.put("producerStateManager", args -> producers);
        return StandIn.of(UnifiedLog.class, members);
    }

    private long offset(TopicPartition partition, OffsetSpec spec, IsolationLevel isolation) {
        try (Admin admin = admin()) {
            return admin.listOffsets(Map.of(partition, spec), new ListOffsetsOptions(isolation)).partitionResult(partition).get().offset();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private Map<Long, ProducerStateEntry> activeProducers(TopicPartition partition) {
        Map<Long, ProducerStateEntry> entries = new HashMap<>();
        try (Admin admin = admin()) {
            var described = admin.describeProducers(List.of(partition), new DescribeProducersOptions().brokerId(id));
            for (ProducerState each : described.partitionResult(partition).get().activeProducers()) {
                entries.put(each.producerId(), new ProducerStateEntry(
                    each.producerId(), (short) each.producerEpoch(), each.coordinatorEpoch().orElse(-1), each.lastTimestamp(),
                    each.currentTransactionStartOffset()
                ));
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return entries;
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrapServers));
    }
}
