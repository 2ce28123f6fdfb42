package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ids initialises new transactional ids, with one request in flight on each connection.
func ids(o options) (outcome, error) {
	connections := make([]*connection, o.connections)
	for index := range connections {
		c, err := open(o.address)
		if err != nil {
			return outcome{}, err
		}
		connections[index] = c
	}
	if err := findCoordinator(connections[0], 1, o.topic); err != nil {
		return outcome{}, err
	}
	// As a warm-up, initialise a few ids of each partition of __transaction_state.
	if _, _, err := initialise(connections, o.topic+"-warm", o.connections*20); err != nil {
		return outcome{}, err
	}
	before := look(o.pid)
	latencies, retries, err := initialise(connections, o.topic, o.count)
	if err != nil {
		return outcome{}, err
	}
	result := before.since(o.pid)
	result.Operations, result.Retries = int64(o.count), retries
	result.quantiles(latencies)
	return result, nil
}

func initialise(connections []*connection, prefix string, count int) ([]time.Duration, int64, error) {
	var next atomic.Int64
	var mutex sync.Mutex
	var latencies []time.Duration
	var allRetries int64
	var failure error
	var working sync.WaitGroup
	for _, c := range connections {
		working.Go(func() {
			var own []time.Duration
			var retries int64
			for number := next.Add(1); number <= int64(count); number = next.Add(1) {
				begun := time.Now()
				err := persistently("InitProducerId", &retries, func() (int16, error) {
					response, err := initProducerID(c, fmt.Sprintf("%s-%d", prefix, number))
					if err != nil {
						return 0, err
					}
					return response.ErrorCode, nil
				})
				own = append(own, time.Since(begun))
				if err != nil {
					mutex.Lock()
					failure = err
					mutex.Unlock()
					break
				}
			}
			mutex.Lock()
			latencies, allRetries = append(latencies, own...), allRetries+retries
			mutex.Unlock()
		})
	}
	working.Wait()
	return latencies, allRetries, failure
}

// partitions measures the time from CreateTopics until each partition has accepted a record. The topic is not deleted,
// because its deletion would disturb the next round.
func partitions(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	waiting := make([]int, o.count)
	for index := range waiting {
		waiting[index] = index
	}
	batch := newBatch(1, smallValueBytes, -1, false)
	frame := produceFrame(produceVersion, o.topic, nil, batch, waiting...)
	before := look(o.pid)
	if _, err := createTopic(c, o.topic, o.count); err != nil {
		return outcome{}, err
	}
	var retries int64
	err = persistently("Produce", &retries, func() (int16, error) {
		answer, err := c.exchange(frame)
		if err != nil {
			return 0, err
		}
		refused, code, err := refusedBy(answer)
		if len(refused) > 0 && len(refused) < len(waiting) {
			// Retry only these: the other partitions have their record.
			frame = produceFrame(produceVersion, o.topic, nil, batch, refused...)
			waiting = refused
		}
		return code, err
	})
	if err != nil {
		return outcome{}, err
	}
	result := before.since(o.pid)
	result.Operations, result.Retries = int64(o.count), retries
	return result, nil
}

// refusedBy returns the partitions that have not accepted their records, and the error code of one of them.
func refusedBy(answer []byte) ([]int, int16, error) {
	response := kmsg.NewPtrProduceResponse()
	response.SetVersion(produceVersion)
	if err := parse(response, answer); err != nil {
		return nil, 0, err
	}
	var refused []int
	var code int16
	for _, partition := range response.Topics[0].Partitions {
		if partition.ErrorCode != 0 {
			refused = append(refused, int(partition.Partition))
			code = partition.ErrorCode
		}
	}
	return refused, code, nil
}

// idle opens connections one after another, each with an ApiVersions request, and keeps them open.
func idle(o options) (outcome, error) {
	atRest := residentMiB(o.pid)
	before := look(o.pid)
	connections := make([]*connection, o.count)
	for index := range connections {
		c, err := open(o.address)
		if err != nil {
			return outcome{}, err
		}
		connections[index] = c
	}
	result := before.since(o.pid)
	result.Operations = int64(o.count)
	result.MemoryMiB -= atRest
	for _, c := range connections {
		_ = c.Close()
	}
	return result, nil
}

// topic creates a topic for the measures of other clients, and waits until all its partitions have leaders.
func topic(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	if _, err := createTopic(c, o.topic, o.count); err != nil {
		return outcome{}, err
	}
	var retries int64
	return outcome{}, persistently("Metadata", &retries, func() (int16, error) {
		response, err := metadata(c, o.topic)
		if err != nil {
			return 0, err
		}
		code := response.Topics[0].ErrorCode
		for _, partition := range response.Topics[0].Partitions {
			code = max(code, partition.ErrorCode)
		}
		return code, nil
	})
}

func drop(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	return outcome{}, deleteTopic(c, o.topic)
}
