package arch

import (
	"encoding/json"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/sie-engine/sie/runtime/engine"
)

// Rotary position embeddings (Su 2021, arXiv:2104.09864) rotate pairs of a head's columns by an
// angle that grows with the position. A configuration says how fast each pair turns. The tables of
// cos and sin are made here, on the host: angles in float64, entries in float32.

// ropeKind is one way to compute the angles, and the keys that it needs.
type ropeKind struct {
	needs  []string
	angles func(r *rope, dim, length int64) []float64
}

// ropeKinds maps rope_type to the ways that this build knows.
var ropeKinds = map[string]ropeKind{
	"default": {nil, func(r *rope, dim, _ int64) []float64 { return plainAngles(r.theta, dim) }},
	"linear":  {[]string{"factor"}, (*rope).linear},
	"dynamic": {[]string{"factor"}, (*rope).dynamic},
	"yarn":    {nil, (*rope).yarn},
	"llama3":  {[]string{"factor", "low_freq_factor", "high_freq_factor"}, (*rope).llama3},
	"ntk":     {[]string{"factor"}, (*rope).ntk},
}

// rope holds the rotary embeddings of one kind of layer. A number of 0 is one that the file does
// not give, and that no kind takes for a value.
type rope struct {
	kind  string  // of ropeKinds
	theta float64 // the base
	part  float64 // the share of a head's columns that is rotated

	factor                 float64
	low, high              float64 // llama3: low_freq_factor, high_freq_factor
	attention              float64 // yarn: attention_factor, the scale of cos and sin
	mscale, mscaleAll      float64 // yarn: they give the scale where attention is 0
	fast, slow             float64 // yarn: beta_fast, beta_slow
	noTruncate             bool    // yarn: truncate is false
	mixed                  float64 // ntk: mixed_b
	positions, trainedWith float64 // max_position_embeddings, original_max_position_embeddings
}

// newRope returns plain embeddings of that base for a model of that many positions.
func newRope(theta float64, positions int64) rope {
	return rope{kind: "default", theta: theta, part: 1, positions: float64(positions)}
}

// readRope reads the embeddings of a configuration with one kind of layer, in the form
// rope_parameters or in the older form rope_theta and rope_scaling. theta is the base where the
// file has none.
func readRope(dir fs.FS, theta float64) (rope, error) {
	var c struct {
		Theta      *float64                   `json:"rope_theta"`
		Part       *float64                   `json:"partial_rotary_factor"`
		Positions  int64                      `json:"max_position_embeddings"`
		Original   *float64                   `json:"original_max_position_embeddings"`
		Scaling    map[string]json.RawMessage `json:"rope_scaling"`
		Parameters map[string]json.RawMessage `json:"rope_parameters"`
	}
	if err := needJSON(dir, configFile, &c); err != nil {
		return rope{}, err
	}
	r := newRope(theta, c.Positions)
	if c.Theta != nil {
		r.theta = *c.Theta
	}
	if c.Part != nil {
		r.part = *c.Part
	}
	field, keys := "rope_parameters", c.Parameters
	if len(c.Scaling) > 0 { // it wins where a file has both, as in transformers
		field, keys = "rope_scaling", c.Scaling
	}
	if err := r.merge(field, keys); err != nil {
		return r, err
	}
	if c.Original != nil { // so does the key outside
		r.trainedWith = *c.Original
	}
	return r, r.check(field)
}

// neverZero lists the numbers whose 0 would mean something else than no number in the reference.
var neverZero = []string{"factor", "attention_factor", "mixed_b", "original_max_position_embeddings"}

