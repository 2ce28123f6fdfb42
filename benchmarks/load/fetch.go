package main

import (
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	fetchPartitions        = 4
	fetchPartitionMaxBytes = 1 << 20
	fetchVersion           = 12 // the last version with topic names
)

// fill writes the given number of bytes in batches of 100 kB to the partitions of a topic, for consumers to read.
func fill(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	count, err := createTopic(c, o.topic, o.partitions)
	if err != nil {
		return outcome{}, err
	}
	batchBytes := fetchBatchBytes
	if o.count > 0 {
		batchBytes = o.count
	}
	push, err := pusher(c, o.topic, count, batchBytes, o.value)
	if err != nil {
		return outcome{}, err
	}
	before := look(o.pid)
	written, batches := int64(0), int64(0)
	for written < o.bytes {
		size, err := push()
		if err != nil {
			return outcome{}, err
		}
		written += size
		batches++
	}
	for range min(batches, largeInFlight) {
		answer, err := c.receive()
		if err != nil {
			return outcome{}, err
		}
		if code, err := produced(produceVersion, answer); err != nil || code != 0 {
			return outcome{}, fmt.Errorf("Produce: error %d, %w", code, err)
		}
	}
	result := before.since(o.pid)
	result.Bytes, result.Operations = written, batches
	result.Records = batches * int64(recordsIn(batchBytes, o.value))
	return result, nil
}

// fetch reads the topic of fill repeatedly: one connection, one request in flight, 1 MiB of each partition.
func fetch(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	offsets := make([]int64, fetchPartitions)
	var frame []byte
	response := kmsg.NewPtrFetchResponse()
	response.SetVersion(fetchVersion)
	read := func() (int64, error) {
		frame = formatter.AppendRequest(frame[:0], fetchRequest(o.topic, offsets), 1)
		answer, err := c.exchange(frame)
		if err != nil {
			return 0, err
		}
		*response = kmsg.FetchResponse{Version: fetchVersion}
		if err := parse(response, answer); err != nil {
			return 0, err
		}
		return advance(response, offsets)
	}
	return rate(o, []operation{read})
}

func fetchRequest(topic string, offsets []int64) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.SetVersion(fetchVersion)
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = 500, 1, fetchPartitions*fetchPartitionMaxBytes
	request.SessionEpoch = -1
	asked := kmsg.NewFetchRequestTopic()
	asked.Topic = topic
	for index, offset := range offsets {
		partition := kmsg.NewFetchRequestTopicPartition()
		partition.Partition, partition.FetchOffset = int32(index), offset
		partition.PartitionMaxBytes = fetchPartitionMaxBytes
		asked.Partitions = append(asked.Partitions, partition)
	}
	request.Topics = append(request.Topics, asked)
	return request
}

// advance moves the fetch offsets past the batches of the response. A partition at its end starts again at 0.
func advance(response *kmsg.FetchResponse, offsets []int64) (int64, error) {
	moved := int64(0)
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if partition.ErrorCode != 0 {
				return 0, fmt.Errorf("Fetch: error %d", partition.ErrorCode)
			}
			batches := partition.RecordBatches
			next := int64(0)
			for len(batches) >= headerBytes {
				size := 12 + int(binary.BigEndian.Uint32(batches[8:]))
				if size > len(batches) {
					break
				}
				last := int64(binary.BigEndian.Uint32(batches[23:]))
				next = int64(binary.BigEndian.Uint64(batches)) + last + 1
				moved += int64(size)
				batches = batches[size:]
			}
			if next == 0 {
				continue // the response has no data of this partition
			}
			offsets[partition.Partition] = next
			if next >= partition.HighWatermark {
				offsets[partition.Partition] = 0
			}
		}
	}
	return moved, nil
}
