package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	shareFetchVersion   = 1
	sharePollRecords    = 500      // the clients' default of max.poll.records
	shareFetchMaxBytes  = 50 << 20 // the Java client's default of fetch.max.bytes
	shareFetchMaxWaitMs = 1        // the end of the topic must not count as time
	shareHeartbeatPause = 50 * time.Millisecond
	groupConfigResource = kmsg.ConfigResourceType(32)
	shareFinalEpoch     = -1
)

// shareGroup sets a new share group to begin at the start of the log: the default is its end.
func shareGroup(o options) (outcome, error) {
	c, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.SetVersion(1)
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = groupConfigResource, o.group
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", kmsg.StringPtr("earliest")
	resource.Configs = append(resource.Configs, config)
	request.Resources = append(request.Resources, resource)
	response, err := ask[*kmsg.IncrementalAlterConfigsResponse](c, request)
	if err == nil && response.Resources[0].ErrorCode != 0 {
		err = fmt.Errorf("IncrementalAlterConfigs of %s: error %d", o.group, response.Resources[0].ErrorCode)
	}
	return outcome{}, err
}

// shareConsumer is one member of a share group, with one ShareFetch in flight. Each acknowledges all records of the one
// before, as the clients do in implicit mode.
type shareConsumer struct {
	*connection
	group, member  string
	topicID        [16]byte
	partitions     []int32
	epoch          int32
	unacknowledged map[int32][]kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch
	acquired       int64
	frame          []byte
}

// share reads the topic of fill as one share consumer. The warm-up reads it in groups of its own, as often as time allows.
// The measurement is one group, and ends early at the end of the topic. Operations are acknowledged records.
func share(o options) (outcome, error) {
	for end, number := time.Now().Add(o.warm), 0; time.Now().Before(end); number++ {
		warming := o
		warming.group, warming.measured = fmt.Sprintf("%s-warm-%d", o.group, number), time.Until(end)
		if _, err := shareOnce(warming); err != nil {
			return outcome{}, err
		}
	}
	return shareOnce(o)
}

func shareOnce(o options) (outcome, error) {
	if _, err := shareGroup(o); err != nil {
		return outcome{}, err
	}
	consumer, err := join(o)
	if err != nil {
		return outcome{}, err
	}
	before := look(o.pid)
	records, latencies, err := consumer.consume(o.measured)
	if err != nil {
		return outcome{}, err
	}
	result := before.since(o.pid)
	result.Operations, result.Bytes = records, records*int64(o.value)
	result.quantiles(latencies)
	return result, consumer.leave()
}

// join sends heartbeats until the consumer has an assignment, and opens its share session.
func join(o options) (*shareConsumer, error) {
	c, err := open(o.address)
	if err != nil {
		return nil, err
	}
	if err := findCoordinator(c, 0, o.group); err != nil {
		return nil, err
	}
	consumer := &shareConsumer{connection: c, group: o.group, member: "AAAAAAAAAAAAAAAAAAAAAA"}
	deadline := time.Now().Add(patience)
	epoch, names := int32(0), []string{o.topic}
	for len(consumer.partitions) < o.partitions {
		response, err := consumer.heartbeat(epoch, names)
		if err != nil {
			return nil, err
		}
		epoch, names = response.MemberEpoch, nil
		if response.Assignment != nil && len(response.Assignment.TopicPartitions) == 1 {
			assigned := response.Assignment.TopicPartitions[0]
			consumer.topicID, consumer.partitions = assigned.TopicID, assigned.Partitions
		} else if time.Now().After(deadline) {
			return nil, fmt.Errorf("no assignment in time")
		} else {
			time.Sleep(shareHeartbeatPause)
		}
	}
	for consumer.acquired == 0 { // the first one may come before the share partitions are loaded
		if _, err := consumer.poll(); err != nil {
			return nil, err
		}
	}
	return consumer, nil
}

// leave ends the share session, which acknowledges the last records, and the membership.
func (s *shareConsumer) leave() error {
	s.epoch = shareFinalEpoch
	if _, err := s.poll(); err != nil {
		return err
	}
	_, err := s.heartbeat(shareFinalEpoch, nil)
	return err
}

