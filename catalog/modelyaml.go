package catalog

import (
	"fmt"
	"slices"
)

// The valid keys of each map of a model file, in their usual order.
var (
	modelKeys = []string{
		"sie_id", "hf_id", "hf_revision", "hf_tokenizer_dependencies", "weights_path", "package_backed",
		"remote_backed", "routing", "pool", "inputs", "tasks", "max_sequence_length", "profiles",
	}
	inputKeys    = []string{"text", "image", "audio", "video", "document"}
	taskKeys     = []string{"encode", "score", "extract", "generate"}
	encodeKeys   = []string{"dense", "sparse", "multivector"}
	generateKeys = []string{"context_length", "max_output_tokens", "capabilities", "chat_template_kwargs",
		"prewarm_grammars", "grammar_profile"}
	routingKeys = []string{
		"policy", "fallback_profile", "triggers", "wake_above", "sleep_below", "window_s", "cooldown_s",
	}
	profileKeys = []string{
		"extends", "adapter_path", "max_batch_tokens", "compute_precision", "adapter_options",
		"adaptive_batching", "kv_budget_tokens", "admission_enabled", "max_output_tokens",
		"chat_template_kwargs", "grammar_profile",
	}
	adapterOptionKeys = []string{"loadtime", "runtime"}
	adaptiveKeys      = []string{"enabled", "target_p50_ms", "calibration_multiplier", "min_target_p50_ms",
		"max_target_p50_ms", "min_wait_ms", "max_wait_ms", "gain", "integral_gain"}
)

const (
	maxDim      = 1 << 20
	maxTokensN  = 1 << 24 // sequence lengths and token budgets
	maxProfiles = 64
	maxOptions  = 128 // keys of one loadtime or runtime map
	maxTriggers = 64
	maxMillis   = 3.6e6
	maxPathLen  = 4096
)

// ParseModel reads one model document. name is used only in messages. The error is a *Problems that
// lists everything wrong. The model keeps src. warnings name options that no adapter of this build
// understands; they load but have no effect.
func ParseModel(name string, src []byte) (m *Model, warnings []Problem, err error) {
	l := &problemList{file: name}
	root := parseDocument(src, l)
	if root == nil {
		return nil, nil, l.err()
	}
	r := modelReader{l: l, warn: &problemList{file: name}}
	m = r.model(root)
	if err := l.err(); err != nil {
		return nil, nil, err
	}
	m.File, m.source = name, src
	return m, r.warn.list, nil
}

type modelReader struct {
	l    *problemList
	warn *problemList
}

func (r *modelReader) model(root *node) *Model {
	f := object(r.l, root, "", modelKeys)
	m := &Model{}
	f.require("sie_id")
	m.ID = f.checked("sie_id", maxPathLen, checkID)
	m.HFID = f.checked("hf_id", maxPathLen, checkHubID)
	m.HFRevision = f.checked("hf_revision", maxPathLen, checkRevision)
	m.WeightsPath = f.text("weights_path", maxPathLen)
	m.PackageBacked = truth(f.boolean("package_backed"))
	m.RemoteBacked = truth(f.boolean("remote_backed"))
	m.Pool = f.text("pool", maxPathLen)
	m.MaxSequenceLength = f.integer("max_sequence_length", 1, maxTokensN)
	m.HFTokenizerDependencies = r.tokenizerDependencies(f)
	m.Inputs = r.inputs(f)
	f.require("tasks")
	if n := f.get("tasks"); n != nil {
		m.Tasks = r.tasks(n)
	}
	f.require("profiles")
	if n := f.get("profiles"); n != nil {
		m.Profiles = r.profiles(n)
	}
	if n := f.get("routing"); n != nil {
		m.Routing = r.routing(n, m)
	}
	r.source(f, m)
	return m
}

// checked reads a string and applies one more rule to it.
func (f fields) checked(name string, limit int, rule func(string) error) string {
	s := f.text(name, limit)
	if s == "" {
		return ""
	}
	if err := rule(s); err != nil {
		f.l.add(f.get(name).line, f.key(name), "%v", err)
		return ""
	}
	return s
}

