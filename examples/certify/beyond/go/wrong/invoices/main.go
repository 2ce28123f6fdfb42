// Command invoices pays each order of the topic at the payment service.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
)

type order struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

type payment struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

var payments = http.Client{Timeout: 2 * time.Second}

func main() {
	ctx := context.Background()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Getenv("KAFKA_BOOTSTRAP_SERVERS")),
		kgo.ConsumerGroup("invoices"),
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
	for {
		records := client.PollRecords(ctx, 10).Records()
		for _, record := range records {
			var o order
			if err := json.Unmarshal(record.Value, &o); err != nil {
				log.Fatal(err)
			}
			if err := pay(o); err != nil {
				log.Fatal(err)
			}
		}
		if err := client.CommitRecords(ctx, records...); err != nil {
			log.Fatal(err)
		}
		client.AllowRebalance()
	}
}

func pay(o order) (err error) {
	for attempt := range 5 {
		time.Sleep(time.Duration(attempt) * 50 * time.Millisecond)
		if err = post(o, uuid.NewString()); err == nil {
			return nil
		}
	}
	return err
}

func post(o order, key string) error {
	body, _ := json.Marshal(payment{o.ID, o.Amount})
	request, err := http.NewRequest("POST", os.Getenv("ODRADEK_HTTP")+"/v1/payments", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key)
	response, err := payments.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", o.ID, response.Status)
	}
	return nil
}
