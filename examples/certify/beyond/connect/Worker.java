import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;

/** A distributed worker of Kafka Connect with one connector: Worker WORKER.properties CONNECTOR.json. */
public final class Worker {
    private Worker() {}

    public static void main(String[] args) throws Exception {
        Map<String, String> settings = Utils.propsToStringMap(Utils.loadProps(args[0]));
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        settings.put("listeners", "http://127.0.0.1:" + port);
        Connect<?> worker = new ConnectDistributed().startConnect(settings);
        create(URI.create("http://127.0.0.1:" + port + "/connectors/connector/config"), Path.of(args[1]));
        worker.awaitStop();
    }

    private static void create(URI connector, Path config) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(connector)
                .header("Content-Type", "application/json")
                .PUT(BodyPublishers.ofFile(config))
                .build();
        HttpClient client = HttpClient.newHttpClient();
        while (true) {
            HttpResponse<String> response = client.send(request, BodyHandlers.ofString());
            if (response.statusCode() < 300) {
                return;
            }
            // The worker is joining its group.
            if (response.statusCode() != 409 && response.statusCode() < 500) {
                throw new IllegalStateException(response.body());
            }
            Thread.sleep(100);
        }
    }
}
