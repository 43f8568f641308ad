package catalog

import (
	"errors"
	"fmt"
	"slices"
)

// memberOptions are the options that a union may set for one of its models, with their checks.
var memberOptions = map[string]func(any) error{
	"threshold": isShare, "flat_ner": isBool, "multi_label": isBool, "merge_adjacent_entities": isBool,
	"max_prompt_tokens": isCount, "batch_size": isCount,
}

// Member is a model that a union names in its load-time option members, besides its own.
type Member struct {
	HFID     string
	Revision string         // a commit
	Options  map[string]any // load-time options of the model in the union
}

// maxMembers bounds the models of a union, without its own.
const maxMembers = 15

// asMembers reads the load-time option members.
func asMembers(v any) ([]Member, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("expected a list of models, got %s", describe(v))
	}
	if len(list) == 0 || len(list) > maxMembers {
		return nil, fmt.Errorf("has %d models; a union has 1 to %d besides its own", len(list), maxMembers)
	}
	out := make([]Member, len(list))
	for i, e := range list {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("model %d: expected a map of model, revision and options, got %s",
				i, describe(e))
		}
		var err error
		if out[i], err = asMember(m); err != nil {
			return nil, fmt.Errorf("model %d: %w", i, err)
		}
	}
	return out, nil
}

func asMember(m map[string]any) (out Member, err error) {
	for _, key := range sortedKeys(m) {
		v := m[key]
		switch key {
		case "model":
			if out.HFID, err = asText(v); err == nil {
				err = checkHubID(out.HFID)
			}
		case "revision":
			if out.Revision, err = asText(v); err == nil && !isCommit(out.Revision) {
				err = fmt.Errorf("expected a commit of 40 hexadecimal digits, got %s", describe(v))
			}
		case "options":
			options, ok := v.(map[string]any)
			if !ok && v != nil {
				err = fmt.Errorf("expected a map, got %s", describe(v))
			}
			out.Options = options
			for _, name := range sortedKeys(options) {
				check := memberOptions[name]
				if check == nil {
					return out, fmt.Errorf("options: a union cannot set %q; it can set %s",
						clip(name), orList(specNames(memberOptions)))
				}
				if options[name] == nil {
					continue
				}
				if err := check(options[name]); err != nil {
					return out, fmt.Errorf("options: %s: %w", name, err)
				}
			}
		default:
			err = errors.New("unknown key; valid keys: model, options, revision")
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", clip(key), err)
		}
	}
	for _, e := range []struct{ key, value string }{{"model", out.HFID}, {"revision", out.Revision}} {
		if e.value == "" {
			return out, fmt.Errorf("required key %s is missing", e.key)
		}
	}
	return out, nil
}

// members returns the models of a union, its own weights' first. Each is an entry of its own, as if
// its repository were served without a model file, by that adapter and with the member's options.
func (r *Resolved) members(by string) ([]*Resolved, error) {
	if len(r.Loadtime.Members) == 0 {
		return nil, errors.New("a union of models names at least one other in the load-time option members")
	}
	all := append([]Member{{HFID: r.HFID, Revision: r.Revision}}, r.Loadtime.Members...)
	adapter, err := ParseAdapterPath("sie_server.adapters." + by)
	if err != nil {
		return nil, err
	}
	out := make([]*Resolved, len(all))
	for i, one := range all {
		m := &Model{
			ID: one.HFID, HFID: one.HFID, HFRevision: one.Revision,
			HFTokenizerDependencies: r.Model.HFTokenizerDependencies,
			Inputs:                  Inputs{Text: true}, Tasks: Tasks{Extract: true},
			MaxSequenceLength: r.MaxSequenceLength,
			Profiles: []Profile{{
				Name: DefaultProfile, Adapter: adapter, MaxBatchTokens: r.MaxBatchTokens,
				ComputePrecision: r.Precision, Loadtime: one.Options, AdaptiveBatching: r.AdaptiveBatching,
			}},
		}
		if i == 0 {
			m.WeightsPath = r.WeightsPath
		}
		if m.ID == "" {
			m.ID = r.BaseID // its weights are a directory
		}
		m.describe()
		if out[i], err = resolveOne(m, m.ID, DefaultProfile); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Offers reports whether a member of a union can run with the weights of r, an entry of the same
// catalog: both name the same commit of a repository, and r is of the members' family.
func (r *Resolved) Offers(member *Resolved) bool {
	return r.HFID != "" && r.HFID == member.HFID && r.Revision == member.Revision &&
		r.Family == member.Family && member.WeightsPath == ""
}

// With returns a member of a union with the weights of own, which offers them: own's directory,
// tokenizer and limits, and the member's options and precision.
func (r *Resolved) With(own *Resolved) *Resolved {
	out := *own
	out.Runtime, out.Loadtime, out.runtimes = r.Runtime, r.Loadtime, r.runtimes
	out.Profiles = slices.Clip(r.Profiles)
	if r.Precision != "" {
		out.Precision = r.Precision
	}
	return &out
}
