package arch

import (
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/sie-engine/sie/internal/files"
	"github.com/sie-engine/sie/runtime/engine"
	"github.com/sie-engine/sie/weights"
)

// Report is what Check found in a model directory.
type Report struct {
	Arch    string // its name in architectures
	Compute engine.Compute
	Dim     int // columns of a dense vector; 0 where a tensor that it depends on is missing
	Layers  int
	Tokens  int64 // of the longest sequence
	OwnCode bool  // the configuration names code in a repository, which never runs here

	Parts    []string // folders and files with weights that Load reads
	Read     int      // tensors that Load reads
	Problems []error  // each tensor that is missing, or of another shape or type than wanted
	LeftOver []string // names of tensors in the encoder's file that Load does not read, sorted
	Size     Size
}

// Check reads the configuration and the headers of the weights, as SizeOf does, and goes on at a
// tensor that Load would refuse. Errors are those that leave nothing to look at. A model with
// Problems cannot be loaded.
func Check(dir string, dev *engine.Device, o Options) (*Report, error) {
	m, parts, err := describe(dir, dev, o)
	if err != nil {
		return nil, err
	}
	s := sizing{found: &inventory{read: make(map[string]map[string]bool)}}
	if err := m.pack(dir, parts, &packer{sizing: &s}); err != nil {
		// An error of one tensor goes on; another one ends the look, and is the last problem.
		if m.encoder == nil && len(s.found.problems) == 0 {
			return nil, err
		}
		s.found.problems = append(s.found.problems, err)
	}
	r := &Report{Arch: m.Arch, Compute: m.Compute, Dim: m.Dim, Layers: m.Layers,
		Problems: s.found.problems, Size: Size{Packed: s.packed, Passing: s.peak - s.packed}}
	if m.encoder != nil {
		r.Tokens = m.longest(parts.limits.maxSeqLen, o)
	}
	for _, file := range slices.Sorted(maps.Keys(s.found.read)) {
		r.Parts = append(r.Parts, file)
		r.Read += len(s.found.read[file])
	}
	code := []classRef(nil)
	if parts.chain.nested.file == "" { // another package's file names no code
		config := path.Join(parts.chain.encoderDir, configFile)
		if code, _, err = readAutoMap(files.Dir(dir), config); err != nil {
			return nil, err
		}
	}
	r.OwnCode = len(code) > 0
	r.LeftOver, err = leftOver(dir, parts.chain.encoderDir, s.found)
	return r, err
}

// leftOver returns the tensors of the encoder's checkpoint that were not asked for.
func leftOver(dir, folder string, found *inventory) ([]string, error) {
	checkpoint, err := weights.Open(path.Join(dir, folder))
	if err != nil {
		return nil, err
	}
	defer checkpoint.Close()
	read := found.read[checkpoint.Name()]
	return slices.DeleteFunc(checkpoint.Names(), func(name string) bool { return read[name] }), nil
}

// inventory collects what a load that packs nothing asks for.
type inventory struct {
	read     map[string]map[string]bool // the tensors asked for that are there, by file
	problems []error
}

// note notes a tensor that p looked for, and reports whether the load may go on. It may where the
// tensor itself is what is wrong. A nil inventory notes nothing.
func (v *inventory) note(p *packer, name string, err error) (goOn bool) {
	if v == nil {
		return false
	}
	if t, there := p.from.Tensor(name); there {
		if v.read[p.file] == nil {
			v.read[p.file] = make(map[string]bool)
		}
		v.read[p.file][t.Name] = true
	}
	var m *ModelError
	if err != nil && !errors.As(err, &m) {
		return false
	}
	// a tensor with both halves of a gate is asked for twice
	told := func(one error) bool { return one.Error() == err.Error() }
	if err != nil && !slices.ContainsFunc(v.problems, told) {
		v.problems = append(v.problems, err)
	}
	return true
}
