// Command ledger stores the orders of the topic in the database.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"os"
	"time"

	_ "github.com/lib/pq"
	"github.com/twmb/franz-go/pkg/kgo"
)

type order struct {
	ID, Customer string
	Amount       int
}

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup("ledger"),
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
	db, err := sql.Open("postgres", os.Getenv("ODRADEK_POSTGRES"))
	if err != nil {
		log.Fatal(err)
	}
	for {
		fetches := client.PollRecords(ctx, 10)
		records := fetches.Records()
		if err := store(ctx, db, records); err != nil {
			log.Fatal(err)
		}
		if err := client.CommitRecords(ctx, records...); err != nil {
			log.Fatal(err)
		}
		client.AllowRebalance()
	}
}

func store(ctx context.Context, db *sql.DB, records []*kgo.Record) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Commit()
	for _, record := range records {
		var o order
		if err := json.Unmarshal(record.Value, &o); err != nil {
			return err
		}
		const insert = "INSERT INTO results VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
		if _, err := tx.ExecContext(ctx, insert, o.ID, o.Customer, o.Amount); err != nil {
			return err
		}
	}
	return nil
}
