// Command franz runs the orders of tests/clients/contract.py with franz-go: one order per run, one line of JSON for each
// event.
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
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions    = 3
	recordsACodec = 200
	quiet         = 300 * time.Millisecond
	again         = 20 * time.Millisecond
)

var orders = map[string]func(ctx context.Context, bootstrap string, arguments []string) error{
	"admin":        admin,
	"codecs":       codecs,
	"keys":         keys,
	"transactions": transactions,
	"read":         read,
	"loop":         loop,
	"zombie":       zombie,
	"member":       member,
	"group-member": groupMember,
	"group-loop":   groupLoop,
	"handshakes":   handshakes,
	"share":        share,
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 || orders[os.Args[1]] == nil {
		log.Fatal("usage: franz ORDER BOOTSTRAP [ARGUMENT...]")
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

// at returns the broker's address for every client. A broker that is being restarted refuses connections until it listens, and
// franz-go fails a request at once when its only broker refuses, so the dialer retries instead.
func at(bootstrap string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.Dialer(patient)}
}

func patient(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	for {
		connection, err := dialer.DialContext(ctx, network, address)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return connection, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(again):
		}
	}
}

// waitForWord returns when the test writes a line to our standard input, or closes it.
func waitForWord() {
	bufio.NewScanner(os.Stdin).Scan()
}

// nameOf returns franz-go's name of an error.
func nameOf(err error) string {
	var refused *kerr.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Message
	default:
		return err.Error()
	}
}

// admin TOPIC: create it, create it again, add partitions, describe it, delete it.
func admin(ctx context.Context, bootstrap string, arguments []string) error {
	topic := arguments[0]
	client, err := kadm.NewOptClient(at(bootstrap)...)
	if err != nil {
		return err
	}
	defer client.Close()
	setting := "60000"
	configs := map[string]*string{"retention.ms": &setting}
	if _, err := client.CreateTopic(ctx, partitions, 1, configs, topic); err != nil {
		return err
	}
	_, again := client.CreateTopic(ctx, partitions, 1, nil, topic)
	say(map[string]any{"again": nameOf(again)})
	if _, err := client.CreatePartitions(ctx, 1, topic); err != nil {
		return err
	}
	topics, err := client.ListTopics(ctx, topic)
	if err != nil {
		return err
	}
	described, err := client.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return err
	}
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" {
			say(map[string]any{"partitions": len(topics[topic].Partitions), "retention": config.MaybeValue()})
		}
	}
	if _, err := client.DeleteTopic(ctx, topic); err != nil {
		return err
	}
	topics, err = client.ListTopics(ctx)
	if err != nil {
		return err
	}
	say(map[string]any{"left": topics.Has(topic)})
	return nil
}

// codecs TOPIC: produce idempotent batches with each codec, and count each codec's records when they are read.
func codecs(ctx context.Context, bootstrap string, arguments []string) error {
	topic := arguments[0]
	for _, each := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()},
		{"gzip", kgo.GzipCompression()},
		{"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()},
		{"zstd", kgo.ZstdCompression()},
	} {
		client, err := kgo.NewClient(append(at(bootstrap), kgo.DefaultProduceTopic(topic),
			kgo.ProducerBatchCompression(each.codec), kgo.ProducerLinger(50*time.Millisecond))...)
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for i := range recordsACodec {
			records = append(records, kgo.StringRecord(fmt.Sprintf("%s %d of many that are alike", each.name, i)))
		}
		err = client.ProduceSync(ctx, records...).FirstErr()
		client.Close()
		if err != nil {
			return err
		}
		say(map[string]any{"codec": each.name, "offset": records[0].Offset, "count": len(records)})
	}
	return nil
}

// keys TOPIC COUNT: say to which partitions the keys "key-0", "key-1" and so on are sent.
func keys(ctx context.Context, bootstrap string, arguments []string) error {
	count, err := strconv.Atoi(arguments[1])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(at(bootstrap), kgo.DefaultProduceTopic(arguments[0]))...)
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range count {
		record, err := client.ProduceSync(ctx, kgo.KeyStringRecord(fmt.Sprintf("key-%d", i), "value")).First()
		if err != nil {
			return err
		}
		say(map[string]any{"key": string(record.Key), "partition": record.Partition})
	}
	return nil
}

func transactional(bootstrap, id, topic string) (*kgo.Client, error) {
	return kgo.NewClient(append(at(bootstrap), kgo.TransactionalID(id), kgo.DefaultProduceTopic(topic))...)
}

