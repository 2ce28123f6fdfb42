// Package odradek starts Odradek brokers for Go tests: copy this file into your project.
//
//	broker := odradek.Start(t, "--topic", "orders:4")
//	client, err := kgo.NewClient(kgo.SeedBrokers(broker.BootstrapServers), ...)
//	broker.AddFault("EndTxn nth=1 -> lose-answer")
//	broker.Reset()
package odradek

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
)

// Broker is a broker process. It ends with the test, and it never outlives the test's process.
type Broker struct {
	// BootstrapServers are the addresses of all nodes, for a client's bootstrap.servers.
	BootstrapServers string
	// Control is the URL of the control port; docs/control.md lists its operations.
	Control string

	t testing.TB
}

// The log line "started" of `odradek serve`.
type started struct {
	Event      string
	Advertised []string
	Control    string
}

// Start starts `odradek serve` with further options, on free ports. It fails the test if the broker does not start.
func Start(t testing.TB, options ...string) *Broker {
	t.Helper()
	arguments := []string{"serve", "--port", "0", "--control-port", "0", "--log-format", "json", "--ends-with-stdin"}
	command := exec.Command("odradek", append(arguments, options...)...)
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errors bytes.Buffer
	command.Stderr = &errors
	if err := command.Start(); err != nil {
		t.Fatalf("odradek is not on PATH: %v", err)
	}
	t.Cleanup(func() {
		stdin.Close()
		command.Wait()
	})
	broker := &Broker{t: t}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line started
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Event == "started" {
			for i, address := range line.Advertised {
				_, line.Advertised[i], _ = strings.Cut(address, "://")
			}
			broker.BootstrapServers, broker.Control = strings.Join(line.Advertised, ","), line.Control
			go io.Copy(io.Discard, stdout) // discard the rest of the log
			return broker
		}
	}
	t.Fatalf("the broker did not start: %s", errors.String())
	return nil
}

// Reset resets the broker to the state after its start: the topics of the options, and no groups, transactional ids or rules.
func (b *Broker) Reset() {
	b.t.Helper()
	b.call(http.MethodPost, "/v1/reset", map[string]any{}, nil)
}

// AddFault adds a rule (docs/faults.md) and returns its id.
func (b *Broker) AddFault(rule string) int {
	b.t.Helper()
	var added struct{ ID int }
	b.call(http.MethodPost, "/v1/faults", map[string]any{"rule": rule}, &added)
	return added.ID
}

// Hits returns the number of hits of a rule.
func (b *Broker) Hits(id int) int {
	b.t.Helper()
	var rule struct{ Hits int }
	b.call(http.MethodGet, fmt.Sprintf("/v1/faults/%d", id), nil, &rule)
	return rule.Hits
}

// Explain returns why readers of a topic stop, like `odradek explain`, for the message of a failed test.
func (b *Broker) Explain(topic string) string {
	b.t.Helper()
	var found struct{ Explanations []struct{ Lines []string } }
	b.call(http.MethodGet, "/v1/explain?topic="+url.QueryEscape(topic), nil, &found)
	var lines []string
	for _, each := range found.Explanations {
		lines = append(lines, each.Lines...)
	}
	return strings.Join(lines, "\n")
}

// Advance moves the broker's clock forward, for example by "7d" or "90s".
func (b *Broker) Advance(by string) {
	b.t.Helper()
	b.call(http.MethodPost, "/v1/clock/advance", map[string]any{"by": by}, nil)
}

func (b *Broker) call(method, path string, body, answer any) {
	b.t.Helper()
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, b.Control+path, content)
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %s %s %v", method, path, response.Status, said, err)
	}
	if answer != nil {
		if err := json.Unmarshal(said, answer); err != nil {
			b.t.Fatal(err)
		}
	}
}
