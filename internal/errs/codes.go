// Package errs lists the errors that a client of any SIE binary can receive: their codes, HTTP
// statuses, retry hints and texts, as data.
//
// Entry points: the constructors in new.go, one per situation; [Codes] and [Lookup], the table
// behind them; [Error.AppendJSON], [Error.AppendMsgpack], [FromJSON] and [FromMsgpack], with which
// components send a complete error to each other. An [Error] says what happened. Package dialect
// decides how the error is written for a given caller: which retry code an old SDK understands, and
// which JSON envelope a route has.
//
// The package starts no goroutine, does no I/O and never logs. Messages are safe to show: they name
// fields, limits and fixes, never file paths or internal causes. The internal cause travels in
// Error.Cause, for the log.
package errs

import "time"

// Code names a kind of error on the wire. Values are part of the public API and never change.
type Code string

// The codes. The native routes send them in X-SIE-Error-Code and in the body.
const (
	InvalidInput      Code = "INVALID_INPUT"
	InputTooLong      Code = "INPUT_TOO_LONG"
	Unauthorized      Code = "UNAUTHORIZED"
	Forbidden         Code = "FORBIDDEN"
	RateLimited       Code = "RATE_LIMITED"
	NotFound          Code = "NOT_FOUND"
	InvalidRequest    Code = "INVALID_REQUEST"
	PoolNotFound      Code = "POOL_NOT_FOUND"
	PoolRefused       Code = "POOL_OPERATION_FORBIDDEN"
	PoolUndeletable   Code = "DEFAULT_POOL_DELETE_FORBIDDEN"
	MethodNotAllowed  Code = "METHOD_NOT_ALLOWED"
	ModelNotFound     Code = "MODEL_NOT_FOUND"
	ModelNotLoaded    Code = "MODEL_NOT_LOADED"
	ModelLoading      Code = "MODEL_LOADING"
	ModelLoadFailed   Code = "MODEL_LOAD_FAILED"
	LoRALoading       Code = "LORA_LOADING"
	QueueFull         Code = "QUEUE_FULL"
	ResourceExhausted Code = "RESOURCE_EXHAUSTED"
	Provisioning      Code = "PROVISIONING"
	Draining          Code = "DRAINING"
	DeadlineExceeded  Code = "DEADLINE_EXCEEDED"
	InferenceError    Code = "INFERENCE_ERROR"
	InternalError     Code = "INTERNAL_ERROR"
	NotImplemented    Code = "not_implemented"
)

// Info holds the fixed properties of a code.
type Info struct {
	Code   Code
	Status int // HTTP status, unless the constructor sets another

	// Transient means that the same request may succeed later without a change. Every transient
	// code has a RetryAfter of a second or more; no other code has one.
	Transient  bool
	RetryAfter time.Duration // default hint

	OpenAIType string // error.type in the OpenAI envelope
	OpenAICode string // error.code in the OpenAI envelope
	Meaning    string // one line for documentation
}

const (
	typeInvalidRequest = "invalid_request_error"
	typeServer         = "server_error"
)

