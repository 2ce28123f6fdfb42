package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// serveKfake is franz-go's fake cluster with one broker, in memory or with a directory.
func serveKfake(arguments []string) error {
	flags := flag.NewFlagSet("kfake", flag.ExitOnError)
	port := flags.Int("port", 9092, "where to listen")
	data := flags.String("data", "", "directory of its data; without it, memory")
	_ = flags.Parse(arguments)
	told := []kfake.Opt{kfake.Ports(*port), kfake.NumBrokers(1), kfake.AllowAutoTopicCreation()}
	if *data != "" {
		told = append(told, kfake.DataDir(*data))
	}
	cluster, err := kfake.NewCluster(told...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}

// The null broker's APIs with the highest version of each, in which topics still have names instead of ids.
var nullAPIs = map[int16]int16{0: 12, 3: 9, 10: 3, 18: 3, 19: 5, 20: 4, 22: 4, 24: 3, 25: 3, 26: 3, 28: 3}

const nullPartitions = 4

type nullBroker struct {
	port   int32
	mutex  sync.Mutex
	topics map[string]int32
	ids    int64
}

// serveNull responds to producers and stores nothing: it shows the limit of the client.
func serveNull(arguments []string) error {
	flags := flag.NewFlagSet("null", flag.ExitOnError)
	port := flags.Int("port", 9092, "where to listen")
	_ = flags.Parse(arguments)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		return err
	}
	broker := &nullBroker{port: int32(*port), topics: map[string]int32{}}
	for {
		c, err := listener.Accept()
		if err != nil {
			return err
		}
		go broker.serve(c)
	}
}