func truth(b *bool) bool { return b != nil && *b }

// source checks that the model names its weights or says that it has none.
func (r *modelReader) source(f fields, m *Model) {
	if m.PackageBacked {
		for _, k := range []string{"hf_id", "hf_revision", "weights_path"} {
			if n := f.get(k); n != nil {
				r.l.add(n.line, k, "must not be set when package_backed is true")
			}
		}
		return
	}
	if f.get("hf_id") == nil && f.get("weights_path") == nil && !m.RemoteBacked {
		r.l.add(f.n.line, "hf_id",
			"required key is missing; give hf_id or weights_path, or set package_backed")
	}
}

func (r *modelReader) tokenizerDependencies(f fields) map[string]string {
	const key, limit = "hf_tokenizer_dependencies", 16
	n := f.get(key)
	if n == nil {
		return nil
	}
	g := openMap(r.l, n, key)
	if len(g.n.pairs) > limit {
		r.l.add(n.line, key, "has %d entries; the limit is %d", len(g.n.pairs), limit)
		return nil
	}
	out := make(map[string]string, len(g.n.pairs))
	for _, p := range g.n.pairs {
		if err := checkHubID(p.key); err != nil {
			r.l.add(p.line, g.key(p.key), "%v", err)
			continue
		}
		if p.value.kind != kindString || !isCommit(p.value.text) {
			r.l.add(p.line, g.key(p.key), "expected a commit of 40 hexadecimal digits, got %s",
				p.value.describe())
			continue
		}
		out[p.key] = p.value.text
	}
	return out
}

func (r *modelReader) inputs(f fields) Inputs {
	in := Inputs{Text: true}
	n := f.get("inputs")
	if n == nil {
		return in
	}
	g := object(r.l, n, "inputs", inputKeys)
	for i, to := range []*bool{&in.Text, &in.Image, &in.Audio, &in.Video, &in.Document} {
		if b := g.boolean(inputKeys[i]); b != nil {
			*to = *b
		}
	}
	if in == (Inputs{}) {
		r.l.add(n.line, "inputs", "at least one input must be true")
	}
	return in
}

func (r *modelReader) tasks(n *node) (t Tasks) {
	f := object(r.l, n, "tasks", taskKeys)
	found := false
	if e := f.get("encode"); e != nil {
		found = true
		g := object(r.l, e, "tasks.encode", encodeKeys)
		t.Dense, t.Sparse, t.Multivector = r.dim(g, "dense", true), r.dim(g, "sparse", false),
			r.dim(g, "multivector", true)
		if g.get("dense") == nil && g.get("sparse") == nil && g.get("multivector") == nil {
			r.l.add(e.line, "tasks.encode", "must have at least one of dense, sparse and multivector")
		}
	}
	for _, e := range []struct {
		key string
		to  *bool
	}{{"score", &t.Score}, {"extract", &t.Extract}} {
		if v := f.get(e.key); v != nil {
			found = true
			*e.to = true
			if v.kind != kindMap {
				r.l.add(v.line, f.key(e.key), "expected a map, got %s; write %s: {}", v.describe(), e.key)
			} else {
				for _, p := range v.pairs {
					r.l.add(p.line, joinKey(f.key(e.key), p.key), "unknown key; write %s: {}", e.key)
				}
			}
		}
	}
	if v := f.get("generate"); v != nil {
		found = true
		g := object(r.l, v, "tasks.generate", generateKeys)
		t.Generate = &Generate{
			ContextLength:   g.integer("context_length", 1, maxTokensN),
			MaxOutputTokens: g.integer("max_output_tokens", 1, maxTokensN),
			Raw:             g.plainMap(),
		}
		t.Generate.Capabilities = t.Generate.Raw["capabilities"]
	}
	if !found && f.n == n {
		r.l.add(n.line, "tasks", "must have at least one of encode, score, extract and generate")
	}
	return t
}

func (f fields) plainMap() map[string]any {
	m, _ := f.n.plain().(map[string]any)
	return m
}

