// Package kfake has the part of kfake's interface that its tests of share groups use, with brokers in other processes.
//
// The brokers advertise the addresses of relays in this process, in which ControlKey can see, answer and cut requests.
// KFAKE_BROKERS is the URL at which brokers are started: tests/clients/published/kfake.py.
package kfake

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type fs any

func newMemFS() fs { return nil }

func withFS(fs) Opt { return func(*Cluster) {} }

// Opt is an option of NewCluster.
type Opt func(*Cluster)

// NumBrokers sets the number of nodes.
func NumBrokers(count int) Opt { return func(c *Cluster) { c.count = count } }

// BrokerConfigs sets settings of the brokers.
func BrokerConfigs(settings map[string]string) Opt { return func(c *Cluster) { c.settings = settings } }

// SeedTopics creates topics.
func SeedTopics(partitions int32, names ...string) Opt {
	return func(c *Cluster) {
		for _, name := range names {
			c.topics[name] = partitions
		}
	}
}

// GroupCommit and the next two functions are in kfake's common file of test functions; no test of share groups calls them.
type GroupCommit struct{}

func sealBatch([]byte) []byte { panic("not a test of share groups") }

// WaitGroupStable is for consumer groups.
func (*Cluster) WaitGroupStable(context.Context, string, int) (*GroupInfo, error) {
	panic("not a test of share groups")
}

// GroupInfo describes a share group.
type GroupInfo struct {
	Epoch   int32
	Members []GroupMember
	Commits map[string]map[int32]GroupCommit
}

// GroupMember is a member of a share group.
type GroupMember struct {
	MemberID         string
	SubscribedTopics []string
	Assignment       map[string][]int32
}

// Fault has the fields of kfake's Fault that the tests set.
type Fault struct {
	Keys       []kmsg.Key
	Nodes      []int32
	TopicID    [16]byte
	Partitions []int32
	TopLevel   bool
	Err        *kerr.Error
	Count      int
	Observe    bool
}

// FaultHandle counts the requests that a fault has matched.
type FaultHandle struct{ hits atomic.Int64 }

type control struct {
	key  int16
	call func(kmsg.Request) (kmsg.Response, error, bool)
}

// Cluster is a running cluster whose nodes are numbered from 0, as those of kfake. Their ids are higher by one.
type Cluster struct {
	count    int
	settings map[string]string
	topics   map[string]int32

	brokers *brokers
	admin   *kgo.Client

	mu       sync.Mutex // held during a call of a control
	controls []*control
	keep     bool
	node     int32
}

// brokers are the processes of a cluster, and the relays in front of them.
type brokers struct {
	relays   []net.Listener
	upstream []string
	user     atomic.Pointer[Cluster]
}

// usual has the brokers of clusters with the settings of most tests, by their number. The tests run one after the other, and
// Apache Kafka needs seconds to start: these brokers serve several tests.
var usual = make(map[int]*brokers)

func started(count int, settings map[string]string) (*brokers, error) {
	b := &brokers{}
	for range count {
		relay, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		b.relays = append(b.relays, relay)
	}
	order := map[string]any{"advertised": b.addresses(), "settings": settings}
	if err := ask("start", order, &b.upstream); err != nil {
		return nil, err
	}
	for node := range b.relays {
		go b.accept(int32(node))
	}
	return b, nil
}

func (b *brokers) addresses() []string {
	var addresses []string
	for _, each := range b.relays {
		addresses = append(addresses, each.Addr().String())
	}
	return addresses
}

func (c *Cluster) isUsual() bool {
	return len(c.settings) == 1 && c.settings["group.consumer.heartbeat.interval.ms"] != ""
}

// NewCluster starts brokers and creates the topics.
func NewCluster(options ...Opt) (*Cluster, error) {
	c := &Cluster{count: 3, topics: make(map[string]int32)}
	for _, each := range options {
		each(c)
	}
	var err error
	if c.brokers = usual[c.count]; c.brokers == nil || !c.isUsual() {
		if c.brokers, err = started(c.count, c.settings); err != nil {
			return nil, err
		}
	}
	if c.isUsual() {
		usual[c.count] = c.brokers
	}
	c.brokers.user.Store(c)
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	if err != nil {
		return nil, err
	}
	c.admin = admin
	return c, c.createTopics()
}