func fill(ctx context.Context, client *kgo.Client, word string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	for i := range 3 {
		if err := client.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("%s-%d", word, i))).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// transactions TOPIC ID: commit one, abort one, leave one open until the test writes a line, with a plain record after it.
func transactions(ctx context.Context, bootstrap string, arguments []string) error {
	topic := arguments[0]
	client, err := transactional(bootstrap, arguments[1], topic)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, each := range []struct {
		word string
		end  kgo.TransactionEndTry
	}{{"committed", kgo.TryCommit}, {"aborted", kgo.TryAbort}} {
		if err := fill(ctx, client, each.word); err != nil {
			return err
		}
		if err := client.EndTransaction(ctx, each.end); err != nil {
			return err
		}
	}
	if err := fill(ctx, client, "open"); err != nil {
		return err
	}
	plain, err := kgo.NewClient(append(at(bootstrap), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return err
	}
	defer plain.Close()
	if err := plain.ProduceSync(ctx, kgo.StringRecord("plain")).FirstErr(); err != nil {
		return err
	}
	say(map[string]any{"open": true})
	waitForWord()
	if err := client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return err
	}
	say(map[string]any{"open": false})
	return nil
}

func isolation(level string) kgo.IsolationLevel {
	if level == "read_committed" {
		return kgo.ReadCommitted()
	}
	return kgo.ReadUncommitted()
}

// read TOPIC GROUP ISOLATION COUNT: read at least COUNT records as a member of a group, and commit.
func read(ctx context.Context, bootstrap string, arguments []string) error {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(at(bootstrap), kgo.ConsumeTopics(arguments[0]),
		kgo.ConsumerGroup(arguments[1]), kgo.FetchIsolationLevel(isolation(arguments[2])),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())...)
	if err != nil {
		return err
	}
	defer client.Close()
	for seen := 0; ; {
		wait, cancel := ctx, context.CancelFunc(func() {})
		if seen >= count {
			wait, cancel = context.WithTimeout(ctx, quiet)
		}
		fetches := client.PollFetches(wait)
		cancel()
		if errors.Is(fetches.Err0(), context.DeadlineExceeded) && ctx.Err() == nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			seen++
			say(map[string]any{"value": string(record.Value), "offset": record.Offset})
		})
	}
	return client.CommitUncommittedOffsets(ctx)
}

// loop SOURCE SINK GROUP COUNT: consume, process, produce, with a GroupTransactSession. Every third transaction is
// aborted, and its records are read again. It ends when the group has committed COUNT records.
func loop(ctx context.Context, bootstrap string, arguments []string) error {
	source, sink, group := arguments[0], arguments[1], arguments[2]
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(append(at(bootstrap), kgo.TransactionalID(group+"-loop"),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(source), kgo.DefaultProduceTopic(sink),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets())...)
	if err != nil {
		return err
	}
	defer session.Close()
	done, aborted := 0, 0
	for round := 1; done < count; round++ {
		fetches := session.PollRecords(ctx, 5)
		if err := ctx.Err(); err != nil {
			return err
		}
		// The client retries by itself. Its errors are only logged.
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("polling %s %d: %v", topic, partition, err)
		})
		if err := session.Begin(); err != nil {
			return err
		}
		var results []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			results = append(results, kgo.StringRecord("done "+string(record.Value)))
		})
		// Wait for the acknowledgements, so that an aborted transaction has records in the log.
		if err := session.ProduceSync(ctx, results...).FirstErr(); err != nil {
			return err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(round%3 != 0))
		if err != nil {
			return err
		}
		if committed {
			done += fetches.NumRecords()
		} else {
			aborted++
		}
	}
	say(map[string]any{"done": done, "aborted": aborted})
	return nil
}

// zombie TOPIC ID: say the errors that the first of two producers with the same id gets for each request that it tries.
func zombie(ctx context.Context, bootstrap string, arguments []string) error {
	topic, id := arguments[0], arguments[1]
	for _, late := range []string{"produce", "commit", "abort"} {
		first, err := transactional(bootstrap, id, topic)
		if err != nil {
			return err
		}
		if err := fill(ctx, first, "zombie"); err != nil {
			return err
		}
		second, err := transactional(bootstrap, id, topic)
		if err != nil {
			return err
		}
		if err := fill(ctx, second, "successor"); err != nil {
			return err
		}
		switch late {
		case "produce":
			err = first.ProduceSync(ctx, kgo.StringRecord("too late")).FirstErr()
		case "commit":
			err = first.EndTransaction(ctx, kgo.TryCommit)
		case "abort":
			err = first.EndTransaction(ctx, kgo.TryAbort)
		}
		say(map[string]any{"late": late, "error": nameOf(err)})
		if err := second.EndTransaction(ctx, kgo.TryCommit); err != nil {
			return err
		}
		first.Close()
		second.Close()
	}
	return nil
}

