import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.core.env.MapPropertySource;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties.EOSMode;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener that writes a result for each record, in transactions. It fails at the first attempt for some records, and
 * at each attempt for others, which are sent to the dead-letter topic.
 *
 * Application BOOTSTRAP PROTOCOL
 *
 * The context is closed when the standard input ends.
 */
@Configuration
@EnableKafka
public class Application {
    @Bean
    ProducerFactory<String, String> producerFactory(Environment environment) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, environment.getRequiredProperty("bootstrap"));
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        settings.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 5_000);
        settings.put(ProducerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 100);
        DefaultKafkaProducerFactory<String, String> factory = new DefaultKafkaProducerFactory<>(settings);
        factory.setTransactionIdPrefix("application-");
        return factory;
    }

    @Bean
    ConsumerFactory<String, String> consumerFactory(Environment environment) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, environment.getRequiredProperty("bootstrap"));
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, "application");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        settings.put(ConsumerConfig.RECONNECT_BACKOFF_MAX_MS_CONFIG, 100);
        String protocol = environment.getRequiredProperty("protocol");
        settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, protocol);
        if (protocol.equals("classic")) {
            settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 2_000);
            settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 200);
        }
        return new DefaultKafkaConsumerFactory<>(settings);
    }

    @Bean
    KafkaTransactionManager<String, String> transactionManager(ProducerFactory<String, String> producers) {
        return new KafkaTransactionManager<>(producers);
    }

    @Bean
    KafkaTemplate<String, String> template(ProducerFactory<String, String> producers) {
        return new KafkaTemplate<>(producers);
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory(
            ConsumerFactory<String, String> consumers,
            KafkaTransactionManager<String, String> transactions,
            KafkaTemplate<String, String> template) {
        ConcurrentKafkaListenerContainerFactory<String, String> factory =
                new ConcurrentKafkaListenerContainerFactory<>();
        factory.setConsumerFactory(consumers);
        factory.setConcurrency(2);
        factory.getContainerProperties().setKafkaAwareTransactionManager(transactions);
        factory.getContainerProperties().setEosMode(EOSMode.V2);
        // Two more attempts. After that the record is sent to the dead-letter topic in a transaction that commits its offset.
        factory.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(
                new DeadLetterPublishingRecoverer(template), new FixedBackOff(0, 2), template, true));
        return factory;
    }

    @Bean
    Listener listener(KafkaTemplate<String, String> template) {
        return new Listener(template);
    }

    /** Processes one record. */
    static final class Listener {
        private final KafkaTemplate<String, String> template;
        private final Set<String> seen = ConcurrentHashMap.newKeySet();

        Listener(KafkaTemplate<String, String> template) {
            this.template = template;
        }

        @KafkaListener(topics = "in")
        void process(ConsumerRecord<String, String> record) {
            String value = record.value();
            template.send("out", record.key(), "<" + value + ">");
            if (value.endsWith("13")) {
                throw new IllegalStateException("it never can be processed: " + value);
            }
            if (value.endsWith("7") && seen.add(value)) {
                throw new IllegalStateException("the first attempt fails: " + value);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        AnnotationConfigApplicationContext context = new AnnotationConfigApplicationContext();
        Map<String, Object> properties = Map.of("bootstrap", args[0], "protocol", args[1]);
        context.getEnvironment().getPropertySources().addFirst(new MapPropertySource("arguments", properties));
        context.register(Application.class);
        context.refresh();
        System.out.println("{\"started\": true}");
        while (System.in.read() >= 0) {}
        context.close();
    }
}
