// Command outside copies topic "in" to "out" in transactions, and commits the records that it has copied.
package main

import (
	"bytes"
	"context"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	bootstrap, instance := os.Args[1], os.Args[2]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID("copier-"+instance),
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
	fetches.EachError(func(topic string, partition int32, err error) {
		log.Printf("reading %s-%d: %v", topic, partition, err)
	})
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var results []*kgo.Record
	fetches.EachRecord(func(record *kgo.Record) {
		results = append(results, &kgo.Record{Key: record.Key, Value: bytes.ToUpper(record.Value)})
	})
	if err := client.ProduceSync(ctx, results...).FirstErr(); err != nil {
		return err
	}
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	return client.CommitRecords(ctx, fetches.Records()...)
}