var table = [...]Info{
	{Code: InvalidInput, Status: 400, OpenAIType: typeInvalidRequest, OpenAICode: "invalid_request",
		Meaning: "the request is malformed or asks for something the model does not offer"},
	{Code: InputTooLong, Status: 400, OpenAIType: typeInvalidRequest, OpenAICode: "INPUT_TOO_LONG",
		Meaning: "an input is longer than the model or the server accepts (413 for a whole body)"},
	{Code: Unauthorized, Status: 401, OpenAIType: typeInvalidRequest, OpenAICode: "invalid_api_key",
		Meaning: "the request has no API key, or one that the server does not accept"},
	{Code: Forbidden, Status: 403, OpenAIType: typeInvalidRequest, OpenAICode: "permission_denied",
		Meaning: "the API key may not do this: another role, pool or model"},
	{Code: RateLimited, Status: 429, Transient: true, RetryAfter: time.Second,
		OpenAIType: "rate_limit_error", OpenAICode: "rate_limit_exceeded",
		Meaning: "the API key has used up its quota"},
	{Code: NotFound, Status: 404, OpenAIType: typeInvalidRequest, OpenAICode: "not_found",
		Meaning: "no such route"},
	{Code: InvalidRequest, Status: 400, OpenAIType: typeInvalidRequest, OpenAICode: "invalid_request",
		Meaning: "a pool is asked for that this cluster does not give"},
	{Code: PoolNotFound, Status: 404, OpenAIType: typeInvalidRequest, OpenAICode: "pool_not_found",
		Meaning: "there is no such pool"},
	{Code: PoolRefused, Status: 403, OpenAIType: typeInvalidRequest, OpenAICode: "pool_operation_forbidden",
		Meaning: "the pool is the operator's, or there are as many as may be"},
	{Code: PoolUndeletable, Status: 403, OpenAIType: typeInvalidRequest,
		OpenAICode: "pool_operation_forbidden", Meaning: "the default pool cannot be deleted"},
	{Code: MethodNotAllowed, Status: 405, OpenAIType: typeInvalidRequest, OpenAICode: "method_not_allowed",
		Meaning: "the route exists but not for this HTTP method"},
	{Code: ModelNotFound, Status: 404, OpenAIType: typeInvalidRequest, OpenAICode: "model_not_found",
		Meaning: "the model id is not in the catalog"},
	{Code: ModelNotLoaded, Status: 503, Transient: true, RetryAfter: 5 * time.Second, OpenAIType: typeServer,
		OpenAICode: "model_not_available", Meaning: "the model is being unloaded"},
	{Code: ModelLoading, Status: 503, Transient: true, RetryAfter: 5 * time.Second, OpenAIType: typeServer,
		OpenAICode: "MODEL_LOADING", Meaning: "the model is being loaded"},
	{Code: ModelLoadFailed, Status: 502, OpenAIType: typeServer, OpenAICode: "MODEL_LOAD_FAILED",
		Meaning: "the model could not be loaded; retrying at once does not help"},
	{Code: LoRALoading, Status: 503, Transient: true, RetryAfter: time.Second, OpenAIType: typeServer,
		OpenAICode: "LORA_LOADING", Meaning: "the LoRA adapter is being loaded"},
	{Code: QueueFull, Status: 503, Transient: true, RetryAfter: time.Second, OpenAIType: typeServer,
		OpenAICode: "server_overloaded", Meaning: "other requests fill the model's queue right now"},
	{Code: ResourceExhausted, Status: 503, Transient: true, RetryAfter: 5 * time.Second,
		OpenAIType: typeServer, OpenAICode: "RESOURCE_EXHAUSTED",
		Meaning: "out of memory, even after recovery"},
	{Code: Provisioning, Status: 503, Transient: true, RetryAfter: 5 * time.Second, OpenAIType: typeServer,
		OpenAICode: "PROVISIONING", Meaning: "no capacity yet; it is being started"},
	{Code: Draining, Status: 503, Transient: true, RetryAfter: 5 * time.Second, OpenAIType: typeServer,
		OpenAICode: "server_shutting_down", Meaning: "this process finishes its work and exits"},
	{Code: DeadlineExceeded, Status: 504, Transient: true, RetryAfter: 5 * time.Second,
		OpenAIType: typeServer, OpenAICode: "timeout", Meaning: "the answer was not ready in time"},
	{Code: InferenceError, Status: 500, OpenAIType: typeServer, OpenAICode: "inference_error",
		Meaning: "the model failed on this request"},
	{Code: InternalError, Status: 500, OpenAIType: typeServer, OpenAICode: "internal_error",
		Meaning: "a defect in the server"},
	{Code: NotImplemented, Status: 501, OpenAIType: typeInvalidRequest, OpenAICode: "not_implemented",
		Meaning: "the reference has this endpoint, this server does not"},
}

// Codes returns a copy of the whole table, in a fixed order.
func Codes() []Info { return append([]Info(nil), table[:]...) }

// Lookup returns the table entry of c. An unknown code is treated as InternalError.
func Lookup(c Code) Info {
	in, ok := find(c)
	if !ok {
		in, _ = find(InternalError)
	}
	return in
}

func find(c Code) (Info, bool) {
	for _, in := range table {
		if in.Code == c {
			return in, true
		}
	}
	return Info{}, false
}
