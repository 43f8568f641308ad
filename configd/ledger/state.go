package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// State is what a ledger holds. It never changes: Set and its like return another.
type State struct {
	// Epoch counts the changes of the configuration.
	Epoch uint64
	// Models holds what was added, by model id.
	Models map[string]Entry
	// Answers holds the answers of idempotent requests, oldest first.
	Answers []Answer

	seq  uint64 // of the record that led to it
	size int    // of its checkpoint in bytes, about

	from *State // the stored state that this one is made of, nil for a stored one
	made changes
}

// changes are what leads from one state to another.
type changes struct {
	Models  map[string]*Entry `json:"models,omitempty"` // nil: removed
	Answers []Answer          `json:"answers,omitempty"`
}

// Entry is what was added under a model's id.
type Entry struct {
	// Document is a model file, or a part of one.
	Document string `json:"document"`
	// Whole says that the document stands in place of a built-in model of the same id; otherwise it
	// is added to that.
	Whole bool `json:"whole,omitempty"`
}

// Answer is the answer of a request with an Idempotency-Key.
type Answer struct {
	Key     string          `json:"key"`     // its Digest
	Request string          `json:"request"` // Digest of method, path and body
	Status  int             `json:"status"`
	Body    json.RawMessage `json:"body"`
}

// MaxAnswers bounds the answers that are kept; the oldest go first.
const MaxAnswers = 1000

// Digest returns a name of fixed length for texts of any length.
func Digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Find returns the answer of a key, nil if there is none.
func (s *State) Find(key string) *Answer {
	for i := range s.Answers {
		if s.Answers[i].Key == key {
			return &s.Answers[i]
		}
	}
	return nil
}

// Set returns the state of the next epoch with an entry in place of what the id had.
func (s *State) Set(id string, e Entry) *State { return s.next(id, &e) }

// Remove returns the state of the next epoch without an id.
func (s *State) Remove(id string) *State { return s.next(id, nil) }

// next returns the state of the next epoch with an entry, or without one.
func (s *State) next(id string, e *Entry) *State {
	out := s.derived()
	out.Epoch++
	out.Models = maps.Clone(s.Models)
	out.made.Models = maps.Clone(s.made.Models)
	if out.made.Models == nil {
		out.made.Models = map[string]*Entry{}
	}
	out.made.Models[id] = e
	out.put(id, e)
	return out
}

// Answered returns the state with one more answer.
func (s *State) Answered(a Answer) *State {
	out := s.derived()
	out.made.Answers = append(slices.Clone(s.made.Answers), a)
	out.Answers = slices.Clone(s.Answers)
	out.answer(a)
	return out
}

// derived returns a copy that knows what it is made of.
func (s *State) derived() *State {
	out := *s
	if out.from == nil {
		out.from = s
	}
	return &out
}

// put changes an entry of a state that nobody else has yet; nil removes it.
func (s *State) put(id string, e *Entry) {
	if old, ok := s.Models[id]; ok {
		s.size -= entrySize(id, old)
	}
	if e == nil {
		delete(s.Models, id)
		return
	}
	if s.Models == nil {
		s.Models = map[string]Entry{}
	}
	s.Models[id] = *e
	s.size += entrySize(id, *e)
}

// answer adds an answer to a state that nobody else has yet.
func (s *State) answer(a Answer) {
	if n := len(s.Answers) - MaxAnswers + 1; n > 0 {
		for _, old := range s.Answers[:n] {
			s.size -= jsonSize(old)
		}
		s.Answers = slices.Delete(s.Answers, 0, n)
	}
	s.Answers = append(s.Answers, a)
	s.size += jsonSize(a)
}

func entrySize(id string, e Entry) int { return jsonSize(id) + jsonSize(e) }

// jsonSize returns the bytes that a value and what is beside it take in JSON.
func jsonSize(v any) int {
	text, err := json.Marshal(v)
	if err != nil {
		return maxState // which no state may take
	}
	return len(text) + 1
}

// maxState bounds a state as a checkpoint holds it, in bytes.
const maxState = 64 << 20

// ErrFull is the error of a Commit of more than a ledger holds, for errors.Is.
var ErrFull = fmt.Errorf("the added models take more than %d bytes", maxState)
