package catalog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/internal/confighash"
)

// Document is the text of one model file, as an admin API or another component sends it.
type Document struct {
	Name   string // for messages
	Source []byte // YAML, or JSON with line breaks
}

// ConflictError says that a document contradicts what the catalog has of its model.
type ConflictError struct {
	ID       string
	Fields   []string // top-level keys with another value, sorted
	Profiles []string // profiles with another content, sorted
}

func (e *ConflictError) Error() string {
	var what []string
	if len(e.Fields) > 0 {
		what = append(what, "fields "+strings.Join(e.Fields, ", "))
	}
	if len(e.Profiles) > 0 {
		what = append(what, "profiles "+strings.Join(e.Profiles, ", "))
	}
	return fmt.Sprintf("model '%s' is there with other content: %s", clip(e.ID), strings.Join(what, "; "))
}

// Merge returns c with documents added. A document with a new id is a new model. A document with an
// id of the catalog adds its profiles and its top-level keys to that model, whether it is built in
// or was added before; a profile may extend one that the model has. What is there already must be
// equal. The error is a *ConflictError, or a *Problems with what is wrong in a document. Ids
// removed by Select stay out, unless they belong to a document's model.
func Merge(c *Catalog, docs ...Document) (*Catalog, error) {
	for _, d := range docs {
		m, err := c.merged(d)
		if err != nil {
			return nil, err
		}
		if c, err = c.With(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// merged returns the model of a document, joined with what the catalog has of it.
func (c *Catalog) merged(d Document) (*Model, error) {
	added, err := d.Content()
	if err != nil {
		return nil, err
	}
	id, _ := added["sie_id"].(string)
	at := slices.IndexFunc(c.models, func(m *Model) bool { return m.ID == id })
	if at < 0 {
		m, _, err := ParseModel(d.Name, d.Source)
		return m, err
	}
	whole := c.models[at].Document()
	if err := Join(whole, added); err != nil {
		return nil, err
	}
	m, _, err := ParseModel(d.Name, Text(whole))
	return m, err
}

// Content returns what a document says, without checking it as a model: nil, bool, int64, float64,
// string, []any and map[string]any. The error is a *Problems.
func (d Document) Content() (map[string]any, error) {
	l := &problemList{file: d.Name}
	root := parseDocument(d.Source, l)
	if err := l.err(); err != nil {
		return nil, err
	}
	content, ok := root.plain().(map[string]any)
	if !ok {
		return nil, &Problems{List: []Problem{{File: d.Name, Line: 1, Msg: "expected a map"}}}
	}
	return content, nil
}

// Join adds to the content whole what the content added has beyond it: top-level keys and profiles.
// What both have must be equal; the error is a *ConflictError, and whole is then as before.
func Join(whole, added map[string]any) error {
	conflict := conflicts(whole, added)
	if len(conflict.Fields)+len(conflict.Profiles) > 0 {
		return conflict
	}
	Overlay(whole, added)
	return nil
}

// Overlay puts the top-level keys and the profiles of added into whole, in place of those that
// whole has.
func Overlay(whole, added map[string]any) {
	for key, v := range added {
		have, ok := whole[key].(map[string]any)
		if key != "profiles" || !ok {
			whole[key] = v
			continue
		}
		more, _ := v.(map[string]any) // nil adds none
		maps.Copy(have, more)
	}
}

// conflicts says where two contents contradict each other.
func conflicts(whole, added map[string]any) *ConflictError {
	conflict := &ConflictError{ID: fmt.Sprint(whole["sie_id"])}
	have, _ := whole["profiles"].(map[string]any)
	more, ok := added["profiles"].(map[string]any)
	if added["profiles"] != nil && !ok {
		conflict.Fields = append(conflict.Fields, "profiles")
	}
	for name, p := range more {
		if old, known := have[name]; known && !Equal(old, p) {
			conflict.Profiles = append(conflict.Profiles, name)
		}
	}
	for key, v := range added {
		if old, known := whole[key]; key != "profiles" && known && !Equal(old, v) {
			conflict.Fields = append(conflict.Fields, key)
		}
	}
	slices.Sort(conflict.Fields)
	slices.Sort(conflict.Profiles)
	return conflict
}

// Equal reports whether two contents say the same.
func Equal(a, b any) bool {
	return bytes.Equal(confighash.Canonical(a, confighash.UTF8), confighash.Canonical(b, confighash.UTF8))
}

// Source returns the model's file as it was read, or a document that says the same for a model that
// has none. It is read-only.
func (m *Model) Source() []byte { return m.source }

// WithoutText returns a copy without the file's name and text. Two models whose copies are equal
// differ at most in what nobody runs, such as comments.
func (m *Model) WithoutText() *Model {
	out := *m
	out.File, out.source = "", nil
	return &out
}

// Document returns the content of the model's file: nil, bool, int64, float64, string, []any and
// map[string]any. The caller may change it.
func (m *Model) Document() map[string]any {
	content, err := Document{Name: m.File, Source: m.source}.Content()
	if err != nil {
		panic("catalog: a model that was read does not read again: " + err.Error())
	}
	return content
}

// WithWeights returns the model with its weights in a directory. It fails where the file, written
// anew with the directory, is beyond the bounds of files.
func (m *Model) WithWeights(dir string) (*Model, error) {
	out, content := *m, m.Document()
	out.WeightsPath, content["weights_path"] = dir, dir
	out.source = Text(content)
	if _, err := (Document{Name: m.File, Source: out.source}).Content(); err != nil {
		return nil, fmt.Errorf("the model file with weights_path, written anew: %w", err)
	}
	return &out, nil
}

// describe writes the source of a model that has no file.
func (m *Model) describe() {
	encode := map[string]any{}
	for _, o := range []struct {
		name string
		dim  *Dim
	}{{outDense, m.Tasks.Dense}, {outSparse, m.Tasks.Sparse}, {outMultivector, m.Tasks.Multivector}} {
		switch {
		case o.dim == nil:
		case o.dim.Dim > 0:
			encode[o.name] = map[string]any{"dim": int64(o.dim.Dim)}
		default:
			encode[o.name] = map[string]any{"dim": nil}
		}
	}
	tasks := map[string]any{}
	if len(encode) > 0 {
		tasks["encode"] = encode
	}
	if m.Tasks.Score {
		tasks["score"] = map[string]any{}
	}
	if m.Tasks.Extract {
		tasks["extract"] = map[string]any{}
	}
	content := map[string]any{
		"sie_id": m.ID, "inputs": map[string]any{"text": true}, "tasks": tasks,
		"profiles": map[string]any{DefaultProfile: m.Profiles[0].document()},
	}
	for key, v := range map[string]string{
		"hf_id": m.HFID, "hf_revision": m.HFRevision, "weights_path": m.WeightsPath,
	} {
		if v != "" {
			content[key] = v
		}
	}
	if m.MaxSequenceLength > 0 {
		content["max_sequence_length"] = int64(m.MaxSequenceLength)
	}
	m.source = Text(content)
}

func (p *Profile) document() map[string]any {
	out := map[string]any{"adapter_path": p.Adapter.String(), "max_batch_tokens": int64(p.MaxBatchTokens)}
	if p.ComputePrecision != "" {
		out["compute_precision"] = string(p.ComputePrecision)
	}
	options := map[string]any{}
	for key, v := range map[string]map[string]any{"loadtime": p.Loadtime, "runtime": p.Runtime} {
		if len(v) > 0 {
			options[key] = v
		}
	}
	if len(options) > 0 {
		out["adapter_options"] = options
	}
	return out
}
