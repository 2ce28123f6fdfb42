package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Retriable error codes of a broker that is not ready yet.
const (
	unknownTopicOrPartition   = 3
	leaderNotAvailable        = 5
	notLeaderOrFollower       = 6
	coordinatorLoading        = 14
	coordinatorNotAvailable   = 15
	notCoordinator            = 16
	unsupportedVersion        = 35
	topicAlreadyExists        = 36
	duplicateSequenceNumber   = 46
	concurrentTransactions    = 51
	retryPause                = time.Millisecond
	patience                  = 60 * time.Second
	produceVersion            = 9  // supported by all brokers, with topic names
	transactionProduceVersion = 12 // the leader adds the partition to the transaction
	headerBytes               = 61
)

func retriable(code int16) bool {
	switch code {
	case unknownTopicOrPartition, leaderNotAvailable, notLeaderOrFollower, coordinatorLoading,
		coordinatorNotAvailable, notCoordinator, concurrentTransactions:
		return true
	}
	return false
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("load"))

// connection sends one request at a time, or several if its user counts those in flight.
type connection struct {
	net.Conn
	reader   *bufio.Reader
	answer   []byte
	versions map[int16]int16
	features map[string]int16
}

func dial(address string) (*connection, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &connection{Conn: c, reader: bufio.NewReaderSize(c, 1<<16)}, nil
}

// open dials and sends ApiVersions.
func open(address string) (*connection, error) {
	c, err := dial(address)
	if err != nil {
		return nil, err
	}
	return c, c.negotiate()
}

func (c *connection) negotiate() error {
	response, err := c.apiVersions(3)
	if err == nil && response.ErrorCode == unsupportedVersion {
		response, err = c.apiVersions(0)
	}
	if err != nil {
		return err
	}
	if response.ErrorCode != 0 {
		return fmt.Errorf("ApiVersions: error %d", response.ErrorCode)
	}
	c.versions = map[int16]int16{}
	for _, each := range response.ApiKeys {
		c.versions[each.ApiKey] = each.MaxVersion
	}
	c.features = map[string]int16{}
	for _, each := range response.FinalizedFeatures {
		c.features[each.Name] = each.MaxVersionLevel
	}
	return nil
}

func (c *connection) apiVersions(version int16) (*kmsg.ApiVersionsResponse, error) {
	request := kmsg.NewPtrApiVersionsRequest()
	request.SetVersion(version)
	request.ClientSoftwareName, request.ClientSoftwareVersion = "load", "1"
	answer, err := c.exchange(formatter.AppendRequest(nil, request, 1))
	if err != nil {
		return nil, err
	}
	response := kmsg.NewPtrApiVersionsResponse()
	response.SetVersion(version)
	// A broker that does not support this version responds with version 0.
	if len(answer) >= 6 && int16(binary.BigEndian.Uint16(answer[4:])) == unsupportedVersion {
		response.ErrorCode = unsupportedVersion
		return response, nil
	}
	return response, parse(response, answer)
}

// receive reads one response without its size. The next call reuses the memory.
func (c *connection) receive() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(c.reader, size[:]); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(size[:]))
	if cap(c.answer) < length {
		c.answer = make([]byte, length)
	}
	c.answer = c.answer[:length]
	_, err := io.ReadFull(c.reader, c.answer)
	return c.answer, err
}

func (c *connection) exchange(frame []byte) ([]byte, error) {
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	return c.receive()
}

// ask sends a request in its own version, or in the highest version that both sides support.
func ask[R kmsg.Response](c *connection, request kmsg.Request) (R, error) {
	var none R
	if highest, known := c.versions[request.Key()]; known && request.GetVersion() > highest {
		request.SetVersion(highest)
	}
	answer, err := c.exchange(formatter.AppendRequest(nil, request, 1))
	if err != nil {
		return none, err
	}
	response, isKind := request.ResponseKind().(R)
	if !isKind {
		return none, errors.New("unexpected type of response")
	}
	return response, parse(response, answer)
}

func parse(response kmsg.Response, answer []byte) error {
	body := answer[4:]
	if response.IsFlexible() && response.Key() != (&kmsg.ApiVersionsRequest{}).Key() {
		body = body[1:] // no tagged fields in the response header
	}
	return response.ReadFrom(body)
}

// persistently repeats a request as long as it returns one of the retriable error codes.
func persistently(what string, retries *int64, once func() (int16, error)) error {
	deadline := time.Now().Add(patience)
	for {
		code, err := once()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if code == 0 {
			return nil
		}
		if !retriable(code) || time.Now().After(deadline) {
			return fmt.Errorf("%s: error %d", what, code)
		}
		*retries++
		time.Sleep(retryPause)
	}
}

