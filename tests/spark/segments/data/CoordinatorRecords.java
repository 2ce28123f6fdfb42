import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/** Lines "group|transaction TYPE KEY VERSION VALUE" (bytes in hex, without type and version) become JSON of Kafka's own. */
public class CoordinatorRecords {
    static ApiMessage read(ApiMessage message, String hex, short version) {
        ByteBufferAccessor bytes = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        message.read(bytes, version);
        if (bytes.remaining() != 0) throw new IllegalStateException(bytes.remaining() + " bytes are left of " + message);
        return message;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ", -1);
            String generated = "org.apache.kafka.coordinator." + words[0] + ".generated.";
            Class<?> types = Class.forName(generated + "CoordinatorRecordType");
            Class<?> json = Class.forName(generated + "CoordinatorRecordJsonConverters");
            short version = Short.parseShort(words[3]);
            Object type = types.getMethod("fromId", short.class).invoke(null, Short.parseShort(words[1]));
            ApiMessage key = read((ApiMessage) types.getMethod("newRecordKey").invoke(type), words[2], (short) 0);
            ApiMessage value = read((ApiMessage) types.getMethod("newRecordValue").invoke(type), words[4], version);
            Method ofKey = json.getMethod("writeRecordKeyAsJson", ApiMessage.class);
            Method ofValue = json.getMethod("writeRecordValueAsJson", ApiMessage.class, short.class);
            System.out.println("{\"kind\":\"" + type + "\",\"key\":" + ofKey.invoke(null, key)
                + ",\"value\":" + ofValue.invoke(null, value, version) + "}");
        }
    }
}
