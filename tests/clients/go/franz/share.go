package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var acknowledgements = map[string]kgo.AckStatus{
	"accept": kgo.AckAccept, "release": kgo.AckRelease, "reject": kgo.AckReject, "renew": kgo.AckRenew,
}

// results collects the errors of acknowledgements until they are reported.
type results struct {
	mu     sync.Mutex
	errors []string
}

func (r *results) add(_ *kgo.Client, found kgo.ShareAckResults) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, each := range found {
		var known *kerr.Error
		if errors.As(each.Err, &known) {
			r.errors = append(r.errors, known.Message)
		} else if each.Err != nil {
			r.errors = append(r.errors, each.Err.Error())
		}
	}
}

func (r *results) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.errors
	r.errors = nil
	slices.Sort(found)
	return slices.Compact(append([]string{}, found...))
}

// share is a member of a share group (tests/clients/share_members.py): GROUP TOPIC MAX, where MAX is the number of records
// of a ShareFetch if it limits records, and 0 otherwise. It obeys the lines of its standard input.
func share(ctx context.Context, bootstrap string, arguments []string) error {
	var outcome results
	options := append(at(bootstrap), kgo.ShareGroup(arguments[0]), kgo.ConsumeTopics(arguments[1]),
		kgo.FetchMaxWait(50*time.Millisecond), kgo.ShareAckCallback(outcome.add),
		// No fetches between polls: they would acquire records that a test expects at another member.
		kgo.MaxConcurrentFetches(0))
	if most, _ := strconv.Atoi(arguments[2]); most > 0 {
		options = append(options, kgo.ShareMaxRecords(int32(most)), kgo.ShareMaxRecordsStrict())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	var polled []*kgo.Record
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		order := strings.Fields(input.Text())
		switch order[0] {
		case "poll":
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			polled = client.PollFetches(limited).Records()
			cancel()
			records := [][]any{}
			for _, each := range polled {
				records = append(records, []any{each.Offset, each.DeliveryCount(), string(each.Value)})
			}
			say(map[string]any{"polled": records})
		case "acknowledge":
			for _, each := range polled {
				if strconv.FormatInt(each.Offset, 10) == order[1] {
					each.Ack(acknowledgements[order[2]])
				}
			}
		case "commit":
			if err := client.FlushAcks(ctx); err != nil {
				return err
			}
			say(map[string]any{"committed": outcome.take()})
		}
	}
	client.Close()
	return nil
}