func (b *nullBroker) serve(c net.Conn) {
	defer c.Close()
	reader := bufio.NewReaderSize(c, 1<<16)
	var frame, answer []byte
	for {
		var size [4]byte
		if _, err := io.ReadFull(reader, size[:]); err != nil {
			return
		}
		length := int(binary.BigEndian.Uint32(size[:]))
		if cap(frame) < length {
			frame = make([]byte, length)
		}
		frame = frame[:length]
		if _, err := io.ReadFull(reader, frame); err != nil {
			return
		}
		response, expected := b.answer(frame)
		if response == nil {
			return
		}
		if !expected {
			continue
		}
		answer = append(answer[:0], 0, 0, 0, 0)
		answer = append(answer, frame[4:8]...)
		if response.IsFlexible() && response.Key() != 18 {
			answer = append(answer, 0)
		}
		answer = response.AppendTo(answer)
		binary.BigEndian.PutUint32(answer, uint32(len(answer)-4))
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// answer returns the response, nil for an API that the null broker does not have. A Produce with acks=0 has no response.
func (b *nullBroker) answer(frame []byte) (kmsg.Response, bool) {
	key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	highest, known := nullAPIs[key]
	if !known {
		return nil, false
	}
	if key == 18 {
		return b.versions(min(version, highest)), true
	}
	if version > highest {
		return nil, false
	}
	request := kmsg.RequestForKey(key)
	request.SetVersion(version)
	body := frame[8:]
	if named := int16(binary.BigEndian.Uint16(body)); named > 0 {
		body = body[named:]
	}
	body = body[2:]
	if request.IsFlexible() {
		body = body[1:]
	}
	if err := request.ReadFrom(body); err != nil {
		return nil, false
	}
	produce, isProduce := request.(*kmsg.ProduceRequest)
	return b.respond(request), !isProduce || produce.Acks != 0
}

func (b *nullBroker) versions(version int16) kmsg.Response {
	response := kmsg.NewPtrApiVersionsResponse()
	response.SetVersion(version)
	for key, highest := range nullAPIs {
		each := kmsg.NewApiVersionsResponseApiKey()
		each.ApiKey, each.MaxVersion = key, highest
		response.ApiKeys = append(response.ApiKeys, each)
	}
	return response
}

func (b *nullBroker) respond(request kmsg.Request) kmsg.Response {
	response := request.ResponseKind()
	switch asked := request.(type) {
	case *kmsg.ProduceRequest:
		answered := response.(*kmsg.ProduceResponse)
		for _, topic := range asked.Topics {
			to := kmsg.NewProduceResponseTopic()
			to.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				each := kmsg.NewProduceResponseTopicPartition()
				each.Partition = partition.Partition
				to.Partitions = append(to.Partitions, each)
			}
			answered.Topics = append(answered.Topics, to)
		}
	case *kmsg.MetadataRequest:
		b.metadata(asked, response.(*kmsg.MetadataResponse))
	case *kmsg.CreateTopicsRequest:
		answered := response.(*kmsg.CreateTopicsResponse)
		for _, topic := range asked.Topics {
			b.partitions(topic.Topic, topic.NumPartitions)
			each := kmsg.NewCreateTopicsResponseTopic()
			each.Topic, each.NumPartitions, each.ReplicationFactor = topic.Topic, topic.NumPartitions, 1
			answered.Topics = append(answered.Topics, each)
		}
	case *kmsg.DeleteTopicsRequest:
		answered := response.(*kmsg.DeleteTopicsResponse)
		for _, name := range asked.TopicNames {
			each := kmsg.NewDeleteTopicsResponseTopic()
			each.Topic = &name
			answered.Topics = append(answered.Topics, each)
		}
	case *kmsg.FindCoordinatorRequest:
		answered := response.(*kmsg.FindCoordinatorResponse)
		answered.NodeID, answered.Host, answered.Port = 1, "127.0.0.1", b.port
	case *kmsg.InitProducerIDRequest:
		answered := response.(*kmsg.InitProducerIDResponse)
		b.mutex.Lock()
		b.ids++
		answered.ProducerID = b.ids
		b.mutex.Unlock()
	case *kmsg.AddPartitionsToTxnRequest:
		answered := response.(*kmsg.AddPartitionsToTxnResponse)
		for _, topic := range asked.Topics {
			to := kmsg.NewAddPartitionsToTxnResponseTopic()
			to.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				each := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				each.Partition = partition
				to.Partitions = append(to.Partitions, each)
			}
			answered.Topics = append(answered.Topics, to)
		}
	case *kmsg.TxnOffsetCommitRequest:
		answered := response.(*kmsg.TxnOffsetCommitResponse)
		for _, topic := range asked.Topics {
			to := kmsg.NewTxnOffsetCommitResponseTopic()
			to.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				each := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				each.Partition = partition.Partition
				to.Partitions = append(to.Partitions, each)
			}
			answered.Topics = append(answered.Topics, to)
		}
	}
	return response
}

func (b *nullBroker) partitions(topic string, wanted int32) int32 {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	count, known := b.topics[topic]
	if !known {
		count = wanted
		b.topics[topic] = count
	}
	return count
}

func (b *nullBroker) metadata(asked *kmsg.MetadataRequest, answered *kmsg.MetadataResponse) {
	broker := kmsg.NewMetadataResponseBroker()
	broker.NodeID, broker.Host, broker.Port = 1, "127.0.0.1", b.port
	answered.Brokers = append(answered.Brokers, broker)
	answered.ControllerID, answered.ClusterID = 1, kmsg.StringPtr("null")
	for _, topic := range asked.Topics {
		each := kmsg.NewMetadataResponseTopic()
		each.Topic = topic.Topic
		for index := range b.partitions(*topic.Topic, nullPartitions) {
			partition := kmsg.NewMetadataResponseTopicPartition()
			partition.Partition, partition.Leader, partition.LeaderEpoch = index, 1, 0
			partition.Replicas, partition.ISR = []int32{1}, []int32{1}
			each.Partitions = append(each.Partitions, partition)
		}
		answered.Topics = append(answered.Topics, each)
	}
}
