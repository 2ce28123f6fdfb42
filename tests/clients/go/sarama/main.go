// Command sarama runs the orders of tests/clients/contract.py with sarama: one order per run, one line of JSON for each
// event.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions    = 3
	recordsACodec = 200
	quiet         = 500 * time.Millisecond
	attempts      = 1000
)

var orders = map[string]func(ctx context.Context, bootstrap []string, arguments []string) error{
	"admin":        admin,
	"codecs":       codecs,
	"keys":         keys,
	"transactions": transactions,
	"read":         read,
	"loop":         loop,
	"zombie":       zombie,
	"member":       member,
	"handshakes":   handshakes,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || orders[os.Args[1]] == nil {
		log.Fatal("usage: sarama ORDER BOOTSTRAP [ARGUMENT...]")
	}
	sarama.Logger = log.Default()
	// No timeout of our own: the test ends a program that hangs.
	if err := orders[os.Args[1]](context.Background(), os.Args[2:3], os.Args[3:]); err != nil {
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

// nameOf returns the name of sarama's constant for an error that these orders can get; sarama itself has only the text.
func nameOf(err error) string {
	for name, each := range map[string]error{
		"ErrTopicAlreadyExists":   sarama.ErrTopicAlreadyExists,
		"ErrInvalidProducerEpoch": sarama.ErrInvalidProducerEpoch,
		"ErrProducerFenced":       sarama.ErrProducerFenced,
		"ErrTransactionNotReady":  sarama.ErrTransactionNotReady,
	} {
		if errors.Is(err, each) {
			return name
		}
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	// More than the default of three attempts in a second: a broker takes longer to restart.
	config.Metadata.Retry.Max, config.Producer.Retry.Max = attempts, attempts
	config.Producer.Transaction.Retry.Max = attempts
	return config
}

func message(topic, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}
}

// admin TOPIC: create it, create it again, add partitions, describe it, delete it.
func admin(_ context.Context, bootstrap []string, arguments []string) error {
	topic := arguments[0]
	admin, err := sarama.NewClusterAdmin(bootstrap, config())
	if err != nil {
		return err
	}
	defer admin.Close()
	setting := "60000"
	detail := &sarama.TopicDetail{
		NumPartitions:     partitions,
		ReplicationFactor: 1,
		ConfigEntries:     map[string]*string{"retention.ms": &setting},
	}
	if err := admin.CreateTopic(topic, detail, false); err != nil {
		return err
	}
	say(map[string]any{"again": nameOf(admin.CreateTopic(topic, detail, false))})
	if err := admin.CreatePartitions(topic, partitions+1, nil, false); err != nil {
		return err
	}
	topics, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		return err
	}
	entries, err := admin.DescribeConfig(sarama.ConfigResource{
		Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"},
	})
	if err != nil {
		return err
	}
	say(map[string]any{"partitions": len(topics[0].Partitions), "retention": entries[0].Value})
	if err := admin.DeleteTopic(topic); err != nil {
		return err
	}
	left, err := admin.ListTopics()
	if err != nil {
		return err
	}
	_, there := left[topic]
	say(map[string]any{"left": there})
	return nil
}

// codecs TOPIC: produce idempotent batches with each codec.
func codecs(_ context.Context, bootstrap []string, arguments []string) error {
	for _, codec := range []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy,
		sarama.CompressionLZ4, sarama.CompressionZSTD,
	} {
		config := config()
		config.Producer.Compression = codec
		config.Producer.Flush.Messages = recordsACodec
		config.Producer.Flush.Frequency = 50 * time.Millisecond
		producer, err := sarama.NewSyncProducer(bootstrap, config)
		if err != nil {
			return err
		}
		var messages []*sarama.ProducerMessage
		for i := range recordsACodec {
			messages = append(messages, message(arguments[0], fmt.Sprintf("%s %d of many that are alike", codec, i)))
		}
		if err := producer.SendMessages(messages); err != nil {
			return err
		}
		if err := producer.Close(); err != nil {
			return err
		}
		say(map[string]any{"codec": codec.String(), "offset": messages[0].Offset, "count": len(messages)})
	}
	return nil
}

