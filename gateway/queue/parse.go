package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/tinylib/msgp/msgp"

	"github.com/sie-engine/sie/internal/work"
)

// parseResult reads a result. Results, which hold almost all of its bytes, alias b.
func parseResult(b []byte) (*work.Result, error) {
	n, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	var list []msgp.Raw
	var others []byte
	kept := uint32(0)
	for range n {
		from := rest
		var key []byte
		if key, rest, err = msgp.ReadMapKeyZC(rest); err != nil {
			return nil, err
		}
		value := rest
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
		if string(key) != "results" {
			others = append(others, from[:len(from)-len(rest)]...)
			kept++
			continue
		}
		if list, err = elements(value[:len(value)-len(rest)]); err != nil {
			return nil, err
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after a result", len(rest))
	}
	res := &work.Result{}
	if _, err := res.UnmarshalMsg(append(msgp.AppendMapHeader(nil, kept), others...)); err != nil {
		return nil, err
	}
	res.Results = list
	return res, nil
}

// elements splits an array into its values, which alias b.
func elements(b []byte) ([]msgp.Raw, error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, err
	}
	if int64(n) > int64(len(rest)) { // each takes a byte
		return nil, errors.New("an array is longer than its bytes")
	}
	list := make([]msgp.Raw, n)
	for i := range list {
		from := rest
		if rest, err = msgp.Skip(rest); err != nil {
			return nil, err
		}
		list[i] = msgp.Raw(from[: len(from)-len(rest) : len(from)-len(rest)])
	}
	return list, nil
}

// kindOf returns the kind of an inbox's message, "" for a result.
func kindOf(b []byte) string {
	raw := msgp.Locate("kind", b)
	if raw == nil {
		return ""
	}
	s, _, err := msgp.ReadStringZC(raw)
	if err != nil {
		return ""
	}
	return string(s)
}

// ack is the broker's answer to a publish.
type ack struct {
	noStream bool // nobody answers for the subject
	code     int  // of an error; 0: stored
	text     string
	seq      uint64
}

// parseAck reads an answer to a publish.
func parseAck(m *nats.Msg) (ack, error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return ack{noStream: true}, nil
	}
	if seq, ok := usualAck(m.Data); ok {
		return ack{seq: seq}, nil
	}
	var a struct {
		Stream string `json:"stream"`
		Seq    uint64 `json:"seq"`
		Error  *struct {
			Code int    `json:"err_code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return ack{}, fmt.Errorf("an answer to a publish: %w", err)
	}
	switch {
	case a.Error != nil:
		return ack{code: max(a.Error.Code, 1), text: a.Error.Text}, nil
	case a.Stream == "" || a.Seq == 0:
		return ack{}, errors.New("an answer to a publish names no stream")
	}
	return ack{seq: a.Seq}, nil
}

// usualAck reads the sequence of an answer in the form in which the broker writes it,
// {"stream":"S","seq":7}. It reports false for any other form, which a JSON parser may read.
func usualAck(b []byte) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"stream":"`))
	n := 0
	for n < len(rest) && rest[n] >= ' ' && rest[n] != '"' && rest[n] != '\\' {
		n++
	}
	rest, named := bytes.CutPrefix(rest[n:], []byte(`","seq":`))
	if !ok || !named || n == 0 {
		return 0, false
	}
	for n = 0; n < len(rest) && n < 19 && rest[n] >= '0' && rest[n] <= '9'; n++ { // so many fit
		seq = seq*10 + uint64(rest[n]-'0')
	}
	return seq, string(rest[n:]) == "}" && n > 0 && rest[0] != '0'
}

// fullCodes are the errors of a stream that takes no more messages now.
var fullCodes = map[int]bool{
	10023: true, // resource limits of the server or the account
	10028: true, // memory
	10047: true, // storage
	10077: true, // the bound on messages of the subject, or on bytes
	10167: true, // too many publishes at once
}

// ackSubject returns where the broker's answer to a publish goes: the inbox with the slice and the
// attempt.
func ackSubject(inbox string, slice int, attempt uint32) string {
	b := make([]byte, 0, len(inbox)+24)
	b = append(b, inbox...)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(slice), 10)
	b = append(b, '.')
	return string(strconv.AppendUint(b, uint64(attempt), 10))
}

// splitInbox splits what follows the router in a subject of the inbox. A publish's answer has a
// slice and an attempt, everything else has slice -1.
func splitInbox(rest string) (request string, slice int, attempt uint32, ok bool) {
	request, more, isAck := strings.Cut(rest, ".")
	if !isAck {
		return request, -1, 0, request != ""
	}
	a, b, _ := strings.Cut(more, ".")
	i, err := strconv.ParseUint(a, 10, 31)
	n, err2 := strconv.ParseUint(b, 10, 32)
	return request, int(i), uint32(n), err == nil && err2 == nil
}

// indexOf returns the slice that a work item's id names.
func (r *request) indexOf(id string, index uint32) (int, error) {
	rest, ok := strings.CutPrefix(id, r.id)
	if !ok || rest != "."+strconv.FormatUint(uint64(index), 10) || int64(index) >= int64(len(r.slices)) {
		return 0, fmt.Errorf("%q is no slice of request %s", clip(id), r.id)
	}
	return int(index), nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// receipts holds the receipts without missing chunks, ready to be sent.
var receipts = map[string][]byte{
	work.Stored: receipt(work.Stored, nil), work.Duplicate: receipt(work.Duplicate, nil),
	work.Unknown: receipt(work.Unknown, nil),
}

// final reports whether a receipt is one of receipts: the worker has nothing more to send.
func final(data []byte) bool {
	for _, r := range receipts {
		if string(r) == string(data) {
			return true
		}
	}
	return false
}

func receipt(state string, missing []uint32) []byte {
	b, err := (&work.Receipt{State: state, Missing: missing}).MarshalMsg(nil)
	if err != nil {
		panic("queue: internal error: " + err.Error()) // strings and numbers always have a form
	}
	return slices.Clip(b)
}

// indexIn returns the number after the last dot of a work item's id, or the largest number.
func indexIn(id string) uint32 {
	n, err := strconv.ParseUint(id[strings.LastIndexByte(id, '.')+1:], 10, 32)
	if err != nil {
		return math.MaxUint32
	}
	return uint32(n)
}

// overlaps reports whether a consumer with these filters gets messages of a subject.
func overlaps(filter string, filters []string, subject string) bool {
	if filter == "" && len(filters) == 0 {
		return true
	}
	return subjectMatches(filter, subject) ||
		slices.ContainsFunc(filters, func(f string) bool { return subjectMatches(f, subject) })
}

// subjectMatches reports whether a subject without wildcards matches a filter.
func subjectMatches(filter, subject string) bool {
	f, s := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return i < len(s)
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(f) == len(s)
}
