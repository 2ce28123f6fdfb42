import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/** The orders to a KafkaShareConsumer in the driver. */
final class ShareMember {
    private final KafkaShareConsumer<String, String> consumer;
    private List<ConsumerRecord<String, String>> polled = List.of();

    ShareMember(Properties properties, String topic) {
        consumer = new KafkaShareConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
    }

    Object obey(String what, JsonNode order) {
        switch (what) {
            case "poll":
                return poll(Duration.ofMillis(order.get("timeout_ms").asLong()));
            case "acknowledge":
                polled.stream()
                        .filter(each -> each.offset() == order.get("offset").asLong())
                        .forEach(each -> consumer.acknowledge(each, type(order)));
                return true;
            case "commit":
                return errors();
            case "close":
                consumer.close();
                return true;
            default:
                throw new IllegalArgumentException(what);
        }
    }

    private static AcknowledgeType type(JsonNode order) {
        return AcknowledgeType.valueOf(order.get("type").asText().toUpperCase());
    }

    /** Offset, delivery count and value of each record. */
    private Object poll(Duration timeout) {
        polled = new ArrayList<>();
        consumer.poll(timeout).forEach(polled::add);
        List<Object> records = new ArrayList<>();
        for (ConsumerRecord<String, String> each : polled) {
            records.add(List.of(each.offset(), each.deliveryCount().orElse((short) -1), each.value()));
        }
        return records;
    }

    private Set<String> errors() {
        Set<String> names = new TreeSet<>();
        for (Optional<KafkaException> each : consumer.commitSync().values()) {
            each.ifPresent(error -> names.add(error.getClass().getSimpleName()));
        }
        return names;
    }
}
