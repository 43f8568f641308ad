package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultProfile is the name of the profile that a bare model id selects.
const DefaultProfile = "default"

// The names of outputs in /v1/models, in their order there. Extraction is listed as json.
const (
	outDense       = "dense"
	outSparse      = "sparse"
	outMultivector = "multivector"
	outScore       = "score"
	outJSON        = "json"
	outTokens      = "tokens"
)

// Model is one model file: a base model and its profiles.
type Model struct {
	ID         string // public id, such as "org/name"
	HFID       string // hub repository of the weights; may differ from ID
	HFRevision string // branch, tag or commit; "" = the hub's default branch
	// HFTokenizerDependencies maps further repositories that the tokenizer needs to their commits.
	// A model without a tokenizer of its own takes that of the first of them.
	HFTokenizerDependencies map[string]string
	WeightsPath             string // local weights; wins over HFID
	PackageBacked           bool   // no weights at all
	RemoteBacked            bool   // runs at another provider
	Routing                 *Routing
	Pool                    string
	Inputs                  Inputs
	Tasks                   Tasks
	MaxSequenceLength       int // tokens; 0 = not stated
	Profiles                []Profile

	// File is the name of the model's file, for messages; "" for AdHoc.
	File string

	source []byte // see Source
}

// Inputs lists the kinds of content that an item may have.
type Inputs struct{ Text, Image, Audio, Video, Document bool }

// Names returns the inputs in the order of /v1/models.
func (in Inputs) Names() []string {
	var out []string
	for _, e := range []struct {
		on   bool
		name string
	}{{in.Text, "text"}, {in.Image, "image"}, {in.Audio, "audio"}, {in.Video, "video"},
		{in.Document, "document"}} {
		if e.on {
			out = append(out, e.name)
		}
	}
	return out
}

// Tasks lists what the model can compute. A nil encode output is unsupported; a dimension of 0 is
// unknown until the weights are read.
type Tasks struct {
	Dense       *Dim
	Sparse      *Dim // the vocabulary size
	Multivector *Dim // the width of one token vector
	Score       bool
	Extract     bool
	Generate    *Generate
}

// Dim is the width of an output.
type Dim struct{ Dim int }

// Generate is the generation task of a model file. This server does not generate text. The section
// is read so that such files load and can be listed.
type Generate struct {
	ContextLength   int
	MaxOutputTokens int
	Capabilities    any
	Raw             map[string]any
}

// Outputs returns the outputs in the order of /v1/models.
func (t Tasks) Outputs() []string {
	var out []string
	for _, e := range []struct {
		on   bool
		name string
	}{{t.Dense != nil, outDense}, {t.Sparse != nil, outSparse}, {t.Multivector != nil, outMultivector},
		{t.Score, outScore}, {t.Extract, outJSON}, {t.Generate != nil, outTokens}} {
		if e.on {
			out = append(out, e.name)
		}
	}
	return out
}

// Routing is the remote-routing section. It is kept but not used: this server always runs models
// locally.
type Routing struct {
	Policy          string // remote_only, fallback or threshold
	FallbackProfile string
	Triggers        []string
	WakeAbove       *float64
	SleepBelow      *float64
	WindowS         *float64
	CooldownS       *float64
}

// Precision is a profile's compute_precision. "float32" asks for that precision where the device
// has it and the operator has chosen none. Any other value leaves the choice to the engine.
type Precision string

// Profile is one profile as written, before inheritance. Zero values are absent keys.
type Profile struct {
	Name             string
	Extends          string
	Adapter          AdapterPath
	MaxBatchTokens   int
	ComputePrecision Precision
	Loadtime         map[string]any
	Runtime          map[string]any
	AdaptiveBatching AdaptiveBatching

	// Generation keys, kept so that such files load.
	KVBudgetTokens     int
	AdmissionEnabled   *bool
	MaxOutputTokens    int
	ChatTemplateKwargs map[string]any
	GrammarProfile     any
}

// AdaptiveBatching overrides the engine's adaptive batching for one model. Nil fields keep the
// engine's value. Times are in milliseconds.
type AdaptiveBatching struct {
	Enabled               *bool
	TargetP50MS           *float64
	CalibrationMultiplier *float64
	MinTargetP50MS        *float64
	MaxTargetP50MS        *float64
	MinWaitMS             *float64
	MaxWaitMS             *float64
	Gain                  *float64
	IntegralGain          *float64
}

// override returns a with the non-nil fields of child.
func (a AdaptiveBatching) override(child AdaptiveBatching) AdaptiveBatching {
	if child.Enabled != nil {
		a.Enabled = child.Enabled
	}
	for _, f := range []struct{ to, from **float64 }{
		{&a.TargetP50MS, &child.TargetP50MS}, {&a.CalibrationMultiplier, &child.CalibrationMultiplier},
		{&a.MinTargetP50MS, &child.MinTargetP50MS}, {&a.MaxTargetP50MS, &child.MaxTargetP50MS},
		{&a.MinWaitMS, &child.MinWaitMS}, {&a.MaxWaitMS, &child.MaxWaitMS},
		{&a.Gain, &child.Gain}, {&a.IntegralGain, &child.IntegralGain},
	} {
		if *f.from != nil {
			*f.to = *f.from
		}
	}
	return a
}

