// Command segmentio runs the orders of tests/clients/contract.py with segmentio/kafka-go, as far as it supports them: it
// has no transactional producer, so its loop is at-least-once. Of transactions it has only the requests that commit
// offsets.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const (
	partitions    = 3
	recordsACodec = 200
	quiet         = 500 * time.Millisecond
	session       = 1500 * time.Millisecond
	attempts      = 1000
)

var orders = map[string]func(ctx context.Context, bootstrap string, arguments []string) error{
	"admin":      admin,
	"codecs":     codecs,
	"keys":       keys,
	"read":       read,
	"member":     member,
	"group-loop": groupLoop,
	"offsets":    offsets,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || orders[os.Args[1]] == nil {
		log.Fatal("usage: segmentio ORDER BOOTSTRAP [ARGUMENT...]")
	}
	// No timeout of our own: the test ends a program that hangs.
	if err := orders[os.Args[1]](context.Background(), os.Args[2], os.Args[3:]); err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
}

func say(what map[string]any) {
	line, err := json.Marshal(what)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}

// waitForWord returns when the test writes a line to our standard input, or closes it.
func waitForWord() {
	bufio.NewScanner(os.Stdin).Scan()
}

// nameOf returns the title of an error code in kafka-go.
func nameOf(err error) string {
	var code kafka.Error
	if errors.As(err, &code) {
		return code.Title()
	}
	return fmt.Sprint(err)
}

func client(bootstrap string) *kafka.Client {
	address, err := net.ResolveTCPAddr("tcp", bootstrap)
	if err != nil {
		log.Fatal(err)
	}
	// A new transport: an existing one refreshes its metadata only after seconds.
	return &kafka.Client{Addr: address, Transport: &kafka.Transport{}}
}

func writer(bootstrap string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(bootstrap),
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 10 * time.Millisecond,
		// A broker that is being restarted takes a while.
		MaxAttempts:     attempts,
		WriteBackoffMax: 100 * time.Millisecond,
		ErrorLogger:     log.Default(),
	}
}

// admin TOPIC: create it, create it again, add partitions, describe it, delete it.
func admin(ctx context.Context, bootstrap string, arguments []string) error {
	topic, client, look := arguments[0], client(bootstrap), client
	create := &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic:             topic,
		NumPartitions:     partitions,
		ReplicationFactor: 1,
		ConfigEntries:     []kafka.ConfigEntry{{ConfigName: "retention.ms", ConfigValue: "60000"}},
	}}}
	created, err := client.CreateTopics(ctx, create)
	if err = errors.Join(err, created.Errors[topic]); err != nil {
		return err
	}
	again, err := client.CreateTopics(ctx, create)
	if err != nil {
		return err
	}
	say(map[string]any{"again": nameOf(again.Errors[topic])})
	grown, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: topic, Count: partitions + 1}},
	})
	if err = errors.Join(err, grown.Errors[topic]); err != nil {
		return err
	}
	metadata, err := look(bootstrap).Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	configs, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"},
		}},
	})
	if err != nil {
		return err
	}
	say(map[string]any{
		"partitions": len(metadata.Topics[0].Partitions),
		"retention":  configs.Resources[0].ConfigEntries[0].ConfigValue,
	})
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err = errors.Join(err, deleted.Errors[topic]); err != nil {
		return err
	}
	left, err := look(bootstrap).Metadata(ctx, &kafka.MetadataRequest{})
	if err != nil {
		return err
	}
	there := false
	for _, each := range left.Topics {
		there = there || each.Name == topic
	}
	say(map[string]any{"left": there})
	return nil
}

