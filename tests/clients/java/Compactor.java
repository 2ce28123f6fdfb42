package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.lang.reflect.Proxy;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Runs Kafka's own cleaner for one pass over one partition's folder:
 *
 * Compactor FOLDER NOW_MS CHECKPOINT UNCLEANABLE MAP_BYTES setting=value ...
 *
 * CHECKPOINT is the first dirty offset or -1 for none, UNCLEANABLE is -1 to let Kafka find it, MAP_BYTES is 0 for no
 * pass at all. It prints the offsets that it found and those that it reached.
 */
public final class Compactor {
    /** A clock that stands at the time that the test chose. */
    private static final class Fixed implements Time {
        private final long nowMs;

        Fixed(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }

    /** A scheduler that runs nothing: files of replaced segments stay as .deleted. */
    private static final class Never implements Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            Class<?>[] future = {ScheduledFuture.class};
            return (ScheduledFuture<?>) Proxy.newProxyInstance(
                Never.class.getClassLoader(), future, (self, method, arguments) -> method.getName().equals("cancel") ? true : null);
        }

        @Override
        public void resizeThreadPool(int newSize) {
        }
    }

    public static void main(String[] args) throws Exception {
        File folder = new File(args[0]);
        long nowMs = Long.parseLong(args[1]);
        long checkpoint = Long.parseLong(args[2]);
        long uncleanable = Long.parseLong(args[3]);
        int mapBytes = Integer.parseInt(args[4]);
        Properties settings = new Properties();
        for (int i = 5; i < args.length; i++) {
            String[] setting = args[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        Time time = new Fixed(nowMs);
        try (BrokerTopicStats stats = new BrokerTopicStats(false)) {
            UnifiedLog log = UnifiedLog.create(folder, new LogConfig(settings), 0L, 0L, new Never(), stats, time, 900000,
                new ProducerStateManagerConfig(86400000, true), 600000, new LogDirFailureChannel(1), true, Optional.empty());
            log.updateHighWatermark(log.logEndOffset());
            Optional<Long> last = checkpoint < 0 ? Optional.empty() : Optional.of(checkpoint);
            LogCleanerManager.OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(log, last, nowMs);
            long bound = uncleanable < 0 ? offsets.firstUncleanableDirtyOffset() : uncleanable;
            LogToClean part = new LogToClean(log, offsets.firstDirtyOffset(), bound, false);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("first_dirty", part.firstDirtyOffset());
            answer.put("upper_bound", part.firstUncleanableOffset());
            answer.put("clean_bytes", part.cleanBytes());
            answer.put("dirty_bytes", part.cleanableBytes());
            if (mapBytes > 0) {
                Throttler throttler = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", time);
                Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 1 << 20, 1 << 20, 0.9, throttler, time, each -> {
                });
                answer.put("end_offset", cleaner.doClean(part, nowMs).getKey());
            }
            log.close();
            System.out.println(new ObjectMapper().writeValueAsString(answer));
        }
    }
}
