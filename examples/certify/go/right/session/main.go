// Command session copies topic "in" to "out": outputs and offsets in one transaction.
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
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap),
		kgo.TransactionalID("copier-"+instance),
		kgo.DefaultProduceTopic("out"),
		kgo.ConsumerGroup("copier"),
		kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for {
		if err := copyBatch(context.Background(), session); err != nil {
			log.Fatalf("ends: %v", err)
		}
	}
}

// copyBatch copies a batch in one transaction. If the group has rebalanced, the session aborts it and seeks to the committed offsets.
func copyBatch(ctx context.Context, session *kgo.GroupTransactSession) error {
	fetches := session.PollRecords(ctx, 20)
	fetches.EachError(func(topic string, partition int32, err error) {
		log.Printf("reading %s-%d: %v", topic, partition, err)
	})
	if fetches.NumRecords() == 0 {
		return nil
	}
	if err := session.Begin(); err != nil {
		return err
	}
	sending := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		session.Produce(ctx, &kgo.Record{Key: record.Key, Value: bytes.ToUpper(record.Value)}, sending.Promise())
	})
	committed, err := session.End(ctx, sending.Err() == nil)
	if err == nil && !committed {
		log.Print("aborted, and read again")
	}
	return err
}