// codecs TOPIC: produce a batch with each codec.
func codecs(ctx context.Context, bootstrap string, arguments []string) error {
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		writer := writer(bootstrap)
		writer.Topic, writer.Compression, writer.BatchSize = arguments[0], codec, recordsACodec
		first := int64(-1)
		writer.Completion = func(messages []kafka.Message, err error) {
			if err == nil && first < 0 {
				first = messages[0].Offset
			}
		}
		name := codec.String()
		if codec == 0 {
			name = "none"
		}
		var messages []kafka.Message
		for i := range recordsACodec {
			messages = append(messages, kafka.Message{Value: fmt.Appendf(nil, "%s %d of many that are alike", name, i)})
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			return err
		}
		// When the writer is closed, all callbacks for acknowledged batches have been called.
		if err := writer.Close(); err != nil {
			return err
		}
		say(map[string]any{"codec": name, "offset": first, "count": len(messages)})
	}
	return nil
}

// keys TOPIC COUNT: say to which partitions the keys "key-0", "key-1" and so on are sent, with Java's partitioner.
func keys(ctx context.Context, bootstrap string, arguments []string) error {
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	writer := writer(bootstrap)
	writer.Topic, writer.Balancer = arguments[0], kafka.Murmur2Balancer{Consistent: true}
	places := make(chan kafka.Message, count)
	writer.Completion = func(messages []kafka.Message, err error) {
		for _, each := range messages {
			places <- each
		}
	}
	var messages []kafka.Message
	for i := range count {
		messages = append(messages, kafka.Message{Key: fmt.Appendf(nil, "key-%d", i), Value: []byte("value")})
	}
	if err := errors.Join(writer.WriteMessages(ctx, messages...), writer.Close()); err != nil {
		return err
	}
	partition := map[string]int{}
	for range count {
		each := <-places
		partition[string(each.Key)] = each.Partition
	}
	for _, each := range messages {
		say(map[string]any{"key": string(each.Key), "partition": partition[string(each.Key)]})
	}
	return nil
}

func reader(bootstrap, topic, group, isolation string) *kafka.Reader {
	config := kafka.ReaderConfig{
		Brokers:           []string{bootstrap},
		GroupID:           group,
		Topic:             topic,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           20 * time.Millisecond,
		HeartbeatInterval: 100 * time.Millisecond,
		SessionTimeout:    session,
		RebalanceTimeout:  session,
		JoinGroupBackoff:  50 * time.Millisecond,
		ReadBackoffMax:    100 * time.Millisecond,
		ErrorLogger:       log.Default(),
	}
	if isolation == "read_committed" {
		config.IsolationLevel = kafka.ReadCommitted
	}
	return kafka.NewReader(config)
}

// read TOPIC GROUP ISOLATION COUNT: read at least COUNT records as a member of a group, and commit. The topic has one
// partition.
func read(ctx context.Context, bootstrap string, arguments []string) error {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	reader := reader(bootstrap, arguments[0], arguments[1], arguments[2])
	var last *kafka.Message
	for seen := 0; ; seen++ {
		limit, enough := context.WithCancel(ctx)
		if seen >= count {
			limit, enough = context.WithTimeout(ctx, quiet)
		}
		record, err := reader.FetchMessage(limit)
		enough()
		if seen >= count && errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		last = &record
		say(map[string]any{"value": string(record.Value), "offset": record.Offset})
	}
	if last != nil {
		if err := reader.CommitMessages(ctx, *last); err != nil {
			return err
		}
	}
	return reader.Close()
}

// member TOPIC GROUP: be a member until the test writes a line.
func member(ctx context.Context, bootstrap string, arguments []string) error {
	topic := arguments[0]
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                arguments[1],
		Brokers:           []string{bootstrap},
		Topics:            []string{topic},
		HeartbeatInterval: 100 * time.Millisecond,
		SessionTimeout:    6 * time.Second,
		JoinGroupBackoff:  50 * time.Millisecond,
		ErrorLogger:       log.Default(),
	})
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(ctx)
	go func() {
		waitForWord()
		enough()
	}()
	for {
		generation, err := group.Next(ctx)
		if errors.Is(err, context.Canceled) {
			return group.Close()
		}
		if err != nil {
			return err
		}
		mine := []int{}
		for _, each := range generation.Assignments[topic] {
			mine = append(mine, each.ID)
		}
		sort.Ints(mine)
		say(map[string]any{"assigned": mine})
		// A generation lasts until its function returns, or a rebalance ends it.
		generation.Start(func(ended context.Context) { <-ended.Done() })
	}
}

