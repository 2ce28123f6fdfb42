import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Stores the records of a topic as rows, with an event for each in the table outbox. The worker in the same process sends the
 * events to a topic: Shop WORKER.properties CONNECTOR.json.
 */
public final class Shop {
    private Shop() {}

    public static void main(String[] args) throws Exception {
        try (Connection database = connect()) {
            migrate(database);
        }
        Thread worker = new Thread(() -> work(args));
        worker.setDaemon(true);
        worker.start();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of("in"));
            while (true) {
                try (Connection database = connect()) {
                    store(consumer, database);
                } catch (SQLException failed) {
                    System.err.println(failed);
                    Thread.sleep(100);
                    consumer.unsubscribe();
                    consumer.subscribe(List.of("in"));
                }
            }
        }
    }

    private static void work(String[] args) {
        try {
            Worker.main(args);
        } catch (Exception failed) {
            failed.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static Connection connect() throws SQLException {
        String url = String.format(
                "jdbc:postgresql://%s:%s/%s",
                System.getenv("ODRADEK_POSTGRES_HOST"),
                System.getenv("ODRADEK_POSTGRES_PORT"),
                System.getenv("ODRADEK_POSTGRES_DATABASE"));
        return DriverManager.getConnection(
                url, System.getenv("ODRADEK_POSTGRES_USER"), System.getenv("ODRADEK_POSTGRES_PASSWORD"));
    }

    private static void migrate(Connection database) throws SQLException {
        try (Statement statement = database.createStatement()) {
            statement.execute("CREATE TABLE IF NOT EXISTS outbox"
                    + " (id text PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload text)");
            statement.execute("DO $$ BEGIN CREATE PUBLICATION shop FOR TABLE outbox;"
                    + " EXCEPTION WHEN duplicate_object THEN NULL; END $$");
            statement.execute("SELECT pg_create_logical_replication_slot('shop', 'pgoutput')"
                    + " WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = 'shop')");
        }
    }

    private static KafkaConsumer<String, String> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put("group.id", "shop");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "10");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void store(KafkaConsumer<String, String> consumer, Connection database) throws SQLException {
        database.setAutoCommit(false);
        try (PreparedStatement row = database.prepareStatement(
                        "INSERT INTO results (id, amount) VALUES (?, ?) ON CONFLICT (id) DO NOTHING");
                PreparedStatement event = database.prepareStatement(
                        "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (?, 'payment', ?, 'made', ?)")) {
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<String, String> record : records) {
                    row.setString(1, record.value());
                    row.setLong(2, Long.parseLong(record.value().substring(1)));
                    if (row.executeUpdate() == 1) {
                        event.setString(1, record.value());
                        event.setString(2, record.key());
                        event.setString(3, record.value().toUpperCase());
                        event.executeUpdate();
                    }
                }
                if (!records.isEmpty()) {
                    database.commit();
                    consumer.commitSync();
                }
            }
        }
    }
}
