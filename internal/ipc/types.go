package ipc

import "github.com/tinylib/msgp/msgp"

//go:generate go tool msgp -file types.go -o types_gen.go -tests=false -io=false

//msgp:limit arrays:65536 maps:65536

// Version is the protocol's version; others are refused.
const Version = 1

// The methods.
const (
	MethodPing                = "Ping"
	MethodEnsureModelReady    = "EnsureModelReady"
	MethodRunBatch            = "RunBatch"
	MethodProcessEncodeBatch  = "ProcessEncodeBatch"
	MethodProcessScoreBatch   = "ProcessScoreBatch"
	MethodProcessExtractBatch = "ProcessExtractBatch"
	MethodCancelItems         = "CancelItems"
	MethodWorkerCapabilities  = "WorkerCapabilities"
	MethodApplyModelConfig    = "ApplyModelConfig"
	MethodReplaceModelConfigs = "ReplaceModelConfigs"
	MethodSetPinnedModels     = "SetPinnedModels"
	MethodDrain               = "Drain"
)

// Request is the envelope of a call. Calls of one connection run at once; ids are unique among
// those that run.
type Request struct {
	Version   int      `msg:"version"`
	Method    string   `msg:"method"`
	RequestID string   `msg:"request_id"`
	Body      msgp.Raw `msg:"body"`

	AcceptsChunks bool `msg:"accepts_ipc_response_chunks_v1,omitempty"`
	// the largest response in chunks in bytes that the caller takes; 0: MaxTransfer
	MostBytes uint64 `msg:"accepts_ipc_response_bytes_v1,omitempty"`
	// of RunBatch: each outcome as soon as its slice is done
	AcceptsOutcomes bool `msg:"accepts_ipc_outcomes_v1,omitempty"`
}

// Response is the envelope of an answer. Kind is KindResponse, or KindOutcome for one outcome of a
// call that goes on.
type Response struct {
	Kind      string `msg:"kind"`
	Version   int    `msg:"version"`
	RequestID string `msg:"request_id"`
	OK        bool   `msg:"ok"`
	// Outcome for KindOutcome; else the method's reply, or nil
	Body  msgp.Raw `msg:"body"`
	Error string   `msg:"error,omitempty"`        // unless OK: a text for people
	Err   []byte   `msg:"err,omitempty,zerocopy"` // the whole error, by errs.Error.AppendMsgpack
}

// Chunk is a part of a serialised Response of more than MaxFrame bytes, or of such a Request to a
// server that takes them (PingResponse.RequestBytes). The chunks of a message come in order.
type Chunk struct {
	Kind       string `msg:"kind"` // KindChunk or KindRequestChunk; the first key
	Version    int    `msg:"version"`
	RequestID  string `msg:"request_id"`
	Digest     []byte `msg:"transfer_digest,zerocopy"` // SHA-256 of the whole message
	Index      uint32 `msg:"chunk_index"`
	Count      uint32 `msg:"chunk_count"`
	TotalBytes uint64 `msg:"total_bytes"`
	Payload    []byte `msg:"payload,zerocopy,limit=4194304"`
}

// The values of "kind".
const (
	KindResponse = "response"
	KindOutcome  = "ipc_outcome_v1"
	KindChunk    = "ipc_response_chunk_v1"

	KindRequestChunk = "ipc_request_chunk_v1"
)

// PingRequest asks for the server's state. It is also the sidecar's heartbeat, which /readyz can
// require (SIE_IPC_REQUIRE_HEARTBEAT).
type PingRequest struct {
	TimestampMS float64 `msg:"timestamp_ms"`
	WorkerID    string  `msg:"worker_id,omitempty"` // of the sidecar, shown in the server's status
}

// PingResponse is the server's state.
type PingResponse struct {
	TimestampMS      float64  `msg:"timestamp_ms"`
	WorkerID         string   `msg:"worker_id"`
	Ready            bool     `msg:"ready"`
	BundleConfigHash string   `msg:"bundle_config_hash"`
	LoadedModels     []string `msg:"loaded_models"`
	LoadingModels    []string `msg:"loading_models"`

	PID          int        `msg:"pid"`
	Epoch        string     `msg:"epoch"` // random for each process: another value is another server
	Running      []Progress `msg:"running,omitempty"`
	QueuedTokens int64      `msg:"queued_tokens"` // admitted and not finished
	GPUCount     int        `msg:"gpu_count"`
	MemoryUsed   int64      `msg:"memory_used_bytes"`
	MemoryTotal  int64      `msg:"memory_total_bytes"`
	// the largest request in chunks in bytes that the server takes; 0: none, a request is one frame
	RequestBytes uint64 `msg:"accepts_ipc_request_bytes_v1,omitempty"`
	// of the documents that the sidecar gave; "": it gave none, or did not say their hashes
	BundleDocumentsHash string `msg:"bundle_documents_hash,omitempty"`
	// device batches that ended, of any request: a sign of life
	FinishedBatch uint64 `msg:"finished_batches"`
}

