package odradek

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// commit writes one record in a transaction. The client sends EndTxn again if it does not get the response.
func commit(t *testing.T, servers string) {
	t.Helper()
	ctx := context.Background()
	producer, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.TransactionalID("payments"), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if err := producer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := producer.ProduceSync(ctx, kgo.StringRecord("paid")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := producer.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, servers string) []string {
	t.Helper()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(servers), kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	var values []string
	for len(values) == 0 {
		fetches := consumer.PollFetches(context.Background())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values
}

func TestACommitWhoseAnswerIsLostIsCommittedOnce(t *testing.T) {
	broker := Start(t, "--topic", "orders:1")
	rule := broker.AddFault("EndTxn nth=1 -> lose-answer")
	commit(t, broker.BootstrapServers)
	if values := read(t, broker.BootstrapServers); len(values) != 1 || values[0] != "paid" {
		t.Errorf("read %v", values)
	}
	if hits := broker.Hits(rule); hits != 1 {
		t.Errorf("the rule had %d hits", hits)
	}
}

func TestAResetLeavesNothing(t *testing.T) {
	broker := Start(t, "--topic", "orders:1")
	commit(t, broker.BootstrapServers)
	broker.Reset()
	if said := broker.Explain("orders"); !strings.Contains(said, "orders-0") {
		t.Errorf("explained: %q", said)
	}
	commit(t, broker.BootstrapServers)
	if values := read(t, broker.BootstrapServers); len(values) != 1 {
		t.Errorf("read %v", values)
	}
}
