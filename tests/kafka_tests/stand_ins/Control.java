package odradek;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/** A connection to the runner, which starts and stops the nodes of one cluster. The cluster ends with the connection. */
public final class Control implements AutoCloseable {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Socket socket;
    private final BufferedReader responses;

    public Control() {
        try {
            socket = new Socket(InetAddress.getLoopbackAddress(), Integer.getInteger("odradek.control.port"));
            responses = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Sends a request and returns its response. An error of the runner becomes an IllegalStateException. */
    public JsonNode ask(Map<String, Object> request) {
        try {
            socket.getOutputStream().write((JSON.writeValueAsString(request) + "\n").getBytes(StandardCharsets.UTF_8));
            String line = responses.readLine();
            JsonNode response = JSON.readTree(line == null ? "{\"error\": \"the runner has ended\"}" : line);
            if (response.has("error")) {
                throw new IllegalStateException(response.get("error").asText());
            }
            return response;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
