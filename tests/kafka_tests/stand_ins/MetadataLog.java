package odradek;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;
import java.util.Optional;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.test.MockFaultHandler;
import org.apache.kafka.controller.metrics.ControllerMetadataMetrics;
import org.apache.kafka.controller.metrics.ControllerMetadataMetricsPublisher;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.loader.LogDeltaManifest;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.metrics.KafkaYammerMetrics;

/** The image of the cluster's metadata, replayed from the files of the partition __cluster_metadata-0, and Kafka's metrics of it. */
final class MetadataLog implements AutoCloseable {
    private final File directory;
    private final ControllerMetadataMetricsPublisher metrics = new ControllerMetadataMetricsPublisher(
        new ControllerMetadataMetrics(Optional.of(KafkaYammerMetrics.defaultRegistry())), new MockFaultHandler("metrics")
    );
    private MetadataImage image = MetadataImage.EMPTY;
    private long next;
    private long replayedBytes;

    MetadataLog(File directory) {
        this.directory = directory;
    }

    /** The image of all records that are in the files now. */
    synchronized MetadataImage image() {
        File[] segments = Optional.ofNullable(directory.listFiles((folder, name) -> name.endsWith(".log"))).orElse(new File[0]);
        long sizeBytes = Arrays.stream(segments).mapToLong(File::length).sum();
        if (sizeBytes == replayedBytes) {
            return image;
        }
        replayedBytes = sizeBytes;
        Arrays.sort(segments);
        for (File segment : segments) {
            try {
                replay(FileRecords.open(segment, false));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
        return image;
    }

    private void replay(FileRecords records) throws IOException {
        try {
            for (RecordBatch batch : records.batches()) {
                if (batch.lastOffset() >= next) {
                    replay(batch);
                }
            }
        } finally {
            records.closeHandlers();  // `close` fails if the broker has appended meanwhile: it truncates the file
        }
    }

    private void replay(RecordBatch batch) {
        next = batch.lastOffset() + 1;
        if (batch.isControlBatch()) {
            return;
        }
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        for (Record record : batch) {
            ByteBufferAccessor value = new ByteBufferAccessor(record.value());
            ApiMessage message = MetadataRecordSerde.INSTANCE.read(value, record.valueSize()).message();
            if (message instanceof FeatureLevelRecord feature && feature.name().equals(MetadataVersion.FEATURE_NAME)) {
                // Odradek may have a later metadata.version than the classes of the test jars know.
                feature.setFeatureLevel((short) Math.min(feature.featureLevel(), MetadataVersion.latestTesting().featureLevel()));
            }
            delta.replay(message);
        }
        MetadataProvenance provenance =
            new MetadataProvenance(batch.lastOffset(), batch.partitionLeaderEpoch(), batch.maxTimestamp(), true);
        image = delta.apply(provenance);
        metrics.onMetadataUpdate(delta, image, LogDeltaManifest.newBuilder().provenance(provenance)
            .leaderAndEpoch(LeaderAndEpoch.UNKNOWN).numBatches(1).elapsedNs(0).numBytes(batch.sizeInBytes()).build());
    }

    @Override
    public void close() {
        metrics.close();
    }
}
