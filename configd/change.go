package configd

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/configd/ledger"
)

// change is what a request would make of the configuration.
type change struct {
	id       string
	status   int
	answer   object         // without epoch, warnings and router_id
	state    *ledger.State  // nil: nothing changes
	content  *Content       // of state
	affected []string       // bundles, sorted
	added    []string       // profiles, sorted
	model    *catalog.Model // as it is then, nil for none
}

// post adds a model, or profiles and keys to a model. What is there stays as it is.
func (c *Content) post(body []byte) (*change, *refusal) {
	d, no := submit(body, "")
	if no != nil {
		return nil, no
	}
	out := &change{id: d.id, status: 200, model: c.model(d.id)}
	existing := []string{}
	have := map[string]any{}
	if out.model != nil {
		have, _ = out.model.Document()["profiles"].(map[string]any)
		if no := conflict(d, out.model); no != nil {
			return nil, no
		}
	}
	if no := cmp.Or(c.checkProfiles(d), c.checkTwin(d.id)); no != nil {
		return nil, no
	}
	for _, name := range slices.Sorted(maps.Keys(d.profiles())) {
		if _, known := have[name]; known {
			existing = append(existing, name)
		} else {
			out.added = append(out.added, name)
		}
	}
	routable := map[string][]string{}
	out.answer = object{"model_id": d.id, "created_profiles": listed(out.added),
		"existing_profiles_skipped": existing, "routable_bundles_by_profile": routable}
	if out.model == nil || d.adds(out.model) {
		if no := out.become(c, c.added.Set(d.id, c.entryAfter(d))); no != nil {
			return nil, no
		}
	}
	if len(out.added) > 0 {
		out.status = 201
	}
	for _, name := range out.added {
		routable[name] = out.content.profileBundles(d.id, name)
	}
	return out, nil
}