// Profile returns the named profile as written, or nil.
func (m *Model) Profile(name string) *Profile {
	for i := range m.Profiles {
		if m.Profiles[i].Name == name {
			return &m.Profiles[i]
		}
	}
	return nil
}

// BareProfile returns the profile that the bare id selects: "default", or the only profile of a
// model without a default. "" means that only "id:profile" is routable.
func (m *Model) BareProfile() string {
	if m.Profile(DefaultProfile) != nil {
		return DefaultProfile
	}
	if len(m.Profiles) == 1 {
		return m.Profiles[0].Name
	}
	return ""
}

// resolved returns the named profile with inheritance applied. Scalars that the child sets win. A
// non-empty loadtime or runtime map replaces the parent's whole map. adaptive_batching merges field
// by field.
func (m *Model) resolved(name string) (Profile, error) {
	child := m.Profile(name)
	if child == nil {
		return Profile{}, fmt.Errorf("model '%s' has no profile '%s'", m.ID, clip(name))
	}
	if child.Extends == "" {
		return *child, nil
	}
	parent := m.Profile(child.Extends)
	if parent == nil || parent.Extends != "" {
		return Profile{}, fmt.Errorf("profile '%s' of model '%s' extends '%s', which is not a base profile",
			name, m.ID, child.Extends)
	}
	p := *parent
	p.Name, p.Extends = child.Name, ""
	if child.Adapter.Module != "" {
		p.Adapter = child.Adapter
	}
	if child.MaxBatchTokens != 0 {
		p.MaxBatchTokens = child.MaxBatchTokens
	}
	if child.ComputePrecision != "" {
		p.ComputePrecision = child.ComputePrecision
	}
	if len(child.Loadtime) > 0 {
		p.Loadtime = child.Loadtime
	}
	if len(child.Runtime) > 0 {
		p.Runtime = child.Runtime
	}
	p.AdaptiveBatching = parent.AdaptiveBatching.override(child.AdaptiveBatching)
	if child.KVBudgetTokens != 0 {
		p.KVBudgetTokens = child.KVBudgetTokens
	}
	if child.AdmissionEnabled != nil {
		p.AdmissionEnabled = child.AdmissionEnabled
	}
	if child.MaxOutputTokens != 0 {
		p.MaxOutputTokens = child.MaxOutputTokens
	}
	if child.ChatTemplateKwargs != nil {
		p.ChatTemplateKwargs = child.ChatTemplateKwargs
	}
	if child.GrammarProfile != nil {
		p.GrammarProfile = child.GrammarProfile
	}
	return p, nil
}

// weightsKey identifies one set of weights. Models with equal keys share one copy. "" means no
// weights.
func (m *Model) weightsKey() string {
	switch {
	case m.WeightsPath != "":
		return "path:" + m.WeightsPath
	case m.HFID == "":
		return ""
	case m.HFRevision != "":
		return "hf:" + m.HFID + "@" + m.HFRevision
	}
	return "hf:" + m.HFID
}

const (
	maxIDBytes      = 256
	maxProfileBytes = 64
)

// checkID refuses ids that could not be routed. A colon separates the profile, and path segments
// must survive a URL.
func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("must not be empty")
	case len(id) > maxIDBytes:
		return fmt.Errorf("has %d bytes; the limit is %d", len(id), maxIDBytes)
	case strings.Contains(id, ":"):
		return fmt.Errorf("must not contain ':', which separates a profile; got %q", clip(id))
	}
	for _, r := range id {
		if r <= ' ' || r == 0x7f || r == '\\' || r == '?' || r == '#' || r == '%' {
			return fmt.Errorf("must not contain %q; got %q", r, clip(id))
		}
	}
	for seg := range strings.SplitSeq(id, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return fmt.Errorf("must not have an empty, '.' or '..' part between slashes; got %q", clip(id))
		}
	}
	return nil
}

// checkHubID accepts "name" or "org/name" in the hub's alphabet.
func checkHubID(id string) error {
	parts := strings.Split(id, "/")
	bad := len(parts) > 2 || len(id) > maxIDBytes || strings.Contains(id, "..")
	bad = bad || slices.ContainsFunc(parts, func(s string) bool {
		return s == "" || s[0] == '.' || s[0] == '-' || strings.IndexFunc(s, notHubRune) >= 0
	})
	if bad {
		return fmt.Errorf("expected a hub repository such as \"org/name\", got %q", clip(id))
	}
	return nil
}

// IsHubID reports whether id could be a hub repository.
func IsHubID(id string) bool { return checkHubID(id) == nil }

func notHubRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' &&
		r != '_' && r != '-'
}

// checkRevision accepts a git branch, tag or commit that is safe in a path and a URL.
func checkRevision(rev string) error {
	if len(rev) > maxIDBytes || strings.Contains(rev, "..") || strings.HasPrefix(rev, "/") ||
		strings.HasPrefix(rev, "-") ||
		strings.IndexFunc(rev, func(r rune) bool { return r != '/' && notHubRune(r) }) >= 0 {
		return fmt.Errorf("expected a branch, tag or commit, got %q", clip(rev))
	}
	return nil
}

func isCommit(s string) bool {
	return len(s) == 40 && strings.Trim(s, "0123456789abcdef") == ""
}