// doom says "here" at the step at which the program is to be killed, and then waits.
func doom(fatal string) func(string) {
	name, passages, _ := strings.Cut(fatal, ":")
	left, _ := strconv.Atoi(passages)
	return func(reached string) {
		if reached != name {
			return
		}
		if left--; left == 0 {
			say(map[string]any{"here": reached})
			select {}
		}
	}
}

// groupLoop PROTOCOL SOURCE SINK GROUP ID STEP: like the contract's, but at least once: a result is written, then the
// offset is committed. The protocol is the classic one.
func groupLoop(ctx context.Context, bootstrap string, arguments []string) error {
	source, sink, group, step := arguments[1], arguments[2], arguments[3], doom(arguments[5])
	reader, writer := reader(bootstrap, source, group, "read_committed"), writer(bootstrap)
	writer.Topic = sink
	ctx, enough := context.WithCancel(ctx)
	go func() {
		waitForWord()
		enough()
	}()
	for committed := 0; ; {
		record, err := reader.FetchMessage(ctx)
		if errors.Is(err, context.Canceled) {
			return errors.Join(reader.Close(), writer.Close())
		}
		if err != nil {
			return err
		}
		step("poll")
		if err := writer.WriteMessages(ctx, kafka.Message{Value: append([]byte("done "), record.Value...)}); err != nil {
			return err
		}
		step("send")
		// The commit fails if the partition was assigned to another member, which then reads the record again.
		if err := reader.CommitMessages(ctx, record); err != nil {
			log.Printf("not committed: %v", err)
			continue
		}
		step("commit")
		committed++
		say(map[string]any{"committed": committed})
	}
}

// offsets TOPIC ID GROUP: commit a transaction of offsets, abort another, then say the errors of a zombie.
func offsets(ctx context.Context, bootstrap string, arguments []string) error {
	topic, id, group := arguments[0], arguments[1], arguments[2]
	client := client(bootstrap)
	begin := func() (*kafka.ProducerSession, error) {
		begun, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{
			TransactionalID: id, TransactionTimeoutMs: 10_000,
		})
		if err != nil {
			return nil, err
		}
		return begun.Producer, begun.Error
	}
	transact := func(producer *kafka.ProducerSession, offset int64, committed bool) error {
		added, err := client.AddOffsetsToTxn(ctx, &kafka.AddOffsetsToTxnRequest{
			TransactionalID: id, ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, GroupID: group,
		})
		if err != nil {
			return err
		}
		if added.Error != nil {
			return added.Error
		}
		sent, err := client.TxnOffsetCommit(ctx, &kafka.TxnOffsetCommitRequest{
			TransactionalID: id, GroupID: group, GenerationID: -1,
			ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch,
			Topics: map[string][]kafka.TxnOffsetCommit{topic: {{Partition: 0, Offset: offset}}},
		})
		if err != nil {
			return err
		}
		if err := sent.Topics[topic][0].Error; err != nil {
			return err
		}
		ended, err := client.EndTxn(ctx, &kafka.EndTxnRequest{
			TransactionalID: id, ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, Committed: committed,
		})
		if err != nil {
			return err
		}
		return ended.Error
	}
	first, err := begin()
	if err != nil {
		return err
	}
	if err := errors.Join(transact(first, 7, true), transact(first, 9, false)); err != nil {
		return err
	}
	found, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0}},
	})
	if err != nil {
		return err
	}
	say(map[string]any{"committed": found.Topics[topic][0].CommittedOffset})
	if _, err := begin(); err != nil {
		return err
	}
	say(map[string]any{"zombie": nameOf(transact(first, 11, true))})
	return nil
}
