// Package configpoll asks sie-config what it has: a gateway and a sidecar do it in the same way.
//
// Entry points: NewClient, whose Get reads one bounded answer; Mirror.Read, which keeps the models
// and reads those that have changed; Poller.Run, which asks every 30 s, and soon after Ask;
// Deltas.Hear, which says whether a message over NATS is a reason to ask.
//
// What a delta says is not believed: it only says when to ask. One that is lost, doubled, late or
// forged leads to nothing wrong, and a lost one is made up for by the next question.
package configpoll
