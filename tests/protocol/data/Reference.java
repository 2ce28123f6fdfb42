// Answers questions about bytes with Kafka's own classes; make_reference.py asks them.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;

public class Reference {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode question = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            switch (question.get("ask").asText()) {
                case "message" -> answer.put("hex", message(question));
                case "batch" -> answer.put("hex", batch(question));
                case "marker" -> answer.put("hex", marker(question));
                case "read" -> answer.set("records", read(question));
                case "snapshot" -> answer.put("hex", snapshot(question));
                case "hash" -> {
                    answer.put("string", question.get("text").asText().hashCode());
                    answer.put("murmur2", Utils.murmur2(Utils.utf8(question.get("text").asText())));
                }
                default -> throw new IllegalArgumentException(line);
            }
            System.out.println(answer);
        }
    }

    static String hex(ByteBuffer buffer) {
        return HEX.formatHex(Utils.toArray(buffer));
    }

    // The body of a generated message, without a version in front.
    static String message(JsonNode question) throws Exception {
        short version = (short) question.get("version").asInt();
        Class<?> converter = Class.forName(question.get("class").asText() + "JsonConverter");
        Message message = (Message) converter.getMethod("read", JsonNode.class, short.class)
            .invoke(null, question.get("fields"), version);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        buffer.flip();
        return hex(buffer);
    }

    static Compression codec(String name) {
        return Compression.of(name).build();
    }

    static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : HEX.parseHex(node.asText());
    }

    static String batch(JsonNode q) {
        boolean appendTime = q.hasNonNull("log_append_time_ms");
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            ByteBuffer.allocate(1024), RecordBatch.MAGIC_VALUE_V2, codec(q.get("codec").asText()),
            appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            q.get("base_offset").asLong(), appendTime ? q.get("log_append_time_ms").asLong() : -1L,
            q.get("producer_id").asLong(), (short) q.get("producer_epoch").asInt(), q.get("base_sequence").asInt(),
            q.get("transactional").asBoolean(), false, q.get("leader_epoch").asInt(), 1 << 20);
        for (JsonNode record : q.get("records")) {
            Header[] headers = new Header[record.get(3).size()];
            for (int i = 0; i < headers.length; i++) {
                JsonNode header = record.get(3).get(i);
                headers[i] = new RecordHeader(header.get(0).asText(), bytes(header.get(1)));
            }
            builder.append(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)), headers);
        }
        return hex(builder.build().buffer());
    }

    static String marker(JsonNode q) {
        ControlRecordType type = q.get("committed").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return hex(MemoryRecords.withEndTransactionMarker(
            q.get("base_offset").asLong(), q.get("timestamp_ms").asLong(), q.get("leader_epoch").asInt(),
            q.get("producer_id").asLong(), (short) q.get("producer_epoch").asInt(),
            new EndTransactionMarker(type, q.get("coordinator_epoch").asInt())).buffer());
    }

    static ArrayNode read(JsonNode q) {
        ArrayNode records = JSON.createArrayNode();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(q.get("hex")))).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                ArrayNode one = records.addArray();
                one.add(record.offset()).add(record.timestamp()).add(record.sequence());
                one.add(record.hasKey() ? hex(record.key()) : null);
                one.add(record.hasValue() ? hex(record.value()) : null);
                one.add(record.headers().length);
            }
        }
        return records;
    }

    static Method addBatch() throws Exception {
        Method method = ProducerStateEntry.class.getDeclaredMethod(
            "addBatch", short.class, int.class, long.class, int.class, long.class);
        method.setAccessible(true);
        return method;
    }

    static String snapshot(JsonNode q) throws Exception {
        Method addBatch = addBatch();
        Map<Long, ProducerStateEntry> entries = new TreeMap<>();
        for (JsonNode e : q.get("entries")) {
            long firstOffset = e.get(7).asLong();
            ProducerStateEntry entry = new ProducerStateEntry(
                e.get(0).asLong(), (short) e.get(1).asInt(), e.get(6).asInt(), e.get(5).asLong(),
                firstOffset < 0 ? OptionalLong.empty() : OptionalLong.of(firstOffset));
            if (e.get(2).asInt() >= 0)
                addBatch.invoke(entry, (short) e.get(1).asInt(), e.get(2).asInt(), e.get(3).asLong(),
                    e.get(4).asInt(), e.get(5).asLong());
            entries.put(e.get(0).asLong(), entry);
        }
        File file = File.createTempFile("producers", ".snapshot");
        try {
            ProducerStateManager.writeSnapshot(file, entries, false);
            return HEX.formatHex(Files.readAllBytes(file.toPath()));
        } finally {
            file.delete();
        }
    }
}
