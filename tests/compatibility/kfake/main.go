// Runs a kfake broker on a port, with settings, until its standard input ends, for comparison on the compatibility page.
//
//	kfake PORT key=value ...
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	configs := map[string]string{}
	for _, pair := range os.Args[2:] {
		key, value, _ := strings.Cut(pair, "=")
		configs[key] = value
	}
	options := []kfake.Opt{kfake.NumBrokers(1), kfake.Ports(port), kfake.BrokerConfigs(configs)}
	if configs["auto.create.topics.enable"] != "false" {
		options = append(options, kfake.AllowAutoTopicCreation(), kfake.DefaultNumPartitions(1))
	}
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		panic(err)
	}
	defer cluster.Close()
	fmt.Println("{\"started\":", port, "}")
	io.Copy(io.Discard, os.Stdin)
}
