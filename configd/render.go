package configd

import (
	"bytes"
	"cmp"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/confighash"
)

// sum has the config hashes of one bundle. They cover all of its models, so that they are computed
// when they are asked for, from what each entry keeps.
type sum struct {
	entries []*entry
	at      int // the bundle
	once    sync.Once
	hash    string
	pools   map[string]string // by pool, without pools that have none of its models
}

// get returns the hashes. The caller changes nothing.
func (s *sum) get() (hash string, pools map[string]string) {
	s.once.Do(func() {
		all := s.parts("")
		s.hash, s.pools = confighash.OfParts(all), map[string]string{}
		names := map[string]bool{}
		for _, e := range s.entries {
			if e.carried(s.at) {
				names[e.pool] = true
			}
		}
		for name := range names {
			s.pools[name] = s.hash
			if len(names) > 1 {
				s.pools[name] = confighash.OfParts(s.parts(name))
			}
		}
	})
	return s.hash, s.pools
}

// parts yields what the hash covers, of a pool or, for "", of all.
func (s *sum) parts(pool string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, e := range s.entries {
			if e.carried(s.at) && (pool == "" || e.pool == pool) && !yield(e.parts[s.at]) {
				return
			}
		}
	}
}

// poolParts yields what the epoch's hash covers of the models of the bundle.
func (s *sum) poolParts(yield func([]byte) bool) {
	for _, e := range s.entries {
		if e.carried(s.at) && !yield(e.poolPart) {
			return
		}
	}
}

// rendered has the answers about a whole content. Each is made when it is asked for first.
type rendered struct {
	epoch, models, export, head lazy
	digest                      lazy
}

type lazy struct {
	once sync.Once
	text []byte
	err  error
}

func (l *lazy) get(render func() ([]byte, error)) ([]byte, error) {
	l.once.Do(func() { l.text, l.err = render() })
	return l.text, l.err
}

// epochAnswer has the signs by which gateways and workers tell one configuration from another. The
// epoch alone is none: it goes back with an older store, and the same number then is of other
// models. Nor are the bundles' config hashes, which leave out most of a document.
func (c *Content) epochAnswer() ([]byte, error) {
	return c.rendered.epoch.get(func() ([]byte, error) {
		states := make([]confighash.BundleState, len(c.base.bundles))
		for i, b := range c.base.bundles {
			hash, _ := c.sums[i].get()
			states[i] = confighash.BundleState{Name: b.Name, Hash: hash, Pools: c.sums[i].poolParts}
		}
		return encode(struct {
			Epoch   uint64 `json:"epoch"`
			Bundles string `json:"bundles_hash"`
			Configs string `json:"bundle_config_hashes_hash"`
			Models  string `json:"models_hash"` // the digest of an export; not of the reference
		}{c.added.Epoch, c.base.hash, confighash.BundleConfigs(states), string(c.digest())})
	})
}

type listedModel struct {
	ID       string   `json:"model_id"`
	Profiles []string `json:"profiles"`
	Source   string   `json:"source"`
}

// modelsAnswer lists the ids that have a bundle.
func (c *Content) modelsAnswer() ([]byte, error) {
	return c.rendered.models.get(func() ([]byte, error) {
		list := []listedModel{}
		for _, e := range c.entries {
			for _, r := range e.ids {
				if len(c.carriers(r)) > 0 {
					list = append(list, listedModel{r.ID, profiles(r), e.source})
				}
			}
		}
		slices.SortFunc(list, func(a, b listedModel) int { return strings.Compare(a.ID, b.ID) })
		return encode(map[string]any{"models": list})
	})
}

// modelFile returns the document of a model or of a profile that has a bundle, nil for none.
func (c *Content) modelFile(id string) ([]byte, error) {
	if m := c.model(id); m != nil {
		return m.Source(), nil
	}
	r := c.resolved(id)
	if r == nil {
		return nil, nil
	}
	carriers := c.carriers(r)
	if len(carriers) == 0 {
		return nil, nil
	}
	return document(map[string]any{
		"sie_id": r.ID, "source": search(c.entries, r.BaseID).source, "bundles": carriers,
	})
}

// profiles returns the names of the profiles that an id stands for, sorted.
func profiles(m *catalog.Resolved) []string {
	if m.ID != m.BaseID {
		return []string{m.Profile}
	}
	out := make([]string, 0, len(m.Model.Profiles))
	for _, p := range m.Model.Profiles {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return out
}

type listedBundle struct {
	ID       string `json:"bundle_id"`
	Engine   string `json:"engine"`
	Priority int    `json:"priority"`
	Adapters int    `json:"adapter_count"`
	Source   string `json:"source"`
}

// renderBundles renders the list of bundles and each bundle.
func (b *builtin) renderBundles() (err error) {
	list := []listedBundle{}
	for _, one := range b.bundles {
		engine := cmp.Or(one.Engine, confighash.DefaultEngine)
		list = append(list, listedBundle{one.Name, engine, one.Priority, len(one.Adapters), filesystem})
		b.bundleFiles[one.Name], err = document(map[string]any{
			"name": one.Name, "engine": engine, "priority": one.Priority, "source": filesystem,
			"adapters": one.Adapters,
		})
		if err != nil {
			return err
		}
	}
	b.bundleList, err = encode(map[string]any{"bundles": list})
	return err
}

// encode returns v as JSON without a line break at its end.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// document returns v as YAML as the reference writes it: keys sorted, lists at their key's column.
func document(v map[string]any) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}