// createTopic creates a topic and returns its number of partitions. librdkafka's mock creates topics only for Metadata.
func createTopic(c *connection, name string, partitions int) (int, error) {
	if _, can := c.versions[(&kmsg.CreateTopicsRequest{}).Key()]; can {
		request := kmsg.NewPtrCreateTopicsRequest()
		request.SetVersion(5)
		request.TimeoutMillis = 60_000
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), 1
		request.Topics = append(request.Topics, topic)
		response, err := ask[*kmsg.CreateTopicsResponse](c, request)
		if err != nil {
			return 0, err
		}
		if code := response.Topics[0].ErrorCode; code != 0 && code != topicAlreadyExists {
			return 0, fmt.Errorf("CreateTopics of %s: error %d", name, code)
		}
		return partitions, nil
	}
	var found int
	var retries int64
	err := persistently("Metadata of "+name, &retries, func() (int16, error) {
		response, err := metadata(c, name)
		if err != nil {
			return 0, err
		}
		found = len(response.Topics[0].Partitions)
		return response.Topics[0].ErrorCode, nil
	})
	return found, err
}

func metadata(c *connection, topic string) (*kmsg.MetadataResponse, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.SetVersion(9)
	request.AllowAutoTopicCreation = true
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	return ask[*kmsg.MetadataResponse](c, request)
}

func deleteTopic(c *connection, name string) error {
	if _, can := c.versions[(&kmsg.DeleteTopicsRequest{}).Key()]; !can {
		return nil
	}
	request := kmsg.NewPtrDeleteTopicsRequest()
	request.SetVersion(4)
	request.TimeoutMillis = 60_000
	request.TopicNames = []string{name}
	response, err := ask[*kmsg.DeleteTopicsResponse](c, request)
	if err == nil && response.Topics[0].ErrorCode != 0 {
		err = fmt.Errorf("DeleteTopics of %s: error %d", name, response.Topics[0].ErrorCode)
	}
	return err
}

// produceFrame returns a Produce request with the same batch for each of the partitions.
func produceFrame(version int16, topic string, transactionalID *string, batch []byte, indexes ...int) []byte {
	request := kmsg.NewPtrProduceRequest()
	request.SetVersion(version)
	request.Acks, request.TimeoutMillis, request.TransactionID = -1, 30_000, transactionalID
	to := kmsg.NewProduceRequestTopic()
	to.Topic = topic
	for _, index := range indexes {
		partition := kmsg.NewProduceRequestTopicPartition()
		partition.Partition, partition.Records = int32(index), batch
		to.Partitions = append(to.Partitions, partition)
	}
	request.Topics = append(request.Topics, to)
	return formatter.AppendRequest(nil, request, 1)
}

// produced returns the first error code of a response to produceFrame, except DUPLICATE_SEQUENCE_NUMBER.
func produced(version int16, answer []byte) (int16, error) {
	response := kmsg.NewPtrProduceResponse()
	response.SetVersion(version)
	if err := parse(response, answer); err != nil {
		return 0, err
	}
	for _, topic := range response.Topics {
		for _, partition := range topic.Partitions {
			if partition.ErrorCode != 0 && partition.ErrorCode != duplicateSequenceNumber {
				return partition.ErrorCode, nil
			}
		}
	}
	return 0, nil
}

// untilProduced waits until the partitions accept records.
func untilProduced(c *connection, topic string, batch []byte, indexes ...int) error {
	frame := produceFrame(produceVersion, topic, nil, batch, indexes...)
	var retries int64
	return persistently("Produce to "+topic, &retries, func() (int16, error) {
		answer, err := c.exchange(frame)
		if err != nil {
			return 0, err
		}
		return produced(produceVersion, answer)
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newBatch returns a batch of records with random values of the same size, which cannot be compressed.
func newBatch(records, valueBytes int, producerID int64, transactional bool) []byte {
	batch := make([]byte, headerBytes, headerBytes+records*(valueBytes+16))
	now := uint64(time.Now().UnixMilli())
	for index := range records {
		var body []byte
		body = append(body, 0, 0) // attributes, timestamp as the first record's
		body = binary.AppendVarint(body, int64(index))
		body = binary.AppendVarint(body, -1) // no key
		body = binary.AppendVarint(body, int64(valueBytes))
		for range valueBytes {
			body = append(body, byte(rand.Uint32()))
		}
		body = append(body, 0) // no headers
		batch = binary.AppendVarint(batch, int64(len(body)))
		batch = append(batch, body...)
	}
	big := binary.BigEndian
	big.PutUint32(batch[8:], uint32(len(batch)-12))
	big.PutUint32(batch[12:], ^uint32(0)) // partition leader epoch: none
	batch[16] = 2
	if transactional {
		big.PutUint16(batch[21:], 0x10)
	}
	big.PutUint32(batch[23:], uint32(records-1))
	big.PutUint64(batch[27:], now)
	big.PutUint64(batch[35:], now)
	big.PutUint64(batch[43:], uint64(producerID))
	big.PutUint32(batch[57:], uint32(records))
	setProducer(batch, -1, -1)
	return batch
}

// setProducer sets the producer epoch and base sequence of a batch.
func setProducer(batch []byte, epoch int16, sequence int32) {
	binary.BigEndian.PutUint16(batch[51:], uint16(epoch))
	binary.BigEndian.PutUint32(batch[53:], uint32(sequence))
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoli))
}
