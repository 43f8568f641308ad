// Package control follows sie-config for a sidecar: which models its bundle has, and with which
// documents.
//
// Entry points: New and Follower.Run, which asks every 30 s and at once after Ask; Follower.Listen,
// which calls Ask when a trusted producer tells of a change over NATS. What was read is an Export.
// The address may be a gateway's, which passes the questions on.
//
// How it asks is internal/configpoll's. An epoch that went back is a change like any other.
package control
