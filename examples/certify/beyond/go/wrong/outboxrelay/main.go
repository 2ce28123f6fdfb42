// Command outboxrelay publishes the events in the table outbox, and ends when there are no more.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"
)

const take = `
	DELETE FROM outbox WHERE id IN (SELECT id FROM outbox ORDER BY id LIMIT 10 FOR UPDATE SKIP LOCKED)
	RETURNING key, payload`

type event struct{ Key, Payload string }

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
		rows, err := db.Query(ctx, take)
		if err != nil {
			log.Fatal(err)
		}
		events, err := pgx.CollectRows(rows, pgx.RowToStructByPos[event])
		if err != nil {
			log.Fatal(err)
		}
		if len(events) == 0 {
			return
		}
		records := make([]*kgo.Record, len(events))
		for i, each := range events {
			records[i] = kgo.KeyStringRecord(each.Key, each.Payload)
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			log.Fatal(err)
		}
	}
}
