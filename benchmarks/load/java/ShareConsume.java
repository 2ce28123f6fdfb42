import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One share consumer with default settings, which acknowledges the records of each poll by the next one. The time begins with
 * its first records: Kafka's own perf tool includes the five seconds in which the group forms.
 */
public class ShareConsume {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        String group = arguments[2];
        long wanted = Long.parseLong(arguments[3]);
        String pid = arguments[4];

        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "group.id", group,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            if (consumer.poll(TIMEOUT).isEmpty()) {
                throw new IllegalStateException("the share consumer got no record in time");
            }
            Usage usage = new Usage(pid);
            long records = 0;
            long bytes = 0;
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(TIMEOUT);
                if (polled.isEmpty()) {
                    throw new IllegalStateException("only " + records + " of " + wanted + " records in time");
                }
                records += polled.count();
                for (ConsumerRecord<byte[], byte[]> each : polled) {
                    bytes += each.serializedValueSize();
                }
            }
            System.out.println(usage.times().outcome(records, bytes, ""));
        }
    }
}