// Progress is one RunBatch that runs.
type Progress struct {
	RequestID  string  `msg:"request_id"` // of the call
	Done       uint32  `msg:"done"`       // slices with an outcome
	Total      uint32  `msg:"total"`
	ProgressMS float64 `msg:"progress_ms"` // since the device last finished a batch, or the call began
}

// ModelRequest names a model.
type ModelRequest struct {
	ModelID string `msg:"model_id"`
}

// The states of a model.
const (
	StateReady             = "ready"
	StateLoadingStarted    = "loading_started"
	StateLoadingInProgress = "loading_in_progress"
	StateRetryLater        = "retry_later" // RetryAfterS says when
	StateFailed            = "failed"      // Err says why
)

// ReadyResponse is a model's state. EnsureModelReady answers at once; the load that it begins
// outlives the caller.
type ReadyResponse struct {
	State       string  `msg:"state"`
	BatchBudget *uint32 `msg:"batch_budget,omitempty"`
	// of one device batch, over all devices of the model: the sidecar keeps two in the server
	BatchTokens int64       `msg:"batch_tokens"`
	Descriptor  *Descriptor `msg:"descriptor,omitempty"`
	RetryAfterS float64     `msg:"retry_after_s,omitempty"`
	Err         []byte      `msg:"err,omitempty,zerocopy"` // by errs.Error.AppendMsgpack
}

// Descriptor describes a model that is ready.
type Descriptor struct {
	TokenizerPath        *string  `msg:"tokenizer_path,omitempty"`
	TokenizerID          *string  `msg:"tokenizer_id,omitempty"`
	MaxSeqLen            *int     `msg:"max_seq_len,omitempty"`
	OutputTypes          []string `msg:"output_types"`
	SupportsRunBatch     bool     `msg:"supports_run_batch"`
	DefaultQueryTemplate *string  `msg:"default_query_template,omitempty"`
	DefaultDocTemplate   *string  `msg:"default_doc_template,omitempty"`
	MaxConcurrent        int      `msg:"max_concurrent_dispatch,omitempty"`
}

// RunBatchRequest runs slices of one model and operation. Each runs as the request it comes from,
// or as its part.
type RunBatchRequest struct {
	ModelID   string    `msg:"model_id"`
	BatchID   uint64    `msg:"batch_id"`
	LoraKey   string    `msg:"lora_key"` // "": none
	TotalCost int64     `msg:"total_cost"`
	Items     []RunItem `msg:"items,limit=4096"`
	// AcceptsBatchedF16 asks for nothing here; it is part of the reference's form.
	AcceptsBatchedF16 bool `msg:"accepts_batched_f16_multivectors,omitempty"`
}

// RunItem is one slice: exactly one of the operations' fields holds its work.Item, as it came from
// the broker, with its payload in it.
type RunItem struct {
	Op         string   `msg:"op"`
	WorkItemID string   `msg:"work_item_id"`
	RequestID  string   `msg:"request_id"`
	ItemIndex  uint32   `msg:"item_index"`
	Encode     msgp.Raw `msg:"encode,omitempty"`
	Score      msgp.Raw `msg:"score,omitempty"`
	Extract    msgp.Raw `msg:"extract,omitempty"`
	Classify   msgp.Raw `msg:"classify,omitempty"`
	Tokenize   msgp.Raw `msg:"tokenize,omitempty"`
	Detokenize msgp.Raw `msg:"detokenize,omitempty"`

	// what is left to the deadline, tolerance included; 0: none
	TimeoutMS      float64 `msg:"timeout_ms,omitempty"`
	PayloadFetchMS float64 `msg:"payload_fetch_ms,omitempty"`
	TraceParent    string  `msg:"traceparent,omitempty"`
	TraceState     string  `msg:"tracestate,omitempty"`
}

