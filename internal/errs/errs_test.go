package errs

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	seen := map[Code]bool{}
	for _, in := range Codes() {
		if seen[in.Code] {
			t.Errorf("%s is listed twice", in.Code)
		}
		seen[in.Code] = true
		if in.Status < 400 || in.Status > 599 || in.Meaning == "" || in.OpenAICode == "" ||
			in.OpenAIType == "" {
			t.Errorf("%s is incomplete: %+v", in.Code, in)
		}
		if in.Transient != (in.RetryAfter >= time.Second) {
			t.Errorf("%s: transient %v with Retry-After %v", in.Code, in.Transient, in.RetryAfter)
		}
		if in.Transient && in.Status != 429 && in.Status != 503 && in.Status != 504 {
			t.Errorf("%s: clients retry only 429, 503 and 504, not %d", in.Code, in.Status)
		}
		if !in.Transient && in.Status == 503 {
			t.Errorf("%s: a permanent 503 stalls clients for minutes", in.Code)
		}
		if got := Lookup(in.Code); got != in {
			t.Errorf("Lookup(%s) = %+v", in.Code, got)
		}
	}
	if Lookup("NO_SUCH_CODE").Code != InternalError {
		t.Error("an unknown code must read as INTERNAL_ERROR")
	}
}

func TestConstructors(t *testing.T) {
	l4 := "l4"
	for _, c := range []struct {
		err    *Error
		code   Code
		status int
		retry  time.Duration
		text   string
	}{
		{Invalidf("items", "n=%d", 3), "INVALID_INPUT", 400, 0, "n=3"},
		{BodyTooLarge(34 << 20), "INPUT_TOO_LONG", 413, 0,
			"request body exceeds the limit of 35651584 bytes"},
		{NotStarted("The request waits in the queue", 0), "QUEUE_FULL", 503, time.Second,
			"The request waits in the queue, please retry"},
		{Unanswered("w-1", 27*time.Second), "DEADLINE_EXCEEDED", 504, 5 * time.Second,
			"Worker 'w-1' took the request and did not answer within 27s, please retry"},
		{DeadLetter("0190.3", 3), "INFERENCE_ERROR", 500, 0,
			"The request ended the server that ran it 3 times, also with nothing else in it, and is not tried again; it is kept as dead letter '0190.3'"},
		{ServersEnded(3), "QUEUE_FULL", 503, 5 * time.Second,
			"3 servers ended while they ran the request beside others, please retry"},
		{NoPayloadStore("items", 2<<20, 1<<20), "INPUT_TOO_LONG", 413, 0,
			"An item of 'items' takes 2097152 bytes in a message and 1048576 are the limit; send smaller items, or have the operator set a payload store"},
		{Empty("inputs", "x"), "INVALID_INPUT", 400, 0, "x"},
		{NoKey(), "UNAUTHORIZED", 401, 0,
			"This server needs an API key: send it as 'Authorization: Bearer <key>' or 'X-API-Key: <key>'"},
		{WrongKey(), "UNAUTHORIZED", 401, 0, "The API key is not one that this server accepts"},
		{NotAllowed("search", "use model 'org/a'"), "FORBIDDEN", 403, 0,
			"The token 'search' may not use model 'org/a'"},
		{OverRate("search", 2.5, 1100*time.Millisecond), "RATE_LIMITED", 429, 2 * time.Second,
			"The token 'search' has used up its 2.5 items per second"},
		{OverInFlight("search", 9, 2, 10), "RATE_LIMITED", 429, time.Second,
			"The token 'search' has 9 items in flight and cannot add 2 more (limit: 10)"},
		{MoreThanInFlight("search", 11, 10), "INVALID_INPUT", 400, 0,
			"The request has 11 items, and the token 'search' may have 10 in flight; send at most 10 in a request"},
		{TooLong("items", "x"), "INPUT_TOO_LONG", 400, 0, "x"},
		{MachineProfile("H100", &l4), "INVALID_INPUT", 400, 0,
			"Request targets machine profile 'H100' but this worker is 'l4'. This may indicate a routing error. Check your gateway configuration."},
		{MachineProfile("h100", nil), "INVALID_INPUT", 400, 0,
			"Request targets machine profile 'h100' but this worker has no GPU and SIE_MACHINE_PROFILE is not set. Route requests to a GPU worker or remove the X-SIE-MACHINE-PROFILE header."},
		{UnknownModel("Model 'zzz' not found"), "MODEL_NOT_FOUND", 404, 0, "Model 'zzz' not found"},
		{NoScoring("m"), "INVALID_INPUT", 400, 0,
			"Model 'm' does not support scoring. Use an encoder model with /v1/encode instead, or use a reranker model."},
		{NoExtraction("m"), "INVALID_INPUT", 400, 0,
			"Model 'm' does not support extraction. Use an extraction model like GLiNER, GLiClass, or Florence-2."},
		{UnsupportedOutputs("m", []string{"sparse"}, []string{"dense", "multivector"}), "INVALID_INPUT", 400,
			0, "Model 'm' does not support output types: {'sparse'}. Supported: {'dense', 'multivector'}"},
		{UnknownOutputDType("bfloat16"), "INVALID_INPUT", 400, 0,
			"Unsupported output_dtype: bfloat16. Use one of float32, float16, int8, uint8, binary, ubinary"},
		{RequiresText("bert", 2), "INVALID_INPUT", 400, 0,
			"bert requires text input: Field 'items[2]' has no text"},
		{UnsupportedField("dimensions", "no"), "INVALID_INPUT", 400, 0, "no"},
		{Unloading("m"), "MODEL_NOT_LOADED", 503, 5 * time.Second, "Model 'm' is unloading"},
		{Loading("m"), "MODEL_LOADING", 503, 5 * time.Second, "Model 'm' is loading, please retry"},
		{Evicted("m"), "MODEL_LOADING", 503, 5 * time.Second,
			"Model 'm' was evicted before this request ran, please retry"},
		{LoadFailed("m", LoadFailure{Class: "GATED", Attempts: 2, Permanent: true}, "set HF_TOKEN", io.EOF),
			"MODEL_LOAD_FAILED", 502, 0, "Model 'm' failed to load (GATED, attempts=2): set HF_TOKEN"},
		{LoadFailed("m", LoadFailure{}, "d", nil), "MODEL_LOAD_FAILED", 502, 0,
			"Model 'm' failed to load (UNKNOWN, attempts=1): d"},
		{LoadingLoRA("l", "m"), "LORA_LOADING", 503, time.Second,
			"LoRA 'l' is loading for model 'm', please retry"},
		{LoRAFailed("l", "m", io.EOF), "INFERENCE_ERROR", 500, 0, "Failed to load LoRA 'l' for model 'm'"},
		{FullQueue(500, 20, 512), "QUEUE_FULL", 503, time.Second,
			"Queue full: 500 items pending, cannot add 20 more (limit: 512)"},
		{SlowQueue(5*time.Second, 2100*time.Millisecond), "QUEUE_FULL", 503, 3 * time.Second,
			"Queue full: what is pending takes longer than 5s to run, please retry in 3s"},
		{SlowQueue(5*time.Second, 0), "QUEUE_FULL", 503, time.Second,
			"Queue full: what is pending takes longer than 5s to run, please retry in 1s"},
		{FullQueueBytes(5, 2, 6), "QUEUE_FULL", 503, time.Second,
			"Queue full: 5 bytes pending, cannot add 2 more (limit: 6)"},
		{OutOfMemory("Encoding", io.EOF), "RESOURCE_EXHAUSTED", 503, 5 * time.Second,
			"Encoding temporarily unavailable due to resource pressure: out of memory"},
		{Capacity("l4", 0), "PROVISIONING", 503, time.Second,
			"No capacity for machine profile 'l4' yet; it is being provisioned, please retry"},
		{ShuttingDown(), "DRAINING", 503, 5 * time.Second,
			"Server is draining requests before shutdown. Retry on another instance."},
		{DeviceLost(io.EOF), "DRAINING", 503, 5 * time.Second,
			"The accelerator of this server failed and the server is restarting. Retry on another instance."},
		{Late(2 * time.Second), "DEADLINE_EXCEEDED", 504, 5 * time.Second,
			"The request was not finished within 2s, please retry"},
		{Inference("encoding", errors.New("secret /path")), "INFERENCE_ERROR", 500, 0,
			"internal error during encoding"},
		{NonFinite("m", "scores"), "INFERENCE_ERROR", 500, 0, "Model 'm' produced non-finite scores"},
		{Internal(io.EOF), "INTERNAL_ERROR", 500, 0, "internal server error"},
		{OutOfScope("/v1/generate"), "not_implemented", 501, 0,
			"/v1/generate is not implemented by this server; it serves encode, score and extract"},
		{NoRoute(), "NOT_FOUND", 404, 0, "Not Found"},
		{WrongMethod(), "METHOD_NOT_ALLOWED", 405, 0, "Method Not Allowed"},
	} {
		e := c.err
		if e.Code != c.code || e.Status != c.status || e.RetryAfter != c.retry || e.Message != c.text {
			t.Errorf("%s:\n got %d %v %q\nwant %d %v %q",
				c.code, e.Status, e.RetryAfter, e.Message, c.status, c.retry, c.text)
		}
		if e.RetryAfter > 0 != e.Transient() {
			t.Errorf("%s: Retry-After %v, transient %v", e.Code, e.RetryAfter, e.Transient())
		}
	}
	if e := MachineProfile("h", &l4); e.Profile.Requested != "h" || *e.Profile.Worker != "l4" {
		t.Errorf("profile fields: %+v", e.Profile)
	}
}

func TestErrorChain(t *testing.T) {
	e := Inference("encoding", io.ErrUnexpectedEOF)
	if !errors.Is(e, io.ErrUnexpectedEOF) || !errors.Is(e, &Error{Code: InferenceError}) {
		t.Error("errors.Is does not see the cause or the code")
	}
	if errors.Is(e, &Error{Code: QueueFull}) {
		t.Error("errors.Is matches another code")
	}
	if strings.Contains(e.Message, "EOF") || !strings.Contains(e.Error(), "EOF") {
		t.Errorf("the cause belongs into the log text only: %q / %q", e.Message, e.Error())
	}
	if As(nil) != nil || As(e) != e {
		t.Error("As must pass nil and *Error through")
	}
	if got := As(errors.New("disk /dev/sda")); got.Code != InternalError ||
		strings.Contains(got.Message, "sda") {
		t.Errorf("As leaks a foreign error: %+v", got)
	}
}

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{"a": "'a'", "a'b": `"a'b"`, `a"b`: `'a"b'`, "a\n": `'a\n'`} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
