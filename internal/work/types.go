package work

import "github.com/tinylib/msgp/msgp"

//go:generate go tool msgp -file types.go -o types_gen.go -tests=false -io=false

// Byte strings are read without a copy: they alias the message.
//
//msgp:limit arrays:65536 maps:65536

// The operations of a slice.
const (
	Encode     = "encode"
	Score      = "score"
	Extract    = "extract"
	Classify   = "classify"
	Tokenize   = "tokenize"
	Detokenize = "detokenize"
)

// Item is a work item: a slice of one request, up to MaxItems of its items. It travels in one
// message, or without what Payload holds in a message that names its payload (PayloadRef).
//
// The reference's form holds exactly one item (Single); it is accepted, and answered in its form.
type Item struct {
	WorkItemID string `msg:"work_item_id"` // {request_id}.{item_index}
	RequestID  string `msg:"request_id"`   // a UUIDv7 of the gateway, never of its caller
	Index      uint32 `msg:"item_index"`   // of the slice in its request
	Total      uint32 `msg:"total_items"`  // slices of the request
	Operation  string `msg:"operation"`
	ModelID    string `msg:"model_id"`

	ProfileID      string `msg:"profile_id"` // "default"
	PoolName       string `msg:"pool_name"`
	MachineProfile string `msg:"machine_profile"`
	Engine         string `msg:"engine,omitempty"`

	// raw msgpack, one for each item; texts of tokenize; id lists of detokenize
	Items      []msgp.Raw `msg:"items,omitempty"`
	FirstIndex uint32     `msg:"first_index,omitempty"` // of Items[0] in the request
	Query      msgp.Raw   `msg:"query_item,omitempty"`  // of score

	Single     msgp.Raw   `msg:"item,omitempty"`        // the reference's form of encode and extract
	ScoreItems []msgp.Raw `msg:"score_items,omitempty"` // the reference's form of score

	PayloadRef    string `msg:"payload_ref,omitempty"`             // key of a Payload in the store
	PayloadSHA256 []byte `msg:"payload_sha256,omitempty,zerocopy"` // of the stored bytes
	PayloadBytes  uint64 `msg:"payload_bytes,omitempty"`           // how many they are

	OutputTypes  []string `msg:"output_types,omitempty"`
	OutputDType  string   `msg:"output_dtype,omitempty"`
	Instruction  *string  `msg:"instruction,omitempty"`
	IsQuery      *bool    `msg:"is_query,omitempty"`
	Options      msgp.Raw `msg:"options,omitempty"` // a map
	Labels       []string `msg:"labels,omitempty"`
	OutputSchema msgp.Raw `msg:"output_schema,omitempty"` // a map
	Foreign      *Foreign `msg:"foreign,omitempty"`

	BundleConfigHash string `msg:"bundle_config_hash,omitempty"`
	ModelConfigHash  string `msg:"model_config_hash,omitempty"`
	// of all that the model's document says; "": the gateway does not know it
	ModelDocumentHash string `msg:"model_document_hash,omitempty"`

	RouterID     string  `msg:"router_id"`
	ReplySubject string  `msg:"reply_subject"` // see bus.Inbox
	Timestamp    float64 `msg:"timestamp"`     // seconds since the epoch, when the slice was published
	Deadline     float64 `msg:"deadline"`      // seconds since the epoch, by the gateway's clock

	Attempt uint32   `msg:"attempt,omitempty"` // from 0; each republish that may run again adds one
	Alone   bool     `msg:"alone,omitempty"`   // nothing else may be in the server while it runs
	DiedOn  []string `msg:"died_on,omitempty"` // workers whose server died with it

	AcceptsChunks bool   `msg:"accepts_result_chunks,omitempty"`
	AcceptsRef    bool   `msg:"accepts_result_ref,omitempty"` // results in the payload store
	CallerID      string `msg:"caller_request_id,omitempty"`  // the HTTP request's id, for logs
	TraceParent   string `msg:"traceparent,omitempty"`
	TraceState    string `msg:"tracestate,omitempty"`
}

// Foreign holds what other APIs' requests ask for beyond a native request; see
// api.ForeignOptions.
type Foreign struct {
	Field        string `msg:"field,omitempty"` // the client's name for its items
	Dimensions   int    `msg:"dimensions,omitempty"`
	TruncateLeft bool   `msg:"truncate_left,omitempty"`
	RawScores    bool   `msg:"raw_scores,omitempty"`   // of classify
	AddSpecial   bool   `msg:"add_special,omitempty"`  // of tokenize
	SkipSpecial  bool   `msg:"skip_special,omitempty"` // of detokenize
}

// Payload is what a work item above the broker's message limit leaves in the payload store.
type Payload struct {
	Items        []msgp.Raw `msg:"items"`
	Query        msgp.Raw   `msg:"query_item,omitempty"`
	OutputTypes  []string   `msg:"output_types,omitempty"`
	Instruction  *string    `msg:"instruction,omitempty"`
	Options      msgp.Raw   `msg:"options,omitempty"`
	Labels       []string   `msg:"labels,omitempty"`
	OutputSchema msgp.Raw   `msg:"output_schema,omitempty"`
}

