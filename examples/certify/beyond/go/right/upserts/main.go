// Command upserts keeps one row for each order of the topic.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const upsert = `
	INSERT INTO results VALUES ($1, $2, $3)
	ON CONFLICT (id) DO UPDATE SET customer = excluded.customer, amount = excluded.amount`

type order struct {
	ID, Customer string
	Amount       int
}

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup("upserts"),
		kgo.ConsumeTopics("orders"),
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
	db, err := pgx.Connect(ctx, os.Getenv("ODRADEK_POSTGRES"))
	if err != nil {
		log.Fatal(err)
	}
	for {
		records := client.PollRecords(ctx, 10).Records()
		batch := &pgx.Batch{}
		for _, record := range records {
			var o order
			if err := json.Unmarshal(record.Value, &o); err != nil {
				log.Fatal(err)
			}
			batch.Queue(upsert, o.ID, o.Customer, o.Amount)
		}
		if err := db.SendBatch(ctx, batch).Close(); err != nil {
			log.Fatal(err)
		}
		if err := client.CommitRecords(ctx, records...); err != nil {
			log.Fatal(err)
		}
		client.AllowRebalance()
	}
}
