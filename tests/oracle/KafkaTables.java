import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Pattern;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints as JSON what Apache Kafka's classes declare: settings of brokers, topics and groups, error codes, features. */
public class KafkaTables {
    static final Pattern RECORD_CLASS = Pattern.compile("org/apache/kafka/(common/metadata/\\w+Record"
        + "|.*/generated/\\w+(Key|Value|Snapshot|Txn)"
        + "|common/message/(\\w+Record|LeaderChangeMessage|EndTxnMarker|ConsumerProtocol(Assignment|Subscription)))\\.class");

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> tables = new TreeMap<>();
        tables.put("broker", broker());
        tables.put("topic", topic());
        tables.put("group", group());
        tables.put("errors", errors());
        tables.put("features", features());
        tables.put("metadata_versions", metadataVersions());
        tables.put("records", records());
        System.out.println(new ObjectMapper().writeValueAsString(tables));
    }

    static Map<String, Object> broker() throws Exception {
        Map<String, Map<String, Object>> rows = settings(KafkaConfig.configDef());
        Map<String, String> modes = updateModes();
        rows.forEach((name, row) -> row.put("mode", modes.getOrDefault(name, "read-only")));
        return new TreeMap<>(rows);
    }

    static Map<String, Map<String, Object>> topic() throws Exception {
        Map<String, Map<String, Object>> rows = settings(LogConfig.configDefCopy());
        rows.forEach((name, row) -> row.put("synonyms", ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS
            .getOrDefault(name, List.of()).stream().map(ConfigSynonym::name).toList()));
        return rows;
    }

    static Map<String, Map<String, Object>> group() throws Exception {
        Map<String, Map<String, Object>> rows = settings(groupConfigDef());
        Map<String, Optional<String>> synonyms = groupSynonyms();
        rows.forEach((name, row) -> row.put("synonyms", synonyms.getOrDefault(name, Optional.empty()).stream().toList()));
        return rows;
    }

    /** The definition is a constant since Kafka 4.3. */
    static ConfigDef groupConfigDef() throws Exception {
        try {
            return (ConfigDef) GroupConfig.class.getField("CONFIG_DEF").get(null);
        } catch (NoSuchFieldException absent) {
            return (ConfigDef) GroupConfig.class.getMethod("configDef").invoke(null);
        }
    }

    /** Kafka 4.2 has no table of the synonyms of group settings: its describe has none to show. */
    @SuppressWarnings("unchecked")
    static Map<String, Optional<String>> groupSynonyms() throws Exception {
        try {
            return (Map<String, Optional<String>>) GroupConfig.class.getField("ALL_GROUP_CONFIG_SYNONYMS").get(null);
        } catch (NoSuchFieldException absent) {
            return Map.of();
        }
    }

    /** The update mode of each dynamic setting. The class is of Java since Kafka 4.4, and in 4.2 the method is not static. */
    @SuppressWarnings("unchecked")
    static Map<String, String> updateModes() throws Exception {
        String written = "kafka.server.DynamicBrokerConfig";
        for (String name : List.of("org.apache.kafka.server.config.DynamicBrokerConfig", written, written + "$")) {
            try {
                Class<?> found = Class.forName(name);
                Object instance = name.endsWith("$") ? found.getField("MODULE$").get(null) : null;
                return (Map<String, String>) found.getMethod("dynamicConfigUpdateModes").invoke(instance);
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

    /** The fields of each version of every record that Kafka writes into a log or a snapshot, by the class's name. */
    static Map<String, Object> records() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (String file : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!file.endsWith(".jar")) {
                continue;
            }
            try (JarFile jar = new JarFile(file)) {
                for (JarEntry entry : Collections.list(jar.entries())) {
                    if (RECORD_CLASS.matcher(entry.getName()).matches()) {
                        String name = entry.getName().replace('/', '.').replaceAll("\\.class$", "");
                        found.put(name.substring(name.lastIndexOf('.') + 1), versions(Class.forName(name)));
                    }
                }
            }
        }
        return found;
    }

    static Map<Integer, String> versions(Class<?> record) throws Exception {
        Map<Integer, String> versions = new TreeMap<>();
        for (Field field : record.getFields()) {
            if (field.getName().matches("SCHEMA_\\d+")) {
                versions.put(Integer.valueOf(field.getName().substring(7)), described((Type) field.get(null)));
            }
        }
        return versions;
    }

    /** A type with the names and types of all its fields. A tagged field has its tag in front. */
    static String described(Type type) {
        List<String> fields = new ArrayList<>();
        if (type instanceof Schema) {
            for (BoundField field : ((Schema) type).fields()) {
                String described = described(field.def.type);
                fields.add(field.def.type instanceof TaggedFields ? described : field.def.name + ":" + described);
            }
            return "{" + String.join(", ", fields) + "}";
        }
        if (type instanceof TaggedFields) {
            ((TaggedFields) type).fields().forEach((tag, field) ->
                fields.add(tag + "=" + field.name + ":" + described(field.type)));
            return "[" + String.join(", ", fields) + "]";
        }
        Type element = type.arrayElementType().orElse(null);
        return element == null ? type.toString() : type.getClass().getSimpleName() + "(" + described(element) + ")";
    }
}
