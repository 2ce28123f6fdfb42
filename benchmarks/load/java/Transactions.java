import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producers in threads. Each commits one transaction after another: ten records in two partitions and an offset. */
public class Transactions {
    private static final int RECORDS = 10;
    private static final int PARTITIONS = 2;
    private static final int INPUT_PARTITIONS = 4;

    private static volatile boolean measured;
    private static volatile boolean ended;
    private static final LongAdder done = new LongAdder();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int producers = Integer.parseInt(arguments[2]);
        long warmMs = Long.parseLong(arguments[3]);
        long measuredMs = Long.parseLong(arguments[4]);
        String pid = arguments[5];

        CountDownLatch initialised = new CountDownLatch(producers);
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<List<Long>> nanoseconds = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            List<Long> own = new ArrayList<>();
            nanoseconds.add(own);
            int producer = number;
            threads.add(new Thread(() -> {
                try {
                    work(bootstrap, topic, producer, initialised, own);
                } catch (Exception thrown) {
                    failure.set(thrown);
                    ended = true;
                    initialised.countDown();
                }
            }));
        }
        threads.forEach(Thread::start);
        initialised.await();
        Thread.sleep(warmMs);
        Usage usage = new Usage(pid);
        measured = true;
        Thread.sleep(measuredMs);
        // If the machine is too busy for a single transaction in that time, wait for one.
        while (done.sum() == 0 && !ended) {
            Thread.sleep(10);
        }
        ended = true;
        Usage.Times times = usage.times();
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        long[] all = nanoseconds.stream().flatMap(List::stream).mapToLong(Long::longValue).sorted().toArray();
        System.out.println(times.outcome(all.length, 0, String.format(
                ", \"p50_ms\": %.4f, \"p99_ms\": %.4f", milliseconds(all, 50), milliseconds(all, 99))));
    }

    private static void work(
            String bootstrap, String topic, int number, CountDownLatch initialised, List<Long> nanoseconds) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", topic + "-" + number,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class);
        byte[] value = new byte[100];
        new Random(number).nextBytes(value);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata("workers");
        TopicPartition input = new TopicPartition(topic + "-input", number % INPUT_PARTITIONS);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.initTransactions();
            initialised.countDown();
            for (long offset = 1; !ended; offset++) {
                long begun = System.nanoTime();
                producer.beginTransaction();
                for (int index = 0; index < RECORDS; index++) {
                    producer.send(new ProducerRecord<>(topic, index % PARTITIONS, null, value));
                }
                producer.sendOffsetsToTransaction(Map.of(input, new OffsetAndMetadata(offset)), group);
                producer.commitTransaction();
                if (measured && !ended) {
                    nanoseconds.add(System.nanoTime() - begun);
                    done.increment();
                }
            }
        }
    }

    private static double milliseconds(long[] sorted, int share) {
        return sorted.length == 0 ? 0 : sorted[sorted.length * share / 100] / 1e6;
    }
}