// merge takes over the keys of one JSON object, which is the value of field. Keys that are absent
// or null stay as they are.
func (r *rope) merge(field string, keys map[string]json.RawMessage) error {
	numbers := map[string]*float64{
		"rope_theta": &r.theta, "partial_rotary_factor": &r.part, "factor": &r.factor,
		"low_freq_factor": &r.low, "high_freq_factor": &r.high, "attention_factor": &r.attention,
		"mscale": &r.mscale, "mscale_all_dim": &r.mscaleAll, "beta_fast": &r.fast, "beta_slow": &r.slow,
		"mixed_b": &r.mixed, "original_max_position_embeddings": &r.trainedWith,
	}
	if err := r.mergeKind(field, keys); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		var value any
		if err := json.Unmarshal(keys[key], &value); err != nil || value == nil {
			continue // it is valid JSON: the file was decoded
		}
		number, isNumber := value.(float64)
		switch to := numbers[key]; {
		case to != nil && number == 0 && isNumber && slices.Contains(neverZero, key):
			return refuse(configFile, field+"."+key, "is 0; above 0 is possible, or null for none")
		case to != nil && isNumber:
			*to = number
		case to != nil:
			return refuse(configFile, field+"."+key, "is %.60s; a number is wanted", keys[key])
		case key == "truncate":
			truncate, ok := value.(bool)
			if !ok {
				return refuse(configFile, field+"."+key, "is %.60s; true or false is wanted", keys[key])
			}
			r.noTruncate = !truncate
		case key != "rope_type" && key != "type":
			return refuse(configFile, field+"."+key,
				"is no key of rotary embeddings that this server knows; remove it if it has no effect")
		}
	}
	return nil
}

// mergeKind takes over rope_type, or type, its name in older files.
func (r *rope) mergeKind(field string, keys map[string]json.RawMessage) error {
	key := "rope_type"
	if keys[key] == nil {
		key = "type"
	}
	if keys[key] == nil {
		return nil
	}
	var kind string
	if err := json.Unmarshal(keys[key], &kind); err == nil {
		if _, ok := ropeKinds[kind]; ok {
			r.kind = kind
			return nil
		}
	}
	return refuse(configFile, field+"."+key, "is %.60s; supported are %s", keys[key], listed(ropeKinds))
}

// check refuses numbers that give no embeddings. field names the object that they come from.
func (r *rope) check(field string) error {
	given := map[string]float64{
		"factor": r.factor, "low_freq_factor": r.low, "high_freq_factor": r.high,
	}
	for _, key := range ropeKinds[r.kind].needs {
		if given[key] == 0 {
			return refuse(configFile, field+"."+key, "is 0 or missing; rope_type %q needs it", r.kind)
		}
	}
	for _, number := range []struct {
		key             string
		value, from, to float64
	}{
		{"rope_theta", r.theta, 1.001, 1e15},
		{"partial_rotary_factor", r.part, 1e-3, 1},
		{"factor", r.factor, 0, 1e6},
		{"low_freq_factor", r.low, 0, 1e6},
		{"high_freq_factor", r.high, 0, 1e6},
		{"attention_factor", r.attention, 0, 1e6},
		{"mscale", r.mscale, 0, 1e6},
		{"mscale_all_dim", r.mscaleAll, 0, 1e6},
		{"beta_fast", r.fast, 0, 1e6},
		{"beta_slow", r.slow, 0, 1e6},
		{"mixed_b", r.mixed, 0, 100},
		{"original_max_position_embeddings", r.trainedWith, 0, 1 << 30},
	} {
		if !(number.value >= number.from && number.value <= number.to) {
			return refuse(configFile, field+"."+number.key, "is %g; %.10g to %g is possible",
				number.value, number.from, number.to)
		}
	}
	if r.kind == "yarn" && r.factor == 0 && r.trainedWith == 0 {
		return refuse(configFile, field+".factor",
			"is missing; rope_type yarn needs it, or original_max_position_embeddings to compute it")
	}
	if r.kind == "llama3" && r.high <= r.low {
		return refuse(configFile, field+".high_freq_factor", "is %g; it must be above low_freq_factor, %g",
			r.high, r.low)
	}
	return nil
}

// rotated returns how many columns of a head take part: a share of them, before it is made even.
func (r *rope) rotated(headDim int64) int64 { return int64(float64(headDim) * r.part) }

// original returns the length that the model was trained with before its positions were stretched.
func (r *rope) original() float64 {
	if r.trainedWith != 0 {
		return r.trainedWith
	}
	return r.positions
}

