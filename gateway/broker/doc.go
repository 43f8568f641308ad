// Package broker runs a NATS server with JetStream in this process: the broker of a cluster on one
// machine, alone or as one of three.
//
// Entry points: New, which checks Options and opens the ports; Open, whose server a file in NATS's
// own format configures, as a chart's does; Server.Run, which serves until its context ends;
// ReadUsers, which makes the users' passwords or reads those that were made; Permissions, what each
// user may do. The goroutines are the NATS server's; they end with Run. Its messages go to the
// logger of Options. NATS logs subjects and addresses, and no payload.
package broker
