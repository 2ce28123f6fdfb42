package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// cell is a cell of tests/clients/security/cells.py.
type cell struct {
	Name        string
	Does        string
	Bootstrap   string
	TLS         bool
	CA          string
	Certificate string
	Key         string
	Mechanism   string
	User        string
	Password    string
	Token       string
	TokenMs     int64 `json:"token_ms"`
	Topic       string
}

// handshakes FILE: runs all cells in the file concurrently. Those that stay end when the test writes a line.
func handshakes(ctx context.Context, file string, _ []string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cells []cell
	if err := json.Unmarshal(content, &cells); err != nil {
		return err
	}
	enough := make(chan struct{})
	said := make(chan map[string]any)
	var busy sync.WaitGroup
	for _, each := range cells {
		busy.Go(func() { said <- each.outcome(ctx, enough) })
	}
	go func() {
		waitForWord()
		close(enough)
		busy.Wait()
		close(said)
	}()
	for range cells {
		say(<-said)
	}
	return nil
}

func (c cell) outcome(ctx context.Context, enough <-chan struct{}) map[string]any {
	outcome := map[string]any{"cell": c.Name}
	options, err := c.options()
	if err == nil {
		switch c.Does {
		case "transaction":
			outcome["values"], err = c.transaction(ctx, options)
		case "knock":
			err = c.knock(ctx, options)
		case "stay":
			outcome["written"], err = c.stay(ctx, options, enough)
		}
	}
	if err != nil {
		outcome["error"] = describe(err)
	}
	return outcome
}

// describe returns the types of an error and of the errors that it wraps, followed by its text.
func describe(err error) string {
	names := ""
	for each := err; each != nil; each = errors.Unwrap(each) {
		names += fmt.Sprintf("%T ", each)
	}
	return names + err.Error()
}

func (c cell) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.SeedBrokers(c.Bootstrap), kgo.ClientID(c.Name), kgo.RequestRetries(1)}
	if c.TLS {
		config, err := c.tls()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if c.Mechanism != "" {
		options = append(options, kgo.SASL(c.sasl()))
	}
	return options, nil
}

func (c cell) tls() (*tls.Config, error) {
	trusted, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, err
		}
		// Use the certificate whatever authorities the broker lists: the client has no other.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return config, nil
}

func (c cell) sasl() sasl.Mechanism {
	switch c.Mechanism {
	case "PLAIN":
		return plain.Auth{User: c.User, Pass: c.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: c.User, Pass: c.Password}.AsSha512Mechanism()
	}
	return oauth.Oauth(func(context.Context) (oauth.Auth, error) { return oauth.Auth{Token: c.token()}, nil })
}

// token returns the cell's token, or a new unsecured one.
func (c cell) token() string {
	if c.Token != "" {
		return c.Token
	}
	now := float64(time.Now().UnixMilli()) / 1000
	claims, _ := json.Marshal(map[string]any{"sub": c.User, "iat": now, "exp": now + float64(c.TokenMs)/1000})
	encoded := base64.RawURLEncoding.EncodeToString
	return encoded([]byte(`{"alg":"none"}`)) + "." + encoded(claims) + "."
}

// transaction aborts one transaction, commits another, and reads the committed records.
func (c cell) transaction(ctx context.Context, options []kgo.Opt) ([]string, error) {
	producer, err := kgo.NewClient(append(options, kgo.TransactionalID(c.Topic), kgo.DefaultProduceTopic(c.Topic))...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, each := range []struct {
		values []string
		end    kgo.TransactionEndTry
	}{{[]string{"aborted"}, kgo.TryAbort}, {[]string{"a", "b", "c"}, kgo.TryCommit}} {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		for _, value := range each.values {
			producer.Produce(ctx, kgo.StringRecord(value), nil)
		}
		if err := producer.Flush(ctx); err != nil {
			return nil, err
		}
		if err := producer.EndTransaction(ctx, each.end); err != nil {
			return nil, err
		}
	}
	return c.read(ctx, options)
}

func (c cell) read(ctx context.Context, options []kgo.Opt) ([]string, error) {
	from := map[string]map[int32]kgo.Offset{c.Topic: {0: kgo.NewOffset().AtStart()}}
	reader, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from), kgo.FetchIsolationLevel(kgo.ReadCommitted()))...)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	var values []string
	for len(values) < 3 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	return values, nil
}

// knock only connects.
func (c cell) knock(ctx context.Context, options []kgo.Opt) error {
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx)
}

// stay writes one record after the other until it is stopped.
func (c cell) stay(ctx context.Context, options []kgo.Opt, enough <-chan struct{}) (int, error) {
	client, err := kgo.NewClient(append(options, kgo.DefaultProduceTopic(c.Topic))...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	for written := 0; ; written++ {
		if err := client.ProduceSync(ctx, kgo.StringRecord("staying")).FirstErr(); err != nil {
			return written, err
		}
		select {
		case <-enough:
			return written, nil
		case <-time.After(again):
		}
	}
}
