package work

import "time"

// The bounds of messages, and the protocol's times. Gateway and sidecar rely on each other's.
const (
	MaxItems      = 32        // items of a slice
	MaxSliceBytes = 256 << 10 // of a slice's items, unless a single item has more

	ChunkBytes       = 768 << 10 // payload of a Chunk
	MaxTransferBytes = 128 << 20 // of a chunked Result; above it the result goes to the payload store
	// of a slice with its payload: it crosses to the server as one request in chunks of 128 MiB
	MaxWholeBytes = 120 << 20

	MarkInterval = 5 * time.Second // between two marks of a slice
	// without a mark after taken: the slice is published again
	MarkTimeout      = 15 * time.Second
	GatewayHeartbeat = 2 * time.Second // between two heartbeats of a gateway
	// of a gateway's heartbeat, while oneself is connected: it is gone
	GatewaySilence  = 10 * time.Second
	WorkerHeartbeat = 2 * time.Second // between two heartbeats of a worker
	// without a heartbeat, while oneself is connected: it is gone
	WorkerStale    = 6 * time.Second
	ReceiptRetry   = 250 * time.Millisecond // between two tries to have a result receipted
	ClockTolerance = 5 * time.Second        // by which clocks of hosts may differ
)
