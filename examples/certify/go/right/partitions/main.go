// Command partitions copies topic "in" to "out". One process reads all partitions, starting at the offsets committed
// in the transactions with the outputs.
package main

import (
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	group    = "copier"
	batchMax = 20
)

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Transaction.ID = "copier"
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Metadata.Retry.Backoff = 20 * time.Millisecond
	config.Producer.Retry.Backoff = 20 * time.Millisecond
	config.Producer.Transaction.Retry.Backoff = 20 * time.Millisecond
	return config
}

func main() {
	if err := run(os.Args[1]); err != nil {
		log.Fatalf("ends: %v", err)
	}
}

func run(bootstrap string) error {
	config := settings()
	// It ends the transaction that the previous producer has left open.
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	// A separate client: on a shared connection, a waiting Fetch would delay later requests.
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	records, err := read(client)
	if err != nil {
		return err
	}
	for first := range records {
		batch := []*sarama.ConsumerMessage{first}
		for len(batch) < batchMax && len(records) > 0 {
			batch = append(batch, <-records)
		}
		if err := transact(producer, batch); err != nil {
			return err
		}
	}
	return nil
}

// read returns the records of all partitions, starting at the committed offsets.
func read(client sarama.Client) (chan *sarama.ConsumerMessage, error) {
	partitions, err := client.Partitions("in")
	if err != nil {
		return nil, err
	}
	committed, err := sarama.NewOffsetManagerFromClient(group, client)
	if err != nil {
		return nil, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	records := make(chan *sarama.ConsumerMessage, 2*batchMax)
	for _, partition := range partitions {
		position, err := committed.ManagePartition("in", partition)
		if err != nil {
			return nil, err
		}
		next, _ := position.NextOffset()
		found, err := consumer.ConsumePartition("in", partition, next)
		if err != nil {
			return nil, fmt.Errorf("partition %d from %d: %w", partition, next, err)
		}
		go func() {
			for record := range found.Messages() {
				records <- record
			}
		}()
	}
	return records, nil
}

func transact(producer sarama.SyncProducer, batch []*sarama.ConsumerMessage) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	var results []*sarama.ProducerMessage
	next := map[int32]int64{}
	for _, record := range batch {
		value := strings.ToUpper(string(record.Value))
		results = append(results, &sarama.ProducerMessage{
			Topic: "out", Key: sarama.ByteEncoder(record.Key), Value: sarama.StringEncoder(value),
		})
		next[record.Partition] = record.Offset + 1
	}
	if err := producer.SendMessages(results); err != nil {
		return err
	}
	var offsets []*sarama.PartitionOffsetMetadata
	for partition, offset := range next {
		offsets = append(offsets, &sarama.PartitionOffsetMetadata{Partition: partition, Offset: offset})
	}
	if err := producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{"in": offsets}, group); err != nil {
		return err
	}
	return producer.CommitTxn()
}
