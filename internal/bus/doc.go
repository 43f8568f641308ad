// Package bus defines how the components of a cluster use NATS: subjects, streams, consumers,
// heartbeats, and the connection.
//
// Entry points: Connect; Lane with the subjects of its work; StreamConfig and ConsumerConfig, the
// only definitions of both; WorkerHeartbeat and GatewayHeartbeat. Whoever first needs a stream or a
// consumer makes it from these definitions.
//
// The package runs no goroutine of its own but the timer of an Outbox, for 2 ms; those of a
// connection end with its Close. It logs no text, key or credential.
package bus