func (s *shareConsumer) heartbeat(epoch int32, names []string) (*kmsg.ShareGroupHeartbeatResponse, error) {
	request := kmsg.NewPtrShareGroupHeartbeatRequest()
	request.SetVersion(1)
	request.GroupID, request.MemberID, request.MemberEpoch = s.group, s.member, epoch
	request.SubscribedTopicNames = names
	var retries int64
	var response *kmsg.ShareGroupHeartbeatResponse
	return response, persistently("ShareGroupHeartbeat", &retries, func() (code int16, err error) {
		response, err = ask[*kmsg.ShareGroupHeartbeatResponse](s.connection, request)
		if err != nil {
			return 0, err
		}
		return response.ErrorCode, nil
	})
}

// consume polls until the time is over or a response has no records. It returns the number of records that it has
// acknowledged, and the time of each poll.
func (s *shareConsumer) consume(long time.Duration) (int64, []time.Duration, error) {
	acknowledged, latencies := int64(0), []time.Duration(nil)
	begun := time.Now()
	for end, now := begun.Add(long), begun; now.Before(end) && s.acquired > 0; {
		done, err := s.poll()
		if err != nil {
			return 0, nil, err
		}
		acknowledged += done
		before := now
		now = time.Now()
		latencies = append(latencies, now.Sub(before))
	}
	return acknowledged, latencies, nil
}

// poll sends one ShareFetch and returns the number of records that it has acknowledged.
func (s *shareConsumer) poll() (int64, error) {
	s.frame = formatter.AppendRequest(s.frame[:0], s.request(), 1)
	answer, err := s.exchange(s.frame)
	if err != nil {
		return 0, err
	}
	response := &kmsg.ShareFetchResponse{Version: shareFetchVersion}
	if err := parse(response, answer); err != nil {
		return 0, err
	}
	if response.ErrorCode != 0 {
		return 0, fmt.Errorf("ShareFetch: error %d", response.ErrorCode)
	}
	acknowledged := s.acquired
	s.epoch++
	return acknowledged, s.take(response)
}

func (s *shareConsumer) request() *kmsg.ShareFetchRequest {
	request := kmsg.NewPtrShareFetchRequest()
	request.SetVersion(shareFetchVersion)
	request.GroupID, request.MemberID, request.ShareSessionEpoch = &s.group, &s.member, s.epoch
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = shareFetchMaxWaitMs, 1, shareFetchMaxBytes
	request.MaxRecords, request.BatchSize = sharePollRecords, sharePollRecords
	topic := kmsg.NewShareFetchRequestTopic()
	topic.TopicID = s.topicID
	for _, index := range s.partitions {
		batches := s.unacknowledged[index]
		if s.epoch == 0 || batches != nil {
			partition := kmsg.NewShareFetchRequestTopicPartition()
			partition.Partition, partition.AcknowledgementBatches = index, batches
			topic.Partitions = append(topic.Partitions, partition)
		}
	}
	if topic.Partitions != nil {
		request.Topics = append(request.Topics, topic)
	}
	return request
}

// take notes the acquired records of a response, which must be among its batches.
func (s *shareConsumer) take(response *kmsg.ShareFetchResponse) error {
	s.acquired, s.unacknowledged = 0, map[int32][]kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{}
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if partition.ErrorCode != 0 || partition.AcknowledgeErrorCode != 0 {
				return fmt.Errorf("ShareFetch: errors %d and %d", partition.ErrorCode, partition.AcknowledgeErrorCode)
			}
			if len(partition.AcquiredRecords) == 0 {
				continue
			}
			first, last := extent(partition.Records)
			for _, each := range partition.AcquiredRecords {
				if each.FirstOffset < first || each.LastOffset > last {
					return fmt.Errorf("acquired %d to %d, received %d to %d", each.FirstOffset, each.LastOffset, first, last)
				}
				batch := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
				batch.FirstOffset, batch.LastOffset, batch.AcknowledgeTypes = each.FirstOffset, each.LastOffset, accept
				s.unacknowledged[partition.Partition] = append(s.unacknowledged[partition.Partition], batch)
				s.acquired += each.LastOffset - each.FirstOffset + 1
			}
		}
	}
	return nil
}

var accept = []int8{1}

// extent returns the first and the last offset of record batches, by their headers.
func extent(batches []byte) (int64, int64) {
	first, last := int64(math.MaxInt64), int64(-1)
	for len(batches) >= headerBytes {
		size := 12 + int(binary.BigEndian.Uint32(batches[8:]))
		if size > len(batches) {
			break
		}
		base := int64(binary.BigEndian.Uint64(batches))
		first, last = min(first, base), base+int64(binary.BigEndian.Uint32(batches[23:]))
		batches = batches[size:]
	}
	return first, last
}
