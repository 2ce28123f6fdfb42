package main

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	transactionRecords    = 10
	transactionPartitions = 2
	group                 = "workers"
)

// transactions: each producer commits one transaction after another, with ten records in two partitions and an offset.
func transactions(o options) (outcome, error) {
	first, err := open(o.address)
	if err != nil {
		return outcome{}, err
	}
	if _, err := createTopic(first, o.topic, transactionPartitions); err != nil {
		return outcome{}, err
	}
	inputs, err := createTopic(first, o.topic+"-input", o.connections)
	if err != nil {
		return outcome{}, err
	}
	if err := findCoordinator(first, 0, group); err != nil {
		return outcome{}, err
	}
	producers := make([]*producer, o.connections)
	operations := make([]operation, o.connections)
	for index := range operations {
		name := fmt.Sprintf("%s-%d", o.topic, index)
		producers[index], err = newProducer(o.address, name, o.topic, index%inputs)
		if err != nil {
			return outcome{}, err
		}
		operations[index] = producers[index].transact
	}
	result, err := rate(o, operations)
	for _, each := range producers {
		result.Retries += each.retries
	}
	return result, err
}

func findCoordinator(c *connection, kind int8, key string) error {
	var retries int64
	return persistently("FindCoordinator", &retries, func() (int16, error) {
		request := kmsg.NewPtrFindCoordinatorRequest()
		request.SetVersion(3)
		request.CoordinatorType, request.CoordinatorKey = kind, key
		response, err := ask[*kmsg.FindCoordinatorResponse](c, request)
		if err != nil {
			return 0, err
		}
		return response.ErrorCode, nil
	})
}

// producer is a transactional producer with its own connection.
type producer struct {
	*connection
	id, topic string
	input     int
	producer  int64
	epoch     int16
	sequence  int32
	retries   int64
	implicit  bool // transaction version 2: a write adds its partition to the transaction
	batch     []byte
}

func newProducer(address, id, topic string, input int) (*producer, error) {
	c, err := open(address)
	if err != nil {
		return nil, err
	}
	p := &producer{connection: c, id: id, topic: topic, input: input}
	p.implicit = c.features["transaction.version"] >= 2 && c.versions[0] >= transactionProduceVersion
	if err := findCoordinator(c, 1, id); err != nil {
		return nil, err
	}
	err = persistently("InitProducerId", &p.retries, func() (int16, error) {
		response, err := initProducerID(c, id)
		if err != nil {
			return 0, err
		}
		p.producer, p.epoch = response.ProducerID, response.ProducerEpoch
		return response.ErrorCode, nil
	})
	p.batch = newBatch(transactionRecords/transactionPartitions, smallValueBytes, p.producer, true)
	return p, err
}

func initProducerID(c *connection, id string) (*kmsg.InitProducerIDResponse, error) {
	request := kmsg.NewPtrInitProducerIDRequest()
	request.SetVersion(4)
	request.TransactionalID, request.TransactionTimeoutMillis = &id, 60_000
	return ask[*kmsg.InitProducerIDResponse](c, request)
}

func (p *producer) transact() (int64, error) {
	if !p.implicit {
		if err := persistently("AddPartitionsToTxn", &p.retries, p.addPartitions); err != nil {
			return 0, err
		}
	}
	if err := persistently("Produce", &p.retries, p.produce); err != nil {
		return 0, err
	}
	if !p.implicit {
		if err := persistently("AddOffsetsToTxn", &p.retries, p.addOffsets); err != nil {
			return 0, err
		}
	}
	if err := persistently("TxnOffsetCommit", &p.retries, p.commitOffset); err != nil {
		return 0, err
	}
	return 0, persistently("EndTxn", &p.retries, p.end)
}

func (p *producer) produce() (int16, error) {
	setProducer(p.batch, p.epoch, p.sequence)
	version := int16(produceVersion)
	if p.implicit {
		version = transactionProduceVersion
	}
	answer, err := p.exchange(produceFrame(version, p.topic, &p.id, p.batch, 0, 1))
	if err != nil {
		return 0, err
	}
	return produced(version, answer)
}

func (p *producer) addPartitions() (int16, error) {
	request := kmsg.NewPtrAddPartitionsToTxnRequest()
	request.SetVersion(3)
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = p.id, p.producer, p.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = p.topic, []int32{0, 1}
	request.Topics = append(request.Topics, topic)
	response, err := ask[*kmsg.AddPartitionsToTxnResponse](p.connection, request)
	if err != nil {
		return 0, err
	}
	for _, each := range response.Topics[0].Partitions {
		if each.ErrorCode != 0 {
			return each.ErrorCode, nil
		}
	}
	return 0, nil
}

func (p *producer) addOffsets() (int16, error) {
	request := kmsg.NewPtrAddOffsetsToTxnRequest()
	request.SetVersion(3)
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = p.id, p.producer, p.epoch
	request.Group = group
	response, err := ask[*kmsg.AddOffsetsToTxnResponse](p.connection, request)
	if err != nil {
		return 0, err
	}
	return response.ErrorCode, nil
}

func (p *producer) commitOffset() (int16, error) {
	request := kmsg.NewPtrTxnOffsetCommitRequest()
	request.SetVersion(3)
	if p.implicit {
		request.SetVersion(5)
	}
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = p.id, p.producer, p.epoch
	request.Group, request.Generation = group, -1
	partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	partition.Partition, partition.Offset = int32(p.input), int64(p.sequence)
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = p.topic + "-input"
	topic.Partitions = append(topic.Partitions, partition)
	request.Topics = append(request.Topics, topic)
	response, err := ask[*kmsg.TxnOffsetCommitResponse](p.connection, request)
	if err != nil {
		return 0, err
	}
	return response.Topics[0].Partitions[0].ErrorCode, nil
}

func (p *producer) end() (int16, error) {
	request := kmsg.NewPtrEndTxnRequest()
	request.SetVersion(3)
	if p.implicit {
		request.SetVersion(5)
	}
	request.TransactionalID, request.ProducerID, request.ProducerEpoch = p.id, p.producer, p.epoch
	request.Commit = true
	response, err := ask[*kmsg.EndTxnResponse](p.connection, request)
	if err != nil || response.ErrorCode != 0 {
		return p.code(response), err
	}
	if !p.implicit {
		p.sequence += transactionRecords / transactionPartitions
		return 0, nil
	}
	// Each transaction has a new epoch, and its sequence numbers start at 0.
	p.epoch = response.ProducerEpoch
	if p.producer != response.ProducerID {
		p.producer = response.ProducerID
		p.batch = newBatch(transactionRecords/transactionPartitions, smallValueBytes, p.producer, true)
	}
	return 0, nil
}

func (p *producer) code(response *kmsg.EndTxnResponse) int16 {
	if response == nil {
		return 0
	}
	return response.ErrorCode
}
