// load sends the prebuilt requests of a measure to a broker, and prints the outcome as JSON on its last line.
// It also contains two brokers: `kfake`, franz-go's, and `null`, which responds and stores nothing.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

// options are the options of all measures. Each measure uses those that it needs.
type options struct {
	address     string
	pid         int
	warm        time.Duration
	measured    time.Duration
	connections int
	topic       string
	group       string
	count       int
	partitions  int
	value       int
	bytes       int64
}

var measures = map[string]func(options) (outcome, error){
	"small":        small,
	"large":        large,
	"fill":         fill,
	"fetch":        fetch,
	"share":        share,
	"share-group":  shareGroup,
	"transactions": transactions,
	"ids":          ids,
	"partitions":   partitions,
	"idle":         idle,
	"topic":        topic,
	"drop":         drop,
}

var brokers = map[string]func([]string) error{"kfake": serveKfake, "null": serveNull}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: load MEASURE|BROKER [flags]"))
	}
	name, arguments := os.Args[1], os.Args[2:]
	if serve, known := brokers[name]; known {
		fail(serve(arguments))
		return
	}
	measure, known := measures[name]
	if !known {
		fail(fmt.Errorf("unknown measure or broker: %s", name))
	}
	var o options
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	flags.StringVar(&o.address, "address", "127.0.0.1:9092", "host:port of the broker")
	flags.IntVar(&o.pid, "pid", 0, "process id of the broker, to read its CPU time")
	flags.DurationVar(&o.warm, "warm", time.Second, "duration of the warm-up")
	flags.DurationVar(&o.measured, "measure", 4*time.Second, "duration of the measurement")
	flags.IntVar(&o.connections, "connections", 1, "number of connections or producers")
	flags.StringVar(&o.topic, "topic", "load", "a topic name that no earlier call has used")
	flags.StringVar(&o.group, "group", "load", "id of a share group that no earlier call has used")
	flags.IntVar(&o.partitions, "partitions", fetchPartitions, "number of partitions of the topic for consumers")
	flags.IntVar(&o.value, "value", fetchValueBytes, "size of the values in the topic for consumers")
	flags.IntVar(&o.count, "count", 0, "number of objects to create, in the measures that create some")
	flags.Int64Var(&o.bytes, "bytes", 0, "maximum or total number of bytes to write")
	_ = flags.Parse(arguments)
	result, err := measure(o)
	fail(err)
	line, err := json.Marshal(result)
	fail(err)
	fmt.Println(string(line))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
