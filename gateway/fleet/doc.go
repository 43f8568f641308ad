// Package fleet knows the live workers of the cluster from their heartbeats.
//
// Entry points: New, then Fleet.Run, Fleet.Connected, Fleet.Disconnected and Fleet.Heartbeat, which
// the owner of the NATS connection calls (Fleet.Subscribe does it for heartbeats); Fleet.Snapshot
// for everybody else. A Snapshot and all that is reached from it never changes; its Changed channel
// closes when there is a newer one.
//
// A worker is live while its last heartbeat is at most work.WorkerStale old. Ages grow only while
// this process runs and is connected: a broker that is away, or a process that was stopped, makes
// no worker old. Ages of live workers begin again at a reconnect. A heartbeat with ready=false
// takes the worker out of its lane's ready workers at once; one with terminated=true removes it.
//
// The package runs one goroutine, Run. Heartbeats are untrusted: their size, their lists and the
// number and memory of all workers are bounded, and what is refused is counted.
package fleet
