import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.util.Map;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.cli.ConnectDistributed;

/** A distributed worker of Kafka Connect with one connector, restarted if it fails: Worker WORKER.properties CONNECTOR.json. */
public final class Worker {
    private static final HttpClient CLIENT = HttpClient.newHttpClient();
    private final String connector;

    private Worker(int port) {
        connector = "http://127.0.0.1:" + port + "/connectors/connector";
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> settings = Utils.propsToStringMap(Utils.loadProps(args[0]));
        int port;
        try (ServerSocket free = new ServerSocket(0)) {
            port = free.getLocalPort();
        }
        settings.put("listeners", "http://127.0.0.1:" + port);
        new ConnectDistributed().startConnect(settings);
        Worker worker = new Worker(port);
        while (worker.send("PUT", "/config", BodyPublishers.ofFile(Path.of(args[1]))).statusCode() >= 300) {
            // It is joining its group.
            Thread.sleep(100);
        }
        while (true) {
            Thread.sleep(500);
            if (worker.send("GET", "/status", BodyPublishers.noBody()).body().contains("FAILED")) {
                worker.send("POST", "/restart?includeTasks=true&onlyFailed=true", BodyPublishers.noBody());
            }
        }
    }

    private HttpResponse<String> send(String method, String path, BodyPublisher body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(connector + path))
                .header("Content-Type", "application/json")
                .method(method, body)
                .build();
        return CLIENT.send(request, BodyHandlers.ofString());
    }
}
