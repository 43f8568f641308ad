// Package natscheck proves what the chart's nats.conf allows: a table of who may do what, the real
// programs of a cluster under its users, and that no permission could be left out.
//
// Entry points: Conf, the chart's nats.conf, and Local, the same for this machine; Start, a NATS
// server in this process with a chart's configuration, which records every publish and subscription
// of each user; Rules, the entries of the permissions. Only tests use it.
package natscheck
