package configpoll

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
)

// Export is what sie-config exports beside the models. The keys from Cursor on are of this
// project's sie-config alone.
type Export struct {
	Version  int                 `json:"snapshot_version"`
	Epoch    uint64              `json:"epoch"`
	Hashes   map[string]string   `json:"bundle_config_hashes"`
	Adapters map[string][]string `json:"bundle_adapters"`

	Cursor string `json:"cursor"` // for asking what has changed since
	// Digest is the SHA-256, in hex, of the SHA-256 of all models, in the order of their ids.
	Digest  string   `json:"digest"`
	Since   *string  `json:"since"`   // the cursor since which models are listed; nil: all are
	Removed []string `json:"removed"` // ids that are gone since
}

// Mirror keeps the models that sie-config exports, and reads those that have changed. T is what its
// owner keeps of a model. A Mirror belongs to one goroutine.
type Mirror[T any] struct {
	client *Client
	read   func(model json.RawMessage) T
	cursor string // "": all models are asked for
	items  []item[T]
}

type item[T any] struct {
	id    string
	sum   [sha256.Size]byte // of its JSON
	value T
}

// NewMirror returns an empty Mirror. read says what is kept of a model.
func NewMirror[T any](c *Client, read func(model json.RawMessage) T) *Mirror[T] {
	return &Mirror[T]{client: c, read: read}
}

// Read asks sie-config what it has, and returns it with all models, in the order in which they were
// exported first; changes are in the order of the ids. Changes that do not lead to what sie-config
// has are not believed: all models are read then. After an error the Mirror is as before.
func (m *Mirror[T]) Read(ctx context.Context) (*Export, []T, error) {
	e, models, err := m.ask(ctx, m.cursor)
	if err != nil {
		return nil, nil, err
	}
	if e.Since != nil {
		items := m.merged(e, models)
		if *e.Since == m.cursor && m.cursor != "" && digest(items) == e.Digest {
			m.items, m.cursor = items, e.Cursor
			return e, m.values(), nil
		}
		if e, models, err = m.ask(ctx, ""); err != nil {
			return nil, nil, err
		}
		if e.Since != nil {
			return nil, nil, errors.New("sie-config was asked for all models and answers with changes")
		}
	}
	m.items, m.cursor = models, ""
	if e.Cursor != "" && digest(models) == e.Digest {
		m.cursor = e.Cursor
	}
	return e, m.values(), nil
}

// ask asks for what has changed since a cursor, "" for all.
func (m *Mirror[T]) ask(ctx context.Context, cursor string) (*Export, []item[T], error) {
	var answer struct {
		Export
		Models []json.RawMessage `json:"models"`
	}
	path := "/v1/configs/export?since=" + url.QueryEscape(cursor)
	if err := m.client.GetJSON(ctx, path, MaxExport, &answer); err != nil {
		return nil, nil, err
	}
	if answer.Version != 1 {
		return nil, nil, fmt.Errorf("sie-config exports snapshot_version %d; this program reads 1", answer.Version)
	}
	items := make([]item[T], len(answer.Models))
	for i, text := range answer.Models {
		var of struct {
			ID string `json:"model_id"`
		}
		if err := json.Unmarshal(text, &of); err != nil {
			return nil, nil, fmt.Errorf("sie-config exports something else than a model: %w", err)
		}
		items[i] = item[T]{of.ID, sha256.Sum256(text), m.read(text)}
	}
	return &answer.Export, items, nil
}

// merged returns what there is with changes, by id.
func (m *Mirror[T]) merged(e *Export, changed []item[T]) []item[T] {
	gone := make(map[string]bool, len(changed)+len(e.Removed))
	for _, id := range e.Removed {
		gone[id] = true
	}
	for _, x := range changed {
		gone[x.id] = true
	}
	out := make([]item[T], 0, len(m.items)+len(changed))
	for _, x := range m.items {
		if !gone[x.id] {
			out = append(out, x)
		}
	}
	out = append(out, changed...)
	slices.SortFunc(out, func(a, b item[T]) int { return cmp.Compare(a.id, b.id) })
	return out
}

func digest[T any](items []item[T]) string {
	h := sha256.New()
	for i := range items {
		_, _ = h.Write(items[i].sum[:]) // a hash refuses nothing
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (m *Mirror[T]) values() []T {
	out := make([]T, len(m.items))
	for i := range m.items {
		out[i] = m.items[i].value
	}
	return out
}
