package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// State is what a ledger holds. It never changes: With and its like return another.
type State struct {
	// Epoch counts the changes of the configuration.
	Epoch uint64
	// Models holds what was added, by model id.
	Models map[string]Entry
	// Answers holds the answers of idempotent requests, oldest first.
	Answers []Answer

	writer Writer // of this state
	commit string // differs in each commit
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
func (s *State) Set(id string, e Entry) *State {
	out := s.next()
	out.Models[id] = e
	return out
}

// Remove returns the state of the next epoch without an id.
func (s *State) Remove(id string) *State {
	out := s.next()
	delete(out.Models, id)
	return out
}

func (s *State) next() *State {
	out := *s
	out.Epoch++
	out.Models = maps.Clone(s.Models)
	if out.Models == nil {
		out.Models = map[string]Entry{}
	}
	return &out
}

// Answered returns the state with one more answer.
func (s *State) Answered(a Answer) *State {
	out := *s
	old := s.Answers
	if n := len(old) - MaxAnswers + 1; n > 0 {
		old = old[n:]
	}
	out.Answers = append(slices.Clone(old), a)
	return &out
}

// format is the number of the form in which states are written.
const format = 1

// maxState bounds a written state, in bytes.
const maxState = 64 << 20

// ErrFull is the error of a Commit of more than a ledger holds, for errors.Is.
var ErrFull = fmt.Errorf("the added models take more than %d bytes", maxState)

// written is the form in which a state is stored.
type written struct {
	Format  int              `json:"format"`
	Epoch   uint64           `json:"epoch"`
	Writer  Writer           `json:"writer"`
	Commit  string           `json:"commit"`
	Models  map[string]Entry `json:"models"`
	Answers []Answer         `json:"answers"`
}

func (s *State) encode() ([]byte, error) {
	data, err := json.Marshal(written{format, s.Epoch, s.writer, s.commit, s.Models, s.Answers})
	if err == nil && len(data) > maxState {
		err = ErrFull
	}
	return data, err
}

// decode reads a stored state. One that cannot be read is an error and never an empty state: its
// epoch would go back.
func decode(data []byte) (*State, error) {
	var w written
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(&w)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is no configuration of sie-config: %w", err)
	case w.Format != format:
		return nil, fmt.Errorf("its format is %d; this sie-config reads %d", w.Format, format)
	case w.Commit == "":
		return nil, errors.New("it names no commit")
	}
	return &State{Epoch: w.Epoch, Models: w.Models, Answers: w.Answers, writer: w.Writer,
		commit: w.Commit}, nil
}