// member TOPIC GROUP: be a member until the test writes a line, and say each change of the assignment.
func member(ctx context.Context, bootstrap string, arguments []string) error {
	owned := map[int32]bool{}
	tell := func() {
		list := []int32{}
		for partition := range owned {
			list = append(list, partition)
		}
		sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
		say(map[string]any{"assigned": list})
	}
	change := func(mine bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			for _, partition := range changed[arguments[0]] {
				if mine {
					owned[partition] = true
				} else {
					delete(owned, partition)
				}
			}
			tell()
		}
	}
	client, err := kgo.NewClient(append(at(bootstrap), kgo.ConsumeTopics(arguments[0]),
		kgo.ConsumerGroup(arguments[1]), kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)))...)
	if err != nil {
		return err
	}
	waitForWord()
	client.Close()
	return nil
}

// in returns the options of a group member, in either protocol, that subscribes to a topic or to a regex.
func in(protocol, group, subscription string) []kgo.Opt {
	options := []kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(subscription),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(1500 * time.Millisecond), kgo.HeartbeatInterval(100 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond)}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if strings.HasPrefix(subscription, "^") {
		options = append(options, kgo.ConsumeRegex())
	}
	return options
}

// groupMember PROTOCOL GROUP SUBSCRIPTION INSTANCE: be a member until the test writes a line, and say each change.
func groupMember(_ context.Context, bootstrap string, arguments []string) error {
	owned := map[string]bool{}
	change := func(mine bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			for topic, partitions := range changed {
				for _, partition := range partitions {
					if name := fmt.Sprintf("%s-%d", topic, partition); mine {
						owned[name] = true
					} else {
						delete(owned, name)
					}
				}
			}
			list := []string{}
			for name := range owned {
				list = append(list, name)
			}
			sort.Strings(list)
			say(map[string]any{"assigned": list})
		}
	}
	options := append(in(arguments[0], arguments[1], arguments[2]), at(bootstrap)...)
	options = append(options, kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)),
		kgo.OnPartitionsLost(change(false)))
	if arguments[3] != "-" {
		options = append(options, kgo.InstanceID(arguments[3]), kgo.SessionTimeout(45*time.Second))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	waitForWord()
	client.Close()
	return nil
}

// doom returns a function that says "here" at the step at which the program is to be killed, and then waits.
func doom(fatal string) (func(string), error) {
	name, text, found := strings.Cut(fatal, ":")
	if !found {
		return func(string) {}, nil
	}
	left, err := strconv.Atoi(text)
	return func(step string) {
		if step != name {
			return
		}
		if left--; left == 0 {
			say(map[string]any{"here": step})
			select {}
		}
	}, err
}

// groupLoop PROTOCOL SOURCE SINK GROUP ID STEP: consume, process, produce, with a GroupTransactSession, until the test
// writes a line.
func groupLoop(ctx context.Context, bootstrap string, arguments []string) error {
	sink, group, id := arguments[2], arguments[3], arguments[4]
	step, err := doom(arguments[5])
	if err != nil {
		return err
	}
	options := append(in(arguments[0], group, arguments[1]), at(bootstrap)...)
	session, err := kgo.NewGroupTransactSession(append(options, kgo.TransactionalID(id),
		kgo.DefaultProduceTopic(sink), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return err
	}
	defer session.Close()
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		waitForWord()
		cancel()
	}()
	committed := 0
	for round := 1; ; round++ {
		fetches := session.PollRecords(ctx, 5)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("polling %s %d: %v", topic, partition, err)
		})
		if fetches.NumRecords() == 0 {
			continue
		}
		step("poll")
		if err := session.Begin(); err != nil {
			return err
		}
		var results []*kgo.Record
		fetches.EachRecord(func(record *kgo.Record) {
			results = append(results, kgo.StringRecord("done "+string(record.Value)))
		})
		end := kgo.TransactionEndTry(round%3 != 0)
		if err := session.ProduceSync(ctx, results...).FirstErr(); err != nil {
			log.Printf("producing: %v", err)
			end = kgo.TryAbort
		} else {
			step("send")
		}
		// If the line comes meanwhile, the transaction is ended all the same.
		done, err := session.End(context.WithoutCancel(ctx), end)
		if err != nil {
			return err
		}
		if done {
			step("commit")
			committed += fetches.NumRecords()
			say(map[string]any{"committed": committed})
		}
	}
}