// ProcessBatchRequest is the older form of RunBatch: work items of one operation.
type ProcessBatchRequest struct {
	ModelID string     `msg:"model_id"`
	Items   []msgp.Raw `msg:"items"` // each a work.Item
}

// BatchOutcome ends a RunBatch. It holds the outcomes that were not sent before.
type BatchOutcome struct {
	Outcomes []Outcome `msg:"outcomes"`
}

// The dispositions of an outcome.
const (
	PublishAndAck      = "publish_and_ack"
	PublishErrorAndAck = "publish_error_and_ack"
	NakRetry           = "nak_retry" // this server cannot run it now: NakDelayMS
)

// Outcome is the result of one slice.
type Outcome struct {
	WorkItemID  string   `msg:"work_item_id"`
	RequestID   string   `msg:"request_id"`
	ItemIndex   uint32   `msg:"item_index"`
	Disposition string   `msg:"disposition"`
	NakDelayMS  *float64 `msg:"nak_delay_ms,omitempty"`
	// Result is the work.Result, serialised, without WorkerID, Attempt and QueueMS, which the
	// sidecar adds.
	Result msgp.Raw `msg:"result"`

	// the true count, from which the sidecar learns bytes per token
	InputTokens int64 `msg:"input_tokens,omitempty"`
}

// CancelRequest ends slices that run; those that are not known are ignored.
type CancelRequest struct {
	WorkItemIDs []string `msg:"work_item_ids"`
}

// CancelResponse counts the slices that were ended.
type CancelResponse struct {
	Cancelled int `msg:"cancelled"`
}

// CapabilitiesResponse lists what the server can serve.
type CapabilitiesResponse struct {
	HasGenerationModels bool     `msg:"has_generation_models"`
	GenerationModels    []string `msg:"generation_models"`
	SupportedModels     []string `msg:"supported_models"`
	LoadedModels        []string `msg:"loaded_models"`
}

// ApplyRequest adds or replaces one model's configuration.
type ApplyRequest struct {
	BundleID         string              `msg:"bundle_id"`
	ModelID          string              `msg:"model_id"`
	Epoch            int64               `msg:"epoch"`
	BundleConfigHash string              `msg:"bundle_config_hash"`
	ProfilesAdded    []string            `msg:"profiles_added"`
	ModelConfig      string              `msg:"model_config"` // YAML
	BundleAdapters   map[string][]string `msg:"bundle_adapters,omitempty"`
}

// ModelConfig is one model's configuration.
type ModelConfig struct {
	ModelID     string `msg:"model_id"`
	ModelConfig string `msg:"model_config"` // YAML
	// of what it says, as work items have it; "": not known. The server believes it
	ModelDocumentHash string `msg:"model_document_hash,omitempty"`
}

// ReplaceRequest replaces the configurations of all models.
type ReplaceRequest struct {
	BundleID         string              `msg:"bundle_id"`
	Epoch            int64               `msg:"epoch"`
	BundleConfigHash string              `msg:"bundle_config_hash"`
	Models           []ModelConfig       `msg:"models"`
	BundleAdapters   map[string][]string `msg:"bundle_adapters,omitempty"`
}

// ConfigResponse says what a server made of a configuration.
type ConfigResponse struct {
	Applied           bool     `msg:"applied"`
	BundleConfigHash  string   `msg:"bundle_config_hash"`
	ConfigVersion     int64    `msg:"config_version"`
	AppliedModels     []string `msg:"applied_models,omitempty"`
	AppliedProfiles   []string `msg:"applied_profiles,omitempty"`
	UnsupportedModels []string `msg:"unsupported_models,omitempty"`

	BundleDocumentsHash string `msg:"bundle_documents_hash,omitempty"` // as PingResponse has it
}

// PinRequest replaces the set of models that are never evicted.
type PinRequest struct {
	Models []string `msg:"models"`
}

// PinResponse says how many models are pinned.
type PinResponse struct {
	Applied bool `msg:"applied"`
	Count   int  `msg:"pinned_count"`
}

// DrainRequest ends the work of the server.
type DrainRequest struct {
	DeadlineMS float64 `msg:"deadline_ms"` // for running work
}

// DrainResponse acknowledges a drain. Work that comes later is answered nak_retry.
type DrainResponse struct {
	Acknowledged bool `msg:"acknowledged"`
}
