package errs

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sie-engine/sie/internal/files"
)

//go:generate go tool msgp -file wire.go -o wire_gen.go -tests=false -unexported -io=false

// The bounds of an error on the wire. A longer text is cut when it is sent and refused when it is
// received.
const (
	MaxWireBytes = 64 << 10

	maxMessageBytes = 16 << 10
	maxNameBytes    = 256 // of a code, a field, a class or a profile
	maxRetryAfter   = 365 * 24 * time.Hour
	maxIndex        = 1<<31 - 1
)

// wireError is an [Error] in the form that components send to each other: everything except the
// cause. Receivers ignore unknown keys and read absent keys as zero.
type wireError struct {
	Code       string           `json:"code" msg:"code"`
	Status     int              `json:"status" msg:"status"`
	Message    string           `json:"message" msg:"message"`
	Param      string           `json:"param,omitempty" msg:"param,omitempty"`
	RetryAfter int64            `json:"retry_after_ns,omitempty" msg:"retry_after_ns,omitempty"`
	OpenAICode string           `json:"openai_code,omitempty" msg:"openai_code,omitempty"`
	Item       *int             `json:"item_index,omitempty" msg:"item_index,omitempty"`
	Load       *wireLoadFailure `json:"load,omitempty" msg:"load,omitempty"`
	Profile    *wireMismatch    `json:"profile,omitempty" msg:"profile,omitempty"`
}

type wireLoadFailure struct {
	Class     string `json:"class" msg:"class"`
	Attempts  int    `json:"attempts" msg:"attempts"`
	Permanent bool   `json:"permanent" msg:"permanent"`
}

type wireMismatch struct {
	Requested string  `json:"requested" msg:"requested"`
	Worker    *string `json:"worker" msg:"worker"`
}

// AppendJSON appends the error as a JSON object that [FromJSON] reads, without its cause.
func (e *Error) AppendJSON(dst []byte) []byte {
	data, err := json.Marshal(e.wire())
	if err != nil {
		panic("errs: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return append(dst, data...)
}

// AppendMsgpack appends the error as a msgpack map that [FromMsgpack] reads, without its cause.
func (e *Error) AppendMsgpack(dst []byte) []byte {
	dst, err := e.wire().MarshalMsg(dst)
	if err != nil {
		panic("errs: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return dst
}

// FromJSON reads an error that [Error.AppendJSON] wrote, in this release or another. It keeps a
// code that is not in the table.
func FromJSON(data []byte) (*Error, error) {
	if len(data) > MaxWireBytes {
		return nil, tooManyBytes(len(data))
	}
	var w wireError
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("errs: not an error as JSON: %w", err)
	}
	return w.read()
}

// FromMsgpack reads an error that [Error.AppendMsgpack] wrote, in this release or another. It keeps
// a code that is not in the table.
func FromMsgpack(data []byte) (*Error, error) {
	if len(data) > MaxWireBytes {
		return nil, tooManyBytes(len(data))
	}
	var w wireError
	rest, err := w.UnmarshalMsg(data)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after its end", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("errs: not an error as msgpack: %w", err)
	}
	return w.read()
}

func tooManyBytes(n int) error {
	return fmt.Errorf("errs: an error of %d bytes; at most %d are read", n, MaxWireBytes)
}

// wire returns the error in its wire form, with texts, retry hint and attempts cut to their bounds.
func (e *Error) wire() *wireError {
	w := &wireError{
		Code: text(string(e.Code), maxNameBytes), Status: e.Status, Message: text(e.Message, maxMessageBytes),
		Param: text(e.Param, maxNameBytes), RetryAfter: int64(min(e.RetryAfter, maxRetryAfter)),
		OpenAICode: text(e.OpenAICode, maxNameBytes), Item: e.Item,
	}
	if f := e.Load; f != nil {
		w.Load = &wireLoadFailure{
			Class: text(f.Class, maxNameBytes), Attempts: min(f.Attempts, maxIndex), Permanent: f.Permanent,
		}
	}
	if p := e.Profile; p != nil {
		w.Profile = &wireMismatch{Requested: text(p.Requested, maxNameBytes)}
		if p.Worker != nil {
			worker := text(*p.Worker, maxNameBytes)
			w.Profile.Worker = &worker
		}
	}
	return w
}

// text returns s as valid UTF-8 of at most limit bytes.
func text(s string, limit int) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if len(s) > limit {
		return files.Clip(s, limit-len("…"))
	}
	return s
}

// read checks a received error and returns it.
func (w *wireError) read() (*Error, error) {
	switch {
	case !isCode(w.Code):
		return nil, wrong("code", "%q is not 1 to %d letters, digits, '_', '-' and '.'",
			files.Clip(w.Code, 80), maxNameBytes)
	case w.Status < 400 || w.Status > 599:
		return nil, wrong("status", "%d is not from 400 to 599", w.Status)
	case w.RetryAfter < 0 || w.RetryAfter > int64(maxRetryAfter):
		return nil, wrong("retry_after_ns", "%d is not from 0 to %d", w.RetryAfter, int64(maxRetryAfter))
	case w.Item != nil && (*w.Item < 0 || *w.Item > maxIndex):
		return nil, wrong("item_index", "%d is not from 0 to %d", *w.Item, maxIndex)
	case w.Load != nil && (w.Load.Attempts < 0 || w.Load.Attempts > maxIndex):
		return nil, wrong("load.attempts", "%d is not from 0 to %d", w.Load.Attempts, maxIndex)
	}
	if err := w.checkTexts(); err != nil {
		return nil, err
	}
	e := &Error{Code: Code(w.Code), Status: w.Status, Message: w.Message, Param: w.Param,
		RetryAfter: time.Duration(w.RetryAfter), OpenAICode: w.OpenAICode, Item: w.Item}
	if f := w.Load; f != nil {
		e.Load = &LoadFailure{Class: f.Class, Attempts: f.Attempts, Permanent: f.Permanent}
	}
	if p := w.Profile; p != nil {
		e.Profile = &Mismatch{Requested: p.Requested, Worker: p.Worker}
	}
	return e, nil
}

// checkTexts returns the error of the first text that is too long or not UTF-8.
func (w *wireError) checkTexts() error {
	check := func(err error, field, s string, limit int) error {
		switch {
		case err != nil:
			return err
		case len(s) > limit:
			return wrong(field, "has %d bytes; at most %d are read", len(s), limit)
		case !utf8.ValidString(s):
			return wrong(field, "is not UTF-8")
		}
		return nil
	}
	err := check(nil, "message", w.Message, maxMessageBytes)
	err = check(err, "param", w.Param, maxNameBytes)
	err = check(err, "openai_code", w.OpenAICode, maxNameBytes)
	if f := w.Load; f != nil {
		err = check(err, "load.class", f.Class, maxNameBytes)
	}
	if p := w.Profile; p != nil {
		err = check(err, "profile.requested", p.Requested, maxNameBytes)
		if p.Worker != nil {
			err = check(err, "profile.worker", *p.Worker, maxNameBytes)
		}
	}
	return err
}

// isCode reports whether s may be sent in a header. A receiver may not know a code and still sends
// it on.
func isCode(s string) bool {
	for _, c := range []byte(s) {
		if c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z') {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

func wrong(field, format string, args ...any) error {
	return fmt.Errorf("errs: field '%s' of an error: %s", field, fmt.Sprintf(format, args...))
}
