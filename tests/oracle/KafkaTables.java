import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.reflect.Field;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints as JSON what Apache Kafka's classes declare: settings of brokers, topics and groups, error codes, features. */
public class KafkaTables {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> tables = new TreeMap<>();
        tables.put("broker", broker());
        tables.put("topic", settings(LogConfig.configDefCopy()));
        tables.put("group", settings(GroupConfig.CONFIG_DEF));
        tables.put("errors", errors());
        tables.put("features", features());
        tables.put("metadata_versions", metadataVersions());
        System.out.println(new ObjectMapper().writeValueAsString(tables));
    }

    static Map<String, Object> broker() throws Exception {
        Map<String, Map<String, Object>> rows = settings(KafkaConfig.configDef());
        Map<String, String> modes = updateModes();
        rows.forEach((name, row) -> row.put("mode", modes.getOrDefault(name, "read-only")));
        return new TreeMap<>(rows);
    }

    /** The update mode of each dynamic setting. The class was written in Scala up to Kafka 4.3. */
    @SuppressWarnings("unchecked")
    static Map<String, String> updateModes() throws Exception {
        for (String name : List.of("org.apache.kafka.server.config.DynamicBrokerConfig", "kafka.server.DynamicBrokerConfig")) {
            try {
                return (Map<String, String>) Class.forName(name).getMethod("dynamicConfigUpdateModes").invoke(null);
            } catch (ClassNotFoundException | NoSuchMethodException absent) {
                continue;
            }
        }
        throw new IllegalStateException("no class has dynamicConfigUpdateModes");
    }

    static Map<String, Map<String, Object>> settings(ConfigDef definition) throws Exception {
        Map<String, Map<String, Object>> rows = new TreeMap<>();
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("type", key.type.name());
            row.put("default", key.hasDefault() ? key.defaultValue : null);
            row.put("check", key.validator == null ? null : check(key.validator));
            row.put("internal", key.internalConfig);
            row.put("required", !key.hasDefault());
            rows.put(key.name, row);
        }
        return rows;
    }

    /** Class and text of a validator, and the switches of a ValidList. */
    static Map<String, Object> check(ConfigDef.Validator validator) throws Exception {
        Map<String, Object> check = new LinkedHashMap<>();
        check.put("class", validator.getClass().getSimpleName());
        check.put("text", validator.toString());
        if (validator instanceof ConfigDef.ValidList) {
            Field field = ConfigDef.ValidList.class.getDeclaredField("isEmptyAllowed");
            field.setAccessible(true);
            check.put("empty", field.get(validator));
        }
        return check;
    }

    static Map<Short, String> errors() {
        Map<Short, String> codes = new TreeMap<>();
        for (Errors error : Errors.values()) {
            codes.put(error.code(), error.name());
        }
        return codes;
    }

    static Map<String, Object> features() {
        Map<String, Object> levels = new TreeMap<>();
        for (Feature feature : Feature.values()) {
            levels.put(feature.featureName(), List.of(feature.minimumProduction(), feature.latestProduction()));
        }
        return levels;
    }

    static Map<Short, Object> metadataVersions() {
        Map<Short, Object> versions = new TreeMap<>();
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            versions.put(version.featureLevel(), List.of(version.version(), version.isProduction()));
        }
        return versions;
    }
}