func (r *modelReader) dim(f fields, name string, required bool) *Dim {
	n := f.get(name)
	if n == nil {
		return nil
	}
	g := object(r.l, n, f.key(name), []string{"dim"})
	if d := n.lookup("dim"); d != nil && d.kind == kindNull {
		return &Dim{} // said to be unknown until the weights are read
	}
	if required && g.n == n {
		g.require("dim")
	}
	return &Dim{Dim: g.integer("dim", 1, maxDim)}
}

func (r *modelReader) routing(n *node, m *Model) *Routing {
	f := object(r.l, n, "routing", routingKeys)
	out := &Routing{
		Policy:          f.enum("policy", "remote_only", "fallback", "threshold"),
		FallbackProfile: f.text("fallback_profile", maxProfileBytes),
		Triggers:        f.strings("triggers", maxTriggers),
		WakeAbove:       f.number("wake_above", 0, 1e12),
		SleepBelow:      f.number("sleep_below", 0, 1e12),
		WindowS:         f.number("window_s", 0, 1e9),
		CooldownS:       f.number("cooldown_s", 0, 1e9),
	}
	if out.FallbackProfile != "" && m.Profile(out.FallbackProfile) == nil && len(m.Profiles) > 0 {
		r.l.add(f.get("fallback_profile").line, "routing.fallback_profile", "no profile is called %q",
			clip(out.FallbackProfile))
	}
	return out
}

func (r *modelReader) profiles(n *node) []Profile {
	f := openMap(r.l, n, "profiles")
	if f.n != n {
		return nil
	}
	if len(n.pairs) == 0 || len(n.pairs) > maxProfiles {
		r.l.add(n.line, "profiles", "must have between 1 and %d profiles; got %d", maxProfiles, len(n.pairs))
		return nil
	}
	out := make([]Profile, 0, len(n.pairs))
	for _, p := range n.pairs {
		if p.key == "" || len(p.key) > maxProfileBytes || slices.ContainsFunc([]rune(p.key), notHubRune) {
			r.l.add(p.line, f.key(p.key), "a profile name has 1 to %d letters, digits, '.', '_' and '-'",
				maxProfileBytes)
		}
		out = append(out, r.profile(p, n))
	}
	return out
}

func (r *modelReader) profile(p pair, siblings *node) Profile {
	path := joinKey("profiles", p.key)
	f := object(r.l, p.value, path, profileKeys)
	out := Profile{
		Name:               p.key,
		Extends:            f.text("extends", maxPathLen),
		MaxBatchTokens:     f.integer("max_batch_tokens", 1, maxTokensN),
		ComputePrecision:   Precision(f.enum("compute_precision", "float16", "bfloat16", "float32")),
		KVBudgetTokens:     f.integer("kv_budget_tokens", 1, 1<<40),
		AdmissionEnabled:   f.boolean("admission_enabled"),
		MaxOutputTokens:    f.integer("max_output_tokens", 1, maxTokensN),
		AdaptiveBatching:   r.adaptive(f),
		ChatTemplateKwargs: r.rawMap(f, "chat_template_kwargs"),
	}
	if n := f.get("grammar_profile"); n != nil {
		out.GrammarProfile = n.plain()
	}
	if s := f.text("adapter_path", maxPathLen); s != "" {
		a, err := ParseAdapterPath(s)
		if err != nil {
			r.l.add(f.get("adapter_path").line, f.key("adapter_path"), "%v", err)
		}
		out.Adapter = a
	}
	switch {
	case f.n != p.value:
	case f.get("extends") == nil:
		f.require("adapter_path")
		f.require("max_batch_tokens")
	case out.Extends != "":
		r.extends(f, out, siblings)
	}
	r.adapterOptions(f, &out)
	return out
}

func (r *modelReader) extends(f fields, p Profile, siblings *node) {
	line, key := f.get("extends").line, f.key("extends")
	parent := siblings.lookup(p.Extends)
	switch {
	case p.Extends == p.Name:
		r.l.add(line, key, "a profile cannot extend itself")
	case parent == nil:
		names := make([]string, 0, len(siblings.pairs))
		for _, s := range siblings.pairs {
			if s.key != p.Name {
				names = append(names, s.key)
			}
		}
		r.l.add(line, key, "no profile is called %q; %s", clip(p.Extends), profileHint(p.Extends, names))
	case parent.kind == kindMap:
		if e := parent.lookup("extends"); e != nil && e.kind != kindNull {
			r.l.add(line, key, "profile %q extends another one itself; inheritance has one level",
				clip(p.Extends))
		}
	}
}

