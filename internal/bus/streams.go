package bus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Streams configures the work streams of a cluster. Zero fields take the defaults in brackets. The
// tags make it the flags of every program that may make a stream, so that all make the same.
type Streams struct {
	// "memory" or "file" [memory]
	Storage string `name:"stream-storage" help:"Storage of the work streams: memory or file." env:"SIE_STREAM_STORAGE" default:"memory" enum:"memory,file"`
	// 1 for a single server, 3 for a cluster of three [1]
	Replicas int `name:"stream-replicas" help:"Replicas of the work streams: 1, 3 or 5." env:"SIE_STREAM_REPLICAS" default:"1" range:"1..5"`
	// of a pool's work [256 MiB]
	MaxBytes int64 `name:"stream-max-bytes" help:"Bytes of a pool's work; more is refused." env:"SIE_STREAM_MAX_BYTES" default:"268435456" range:"1048576..1099511627776"`
	// slices of one lane and model; one more is refused [10,000]
	MaxWaiting int64 `name:"stream-max-waiting" help:"Slices, of up to 32 items each, that wait for one model in one lane; more are refused." env:"SIE_STREAM_MAX_WAITING" default:"10000" range:"1..1000000"`
	// after which a consumer that nobody pulls from is removed [1 h; 1 min with replicas, where it
	// is a Raft group and costs as much in half a minute as making it again (docs/adr/0027)]
	Inactive time.Duration `name:"consumer-inactive" help:"Time without a pull after which a model's consumer is removed; 0: 1 h, and 1 min where the streams have replicas." env:"SIE_CONSUMER_INACTIVE" default:"0s" range:"0s|1s..24h"`
}

const (
	maxAge          = 300 * time.Second
	duplicateWindow = 30 * time.Second
	ackWait         = 15 * time.Second
	maxAckPending   = 100_000
	deadLetterAge   = 24 * time.Hour
	deadLetterBytes = 64 << 20
	poolsBytes      = 4 << 20
)

func (s Streams) withDefaults() Streams {
	if s.Storage == "" {
		s.Storage = "memory"
	}
	if s.Replicas == 0 {
		s.Replicas = 1
	}
	if s.MaxBytes == 0 {
		s.MaxBytes = 256 << 20
	}
	if s.MaxWaiting == 0 {
		s.MaxWaiting = 10_000
	}
	switch {
	case s.Inactive != 0:
	case s.Replicas > 1:
		s.Inactive = time.Minute
	default:
		s.Inactive = time.Hour
	}
	return s
}

// Validate returns what is wrong with s, nil for nothing.
func (s Streams) Validate() error {
	s = s.withDefaults()
	switch {
	case s.Storage != "memory" && s.Storage != "file":
		return fmt.Errorf("stream storage is %q; use memory or file", s.Storage)
	case s.Replicas != 1 && s.Replicas != 3 && s.Replicas != 5:
		return fmt.Errorf("stream replicas is %d; use 1, 3 or 5", s.Replicas)
	case s.MaxBytes < 1<<20:
		return fmt.Errorf("a work stream of %d bytes; at least 1 MiB", s.MaxBytes)
	case s.MaxWaiting < 1:
		return fmt.Errorf("%d waiting slices; at least 1", s.MaxWaiting)
	case s.Inactive < time.Second:
		return fmt.Errorf("consumers removed after %v; at least 1 s", s.Inactive)
	}
	return nil
}

// Work returns the definition of a pool's work stream.
func (s Streams) Work(pool string) jetstream.StreamConfig {
	s = s.withDefaults()
	return jetstream.StreamConfig{
		Name:                 StreamName(pool),
		Description:          "SIE: slices of requests that wait for a worker",
		Subjects:             []string{"sie.work." + pool + ".*.*.*"},
		Retention:            jetstream.WorkQueuePolicy,
		Storage:              s.storage(),
		Replicas:             s.Replicas,
		Discard:              jetstream.DiscardNew,
		DiscardNewPerSubject: true,
		MaxMsgsPerSubject:    s.MaxWaiting,
		MaxBytes:             s.MaxBytes,
		MaxMsgs:              -1,
		MaxAge:               maxAge,
		Duplicates:           duplicateWindow,
		AllowMsgTTL:          true,
		AllowDirect:          true,
	}
}

// DeadLetters returns the definition of the stream of dead letters.
func (s Streams) DeadLetters() jetstream.StreamConfig {
	s = s.withDefaults()
	return jetstream.StreamConfig{
		Name:        DLQStream,
		Description: "SIE: work that ended its server, with the reason",
		Subjects:    []string{DLQPrefix + ">"},
		Retention:   jetstream.LimitsPolicy,
		Storage:     s.storage(),
		Replicas:    s.Replicas,
		Discard:     jetstream.DiscardOld,
		MaxBytes:    deadLetterBytes,
		MaxAge:      deadLetterAge,
		Duplicates:  duplicateWindow,
		AllowDirect: true,
	}
}

// Pools returns the definition of the stream behind the key-value bucket of pools. Reads go to its
// leader, and each stored change is told on PoolsChanged, without the document.
func (s Streams) Pools() jetstream.StreamConfig {
	s = s.withDefaults()
	return jetstream.StreamConfig{
		Name:              PoolsStream,
		Description:       "SIE: the pools that clients made",
		Subjects:          []string{"$KV." + PoolsBucket + ".>"},
		Storage:           s.storage(),
		Replicas:          s.Replicas,
		MaxMsgsPerSubject: 1,
		MaxMsgs:           -1,
		MaxBytes:          poolsBytes,
		Discard:           jetstream.DiscardNew,
		AllowRollup:       true,
		DenyDelete:        true,
		RePublish: &jetstream.RePublish{
			Source: PoolsSubject, Destination: PoolsChanged, HeadersOnly: true,
		},
	}
}

// Consumer returns the definition of the consumer of a work subject. Its messages go to pulls
// without a threshold first; pulls with min_pending get what is above it (priority policy
// overflow).
func (s Streams) Consumer(subject string) jetstream.ConsumerConfig {
	s = s.withDefaults()
	return jetstream.ConsumerConfig{
		Durable:           ConsumerName(subject),
		FilterSubject:     subject,
		AckPolicy:         jetstream.AckExplicitPolicy,
		AckWait:           ackWait,
		MaxDeliver:        -1,
		MaxAckPending:     maxAckPending,
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		PriorityPolicy:    jetstream.PriorityPolicyOverflow,
		PriorityGroups:    []string{PriorityGroup},
		InactiveThreshold: s.Inactive,
	}
}

func (s Streams) storage() jetstream.StorageType {
	if s.Storage == "file" {
		return jetstream.FileStorage
	}
	return jetstream.MemoryStorage
}
