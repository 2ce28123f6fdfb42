package main

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

const again = 20 * time.Millisecond

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
	TokenGiven  string `json:"token"`
	TokenMs     int64  `json:"token_ms"`
	Topic       string
}

// handshakes FILE: runs all cells in the file concurrently. Those that stay end when the test writes a line.
func handshakes(ctx context.Context, file []string, _ []string) error {
	content, err := os.ReadFile(file[0])
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
		busy.Go(func() { said <- each.outcome(enough) })
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

func (c cell) outcome(enough <-chan struct{}) map[string]any {
	outcome := map[string]any{"cell": c.Name}
	config, err := c.config()
	if err == nil {
		switch c.Does {
		case "transaction":
			outcome["values"], err = c.transaction(config)
		case "knock":
			err = c.knock(config)
		case "stay":
			outcome["written"], err = c.stay(config, enough)
		}
	}
	if err != nil {
		outcome["error"] = describe(err)
	}
	return outcome
}

// describe returns the types of an error and of the errors that it wraps, followed by its text.
func describe(err error) string {
	names := fmt.Sprintf("%T ", err)
	var several interface{ Unwrap() []error }
	if errors.As(err, &several) {
		for _, each := range several.Unwrap() {
			names += fmt.Sprintf("%T ", each)
		}
	}
	return names + err.Error()
}

func (c cell) config() (*sarama.Config, error) {
	config := config()
	config.ClientID = c.Name
	config.Metadata.Retry.Max, config.Producer.Retry.Max = 1, 1
	config.Producer.Transaction.Retry.Max = 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	if c.TLS {
		if err := c.tls(config); err != nil {
			return nil, err
		}
	}
	if c.Mechanism != "" {
		sasl := &config.Net.SASL
		sasl.Enable, sasl.Version, sasl.Mechanism = true, sarama.SASLHandshakeV1, sarama.SASLMechanism(c.Mechanism)
		sasl.User, sasl.Password, sasl.TokenProvider = c.User, c.Password, c
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &exchange{mechanism: c.Mechanism} }
	}
	return config, nil
}

func (c cell) tls(config *sarama.Config) error {
	trusted, err := os.ReadFile(c.CA)
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, &tls.Config{RootCAs: x509.NewCertPool()}
	config.Net.TLS.Config.RootCAs.AppendCertsFromPEM(trusted)
	if c.Certificate == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	// Use the certificate whatever authorities the broker lists: the client has no other.
	config.Net.TLS.Config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &pair, nil
	}
	return err
}

// exchange is the SCRAM client of sarama's own example: sarama has none, and expects one from its user.
type exchange struct {
	mechanism string
	*scram.ClientConversation
}

func (e *exchange) Begin(user, password, authorization string) error {
	hash := scram.HashGeneratorFcn(sha256.New)
	if e.mechanism == sarama.SASLTypeSCRAMSHA512 {
		hash = sha512.New
	}
	client, err := hash.NewClient(user, password, authorization)
	if err == nil {
		e.ClientConversation = client.NewConversation()
	}
	return err
}

// Token returns the cell's token, or a new unsecured one.
func (c cell) Token() (*sarama.AccessToken, error) {
	if c.TokenGiven != "" {
		return &sarama.AccessToken{Token: c.TokenGiven}, nil
	}
	now := float64(time.Now().UnixMilli()) / 1000
	claims, err := json.Marshal(map[string]any{"sub": c.User, "iat": now, "exp": now + float64(c.TokenMs)/1000})
	encoded := base64.RawURLEncoding.EncodeToString
	return &sarama.AccessToken{Token: encoded([]byte(`{"alg":"none"}`)) + "." + encoded(claims) + "."}, err
}

// transaction aborts one transaction, commits another, and reads the committed records.
func (c cell) transaction(config *sarama.Config) ([]string, error) {
	config.Producer.Transaction.ID = c.Topic
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	for _, each := range []struct {
		values []string
		end    func() error
	}{{[]string{"aborted"}, producer.AbortTxn}, {[]string{"a", "b", "c"}, producer.CommitTxn}} {
		if err := producer.BeginTxn(); err != nil {
			return nil, err
		}
		var messages []*sarama.ProducerMessage
		for _, value := range each.values {
			messages = append(messages, message(c.Topic, value))
		}
		if err := producer.SendMessages(messages); err != nil {
			return nil, err
		}
		if err := each.end(); err != nil {
			return nil, err
		}
	}
	return c.read(config)
}

func (c cell) read(config *sarama.Config) ([]string, error) {
	consumer, err := sarama.NewConsumer([]string{c.Bootstrap}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(c.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var values []string
	for len(values) < 3 {
		values = append(values, string((<-partition.Messages()).Value))
	}
	return values, nil
}

// knock only connects.
func (c cell) knock(config *sarama.Config) error {
	client, err := sarama.NewClient([]string{c.Bootstrap}, config)
	if err != nil {
		return err
	}
	return client.Close()
}

// stay writes one record after the other until it is stopped.
func (c cell) stay(config *sarama.Config, enough <-chan struct{}) (int, error) {
	producer, err := sarama.NewSyncProducer([]string{c.Bootstrap}, config)
	if err != nil {
		return 0, err
	}
	defer producer.Close()
	for written := 0; ; written++ {
		if _, _, err := producer.SendMessage(message(c.Topic, "staying")); err != nil {
			return written, err
		}
		select {
		case <-enough:
			return written, nil
		case <-time.After(again):
		}
	}
}
