package errs

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// newError returns an Error with the status and the retry hint of c's table entry.
func newError(c Code, msg string) *Error {
	in := Lookup(c)
	return &Error{Code: c, Status: in.Status, Message: msg, RetryAfter: in.RetryAfter}
}

// Invalid returns a 400 for a malformed or unsupported request. param names the field at fault, or
// is empty.
func Invalid(param, msg string) *Error {
	e := newError(InvalidInput, msg)
	e.Param = param
	return e
}

// Invalidf is Invalid with a formatted message.
func Invalidf(param, format string, args ...any) *Error {
	return Invalid(param, fmt.Sprintf(format, args...))
}

// UnsupportedField returns a 400 for a field whose value the model cannot honour. It differs from
// Invalid only in the code of the OpenAI envelope.
func UnsupportedField(param, msg string) *Error {
	e := Invalid(param, msg)
	e.OpenAICode = "unsupported_field"
	return e
}

// CodeEmpty is the OpenAI code of Empty. TEI has its own type of error for it.
const CodeEmpty = "empty_input"

// Empty returns Invalid for a list that must have entries.
func Empty(param, msg string) *Error {
	e := Invalid(param, msg)
	e.OpenAICode = CodeEmpty
	return e
}

// NoKey returns the 401 for a request without a valid API key.
func NoKey() *Error {
	return newError(Unauthorized,
		"This server needs an API key: send it as 'Authorization: Bearer <key>' or 'X-API-Key: <key>'")
}

// WrongKey returns the 401 for a key that the server does not know.
func WrongKey() *Error {
	return newError(Unauthorized, "The API key is not one that this server accepts")
}

// BodyTooLarge returns the 413 for a request body over limit bytes.
func BodyTooLarge(limit int64) *Error {
	e := newError(InputTooLong, fmt.Sprintf("request body exceeds the limit of %d bytes", limit))
	e.Status = 413
	return e
}

// TooLong returns the 400 for an input that is longer than its model accepts and may not be cut.
func TooLong(param, msg string) *Error {
	e := newError(InputTooLong, msg)
	e.Param = param
	return e
}

// MachineProfile returns the 400 for a request that reached the wrong worker. worker is nil when
// this worker has no identity.
func MachineProfile(requested string, worker *string) *Error {
	var msg string
	if worker == nil {
		msg = "Request targets machine profile '" + requested + "' but this worker has no GPU and " +
			"SIE_MACHINE_PROFILE is not set. Route requests to a GPU worker or remove the X-SIE-MACHINE-PROFILE header."
	} else {
		msg = "Request targets machine profile '" + requested + "' but this worker is '" + *worker +
			"'. This may indicate a routing error. Check your gateway configuration."
	}
	e := newError(InvalidInput, msg)
	e.Profile = &Mismatch{Requested: requested, Worker: worker}
	return e
}

// UnknownModel returns the 404 for a model id that is not in the catalog. The catalog supplies
// text.
func UnknownModel(text string) *Error {
	e := newError(ModelNotFound, text)
	e.Param = "model"
	return e
}

// NoScoring returns the 400 for a model without a score task.
func NoScoring(model string) *Error {
	return Invalid("model", "Model '"+model+"' does not support scoring. "+
		"Use an encoder model with /v1/encode instead, or use a reranker model.")
}

// NoExtraction returns the 400 for a model without an extract task.
func NoExtraction(model string) *Error {
	return Invalid("model", "Model '"+model+"' does not support extraction. "+
		"Use an extraction model like GLiNER, GLiClass, or Florence-2.")
}

// UnsupportedOutputs returns the 400 for output types that the model does not support.
func UnsupportedOutputs(model string, unsupported, supported []string) *Error {
	return Invalid("output_types", "Model '"+model+"' does not support output types: "+
		setText(unsupported, '{', '}')+". Supported: "+setText(supported, '{', '}'))
}

// UnknownOutputDType returns the 400 for an output dtype outside the six that exist.
func UnknownOutputDType(dtype string) *Error {
	return Invalid("output_dtype", "Unsupported output_dtype: "+dtype+
		". Use one of float32, float16, int8, uint8, binary, ubinary")
}

// RequiresText returns the 400 for an item without text on a model that reads text.
func RequiresText(adapter string, item int) *Error {
	e := Invalidf("items", "%s requires text input: Field 'items[%d]' has no text", adapter, item)
	e.Item = &item
	return e
}

// Unloading returns the 503 for a model that is being unloaded.
func Unloading(model string) *Error {
	return newError(ModelNotLoaded, "Model '"+model+"' is unloading")
}

// Loading returns the 503 for a model whose load has started or is in progress.
func Loading(model string) *Error {
	return newError(ModelLoading, "Model '"+model+"' is loading, please retry")
}

