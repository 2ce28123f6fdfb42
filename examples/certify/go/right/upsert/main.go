// Command upsert copies topic "in" to "out": each record at least once, with its input partition and offset as key.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.DefaultProduceTopic("out"),
		kgo.ConsumerGroup("copier"),
		kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for {
		if err := copyBatch(context.Background(), client); err != nil {
			log.Fatalf("ends: %v", err)
		}
	}
}

func copyBatch(ctx context.Context, client *kgo.Client) error {
	fetches := client.PollRecords(ctx, 20)
	defer client.AllowRebalance()
	var results []*kgo.Record
	fetches.EachRecord(func(record *kgo.Record) {
		place := fmt.Sprintf("%d-%d", record.Partition, record.Offset)
		results = append(results, kgo.KeySliceRecord([]byte(place), bytes.ToUpper(record.Value)))
	})
	if len(results) == 0 {
		return nil
	}
	if err := client.ProduceSync(ctx, results...).FirstErr(); err != nil {
		return err
	}
	return client.CommitRecords(ctx, fetches.Records()...)
}
