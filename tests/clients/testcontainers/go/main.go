// Runs the unmodified Kafka module of testcontainers-go: each argument NAME=IMAGE starts a container, and prints what was read.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

const within = time.Minute

// transaction aborts one transaction, commits another, and returns what a read_committed consumer reads.
func transaction(ctx context.Context, brokers []string) ([]string, error) {
	producer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.TransactionalID("orders"),
		kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(-1))
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, value := range []string{"lost", "paid"} {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		record := &kgo.Record{Topic: "orders", Value: []byte(value)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return nil, err
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(value == "paid")); err != nil {
			return nil, err
		}
	}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumerGroup("test"), kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	read := []string{}
	for len(read) == 0 || read[len(read)-1] != "paid" {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { read = append(read, string(record.Value)) })
	}
	return read, nil
}

func try(name, image string) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	container, err := kafka.Run(ctx, image, kafka.WithClusterID("test-cluster"))
	defer func() {
		if err := testcontainers.TerminateContainer(container); err != nil {
			log.Fatal(err)
		}
	}()
	if err != nil {
		return err
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		return err
	}
	read, err := transaction(ctx, brokers)
	if err != nil {
		return err
	}
	line, err := json.Marshal(map[string]any{"module": name, "read": read})
	fmt.Println(string(line))
	return err
}

func main() {
	for _, argument := range os.Args[1:] {
		name, image, _ := strings.Cut(argument, "=")
		if err := try(name, image); err != nil {
			log.Fatal(err)
		}
	}
}