// Evicted returns the 503 for a request that was queued when its model was evicted.
func Evicted(model string) *Error {
	return newError(ModelLoading, "Model '"+model+"' was evicted before this request ran, please retry")
}

// LoadFailed returns the 502 for a model that cannot be loaded. Callers see detail; cause goes to
// the log.
func LoadFailed(model string, f LoadFailure, detail string, cause error) *Error {
	f.Attempts = max(f.Attempts, 1)
	if f.Class == "" {
		f.Class = "UNKNOWN"
	}
	e := newError(ModelLoadFailed, fmt.Sprintf("Model '%s' failed to load (%s, attempts=%d): %s",
		model, f.Class, f.Attempts, detail))
	e.Load, e.Cause = &f, cause
	return e
}

// LoadingLoRA returns the 503 for an adapter that is being loaded.
func LoadingLoRA(lora, model string) *Error {
	return newError(LoRALoading, "LoRA '"+lora+"' is loading for model '"+model+"', please retry")
}

// LoRAFailed returns the 500 for an adapter that could not be loaded.
func LoRAFailed(lora, model string, cause error) *Error {
	e := newError(InferenceError, "Failed to load LoRA '"+lora+"' for model '"+model+"'")
	e.Cause = cause
	return e
}

// FullQueue returns the 503 for a queue that other work fills.
func FullQueue(pending, adding, limit int) *Error {
	return newError(QueueFull, fmt.Sprintf("Queue full: %d items pending, cannot add %d more (limit: %d)",
		pending, adding, limit))
}

// FullQueueBytes returns FullQueue for a bound in bytes.
func FullQueueBytes(pending, adding, limit int64) *Error {
	return newError(QueueFull, fmt.Sprintf("Queue full: %d bytes pending, cannot add %d more (limit: %d)",
		pending, adding, limit))
}

// SlowQueue returns the 503 for a queue whose pending items take longer than limit to run.
func SlowQueue(limit, retryAfter time.Duration) *Error {
	e := newError(QueueFull, "")
	e.RetryAfter = (max(retryAfter, 1) + time.Second - 1).Truncate(time.Second)
	e.Message = fmt.Sprintf("Queue full: what is pending takes longer than %v to run, please retry in %v",
		limit, e.RetryAfter)
	return e
}

// FullQueueAnswer returns FullQueueBytes for a request whose results do not fit now. The results of
// fit of its items would.
func FullQueueAnswer(pending, adding, limit int64, fit int) *Error {
	e := FullQueueBytes(pending, adding, limit)
	e.Message += fmt.Sprintf("; results of %d of its items would fit now", fit)
	return e
}

// AnswerTooLarge returns the 400 for a request whose results never fit into memory. The results of
// fit of its items would.
func AnswerTooLarge(field string, bytes, limit int64, fit int) *Error {
	return Invalidf(field,
		"Field '%s': the results take %d bytes, and %d are the limit for all requests and results together; "+
			"send at most %d such items in a request", field, bytes, limit, fit)
}

// TransferTooLarge returns the 400 for results of more than limit bytes, which a worker cannot hand
// on. The results of fit of the items could cross; store says that larger ones could too if there
// were a payload store.
func TransferTooLarge(field string, bytes, limit int64, fit int, store bool) *Error {
	fix := fmt.Sprintf("send at most %d such items in a request", fit)
	if fit == 0 {
		fix = "ask for fewer outputs or send shorter texts"
	}
	if store {
		fix += ", or have the operator set a payload store (SIE_PAYLOAD_STORE_URL)"
	}
	return Invalidf(field,
		"Field '%s': the results take %d bytes, and %d are the most that a worker of this cluster hands on "+
			"at once; %s", field, bytes, limit, fix)
}

// OutOfMemory returns the 503 for memory that did not suffice even after recovery. operation is
// Encoding, Scoring or Extraction.
func OutOfMemory(operation string, cause error) *Error {
	e := newError(ResourceExhausted,
		operation+" temporarily unavailable due to resource pressure: out of memory")
	e.Cause = cause
	return e
}

// Capacity returns the 503 (for the oldest callers: 202) while machines are being started.
func Capacity(profile string, retryAfter time.Duration) *Error {
	e := newError(Provisioning,
		"No capacity for machine profile '"+profile+"' yet; it is being provisioned, please retry")
	e.RetryAfter = max(retryAfter, time.Second)
	return e
}

// ShuttingDown returns the 503 of a process that takes no more work.
func ShuttingDown() *Error {
	return newError(Draining, "Server is draining requests before shutdown. Retry on another instance.")
}

// DeviceLost returns the 503 of a process whose accelerator failed and that is about to exit.
func DeviceLost(cause error) *Error {
	e := newError(Draining,
		"The accelerator of this server failed and the server is restarting. Retry on another instance.")
	e.Cause = cause
	return e
}