// listed returns a list that is written as [] when it is empty.
func listed(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// adds reports whether a document says anything that its model does not have.
func (d *submitted) adds(m *catalog.Model) bool {
	have := m.Document()
	profiles, _ := have["profiles"].(map[string]any)
	return beyond(d.content, have) || beyond(d.profiles(), profiles)
}

// beyond reports whether a map has a key that another has not.
func beyond(m, other map[string]any) bool {
	for key := range m {
		if _, known := other[key]; !known {
			return true
		}
	}
	return false
}

// entryAfter returns what the ledger holds of a model once a document that contradicts nothing is
// added: what it held, and what of the document is not built in.
func (c *Content) entryAfter(d *submitted) ledger.Entry {
	before, ok := c.added.Models[d.id]
	base := c.builtin(d.id)
	if !ok && base == nil {
		return ledger.Entry{Document: d.text}
	}
	content := map[string]any{"sie_id": d.id, "profiles": map[string]any{}}
	if ok {
		read, err := catalog.Document{Name: d.id, Source: []byte(before.Document)}.Content()
		if err == nil {
			content = read
		}
	}
	more := maps.Clone(d.content)
	profiles := maps.Clone(d.profiles())
	if base != nil && !before.Whole {
		have := base.Document()
		built, _ := have["profiles"].(map[string]any)
		maps.DeleteFunc(more, func(key string, _ any) bool {
			return key != "profiles" && have[key] != nil
		})
		maps.DeleteFunc(profiles, func(name string, _ any) bool { return built[name] != nil })
	}
	more["profiles"] = profiles
	catalog.Overlay(content, more)
	content["sie_id"] = d.id
	return ledger.Entry{Document: string(catalog.Text(content)), Whole: before.Whole}
}

// conflict refuses a document that contradicts what its model is.
func conflict(d *submitted, m *catalog.Model) *refusal {
	if pool, ok := d.content["pool"].(string); ok && cmp.Or(strings.ToLower(pool), defaultPool) != poolOf(m) {
		return invalid(fmt.Sprintf(
			"Pool on model '%s' already exists with different value. Config API is append-only.", d.id))
	}
	err := catalog.Join(m.Document(), d.content)
	var what *catalog.ConflictError
	if !errors.As(err, &what) {
		return nil
	}
	if slices.Contains(what.Fields, "profiles") {
		return invalid("profiles is not a map of profiles")
	}
	detail := object{"error": "content_conflict", "model_id": d.id}
	if len(what.Fields) > 0 {
		detail["conflicting_fields"] = what.Fields
		detail["message"] = fmt.Sprintf("Top-level field(s) %s already exist with different values. "+
			"Config API is append-only; mutating existing metadata is not supported via this endpoint.",
			pythonList(what.Fields))
	}
	if len(what.Profiles) > 0 {
		detail["conflicting_profiles"] = what.Profiles
		detail["message"] = fmt.Sprintf("Profile(s) %s on model '%s' already exist with different content. "+
			"Config API is append-only.", pythonList(what.Profiles), d.id)
	}
	return &refusal{409, detail}
}

func pythonList(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// checkProfiles refuses a document whose profiles no bundle could run.
func (c *Content) checkProfiles(d *submitted) *refusal {
	profiles := d.profiles()
	if len(profiles) == 0 {
		return invalid("Missing required field: profiles")
	}
	var missing, strange []string
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p, _ := profiles[name].(map[string]any)
		path, named := p["adapter_path"].(string)
		if !named && p["extends"] == nil && p["adapter_path"] == nil {
			missing = append(missing, fmt.Sprintf("Profile '%s' missing adapter_path", name))
		}
		module, _, _ := strings.Cut(path, ":")
		if named && !slices.ContainsFunc(c.base.bundles, func(b *catalog.Bundle) bool {
			return slices.Contains(b.Adapters, module)
		}) {
			strange = append(strange, module)
		}
	}
	switch {
	case len(missing) > 0:
		return invalid(missing...)
	case len(strange) > 0:
		slices.Sort(strange)
		return invalid("Adapter(s) not in any known bundle: " + strings.Join(slices.Compact(strange), ", "))
	}
	return nil
}

// put makes a document the whole of its model.
func (c *Content) put(body []byte, id string) (*change, *refusal) {
	if no := checkID(id); no != nil {
		return nil, no
	}
	d, no := submit(body, id)
	if no != nil {
		return nil, no
	}
	if no := cmp.Or(c.checkProfiles(d), c.checkTwin(d.id)); no != nil {
		return nil, no
	}
	out := &change{id: id, status: 200, model: c.model(id)}
	unchanged := out.model != nil && catalog.Equal(out.model.Document(), d.content)
	if !unchanged {
		for name := range d.profiles() {
			out.added = append(out.added, name)
		}
		slices.Sort(out.added)
		entry := ledger.Entry{Document: d.text, Whole: c.builtin(id) != nil}
		if no := out.become(c, c.added.Set(id, entry)); no != nil {
			return nil, no
		}
	}
	out.answer = object{"model_id": id, "replaced": !unchanged, "unchanged": unchanged,
		"affected_bundles": listed(out.affected)}
	return out, nil
}

// remove takes away what was added under an id. A built-in model of that id comes back.
func (c *Content) remove(id string) (*change, *refusal) {
	if no := checkID(id); no != nil {
		return nil, no
	}
	out := &change{id: id, status: 200, model: c.model(id)}
	_, there := c.added.Models[id]
	var fallback any
	if there {
		if no := out.become(c, c.added.Remove(id)); no != nil {
			return nil, no
		}
		if out.model != nil {
			fallback = filesystem
		}
	}
	out.answer = object{"model_id": id, "deleted": there, "unchanged": !there, "fallback": fallback,
		"affected_bundles": listed(out.affected), "distribution": "epoch_export"}
	return out, nil
}

// become fills in the content of a state and what changes with it. Its model must be one that
// workers can load.
func (ch *change) become(c *Content, state *ledger.State) *refusal {
	content, err := c.changed(ch.id, state)
	var large *tooLargeError
	switch {
	case errors.As(err, &large):
		return &refusal{413, object{"error": "payload_too_large", "message": err.Error()}}
	case err != nil:
		return invalid(err.Error())
	}
	ch.state, ch.content, ch.model = state, content, content.model(ch.id)
	if _, kept := state.Models[ch.id]; kept {
		if e := search(content.entries, ch.id); e.problem != nil {
			return invalidDocument(e.problem)
		}
		if len(content.bundlesOf(ch.id)) == 0 {
			return invalid(fmt.Sprintf("Model '%s' does not resolve to any known bundle: no profile's "+
				"adapter is in a bundle's list of adapters.", ch.id))
		}
	}
	ch.affected = slices.Concat(c.bundlesOf(ch.id), content.bundlesOf(ch.id))
	slices.Sort(ch.affected)
	ch.affected = slices.Compact(ch.affected)
	return nil
}

// invalidDocument refuses a document with a line for each problem.
func invalidDocument(err error) *refusal {
	var all *catalog.Problems
	if !errors.As(err, &all) {
		return invalid(err.Error())
	}
	lines := make([]string, len(all.List))
	for i, p := range all.List {
		lines[i] = cmp.Or(p.Key, fmt.Sprintf("line %d", p.Line)) + ": " + p.Msg
	}
	return invalid(lines...)
}

// profileBundles returns the names of the bundles that carry a profile, in order of preference.
func (c *Content) profileBundles(id, profile string) []string {
	if e := search(c.entries, id); e != nil {
		for _, r := range e.ids {
			if r.Profile == profile {
				return c.carriers(r)
			}
		}
	}
	return []string{}
}

// checkTwin refuses the id of a model that would be new beside one that differs in case alone:
// callers may spell an id in any case, and file systems that ignore it have one file for both.
func (c *Content) checkTwin(id string) *refusal {
	if search(c.entries, id) != nil {
		return nil
	}
	other := c.twin(id)
	if other == "" {
		return nil
	}
	return &refusal{409, object{"error": "model_id_conflict", "model_id": id, "existing_model_id": other,
		"message": fmt.Sprintf("Model '%s' exists; '%s' differs from it in case alone. "+
			"Use its spelling, or delete it first.", other, id)}}
}