// Units counts what a slice took.
type Units struct {
	InputTokens        uint64 `msg:"input_tokens"`
	Pairs              uint64 `msg:"pairs,omitempty"`
	ContentInputTokens uint64 `msg:"content_input_tokens,omitempty"`
	Images             uint64 `msg:"images,omitempty"`

	// those of the tokens that a query of score took which was read once for the whole slice, and
	// how many of them are content: in a request of several slices they count once
	QueryTokens  uint64 `msg:"query_tokens,omitempty"`
	QueryContent uint64 `msg:"query_content_tokens,omitempty"`
}

// Result is the outcome of a slice. Exactly one of Results, ResultMsgpack and Err is set.
type Result struct {
	WorkItemID string `msg:"work_item_id"`
	RequestID  string `msg:"request_id"`
	Index      uint32 `msg:"item_index"`
	Attempt    uint32 `msg:"attempt,omitempty"`
	Success    bool   `msg:"success"`

	// Results holds one raw msgpack value for each item: of encode and extract the item's map as in
	// an answer; of score and classify a float64, or an array of them; of tokenize an array of
	// tokens [id, text, special, start, stop]; of detokenize a string.
	Results []msgp.Raw `msg:"results,omitempty"`
	// in the reference's form
	ResultMsgpack []byte `msg:"result_msgpack,omitempty,zerocopy,limit=134217728"`

	Error     string `msg:"error,omitempty"`
	ErrorCode string `msg:"error_code,omitempty"`
	Err       []byte `msg:"err,omitempty,zerocopy"` // the whole error, by errs.Error.AppendMsgpack

	ResultRef    string `msg:"result_ref,omitempty"` // key of a stored Result that holds Results
	ResultSHA256 []byte `msg:"result_sha256,omitempty,zerocopy"`
	ResultBytes  uint64 `msg:"result_bytes,omitempty"` // of the stored Result

	WorkerID string   `msg:"worker_id"`
	ModelID  string   `msg:"model_id,omitempty"` // in the catalog
	Revision string   `msg:"revision,omitempty"`
	Ignored  []string `msg:"ignored,omitempty"` // options of other operations
	Labels   []string `msg:"labels,omitempty"`  // of classify

	QueueMS          float64 `msg:"queue_ms"`
	ProcessingMS     float64 `msg:"processing_ms"`
	InferenceMS      float64 `msg:"inference_ms"`
	TokenizationMS   float64 `msg:"tokenization_ms,omitempty"`
	PostprocessingMS float64 `msg:"postprocessing_ms,omitempty"`
	PreprocessMS     float64 `msg:"preprocess_ms,omitempty"`
	BatchWaitMS      float64 `msg:"batch_wait_ms,omitempty"`
	PayloadFetchMS   float64 `msg:"payload_fetch_ms,omitempty"`

	Units                    *Units  `msg:"units,omitempty"`
	ExecutedBundleConfigHash string  `msg:"executed_bundle_config_hash,omitempty"`
	RetryAfterS              float64 `msg:"retry_after_s,omitempty"`
}

// Chunk is a part of a serialised Result that is larger than one message. The chunk with the last
// index is sent as a request after all the others.
type Chunk struct {
	Kind       string `msg:"kind"` // KindChunk
	WorkItemID string `msg:"work_item_id"`
	RequestID  string `msg:"request_id"`
	ItemIndex  uint32 `msg:"item_index"`
	Digest     []byte `msg:"transfer_digest,zerocopy"` // SHA-256 of the whole Result
	Index      uint32 `msg:"chunk_index"`
	Count      uint32 `msg:"chunk_count"`
	TotalBytes uint64 `msg:"total_bytes"`
	Payload    []byte `msg:"payload,zerocopy,limit=786432"`
}

// The states of a Mark.
const (
	Taken      = "taken"       // pulled by a sidecar
	Running    = "running"     // sent to the server
	ServerDied = "server_died" // the server ended while it ran; sent as a request
	// the server that has it answers no Ping any more, and may never again
	ServerSilent = "server_silent"
)

// Mark tells a gateway where a slice is. A sidecar sends it for a slice that is not answered at
// once, and again every MarkInterval.
type Mark struct {
	Kind       string `msg:"kind"` // KindMark
	WorkItemID string `msg:"work_item_id"`
	RequestID  string `msg:"request_id"`
	WorkerID   string `msg:"worker_id"`
	State      string `msg:"state"`
	Attempt    uint32 `msg:"attempt,omitempty"`
	Alone      bool   `msg:"alone,omitempty"` // of ServerDied: nothing else was in the server
	// WorkerEpoch is the epoch of the worker's heartbeats, "" of a worker that does not tell.
	WorkerEpoch string `msg:"worker_epoch,omitempty"`
}

// The states of a Receipt.
const (
	Stored    = "stored"
	Duplicate = "duplicate" // a result of the slice was stored before
	Unknown   = "unknown"   // the gateway has no such request, or it has been answered
	Again     = "again"     // chunks are missing
)

// Receipt answers a result, a last chunk or a server_died mark. Each state but Again allows the
// work message to be acknowledged.
type Receipt struct {
	State   string   `msg:"state"`
	Missing []uint32 `msg:"missing,omitempty"` // of Again: the indices to send again
}

// Cancel is the body of a cancellation (bus.CancelSubject): it ends the slices of the request from
// index From on. An empty body ends all of them.
type Cancel struct {
	From uint32 `msg:"from"`
}

// The values of "kind" in an inbox. A Result has none.
const (
	KindChunk = "result_chunk_v1"
	KindMark  = "mark_v1"
)