// Late returns the 504 for an answer that was not ready within limit.
func Late(limit time.Duration) *Error {
	return newError(DeadlineExceeded, "The request was not finished within "+limit.String()+", please retry")
}

// Inference returns the 500 for a failed forward pass; operation is encoding, scoring or
// extraction. The text is fixed: the cause may contain addresses or paths, so only the log gets it.
func Inference(operation string, cause error) *Error {
	e := newError(InferenceError, "internal error during "+operation)
	e.Cause = cause
	return e
}

// NonFinite returns the 500 for scores or vectors with NaN or infinity; what is "scores" or
// "embeddings".
func NonFinite(model, what string) *Error {
	return newError(InferenceError, "Model '"+model+"' produced non-finite "+what)
}

// NonFiniteItem returns the 500 for an item for which the model gave NaN or infinity. place is the
// item's name in the request.
func NonFiniteItem(model, place string) *Error {
	e := newError(InferenceError,
		"Model '"+model+"' produced non-finite values (NaN or infinity) for '"+place+"'")
	e.Param = place
	return e
}

// Internal returns the 500 for a defect of the server.
func Internal(cause error) *Error {
	e := newError(InternalError, "internal server error")
	e.Cause = cause
	return e
}

// OutOfScope returns the 501 for an endpoint of the reference that this server leaves out.
func OutOfScope(endpoint string) *Error {
	return newError(NotImplemented,
		endpoint+" is not implemented by this server; it serves encode, score and extract")
}

// NoRoute returns the 404 for an unknown path.
func NoRoute() *Error { return newError(NotFound, "Not Found") }

// WrongMethod returns the 405 for a known path with another method.
func WrongMethod() *Error { return newError(MethodNotAllowed, "Method Not Allowed") }

// setText writes names the way the reference's messages show a set or a list: {'a', 'b'}.
func setText(names []string, open, end byte) string {
	b := []byte{open}
	for i, n := range names {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendQuoted(b, n)
	}
	return string(append(b, end))
}

// Quote returns s in single quotes with control characters escaped, for use in messages.
func Quote(s string) string { return string(appendQuoted(nil, s)) }

func appendQuoted(b []byte, s string) []byte {
	q := strconv.Quote(s)
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		return append(b, q...)
	}
	b = append(b, '\'')
	b = append(b, strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)...)
	return append(b, '\'')
}

// NotStarted returns the retryable 503 for a request that no worker began within its time. why is a
// sentence that says what it waited for.
func NotStarted(why string, retryAfter time.Duration) *Error {
	e := newError(QueueFull, why+", please retry")
	e.RetryAfter = max(retryAfter, time.Second)
	return e
}

// Unanswered returns the 504 for a request that a worker took and did not answer within limit.
func Unanswered(worker string, limit time.Duration) *Error {
	return newError(DeadlineExceeded, "Worker '"+worker+"' took the request and did not answer within "+
		limit.String()+", please retry")
}

// DeadLetter returns the 500 for a request whose inputs ended every server that ran them. id names
// what was kept of it for the operator.
func DeadLetter(id string, servers int) *Error {
	return newError(InferenceError, fmt.Sprintf("The request ended the server that ran it %d times, "+
		"also with nothing else in it, and is not tried again; it is kept as dead letter '%s'", servers, id))
}

// ServersEnded returns the retryable 503 for a request whose servers ended so often that it gets no
// more of them, though nothing says that it was the request which ended them.
func ServersEnded(servers int) *Error {
	return NotStarted(fmt.Sprintf("%d servers ended while they ran the request beside others", servers),
		5*time.Second)
}

// NoPayloadStore returns the 413 for items that are larger than a message of the broker where there
// is no other way to send them.
func NoPayloadStore(param string, bytes, limit int) *Error {
	e := newError(InputTooLong, fmt.Sprintf("An item of '%s' takes %d bytes in a message and %d are the limit; "+
		"send smaller items, or have the operator set a payload store", param, bytes, limit))
	e.Param, e.Status = param, 413
	return e
}

// WorkTooLarge returns the 413 for an item that takes more bytes, with what its request asks for,
// than a worker of a cluster takes.
func WorkTooLarge(param string, bytes, limit int) *Error {
	e := newError(InputTooLong, fmt.Sprintf("An item of '%s' with the request's options takes %d bytes and %d "+
		"are the most that a worker of a cluster takes; send a smaller one", param, bytes, limit))
	e.Param, e.Status = param, 413
	return e
}

// NoSuch returns the 404 for a thing other than a model. text is a sentence that names it.
func NoSuch(text string) *Error { return newError(NotFound, text) }
