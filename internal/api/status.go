package api

// Status is one frame of /ws/status, in the reference's shape. A gateway, the status page and
// `sie-server top` read it.
type Status struct {
	Timestamp        float64       `json:"timestamp"` // seconds since 1970
	Ready            bool          `json:"ready"`
	Saturated        bool          `json:"saturated"` // a queue is full
	Name             string        `json:"name"`
	MachineProfile   string        `json:"machine_profile"`
	PoolName         string        `json:"pool_name"`
	GPUCount         int           `json:"gpu_count"`
	Bundle           string        `json:"bundle"`
	BundleConfigHash string        `json:"bundle_config_hash"`
	LoadedModels     []string      `json:"loaded_models"` // ids
	MaxBatchRequests int           `json:"max_batch_requests"`
	Server           ServerStatus  `json:"server"`
	GPUs             []GPUStatus   `json:"gpus"` // a CPU worker has none
	Models           []ModelStatus `json:"models"`
	Activity         Activity      `json:"activity"` // an addition to the reference's keys
}

// ServerStatus describes the process.
type ServerStatus struct {
	Version       string `json:"version"`
	UptimeSeconds int    `json:"uptime_seconds"`
	User          string `json:"user"`
	WorkingDir    string `json:"working_dir"`
	PID           int    `json:"pid"`
}

// GPUStatus describes one GPU with the reference's field names.
type GPUStatus struct {
	Device             string  `json:"device"`
	Name               string  `json:"name"`
	GPUType            string  `json:"gpu_type"`
	UtilizationPct     int     `json:"utilization_pct"` // of the last second or more, with a batch in flight
	MemoryUsedBytes    int64   `json:"memory_used_bytes"`
	MemoryTotalBytes   int64   `json:"memory_total_bytes"`
	MemoryThresholdPct float64 `json:"memory_threshold_pct"`
}

// ModelStatus describes one model with the reference's field names.
type ModelStatus struct {
	Name              string          `json:"name"`
	State             string          `json:"state"`
	Device            *string         `json:"device"` // nil unless loaded
	MemoryBytes       int64           `json:"memory_bytes"`
	Config            ModelConfig     `json:"config"`
	QueueDepth        int             `json:"queue_depth"`
	QueuePendingItems int             `json:"queue_pending_items"`
	AdaptiveBatching  *AdaptiveStatus `json:"adaptive_batching,omitempty"`
}

// ModelConfig is the part of a model's configuration that status frames show.
type ModelConfig struct {
	HFID              *string        `json:"hf_id"`
	Adapter           string         `json:"adapter"`
	Inputs            []string       `json:"inputs"`
	Outputs           []string       `json:"outputs"`
	Dims              map[string]int `json:"dims"`
	MaxSequenceLength *int           `json:"max_sequence_length"`
}

// AdaptiveStatus describes the latency controller of a model.
type AdaptiveStatus struct {
	Calibrated  bool    `json:"calibrated"`
	TargetP50MS float64 `json:"target_p50_ms"`
	WaitMS      float64 `json:"wait_ms"`
	BatchCost   int     `json:"batch_cost"`
	P50MS       float64 `json:"p50_ms"`
	HeadroomMS  float64 `json:"headroom_ms"`
	FillRatio   float64 `json:"fill_ratio"`
}

// Activity holds the figures that the status page and `sie-server top` draw.
type Activity struct {
	Totals
	Running          int   `json:"running"` // inference requests at this moment
	MemoryUsedBytes  int64 `json:"memory_used_bytes"`
	MemoryTotalBytes int64 `json:"memory_total_bytes"` // of the machine or the container
}

// Totals holds sums since the start; readers compute differences between frames.
type Totals struct {
	Requests    int64   `json:"requests"`     // answered with a result
	Failed      int64   `json:"failed"`       // answered otherwise, refusals included
	Items       int64   `json:"items"`        // of the requests answered with a result
	Tokens      int64   `json:"tokens"`       // of those
	Batches     int64   `json:"batches"`      // on the devices
	BatchItems  int64   `json:"batch_items"`  // sequences of those
	BatchTokens int64   `json:"batch_tokens"` // tokens of those
	BusySeconds float64 `json:"busy_seconds"` // summed over the devices; each batch in flight counts
}
