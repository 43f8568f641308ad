package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// format is the number of the form in which a ledger is written. Form 1 was one object, headKey,
// which held the state as a whole.
const format = 2

// The names of the objects. Numbers have a fixed width.
const (
	headKey     = "config.json"
	recordStart = "log-"
	stateStart  = "state-"
	keyEnd      = ".json"
)

// maxRecord bounds a record, in bytes. It holds one model, whose document is longer in JSON.
const maxRecord = 16 << 20

func recordKey(seq uint64) string { return fmt.Sprintf("%s%016d%s", recordStart, seq, keyEnd) }
func stateKey(seq uint64) string  { return fmt.Sprintf("%s%016d%s", stateStart, seq, keyEnd) }

// keySeq returns the number in an object's name.
func keySeq(key, start string) (uint64, bool) {
	digits, ok := strings.CutPrefix(key, start)
	digits, end := strings.CutSuffix(digits, keyEnd)
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, ok && end && err == nil
}

// head says where a ledger begins: with a checkpoint, after which the records with the next numbers
// are read.
type head struct {
	Format int    `json:"format"`
	Seq    uint64 `json:"seq"`             // of the checkpoint's last record
	State  string `json:"state,omitempty"` // the checkpoint's name, "" for the empty state
	Writer Writer `json:"writer"`
	Commit string `json:"commit"` // differs in each head
}

// record is one commit. That an object of its number appears is the commit: there is one of each
// number at most.
type record struct {
	Format int    `json:"format"`
	Seq    uint64 `json:"seq"`
	Epoch  uint64 `json:"epoch"` // after it
	Writer Writer `json:"writer"`
	Commit string `json:"commit"` // differs in each record
	changes
}

// after returns the state that a record leads to.
func (s *State) after(r *record) *State {
	out := *s
	out.Epoch, out.seq, out.from, out.made = r.Epoch, r.Seq, nil, changes{}
	out.Models, out.Answers = maps.Clone(s.Models), slices.Clone(s.Answers)
	for id, e := range r.Models {
		out.put(id, e)
	}
	for _, a := range r.Answers {
		out.answer(a)
	}
	return &out
}

// checkpoint is a whole state as it is stored: in form 1 with the writer and the commit, which are
// the head's since.
type checkpoint struct {
	Format  int              `json:"format"`
	Seq     uint64           `json:"seq,omitempty"`
	Epoch   uint64           `json:"epoch"`
	Writer  *Writer          `json:"writer,omitempty"`
	Commit  string           `json:"commit,omitempty"`
	Models  map[string]Entry `json:"models"`
	Answers []Answer         `json:"answers"`
}

// encode returns the checkpoint of a state. It is the same for the same records.
func (s *State) encode() ([]byte, error) {
	return json.Marshal(checkpoint{Format: format, Seq: s.seq, Epoch: s.Epoch, Models: s.Models,
		Answers: s.Answers})
}

// decodeHead reads the object headKey. Of form 1 it is the state, too. What cannot be read is an
// error and never an empty state: its epoch would go back.
func decodeHead(data []byte) (h head, old *State, err error) {
	var form struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &form); err != nil {
		return h, nil, notOurs(err)
	}
	switch form.Format {
	case 1:
		var c checkpoint
		if err := strict(data, &c); err != nil {
			return h, nil, err
		}
		if c.Commit == "" || c.Writer == nil {
			return h, nil, errors.New("it names no commit")
		}
		return head{Format: 1, Writer: *c.Writer, Commit: c.Commit}, c.state(len(data)), nil
	case format:
		if err := strict(data, &h); err != nil {
			return h, nil, err
		}
		if h.Commit == "" || h.State == "" && h.Seq > 0 {
			return h, nil, errors.New("it names no commit, or no checkpoint")
		}
		return h, nil, nil
	}
	return h, nil, fmt.Errorf("its format is %d; this sie-config reads 1 and %d", form.Format, format)
}

// decodeState reads the checkpoint of a number.
func decodeState(data []byte, seq uint64) (*State, error) {
	var c checkpoint
	if err := strict(data, &c); err != nil {
		return nil, err
	}
	if c.Format != format || c.Seq != seq {
		return nil, fmt.Errorf("it is checkpoint %d of format %d, not %d of %d", c.Seq, c.Format, seq, format)
	}
	return c.state(len(data)), nil
}

func (c *checkpoint) state(size int) *State {
	return &State{Epoch: c.Epoch, Models: c.Models, Answers: c.Answers, seq: c.Seq, size: size}
}

// decodeRecord reads the record of a number.
func decodeRecord(data []byte, seq uint64) (*record, error) {
	var r record
	if err := strict(data, &r); err != nil {
		return nil, err
	}
	if r.Format != format || r.Seq != seq || r.Commit == "" {
		return nil, fmt.Errorf("it is record %d of format %d, not %d of %d", r.Seq, r.Format, seq, format)
	}
	return &r, nil
}

// strict reads JSON that has no other keys.
func strict(data []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return notOurs(err)
	}
	return nil
}

func notOurs(err error) error { return fmt.Errorf("it is no configuration of sie-config: %w", err) }
