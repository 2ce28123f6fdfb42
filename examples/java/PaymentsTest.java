import static org.junit.jupiter.api.Assertions.assertEquals;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

@ExtendWith(Odradek.class)
class PaymentsTest {
  private static final TopicPartition ORDERS = new TopicPartition("orders", 0);

  @Test
  void aCommitWhoseAnswerIsLostIsCommittedOnce(Odradek broker) throws Exception {
    int rule = broker.addFault("EndTxn nth=1 -> lose-answer");
    commit(broker);
    assertEquals(2, endOffset(broker)); // the record and its marker
    assertEquals(1, broker.hits(rule));
  }

  @Test
  void theTestBeforeHasLeftNothing(Odradek broker) {
    assertEquals(0, endOffset(broker));
    commit(broker);
    assertEquals(2, endOffset(broker));
  }

  private static void commit(Odradek broker) {
    Map<String, Object> config = Map.of("bootstrap.servers", broker.bootstrapServers(), "transactional.id", "payments");
    try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
      producer.initTransactions();
      producer.beginTransaction();
      producer.send(new ProducerRecord<>("orders", 0, "42", "paid"));
      producer.commitTransaction();
    }
  }

  private static long endOffset(Odradek broker) {
    Map<String, Object> config = Map.of("bootstrap.servers", broker.bootstrapServers(), "isolation.level", "read_committed");
    try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
      return consumer.endOffsets(List.of(ORDERS), Duration.ofMinutes(1)).get(ORDERS);
    }
  }
}