func ask(what string, order, answer any) error {
	body, err := json.Marshal(order)
	if err != nil {
		return err
	}
	response, err := http.Post(os.Getenv("KFAKE_BROKERS")+"/"+what, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s: %s", what, text)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (c *Cluster) createTopics() error {
	request := kmsg.NewPtrCreateTopicsRequest()
	for name, partitions := range c.topics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(context.Background(), c.admin)
	if err != nil {
		return err
	}
	for _, each := range response.Topics {
		if err := kerr.ErrorForCode(each.ErrorCode); err != nil {
			return fmt.Errorf("topic %s: %w", each.Topic, err)
		}
	}
	for name := range c.topics {
		for c.LeaderFor(name, 0) < 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

// Close ends the brokers, or deletes the topics and groups of the test.
func (c *Cluster) Close() {
	defer c.admin.Close()
	if c.isUsual() {
		c.deleteAll()
		return
	}
	for _, each := range c.brokers.relays {
		each.Close()
	}
	var done bool
	if err := ask("stop", c.brokers.upstream, &done); err != nil {
		panic(err)
	}
}

func (c *Cluster) deleteAll() {
	topics := kmsg.NewPtrDeleteTopicsRequest()
	for name := range c.topics {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = &name
		topics.Topics = append(topics.Topics, topic)
	}
	if _, err := topics.RequestWith(context.Background(), c.admin); err != nil {
		panic(err)
	}
	groups := kmsg.NewPtrDeleteGroupsRequest()
	listed, err := kmsg.NewPtrListGroupsRequest().RequestWith(context.Background(), c.admin)
	if err != nil {
		panic(err)
	}
	for _, each := range listed.Groups {
		groups.Groups = append(groups.Groups, each.Group)
	}
	// A group with a member that has not left is not deleted.
	if _, err := groups.RequestWith(context.Background(), c.admin); err != nil {
		panic(err)
	}
}

// ListenAddrs returns the addresses that the brokers advertise.
func (c *Cluster) ListenAddrs() []string { return c.brokers.addresses() }

// TopicInfo describes a topic.
type TopicInfo struct{ TopicID [16]byte }

func (c *Cluster) metadata(topic string) *kmsg.MetadataResponseTopic {
	request := kmsg.NewPtrMetadataRequest()
	asked := kmsg.NewMetadataRequestTopic()
	asked.Topic = &topic
	request.Topics = append(request.Topics, asked)
	response, err := request.RequestWith(context.Background(), c.admin)
	if err != nil || len(response.Topics) != 1 || response.Topics[0].ErrorCode != 0 {
		return nil
	}
	return &response.Topics[0]
}

// TopicInfo returns nil if there is no such topic.
func (c *Cluster) TopicInfo(topic string) *TopicInfo {
	if found := c.metadata(topic); found != nil {
		return &TopicInfo{found.TopicID}
	}
	return nil
}

// LeaderFor returns the node that leads a partition, or -1.
func (c *Cluster) LeaderFor(topic string, partition int32) int32 {
	if found := c.metadata(topic); found != nil {
		for _, each := range found.Partitions {
			if each.Partition == partition && each.ErrorCode == 0 {
				return each.Leader - 1
			}
		}
	}
	return -1
}

// MoveTopicPartition makes a node the only replica of a partition, and waits until it leads.
func (c *Cluster) MoveTopicPartition(topic string, partition, node int32) error {
	request := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	moved := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	moved.Topic = topic
	to := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	to.Partition, to.Replicas = partition, []int32{node + 1}
	moved.Partitions = append(moved.Partitions, to)
	request.Topics = append(request.Topics, moved)
	response, err := request.RequestWith(context.Background(), c.admin)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.ErrorCode); err != nil {
		return err
	}
	if err := kerr.ErrorForCode(response.Topics[0].Partitions[0].ErrorCode); err != nil {
		return err
	}
	for c.LeaderFor(topic, partition) != node {
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// ControlKey calls a function for each request of an API, before the broker. It is dropped when it has handled a request.
func (c *Cluster) ControlKey(key int16, call func(kmsg.Request) (kmsg.Response, error, bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controls = append(c.controls, &control{key, call})
}

// KeepControl, called by a control, keeps it although it handles this request.
func (c *Cluster) KeepControl() { c.keep = true }

// CurrentNode, called by a control, returns the node that has got the request.
func (c *Cluster) CurrentNode() int32 { return c.node }

// Fault answers ShareFetch requests with an error, or counts them.
func (c *Cluster) Fault(fault Fault) *FaultHandle {
	handle := &FaultHandle{}
	c.ControlKey(int16(kmsg.ShareFetch), func(request kmsg.Request) (kmsg.Response, error, bool) {
		if fault.Nodes != nil && !slices.Contains(fault.Nodes, c.node) {
			return nil, nil, false
		}
		handle.hits.Add(1)
		if fault.Observe {
			return nil, nil, false
		}
		c.KeepControl()
		response := request.ResponseKind().(*kmsg.ShareFetchResponse)
		if fault.TopLevel {
			response.ErrorCode = fault.Err.Code
			return response, nil, true
		}
		topic := kmsg.NewShareFetchResponseTopic()
		topic.TopicID = fault.TopicID
		for _, number := range fault.Partitions {
			partition := kmsg.NewShareFetchResponseTopicPartition()
			partition.Partition, partition.ErrorCode = number, fault.Err.Code
			partition.CurrentLeader.LeaderID, partition.CurrentLeader.LeaderEpoch = -1, -1
			topic.Partitions = append(topic.Partitions, partition)
		}
		response.Topics = append(response.Topics, topic)
		return response, nil, true
	})
	return handle
}

// Hits returns the number of requests.
func (h *FaultHandle) Hits() int { return int(h.hits.Load()) }

// Wait waits for a number of requests.
func (h *FaultHandle) Wait(ctx context.Context, count int) error {
	for h.Hits() < count && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return ctx.Err()
}

// SetGroupConfigs sets group configs.
func (c *Cluster) SetGroupConfigs(group string, configs map[string]string) {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for name, value := range configs {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	response, err := request.RequestWith(context.Background(), c.admin)
	if err == nil {
		err = kerr.ErrorForCode(response.Resources[0].ErrorCode)
	}
	if err != nil {
		panic(err)
	}
}

// GroupInfo returns nil if there is no such share group.
func (c *Cluster) GroupInfo(group string) *GroupInfo {
	request := kmsg.NewPtrShareGroupDescribeRequest()
	request.GroupIDs = []string{group}
	response, err := request.RequestWith(context.Background(), c.admin)
	if err != nil || response.Groups[0].ErrorCode != 0 {
		return nil
	}
	found := &GroupInfo{Epoch: response.Groups[0].GroupEpoch}
	for _, each := range response.Groups[0].Members {
		member := GroupMember{each.MemberID, each.SubscribedTopicNames, make(map[string][]int32)}
		for _, assigned := range each.Assignment.TopicPartitions {
			member.Assignment[assigned.Topic] = assigned.Partitions
		}
		found.Members = append(found.Members, member)
	}
	return found
}

// WaitGroupInfo waits until a function accepts the group.
func (c *Cluster) WaitGroupInfo(ctx context.Context, group string, is func(*GroupInfo) bool) (*GroupInfo, error) {
	for {
		found := c.GroupInfo(group)
		if is(found) {
			return found, nil
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *Cluster) controlled(node int32, request kmsg.Request) (kmsg.Response, error, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range slices.Clone(c.controls) {
		if each.key != request.Key() {
			continue
		}
		c.keep, c.node = false, node
		response, err, handled := each.call(request)
		if !handled {
			continue
		}
		if !c.keep {
			c.controls = slices.DeleteFunc(c.controls, func(other *control) bool { return other == each })
		}
		return response, err, true
	}
	return nil, nil, false
}

func (b *brokers) accept(node int32) {
	for {
		client, err := b.relays[node].Accept()
		if err != nil {
			return
		}
		go b.relay(node, client)
	}
}

// relay forwards one request at a time, as Kafka processes one request of a connection at a time.
func (b *brokers) relay(node int32, client net.Conn) {
	defer client.Close()
	broker, err := net.Dial("tcp", b.upstream[node])
	if err != nil {
		return
	}
	defer broker.Close()
	requests := make(chan []byte)
	go func() {
		defer close(requests)
		// A client that disconnects while the broker holds its request disconnects from the broker, too.
		defer broker.Close()
		for {
			frame, err := readFrame(client)
			if err != nil {
				return
			}
			requests <- frame
		}
	}()
	defer func() {
		client.Close()
		for range requests {
		}
	}()
	for frame := range requests {
		response, err, handled := b.user.Load().controlled(node, parsed(frame))
		if err != nil {
			return
		}
		if handled {
			if writeFrame(client, answered(frame, response)) != nil {
				return
			}
			continue
		}
		if writeFrame(broker, frame) != nil {
			return
		}
		if isProduceWithoutAcks(frame) {
			continue
		}
		answer, err := readFrame(broker)
		if err != nil || writeFrame(client, answer) != nil {
			return
		}
	}
}

func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(from, frame)
	return frame, err
}

func writeFrame(to io.Writer, frame []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}

// parsed decodes a request: key, version, correlation id, client id, tagged fields of the header, body.
func parsed(frame []byte) kmsg.Request {
	request := kmsg.RequestForKey(int16(binary.BigEndian.Uint16(frame)))
	request.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	body := frame[8:]
	if size := int16(binary.BigEndian.Uint16(body)); size > 0 {
		body = body[2+size:]
	} else {
		body = body[2:]
	}
	if request.IsFlexible() {
		body = body[1:] // franz-go sends no tagged fields in the header
	}
	if err := request.ReadFrom(body); err != nil {
		panic(err)
	}
	return request
}

func answered(frame []byte, response kmsg.Response) []byte {
	response.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	answer := slices.Clone(frame[4:8])
	if response.IsFlexible() && response.Key() != int16(kmsg.ApiVersions) {
		answer = append(answer, 0)
	}
	return response.AppendTo(answer)
}

func isProduceWithoutAcks(frame []byte) bool {
	request, isProduce := parsed(frame).(*kmsg.ProduceRequest)
	return isProduce && request.Acks == 0
}
