// Command relay publishes the events in the table outbox, and ends when there are no more.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

type event struct {
	ID           int64
	Key, Payload string
}

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.DefaultProduceTopic("events"),
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(50*time.Millisecond),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	db, err := pgx.Connect(ctx, os.Getenv("ODRADEK_POSTGRES"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)
	for {
		n, err := publish(ctx, client, db)
		if err != nil {
			log.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// publish sends the next events with their keys, and deletes them when they are acknowledged.
func publish(ctx context.Context, client *kgo.Client, db *pgx.Conn) (int, error) {
	rows, err := db.Query(ctx, "SELECT id, key, payload FROM outbox ORDER BY id LIMIT 10")
	if err != nil {
		return 0, err
	}
	events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
	if err != nil || len(events) == 0 {
		return 0, err
	}
	records, ids := make([]*kgo.Record, len(events)), make([]int64, len(events))
	for i, each := range events {
		records[i], ids[i] = kgo.KeyStringRecord(each.Key, each.Payload), each.ID
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return 0, err
	}
	_, err = db.Exec(ctx, "DELETE FROM outbox WHERE id = ANY($1)", ids)
	return len(events), err
}
