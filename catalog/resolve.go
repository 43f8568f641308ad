package catalog

import (
	"errors"
	"fmt"
	"slices"
)

// Resolved is one routable model id with inheritance applied. It holds everything that the loader,
// the registry and the HTTP layer need to know about the model. It is immutable and safe for
// concurrent use.
type Resolved struct {
	ID      string // what a client sends: "org/name" or "org/name:profile"
	BaseID  string // "org/name"
	Profile string // the profile that ID selects

	HFID        string
	Revision    string // "" = the hub's default branch
	WeightsPath string // wins over HFID
	WeightsKey  string // equal keys share one copy of the weights; "" = no weights

	Inputs            []string       // in the order of /v1/models
	Outputs           []string       // dense, sparse, multivector, score, json, tokens, in that order
	Dims              map[string]int // by output; an output of unknown width is absent
	MaxSequenceLength int            // tokens, including special ones; 0 = from the model's files
	MaxBatchTokens    int
	Precision         Precision // "" = the engine chooses

	Adapter          AdapterPath
	Family           Family // FamilyNone when the adapter cannot run here; see Usable
	Runtime          *RuntimeOptions
	Loadtime         *LoadtimeOptions
	AdaptiveBatching AdaptiveBatching
	Profiles         []ProfileInfo // for /v1/models; the file's order

	// Members are the models of a union, in the order in which equal entities win; nil for models
	// of other families. They need not be in the catalog.
	Members []*Resolved

	Model *Model // the model file that defines it

	runtimes map[string]*RuntimeOptions // by the names that the option "profile" accepts
}

// ServedRevision returns the revision of the weights that are served, "" where that is not known: a
// directory holds whatever was put there.
func (r *Resolved) ServedRevision() string {
	if r.WeightsPath != "" {
		return ""
	}
	return r.Revision
}

// ProfileInfo is one entry of the profiles in /v1/models.
type ProfileInfo struct {
	Name      string
	IsDefault bool
}

