package org.example;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolutionException;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * A JUnit 5 extension: one Odradek broker for a test run, reset before each test. Copy this file into your project.
 *
 * <pre>
 * &#64;ExtendWith(Odradek.class)
 * class PaymentsTest {
 *   &#64;Test
 *   void commitsOnce(Odradek broker) throws Exception {
 *     broker.addFault("EndTxn nth=1 -> lose-answer");
 *     ... broker.bootstrapServers() ...
 *   }
 * }
 * </pre>
 *
 * The system property odradek.options contains options of `odradek serve`, such as "--topic orders:4".
 */
public final class Odradek implements BeforeEachCallback, ParameterResolver {
  private static final Pattern ADVERTISED = Pattern.compile("\"advertised\": \\[([^\\]]*)\\]");
  private static final Pattern CONTROL = Pattern.compile("\"control\": \"([^\"]+)\"");

  private static Odradek running;

  private final HttpClient http = HttpClient.newHttpClient();
  private String bootstrapServers;
  private String control;

  private Odradek() {}

  /** The addresses of all nodes. */
  public String bootstrapServers() {
    return bootstrapServers;
  }

  /** The URL of the control port; docs/control.md lists its operations. */
  public String control() {
    return control;
  }

  /** Resets the broker to the state after its start: the topics of the options, and no groups, transactional ids or rules. */
  public void reset() throws IOException, InterruptedException {
    call("POST", "/v1/reset", "{}");
  }

  /** Adds a rule (docs/faults.md) and returns its id. */
  public int addFault(String rule) throws IOException, InterruptedException {
    String text = rule.replace("\\", "\\\\").replace("\"", "\\\"");
    return number("id", call("POST", "/v1/faults", "{\"rule\": \"" + text + "\"}"));
  }

  /** Returns the number of hits of a rule. */
  public int hits(int id) throws IOException, InterruptedException {
    return number("hits", call("GET", "/v1/faults/" + id, ""));
  }

  /** Returns why readers of a topic stop, like `odradek explain`, in JSON, for the message of a failed test. */
  public String explain(String topic) throws IOException, InterruptedException {
    return call("GET", "/v1/explain?topic=" + URLEncoder.encode(topic, StandardCharsets.UTF_8), "");
  }

  /** Moves the broker's clock forward, for example by "7d" or "90s". */
  public void advance(String by) throws IOException, InterruptedException {
    call("POST", "/v1/clock/advance", "{\"by\": \"" + by + "\"}");
  }

  @Override
  public void beforeEach(ExtensionContext context) throws Exception {
    broker().reset();
  }

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
    return parameter.getParameter().getType() == Odradek.class;
  }

  @Override
  public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
    try {
      return broker();
    } catch (IOException error) {
      throw new ParameterResolutionException(error.getMessage(), error);
    }
  }

  /** The broker of this run. It ends with this process, which closes the broker's standard input. */
  private static synchronized Odradek broker() throws IOException {
    if (running == null) {
      List<String> command = new ArrayList<>(
          List.of("odradek", "serve", "--port", "0", "--control-port", "0", "--log-format", "json", "--ends-with-stdin"));
      command.addAll(List.of(System.getProperty("odradek.options", "").trim().split("\\s+")));
      command.removeIf(String::isEmpty);
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      Odradek started = new Odradek();
      started.awaitStart(new BufferedReader(new InputStreamReader(process.getInputStream())));
      running = started;
    }
    return running;
  }

  /** Reads the ports from the log line "started", and discards the rest of the log in the background. */
  private void awaitStart(BufferedReader log) throws IOException {
    StringBuilder said = new StringBuilder();
    for (String line = log.readLine(); line != null; line = log.readLine()) {
      said.append(line).append('\n');
      Matcher advertised = ADVERTISED.matcher(line);
      Matcher url = CONTROL.matcher(line);
      if (advertised.find() && url.find()) {
        bootstrapServers = advertised.group(1).replaceAll("\"[^\":]*://|\"| ", "");
        control = url.group(1);
        Thread rest = new Thread(() -> log.lines().forEach(each -> {}));
        rest.setDaemon(true);
        rest.start();
        return;
      }
    }
    throw new IOException("the broker did not start: " + said);
  }

  private String call(String method, String path, String body) throws IOException, InterruptedException {
    HttpRequest request = HttpRequest.newBuilder(URI.create(control + path))
        .header("Content-Type", "application/json")
        .method(method, HttpRequest.BodyPublishers.ofString(body))
        .build();
    HttpResponse<String> response = http.send(request, HttpResponse.BodyHandlers.ofString());
    if (response.statusCode() >= 300) {
      throw new IOException(method + " " + path + ": " + response.statusCode() + " " + response.body());
    }
    return response.body();
  }

  private static int number(String name, String json) {
    Matcher found = Pattern.compile("\"" + name + "\": ?(\\d+)").matcher(json);
    if (!found.find()) {
      throw new IllegalStateException(json);
    }
    return Integer.parseInt(found.group(1));
  }
}