// frequencies returns the angle from one position to the next of each pair of columns, for heads of
// headDim columns, and the factor of all cos and sin. Only the kind dynamic depends on the length
// of the text; up to max_position_embeddings it is the default.
func (r *rope) frequencies(headDim, length int64) (angles []float64, scale float64) {
	angles, scale = ropeKinds[r.kind].angles(r, r.rotated(headDim), length), 1
	if r.kind == "yarn" {
		scale = r.yarnScale()
	}
	return angles, scale
}

// plainAngles returns theta^(−2i/dim) for i from 0.
func plainAngles(theta float64, dim int64) []float64 {
	out := make([]float64, (dim+1)/2)
	for i := range out {
		out[i] = math.Pow(theta, -float64(2*i)/float64(dim))
	}
	return out
}

func (r *rope) linear(dim, _ int64) []float64 {
	angles := plainAngles(r.theta, dim)
	for i := range angles {
		angles[i] /= r.factor
	}
	return angles
}

// dynamic is NTK scaling whose base grows with the length of the text.
func (r *rope) dynamic(dim, length int64) []float64 {
	theta, d := r.theta, float64(dim)
	if longest := float64(length); longest > r.positions {
		theta *= math.Pow(r.factor*longest/r.positions-(r.factor-1), d/(d-2))
	}
	return plainAngles(theta, dim)
}

// ntk is the fixed form of the models whose model_type is new (Alibaba's GTE): a larger base, and
// all angles divided by factor^(2/dim). With mixed_b the base stays, and pair m is divided by
// exp(a·m^b), where a makes that the factor for the last pair.
func (r *rope) ntk(dim, _ int64) []float64 {
	d := float64(dim)
	if r.mixed == 0 {
		angles := plainAngles(r.theta*r.factor, dim)
		for i := range angles {
			angles[i] /= math.Pow(r.factor, 2/d)
		}
		return angles
	}
	angles, a := plainAngles(r.theta, dim), math.Log(r.factor)/math.Pow(d/2, r.mixed)
	for i := range angles {
		angles[i] /= math.Exp(a * math.Pow(float64(i+1), r.mixed))
	}
	return angles
}

// llama3 divides slow pairs by the factor, leaves fast ones, and goes smoothly from one to the
// other.
func (r *rope) llama3(dim, _ int64) []float64 {
	angles := plainAngles(r.theta, dim)
	for i, angle := range angles {
		turns := r.original() * angle / (2 * math.Pi) // within the trained length
		smooth := min(1, max(0, (turns-r.low)/(r.high-r.low)))
		angles[i] = (1-smooth)*angle/r.factor + smooth*angle
	}
	return angles
}

// stretch returns YaRN's factor. A file may give null and leave it to the lengths.
func (r *rope) stretch() float64 {
	if r.factor != 0 {
		return r.factor
	}
	return r.positions / r.original()
}

// yarn (Peng 2023, arXiv:2309.00071) leaves pairs that turn often within the trained length,
// divides those that hardly turn by the factor, and ramps between them.
func (r *rope) yarn(dim, _ int64) []float64 {
	angles, d := plainAngles(r.theta, dim), float64(dim)
	pairOf := func(turns float64) float64 {
		return d * math.Log(r.original()/(turns*2*math.Pi)) / (2 * math.Log(r.theta))
	}
	low, high := pairOf(orElse(r.fast, 32)), pairOf(orElse(r.slow, 1))
	if !r.noTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, d-1)
	if low == high {
		high += 0.001
	}
	for i, angle := range angles {
		ramp := min(1, max(0, (float64(i)-low)/(high-low)))
		angles[i] = angle/r.stretch()*ramp + angle*(1-ramp)
	}
	return angles
}

// yarnScale returns the factor of cos and sin.
func (r *rope) yarnScale() float64 {
	if r.attention != 0 {
		return r.attention
	}
	grown := func(mscale float64) float64 {
		if r.stretch() <= 1 {
			return 1
		}
		return 0.1*mscale*math.Log(r.stretch()) + 1
	}
	if r.mscale != 0 && r.mscaleAll != 0 {
		return grown(r.mscale) / grown(r.mscaleAll)
	}
	return grown(1)
}