// resolveAll builds the ids of one model file: the bare id if it is routable, then "base:profile"
// for every profile other than default.
func resolveAll(m *Model) ([]*Resolved, error) {
	var out []*Resolved
	if bare := m.BareProfile(); bare != "" {
		r, err := resolveOne(m, m.ID, bare)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	for _, p := range m.Profiles {
		if p.Name == DefaultProfile {
			continue
		}
		r, err := resolveOne(m, m.ID+":"+p.Name, p.Name)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func resolveOne(m *Model, id, profile string) (*Resolved, error) {
	p, err := m.resolved(profile)
	if err != nil {
		return nil, err
	}
	load, err := parseLoadtime(p.Loadtime)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", id, err)
	}
	run, err := parseRuntime(p.Runtime, false)
	if err != nil {
		return nil, fmt.Errorf("model '%s': %w", id, err)
	}
	if d := m.Tasks.Dense; d != nil && d.Dim > 0 && run.Dimensions > d.Dim {
		return nil, fmt.Errorf(
			"model '%s': the option dimensions must be at most %d, the width of its dense output; got %d",
			id, d.Dim, run.Dimensions)
	}
	r := &Resolved{
		ID: id, BaseID: m.ID, Profile: profile,
		HFID: m.HFID, Revision: m.HFRevision, WeightsPath: m.WeightsPath, WeightsKey: m.weightsKey(),
		Inputs: m.Inputs.Names(), MaxSequenceLength: m.MaxSequenceLength,
		MaxBatchTokens: p.MaxBatchTokens, Precision: p.ComputePrecision,
		Adapter: p.Adapter, Family: familyOf(p.Adapter, m.Tasks),
		Runtime: run, Loadtime: load, AdaptiveBatching: p.AdaptiveBatching, Model: m,
		runtimes: map[string]*RuntimeOptions{DefaultProfile: run},
	}
	if err := r.checkPooling(run); err != nil {
		return nil, fmt.Errorf("model '%s': %w", id, err)
	}
	if info := r.Family.info(); info != nil && info.folds {
		if err := load.foldByDefault(); err != nil {
			return nil, err
		}
	} else if info != nil && info.unites != FamilyNone {
		if r.Members, err = r.members(info.unites.info().adHoc); err != nil {
			return nil, fmt.Errorf("model '%s': %w", id, err)
		}
	}
	if load.MaxSeqLength > 0 {
		r.MaxSequenceLength = load.MaxSeqLength
	}
	r.outputs(m.Tasks)
	return r, r.profileList()
}

// outputs fills Outputs and Dims from the declared tasks and from the folding of the multivector.
func (r *Resolved) outputs(t Tasks) {
	r.Outputs = t.Outputs()
	r.Dims = map[string]int{}
	for _, e := range []struct {
		name string
		dim  *Dim
	}{{outDense, t.Dense}, {outSparse, t.Sparse}, {outMultivector, t.Multivector}} {
		if e.dim != nil && e.dim.Dim > 0 {
			r.Dims[e.name] = e.dim.Dim
		}
	}
	if d := r.Runtime.Dimensions; d > 0 && r.Dims[outDense] > d {
		r.Dims[outDense] = d
	}
	if t.Multivector == nil {
		return
	}
	if r.Runtime.MUVERA && r.Loadtime.MUVERA != nil && t.Dense == nil {
		r.Outputs = append([]string{outDense}, r.Outputs...)
		if t.Multivector.Dim > 0 {
			r.Dims[outDense] = r.Loadtime.MUVERA.OutputDim(t.Multivector.Dim)
		}
	}
	if r.Runtime.SMVE && r.Loadtime.SMVE != nil && t.Sparse == nil {
		at := slices.Index(r.Outputs, outMultivector)
		r.Outputs = slices.Insert(r.Outputs, at, outSparse)
		r.Dims[outSparse] = r.Loadtime.SMVE.Width * r.Loadtime.SMVE.Repetitions
	}
}

// profileList fills the profiles that /v1/models shows and the option "profile" accepts. A bare id
// offers all profiles of the file. A variant offers only itself, as the profile "default".
func (r *Resolved) profileList() error {
	if r.ID != r.BaseID {
		r.Profiles = []ProfileInfo{{Name: DefaultProfile, IsDefault: true}}
		return nil
	}
	for _, p := range r.Model.Profiles {
		r.Profiles = append(r.Profiles, ProfileInfo{Name: p.Name, IsDefault: p.Name == r.Profile})
		if p.Name == r.Profile {
			r.runtimes[p.Name] = r.Runtime
			continue
		}
		full, err := r.Model.resolved(p.Name)
		if err != nil {
			return err
		}
		if r.runtimes[p.Name], err = parseRuntime(full.Runtime, false); err != nil {
			return fmt.Errorf("model '%s', profile '%s': %w", r.ID, p.Name, err)
		}
	}
	return nil
}

// Usable returns nil when this build can run the model, as far as the catalog knows. Otherwise the
// error says why not: a remote_backed model, an unknown adapter, a user's adapter file, outputs
// that the adapter does not give, or a family that this build does not serve. Listing and resolving
// work either way. Check Usable before loading.
func (r *Resolved) Usable() error {
	if r.Model.RemoteBacked {
		return fmt.Errorf("model '%s' is remote_backed: %s", r.ID, noForwarding)
	}
	if r.Family == FamilyNone {
		return unknownAdapter(r.ID, r.Adapter)
	}
	if ok, reason := r.Family.Served(); !ok {
		return fmt.Errorf("model '%s' cannot be served: %s", r.ID, reason)
	}
	for _, o := range r.Model.Tasks.Outputs() {
		if !slices.Contains(r.Family.info().outputs, o) {
			return fmt.Errorf("model '%s' declares the output %s, which its adapter '%s' does not give",
				r.ID, o, r.Adapter)
		}
	}
	return nil
}

// Options returns the options of one request. They are the runtime options of the profile that the
// request names with "profile" (its own profile when absent), replaced by the other options of the
// request; null unsets an option. Options of other operations without effect in op are left out and
// named in ignored, sorted. Any other option without effect on the model is refused. An
// *OptionError is the client's mistake. The result may be shared and must not be changed.
func (r *Resolved) Options(
	op Operation, request map[string]any,
) (out *RuntimeOptions, ignored []string, err error) {
	base := r.Runtime
	if v, ok := request["profile"]; ok && v != nil {
		name, isText := v.(string)
		if !isText {
			return nil, nil, &OptionError{
				Key: "profile",
				Msg: requestText("profile", v, errors.New("expected a string, got "+describe(v))),
			}
		}
		if base = r.runtimes[name]; base == nil {
			return nil, nil, &OptionError{
				Key: "profile", Msg: fmt.Sprintf("Profile '%s' not found. Available: %s",
					clip(name), pythonList(r.profileNames())),
			}
		}
	}
	request, ignored = r.splitOptions(op, request)
	if _, named := request["profile"]; len(request) == 0 || named && len(request) == 1 {
		return base, ignored, nil
	}
	if out, err = parseRuntime(overlay(base.Raw, request), true); err != nil {
		return nil, nil, err
	}
	if r.Usable() == nil { // otherwise the request fails with a more useful error
		if err := r.checkUse(op, request); err != nil {
			return nil, nil, err
		}
		if err := r.checkPooling(out); err != nil {
			return nil, nil, err
		}
		if err := r.checkFolds(request); err != nil {
			return nil, nil, err
		}
	}
	out.profileTypes = base.profileTypes
	return out, ignored, nil
}

// checkPooling refuses "splade" for models that do not give sparse vectors alone.
func (r *Resolved) checkPooling(o *RuntimeOptions) error {
	if info := r.Family.info(); o.Pooling != poolingSPLADE || info != nil && info.splade {
		return nil
	}
	err := errors.New("must be cls, mean, last or last_token; splade is for models that give sparse vectors")
	return &OptionError{Key: "pooling", Msg: requestText("pooling", string(poolingSPLADE), err)}
}

func (r *Resolved) profileNames() []string {
	names := make([]string, 0, len(r.Profiles))
	for _, p := range r.Profiles {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// AllowedOutputTypes returns the encode outputs that a request with these options may ask for. The
// order is dense, sparse, multivector. They are the outputs that the profile states, or else all
// that the model gives, folding included. The output types of the request itself do not extend the
// list. A nil o means the model's own options.
func (r *Resolved) AllowedOutputTypes(o *RuntimeOptions) []OutputType {
	if o == nil {
		o = r.Runtime
	}
	var out []OutputType
	for _, t := range []OutputType{OutputDense, OutputSparse, OutputMultivector} {
		if r.canOutput(t, o) && (o.profileTypes == nil || slices.Contains(o.profileTypes, t)) {
			out = append(out, t)
		}
	}
	return out
}

// canOutput reports whether the model gives t directly or by folding its multivector.
func (r *Resolved) canOutput(t OutputType, o *RuntimeOptions) bool {
	multi := r.Model.Tasks.Multivector != nil
	return slices.Contains(r.Model.Tasks.Outputs(), string(t)) ||
		t == OutputDense && multi && o.MUVERA && r.Loadtime.MUVERA != nil ||
		t == OutputSparse && multi && o.SMVE && r.Loadtime.SMVE != nil
}

// Has reports whether the model has an output, named as in /v1/models.
func (r *Resolved) Has(output string) bool { return slices.Contains(r.Outputs, output) }

// ScoresPairs reports whether the model scores by reading the query and a text together. Classify
// then gives its logits.
func (r *Resolved) ScoresPairs() bool {
	info := r.Family.info()
	return info != nil && info.pairs
}