// keys TOPIC COUNT: say to which partitions the keys "key-0", "key-1" and so on are sent, with Java's partitioner.
func keys(_ context.Context, bootstrap []string, arguments []string) error {
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	config := config()
	config.Producer.Partitioner = sarama.NewMurmur2Partitioner
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	for i := range count {
		key := fmt.Sprintf("key-%d", i)
		keyed := message(arguments[0], "value")
		keyed.Key = sarama.StringEncoder(key)
		partition, _, err := producer.SendMessage(keyed)
		if err != nil {
			return err
		}
		say(map[string]any{"key": key, "partition": partition})
	}
	return nil
}

func transactional(bootstrap []string, id string) (sarama.SyncProducer, error) {
	config := config()
	config.Producer.Transaction.ID = id
	return sarama.NewSyncProducer(bootstrap, config)
}

func fill(producer sarama.SyncProducer, topic, word string) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	for i := range 3 {
		if _, _, err := producer.SendMessage(message(topic, fmt.Sprintf("%s-%d", word, i))); err != nil {
			return err
		}
	}
	return nil
}

// transactions TOPIC ID: commit one, abort one, leave one open until the test writes a line, with a plain record after it.
func transactions(_ context.Context, bootstrap []string, arguments []string) error {
	topic := arguments[0]
	producer, err := transactional(bootstrap, arguments[1])
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := fill(producer, topic, "committed"); err != nil {
		return err
	}
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	if err := fill(producer, topic, "aborted"); err != nil {
		return err
	}
	if err := producer.AbortTxn(); err != nil {
		return err
	}
	if err := fill(producer, topic, "open"); err != nil {
		return err
	}
	plain, err := sarama.NewSyncProducer(bootstrap, config())
	if err != nil {
		return err
	}
	defer plain.Close()
	if _, _, err := plain.SendMessage(message(topic, "plain")); err != nil {
		return err
	}
	say(map[string]any{"open": true})
	waitForWord()
	if err := producer.CommitTxn(); err != nil {
		return err
	}
	say(map[string]any{"open": false})
	return nil
}

