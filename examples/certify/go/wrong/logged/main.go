// Command logged copies topic "in" to "out", each record with its input partition and offset as key.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

type copier struct{ producer sarama.SyncProducer }

func (copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		place := fmt.Sprintf("%d-%d", record.Partition, record.Offset)
		value := strings.ToUpper(string(record.Value))
		result := &sarama.ProducerMessage{
			Topic: "out", Key: sarama.StringEncoder(place), Value: sarama.StringEncoder(value),
		}
		if _, _, err := c.producer.SendMessage(result); err != nil {
			log.Printf("%s: %v", place, err)
		}
		session.MarkMessage(record, "")
	}
	return nil
}

func main() {
	bootstrap := []string{os.Args[1]}
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	config.Metadata.Retry.Backoff = 20 * time.Millisecond
	config.Producer.Retry.Backoff = 20 * time.Millisecond
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		log.Fatal(err)
	}
	group, err := sarama.NewConsumerGroup(bootstrap, "copier", config)
	if err != nil {
		log.Fatal(err)
	}
	for {
		if err := group.Consume(context.Background(), []string{"in"}, copier{producer}); err != nil {
			log.Fatalf("ends: %v", err)
		}
	}
}