// orElse returns value, or otherwise where value is 0.
func orElse(value, otherwise float64) float64 {
	if value == 0 {
		return otherwise
	}
	return value
}

// rotary holds the packed tables of a rope: cos and sin [positions, columns/2], and for longer
// texts the turns of each length [lengths, columns], or nil.
type rotary struct {
	columns         int32 // of a head that are rotated, even
	cos, sin, turns *engine.Weight
}

// rope packs the tables for heads of headDim columns and texts of up to that many positions.
func (p *packer) rope(r *rope, headDim, positions int64) rotary {
	if r.kind == "dynamic" && float64(positions) > r.positions {
		p.fail(refuse(configFile, "max_position_embeddings",
			"is %g; rope_type dynamic has other angles for each length beyond it, and %d tokens are asked for",
			r.positions, positions))
	}
	dim := r.rotated(headDim)
	if dim < 3 || (dim+1)/2*2 > headDim {
		p.fail(refuse(configFile, "partial_rotary_factor",
			"%g rotates %d of a head's %d columns; at least 3 are needed, and they must fit in pairs",
			r.part, dim, headDim))
	}
	if p.err != nil {
		return rotary{}
	}
	pairs := (dim + 1) / 2
	var cos, sin []byte
	if p.sizing != nil {
		cos = make([]byte, 4*pairs*positions) // its size alone counts
		sin = cos
	} else {
		c, s := r.tables(headDim, positions)
		cos, sin = littleEndian(c), littleEndian(s)
	}
	return rotary{columns: int32(2 * pairs), cos: p.data(pairs, engine.F32, cos),
		sin: p.data(pairs, engine.F32, sin)}
}

// ropeByLength is rope, and where the kind is dynamic longer texts than it has positions turn by
// their own length.
func (p *packer) ropeByLength(r *rope, headDim, positions int64) rotary {
	tabled := positions
	if r.kind == "dynamic" {
		tabled = min(positions, int64(r.positions))
	}
	t := p.rope(r, headDim, tabled)
	if p.err == nil && tabled < positions {
		t.turns = p.data(int64(t.columns), engine.I32, littleEndian(r.turns(headDim, tabled, positions)))
	}
	return t
}

// turns returns a row for each length from tabled + 1 to positions, [lengths, 2·pairs]: of each
// pair the upper 32 bits of its turn from one position to the next, in 2⁻⁶⁴ of a whole turn, then
// of each pair the lower ones.
func (r *rope) turns(headDim, tabled, positions int64) []int32 {
	var rows []int32
	for length := tabled + 1; length <= positions; length++ {
		angles, _ := r.frequencies(headDim, length)
		upper, lower := make([]int32, len(angles)), make([]int32, len(angles))
		for i, angle := range angles { // at most 1 radian
			turn := uint64(math.Ldexp(angle/(2*math.Pi), 64))
			upper[i], lower[i] = int32(uint32(turn>>32)), int32(uint32(turn))
		}
		rows = append(append(rows, upper...), lower...)
	}
	return rows
}

// tables returns cos and sin of each position's angles, [positions, pairs].
func (r *rope) tables(headDim, positions int64) (cos, sin []float32) {
	angles, scale := r.frequencies(headDim, positions)
	size := int(positions) * len(angles)
	cos, sin = make([]float32, 0, size), make([]float32, 0, size)
	for position := range positions {
		for _, angle := range angles {
			s, c := math.Sincos(float64(position) * angle)
			cos, sin = append(cos, float32(scale*c)), append(sin, float32(scale*s))
		}
	}
	return cos, sin
}

// rotate records the rotation of q and k in place, by heads of headDim columns.
func (t rotary) rotate(r *engine.Recorder, q, k engine.Value, a engine.Attention) {
	r.Rope(q, k, engine.Rotation{Heads: a.Heads, KVHeads: a.KVHeads, HeadDim: a.HeadDim, Rot: t.columns,
		Cos: t.cos, Sin: t.sin, Turns: t.turns})
}
