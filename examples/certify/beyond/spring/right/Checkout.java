import java.util.Map;
import javax.sql.DataSource;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.AfterRollbackProcessor;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.util.backoff.FixedBackOff;

/** Stores each record as a row, and sends an event. */
@SpringBootConfiguration
@EnableAutoConfiguration
public class Checkout {
    private static final Map<String, Object> SETTINGS = Map.ofEntries(
            Map.entry("spring.main.banner-mode", "off"),
            Map.entry(
                    "spring.datasource.url",
                    "jdbc:postgresql://${ODRADEK_POSTGRES_HOST}:${ODRADEK_POSTGRES_PORT}/${ODRADEK_POSTGRES_DATABASE}"),
            Map.entry("spring.datasource.username", "${ODRADEK_POSTGRES_USER}"),
            Map.entry("spring.datasource.password", "${ODRADEK_POSTGRES_PASSWORD}"),
            Map.entry("spring.datasource.hikari.maximum-pool-size", "2"),
            Map.entry("spring.kafka.bootstrap-servers", "${KAFKA_BOOTSTRAP_SERVERS}"),
            Map.entry("spring.kafka.consumer.group-id", "checkout"),
            Map.entry("spring.kafka.consumer.auto-offset-reset", "earliest"),
            Map.entry("spring.kafka.consumer.isolation-level", "read_committed"),
            Map.entry("spring.kafka.producer.transaction-id-prefix", "checkout-"));

    @Bean
    @Primary
    JdbcTransactionManager transactionManager(DataSource database) {
        return new JdbcTransactionManager(database);
    }

    @Bean
    AfterRollbackProcessor<Object, Object> afterRollback() {
        return new DefaultAfterRollbackProcessor<>(new FixedBackOff(100, FixedBackOff.UNLIMITED_ATTEMPTS));
    }

    @Bean
    Listener listener(JdbcTemplate database, KafkaTemplate<String, String> kafka) {
        return new Listener(database, kafka);
    }

    /** Processes one record. */
    static class Listener {
        private final JdbcTemplate database;
        private final KafkaTemplate<String, String> kafka;

        Listener(JdbcTemplate database, KafkaTemplate<String, String> kafka) {
            this.database = database;
            this.kafka = kafka;
        }

        @KafkaListener(topics = "in")
        @Transactional
        public void process(ConsumerRecord<String, String> record) {
            String id = record.value();
            database.update(
                    "INSERT INTO results (id, amount) VALUES (?, ?) ON CONFLICT (id) DO NOTHING",
                    id,
                    Long.parseLong(id.substring(1)));
            kafka.send("out", record.key(), id.toUpperCase());
        }
    }

    public static void main(String[] args) {
        SpringApplication application = new SpringApplication(Checkout.class);
        application.setDefaultProperties(SETTINGS);
        application.run(args);
    }
}