func profileHint(name string, names []string) string {
	if near := closeMatches(name, names, 1, suggestCutoff); len(near) > 0 {
		return fmt.Sprintf("did you mean %q?", near[0])
	}
	return "the model has no other profile by that name"
}

func (r *modelReader) adaptive(f fields) (a AdaptiveBatching) {
	n := f.get("adaptive_batching")
	if n == nil {
		return a
	}
	g := object(r.l, n, f.key("adaptive_batching"), adaptiveKeys)
	a.Enabled = g.boolean("enabled")
	a.TargetP50MS = g.number("target_p50_ms", 0.1, maxMillis)
	a.CalibrationMultiplier = g.number("calibration_multiplier", 0.1, 1000)
	a.MinTargetP50MS = g.number("min_target_p50_ms", 1, maxMillis)
	a.MaxTargetP50MS = g.number("max_target_p50_ms", 10, maxMillis)
	a.MinWaitMS = g.number("min_wait_ms", 0.1, maxMillis)
	a.MaxWaitMS = g.number("max_wait_ms", 1, maxMillis)
	a.Gain = g.number("gain", 1e-9, 1)
	a.IntegralGain = g.number("integral_gain", 0, 1)
	return a
}

// rawMap reads a map with any keys. A wrong type is a problem.
func (r *modelReader) rawMap(f fields, name string) map[string]any {
	n := f.get(name)
	if n == nil {
		return nil
	}
	if n.kind != kindMap {
		r.l.add(n.line, f.key(name), "expected a map, got %s", n.describe())
		return nil
	}
	if len(n.pairs) > maxOptions {
		r.l.add(n.line, f.key(name), "has %d keys; the limit is %d", len(n.pairs), maxOptions)
		return nil
	}
	m, _ := n.plain().(map[string]any)
	return m
}

// adapterOptions reads loadtime and runtime. It reports a wrong value of a known option at its
// line.
func (r *modelReader) adapterOptions(f fields, p *Profile) {
	n := f.get("adapter_options")
	if n == nil {
		return
	}
	g := object(r.l, n, f.key("adapter_options"), adapterOptionKeys)
	p.Loadtime, p.Runtime = r.rawMap(g, "loadtime"), r.rawMap(g, "runtime")
	load, run := &LoadtimeOptions{}, &RuntimeOptions{}
	if p.Loadtime != nil {
		r.options(g, "loadtime", specNames(loadtimeSpecs), func(key string, v any) (bool, error) {
			spec, ok := loadtimeSpecs[key]
			if !ok || v == nil {
				return ok, nil
			}
			return true, spec(load, v)
		})
	}
	if p.Runtime != nil {
		r.options(g, "runtime", specNames(runtimeSpecs), func(key string, v any) (bool, error) {
			spec, ok := runtimeSpecs[key]
			if !ok || v == nil {
				return ok, nil
			}
			return true, spec(run, v)
		})
	}
}

// options checks one map. A key that nearly matches a known one is a problem. Any other unknown key
// is a warning, because the reference's adapters may know options that this build does not.
func (r *modelReader) options(
	g fields, name string, known []string, check func(key string, v any) (bool, error),
) {
	for _, p := range g.get(name).pairs {
		path := joinKey(g.key(name), p.key)
		ok, err := check(p.key, p.value.plain())
		switch near := nearOption(p.key, known); {
		case err != nil:
			r.l.add(p.value.line, path, "%v", err)
		case ok:
		case near != "":
			r.l.add(p.line, path, "unknown option; did you mean %q?", near)
		default:
			r.warn.add(p.line, path, "the option is not known to this build and has no effect")
		}
	}
}

func specNames[S any](specs map[string]S) []string {
	names := make([]string, 0, len(specs))
	for k := range specs {
		names = append(names, k)
	}
	slices.Sort(names)
	return names
}
