package bus

// WorkerHeartbeat is what a sidecar publishes, as JSON, on HealthPrefix + its id: every
// work.WorkerHeartbeat, and at once when Ready or a set of models changes. The fields up to
// UnsupportedModels are the reference's.
type WorkerHeartbeat struct {
	Name              string   `json:"name"`
	Ready             bool     `json:"ready"`
	Terminated        bool     `json:"terminated"` // the last heartbeat of a drained worker
	GPUCount          int      `json:"gpu_count"`
	TotalGPUSlots     int      `json:"total_gpu_slots"`
	ReadyGPUSlots     int      `json:"ready_gpu_slots"`
	MachineProfile    string   `json:"machine_profile"`
	PoolName          string   `json:"pool_name"` // that it serves now
	Bundle            string   `json:"bundle"`
	BundleConfigHash  string   `json:"bundle_config_hash"`
	LoadedModels      []string `json:"loaded_models"`
	LoadingModels     []string `json:"loading_models"`
	QueueDepth        int      `json:"queue_depth"`  // items that were pulled and are not answered
	PendingCost       int64    `json:"pending_cost"` // their tokens, estimated
	InflightBatches   int      `json:"inflight_batches"`
	Saturated         bool     `json:"saturated"`
	UnsupportedModels []string `json:"unsupported_models,omitempty"`

	// BundleDocumentsHash is of all that the documents of the worker's models say, of which
	// BundleConfigHash leaves out most. "": the worker does not know it.
	BundleDocumentsHash string `json:"bundle_documents_hash,omitempty"`

	// their last load failed; they leave this worker's rank
	FailedModels []string `json:"failed_models,omitempty"`
	// tokens that the server would take now
	FreeCredit int64 `json:"free_credit"`
	// by model, at most MaxHeartbeatModels
	Pending     map[string]Pending `json:"pending,omitempty"`
	MemoryUsed  int64              `json:"memory_used_bytes,omitempty"`
	MemoryTotal int64              `json:"memory_total_bytes,omitempty"`
	Sequence    uint64             `json:"sequence"` // grows by one
	// Epoch names the sidecar's process: a token of a subject that no other process has. "" is that
	// of a worker that does not tell.
	Epoch string `json:"epoch,omitempty"`
	// HomePool is the pool that the worker serves while no client's pool has it. "": PoolName.
	HomePool string `json:"home_pool,omitempty"`
	// SentAtMS is when it was sent, in milliseconds since 1970 by the worker's clock. 0: not told.
	SentAtMS int64 `json:"sent_at_ms,omitempty"`
}

// Pending is a model's work in one worker.
type Pending struct {
	Items  int   `json:"items"`
	Tokens int64 `json:"tokens"`
	// Window is how many slices of this size the worker takes at once.
	Window int `json:"window,omitempty"`
}

// MaxHeartbeatModels bounds each list and map of a heartbeat.
const MaxHeartbeatModels = 1024

// GatewayHeartbeat is what a gateway publishes, as JSON, on GatewayPrefix + its id every
// work.GatewayHeartbeat.
type GatewayHeartbeat struct {
	RouterID string `json:"router_id"`
	URL      string `json:"url,omitempty"`
	Sequence uint64 `json:"sequence"`
	// Untaken holds the work subjects that have slices which no worker has taken, at most
	// MaxHeartbeatModels.
	Untaken []string `json:"untaken,omitempty"`
	// Backlog holds, by work subject, how many slices wait in the gateway for their turn, at most
	// MaxHeartbeatModels subjects. The stream does not show them.
	Backlog map[string]int `json:"backlog,omitempty"`
	// Draining is set in the last heartbeats of a gateway that stops.
	Draining bool `json:"draining,omitempty"`
	// Demand is what requests at this gateway wanted lately and did not find.
	Demand []LaneDemand `json:"demand,omitempty"`
}

// LaneDemand is a lane that should have a worker.
type LaneDemand struct {
	Lane
	LeftMS int64 `json:"left_ms"` // for which it should, from now
}
