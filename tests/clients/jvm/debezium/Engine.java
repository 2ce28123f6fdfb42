import io.debezium.config.Configuration;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import io.debezium.relational.SystemVariables;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.Tables;
import io.debezium.relational.ddl.DdlChanges;
import io.debezium.relational.ddl.DdlParser;
import io.debezium.relational.history.HistoryRecordComparator;
import io.debezium.relational.history.SchemaHistoryListener;
import io.debezium.storage.kafka.history.KafkaSchemaHistory;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Debezium's embedded engine: reads the lines of a file, with its offsets in a topic. A schema history in another topic is
 * read at each start, and gets one more statement.
 *
 * Engine BOOTSTRAP FILE
 *
 * The engine is closed when the program's standard input ends.
 */
public final class Engine {
    private static void say(String name, Object value) {
        System.out.println("{\"" + name + "\": " + value + "}");
    }

    /** Parses statements of the form "CREATE TABLE name". */
    private static final class Parser implements DdlParser {
        @Override
        public void parse(String statement, Tables tables) {
            TableId table = new TableId("shop", null, statement.split(" ")[2]);
            tables.overwriteTable(Table.editor().tableId(table).create());
        }

        @Override
        public void setCurrentDatabase(String name) {}

        @Override
        public void setCurrentSchema(String name) {}

        @Override
        public DdlChanges getDdlChanges() {
            return null;
        }

        @Override
        public SystemVariables systemVariables() {
            return new SystemVariables();
        }
    }

    private static void history(String bootstrap) throws Exception {
        KafkaSchemaHistory history = new KafkaSchemaHistory();
        Configuration configuration = Configuration.create()
                .with(KafkaSchemaHistory.BOOTSTRAP_SERVERS, bootstrap)
                .with(KafkaSchemaHistory.TOPIC, "schema-history")
                .with("schema.history.internal.name", "history")
                .with("schema.history.internal.connector.class", "Engine")
                .with("schema.history.internal.connector.id", "engine")
                .build();
        history.configure(configuration, HistoryRecordComparator.INSTANCE, SchemaHistoryListener.NOOP, true);
        if (!history.storageExists()) {
            history.initializeStorage();
        }
        history.start();
        Map<String, String> server = Map.of("server", "shop");
        Tables tables = new Tables();
        if (history.exists()) {
            history.recover(server, Map.of("position", 9), tables, new Parser());
        }
        say("tables", tables.size());
        history.record(server, Map.of("position", tables.size()), "shop", "CREATE TABLE table" + tables.size());
        history.stop();
    }

    private static Properties settings(String bootstrap, String file) {
        Properties settings = new Properties();
        settings.put("name", "engine");
        settings.put("connector.class", "org.apache.kafka.connect.file.FileStreamSourceConnector");
        settings.put("file", file);
        settings.put("topic", "lines");
        settings.put("offset.storage", "org.apache.kafka.connect.storage.KafkaOffsetBackingStore");
        settings.put("offset.storage.topic", "engine-offsets");
        settings.put("offset.storage.partitions", "1");
        settings.put("offset.storage.replication.factor", "1");
        settings.put("offset.flush.interval.ms", "0");
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    public static void main(String[] args) throws Exception {
        history(args[0]);
        ExecutorService thread = Executors.newSingleThreadExecutor();
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(settings(args[0], args[1]))
                .using((success, message, error) -> say("ended", success))
                .notifying((events, committer) -> {
                    for (ChangeEvent<String, String> event : events) {
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    for (ChangeEvent<String, String> event : events) {
                        say("event", event.value());
                    }
                })
                .build();
        thread.execute(engine);
        while (System.in.read() >= 0) {}
        engine.close();
        thread.shutdown();
    }
}
