// Package histories records what the clients of three gateways see of the control plane while its
// processes are killed, stopped and cut off from each other, and checks the histories with
// porcupine. The processes are real: NATS, sie-config and the gateways, and between any two of them
// a proxy. It holds only tests; `make histories` runs them at length, `go test` briefly.
//
// What is held: changes of models, and of pools, are linearisable through any gateway. So are the
// epoch and the export, which are sie-config's answers. What a gateway itself shows of models and
// pools is a state that was, of one moment, and never goes back, not even over a restart of the
// gateway. The broker keeps its streams in files here: without its bucket gateways put back what
// they know of pools, which may revive what was deleted a moment before.
//
// An operation whose answer did not come may have happened, may happen later, or never. One with an
// Idempotency-Key is sent again until there is an answer, and happens once.
//
// Every random choice follows from the seed that a run prints; SIE_SEED repeats it, and
// -histories.for sets how long to go on. When processes answer is chance, so that a seed repeats
// the faults and the calls, and not the history.
package histories