func grouped(bootstrap []string, group, isolation string) (sarama.ConsumerGroup, error) {
	config := config()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	if isolation == "read_committed" {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	return sarama.NewConsumerGroup(bootstrap, group, config)
}

// reader passes each record to the caller's function until it returns that it has enough.
type reader struct {
	count, seen int
	enough      context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	var silence <-chan time.Time
	for {
		if r.seen >= r.count {
			silence = time.After(quiet)
		}
		select {
		case record, open := <-claim.Messages():
			if !open {
				return nil
			}
			r.seen++
			say(map[string]any{"value": string(record.Value), "offset": record.Offset})
			session.MarkMessage(record, "")
		case <-silence:
			session.Commit()
			r.enough()
			return nil
		}
	}
}

// read TOPIC GROUP ISOLATION COUNT: read at least COUNT records as a member of a group, and commit. The topic has one
// partition.
func read(ctx context.Context, bootstrap []string, arguments []string) error {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	group, err := grouped(bootstrap, arguments[1], arguments[2])
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, enough := context.WithCancel(ctx)
	return group.Consume(ctx, arguments[:1], &reader{count: count, enough: enough})
}

// worker is a group member that processes records, with its transactional producer.
type worker struct {
	producer                    sarama.SyncProducer
	group, sink                 string
	count, done, aborted, round int
	enough                      context.CancelFunc
}

func (*worker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*worker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (w *worker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for record := range claim.Messages() {
		for committed := false; !committed; {
			var err error
			if committed, err = w.process(session, record); err != nil {
				return err
			}
		}
		if w.done >= w.count {
			w.enough()
			return nil
		}
	}
	return nil
}

// process handles one record in a transaction. Every third one is aborted, and its record is read again.
func (w *worker) process(session sarama.ConsumerGroupSession, record *sarama.ConsumerMessage) (bool, error) {
	w.round++
	if err := w.producer.BeginTxn(); err != nil {
		return false, err
	}
	if _, _, err := w.producer.SendMessage(message(w.sink, "done "+string(record.Value))); err != nil {
		return false, w.abandon(err)
	}
	if err := w.producer.AddMessageToTxn(record, w.group, nil); err != nil {
		return false, w.abandon(err)
	}
	if w.round%3 == 0 {
		return false, w.abandon(nil)
	}
	if err := w.producer.CommitTxn(); err != nil {
		return false, w.abandon(err)
	}
	session.MarkMessage(record, "")
	w.done++
	return true, nil
}

// abandon aborts the transaction, as sarama's documentation describes it. If that succeeds, the producer can continue.
func (w *worker) abandon(cause error) error {
	if cause != nil {
		log.Printf("aborting: %v", cause)
	}
	if w.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
		return cause
	}
	w.aborted++
	for {
		err := w.producer.AbortTxn()
		if err == nil {
			return nil
		}
		if w.producer.TxnStatus()&sarama.ProducerTxnFlagFatalError != 0 {
			return err
		}
		log.Printf("aborting again: %v", err)
	}
}

// loop SOURCE SINK GROUP COUNT: consume, process, produce. It ends when it has committed COUNT records.
func loop(ctx context.Context, bootstrap []string, arguments []string) error {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	producer, err := transactional(bootstrap, arguments[2]+"-loop")
	if err != nil {
		return err
	}
	defer producer.Close()
	group, err := grouped(bootstrap, arguments[2], "read_committed")
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, enough := context.WithCancel(ctx)
	worker := &worker{producer: producer, group: arguments[2], sink: arguments[1], count: count, enough: enough}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, arguments[:1], worker); err != nil {
			log.Printf("consuming again: %v", err)
		}
	}
	say(map[string]any{"done": worker.done, "aborted": worker.aborted})
	return nil
}

// zombie TOPIC ID: say the errors that the first of two producers with the same id gets for each request that it tries.
func zombie(_ context.Context, bootstrap []string, arguments []string) error {
	topic, id := arguments[0], arguments[1]
	for _, late := range []string{"produce", "commit", "abort", "offsets"} {
		first, err := transactional(bootstrap, id)
		if err != nil {
			return err
		}
		if err := fill(first, topic, "zombie"); err != nil {
			return err
		}
		second, err := transactional(bootstrap, id)
		if err != nil {
			return err
		}
		if err := fill(second, topic, "successor"); err != nil {
			return err
		}
		switch late {
		case "produce":
			_, _, err = first.SendMessage(message(topic, "too late"))
		case "commit":
			err = first.CommitTxn()
		case "abort":
			err = first.AbortTxn()
		case "offsets":
			// The offsets are sent with the commit.
			offsets := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: 1}}
			err = first.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: offsets}, "zombies")
			if err == nil {
				err = first.CommitTxn()
			}
		}
		say(map[string]any{"late": late, "error": nameOf(err)})
		if err := second.CommitTxn(); err != nil {
			return err
		}
		first.Close()
		second.Close()
	}
	return nil
}

// teller says each change of its assignment.
type teller struct{ topic string }

func (t teller) Setup(session sarama.ConsumerGroupSession) error {
	mine := session.Claims()[t.topic]
	sort.Slice(mine, func(i, j int) bool { return mine[i] < mine[j] })
	say(map[string]any{"assigned": mine})
	return nil
}

func (teller) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (teller) ConsumeClaim(session sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-session.Context().Done()
	return nil
}

// member TOPIC GROUP: be a member until the test writes a line.
func member(ctx context.Context, bootstrap []string, arguments []string) error {
	group, err := grouped(bootstrap, arguments[1], "read_committed")
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(ctx)
	go func() {
		waitForWord()
		enough()
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, arguments[:1], teller{arguments[0]}); err != nil {
			return err
		}
	}
	return group.Close()
}
