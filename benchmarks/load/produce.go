package main

import (
	"encoding/binary"
	"fmt"
)

const (
	smallValueBytes  = 100
	largeBatchBytes  = 1_000_000
	largeValueBytes  = 10_000
	largePartitions  = 4
	largeInFlight    = 5 // the clients' default of max.in.flight.requests.per.connection
	fetchBatchBytes  = 100_000
	fetchValueBytes  = 1_000
	recordFieldBytes = 11 // maximum size of a record without its value, for values below 16 KiB
)

// small: one Produce of one record in flight on each connection, each to a different partition, with acks=all.
func small(o options) (outcome, error) {
	first, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	count, err := createTopic(first, o.topic, o.connections)
	if err != nil {
		return outcome{}, err
	}
	batch := newBatch(1, smallValueBytes, -1, false)
	for index := range count {
		if err := untilProduced(first, o.topic, batch, index); err != nil {
			return outcome{}, err
		}
	}
	operations := make([]operation, o.connections)
	for index := range operations {
		c, err := open(o.address)
		if err != nil {
			return outcome{}, err
		}
		frame := produceFrame(produceVersion, o.topic, nil, batch, index%count)
		at := errorCodeAt(o.topic)
		operations[index] = func() (int64, error) {
			answer, err := c.exchange(frame)
			if err != nil {
				return 0, err
			}
			if code := int16(binary.BigEndian.Uint16(answer[at:])); code != 0 {
				return 0, fmt.Errorf("Produce: error %d", code)
			}
			return smallValueBytes, nil
		}
	}
	result, err := rate(o, operations)
	if err != nil {
		return outcome{}, err
	}
	return result, deleteTopic(first, o.topic)
}

// errorCodeAt is the position of the error code in a response for one partition, so that no response has to be decoded.
func errorCodeAt(topic string) int {
	// Correlation id, tags; one topic, its name with a length of one byte; one partition, its index.
	return 4 + 1 + 1 + 1 + len(topic) + 1 + 4
}

// large: batches of 1 MB on one connection, five in flight, to four partitions in turn.
func large(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	count, err := createTopic(c, o.topic, largePartitions)
	if err != nil {
		return outcome{}, err
	}
	push, err := pusher(c, o.topic, count, largeBatchBytes, largeValueBytes)
	if err != nil {
		return outcome{}, err
	}
	result, err := rate(o, []operation{push})
	if err != nil {
		return outcome{}, err
	}
	// Responses are still outstanding on the connection.
	again, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	_ = c.Close()
	return result, deleteTopic(again, o.topic)
}

// pusher sends one batch to the next partition at each call, with up to five requests in flight.
func pusher(c *connection, topic string, partitions, batchBytes, valueBytes int) (operation, error) {
	batch := newBatch(recordsIn(batchBytes, valueBytes), valueBytes, -1, false)
	frames := make([][]byte, partitions)
	for index := range frames {
		if err := untilProduced(c, topic, newBatch(1, 1, -1, false), index); err != nil {
			return nil, err
		}
		frames[index] = produceFrame(produceVersion, topic, nil, batch, index)
	}
	sent, unanswered := 0, 0
	return func() (int64, error) {
		if unanswered == largeInFlight {
			unanswered--
			answer, err := c.receive()
			if err != nil {
				return 0, err
			}
			if code, err := produced(produceVersion, answer); err != nil || code != 0 {
				return 0, fmt.Errorf("Produce: error %d, %w", code, err)
			}
		}
		_, err := c.Write(frames[sent%partitions])
		sent++
		unanswered++
		return int64(len(batch)), err
	}, nil
}

// recordsIn returns the number of records of this size in the largest batch of at most the given number of bytes.
func recordsIn(batchBytes, valueBytes int) int {
	return (batchBytes - headerBytes) / (valueBytes + recordFieldBytes)
}
