package fold

import (
	"encoding/json"
	"math"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Constants derived from NumPy's sources before this code was written.
func TestKnownTables(t *testing.T) {
	near := func(what string, got float32, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 5e-7*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	tables, err := Muvera{Repetitions: 40, Bits: 6, Seed: 42}.Tables(128)
	if err != nil {
		t.Fatal(err)
	}
	block := 128 * 6
	for at, row := range map[int][]float64{
		0:                   {0.3047171, -1.039984, 0.7504512, 0.9405647, -1.951035, -1.302179},
		6:                   {0.1278404, -0.3162426, -0.01680116, -0.8530439, 0.879398, 0.7777919},
		block:               {0.2442295, 0.6781783, -0.5855294, -0.9086731, -1.991838, 0.971623},
		39 * block:          {0.5661435, 0.7750097, -0.7190191, 0.5013647, 1.230539, 0.04477891},
		block - 3:           {-1.783611, 0.08362108, -0.556192},
		len(tables.Simhash): {},
	} {
		for i, want := range row {
			near("simhash", tables.Simhash[at+i], want)
		}
	}
	var sum float64
	for _, v := range tables.Simhash[:block] {
		sum += float64(v)
	}
	near("sum of simhash", float32(sum), -27.96342)

	signs := func(table []int32) (first string, indexes, total int64) {
		for i, v := range table {
			sign := "+"
			if total++; v < 0 {
				sign, total, v = "-", total-2, ^v
			}
			if indexes += int64(v); i < 16 {
				first += sign
			}
		}
		return
	}
	ams := func(c int) []int32 {
		tables, err := Muvera{Repetitions: 1, Bits: 1, Projected: 8, Seed: 42}.Tables(c)
		if err != nil {
			t.Fatal(err)
		}
		return tables.AMS
	}
	s, indexes, total := signs(ams(128))
	if s != "++++-++-+---+---" || indexes != 473 || total != -12 {
		t.Errorf("AMS 128 → 8: %s, sums %d and %d", s, indexes, total)
	}
	first := ams(128)[:16]
	for i, want := range []int32{0, 6, 5, 3, ^3, 6, 0, ^5, 1, ^0, ^4, ^7, 5, ^6, ^5, ^6} {
		if first[i] != want {
			t.Errorf("AMS 128 → 8, column %d: %d, want %d", i, first[i], want)
		}
	}
	for c, want := range map[int]string{96: "-++-+-+-", 64: "--+---+-"} {
		if s, _, _ := signs(ams(c)); s[:8] != want {
			t.Errorf("AMS %d → 8: %s, want %s", c, s[:8], want)
		}
	}
	sketched, err := Muvera{Repetitions: 40, Bits: 6, Final: 10240, Seed: 42}.Tables(128)
	if err != nil {
		t.Fatal(err)
	}
	s, indexes, total = signs(sketched.Sketch)
	if len(sketched.Sketch) != 327680 || s[:8] != "+----++-" || indexes != 1678144814 || total != -154 {
		t.Errorf("sketch 327680 → 10240: %d, %.8s, sums %d and %d", len(sketched.Sketch), s, indexes, total)
	}
	if v := sketched.Sketch; v[0] != 913 || v[1] != ^7925 || v[7] != ^7141 {
		t.Errorf("sketch 327680 → 10240 begins with %d", v[:8])
	}
}

func TestDims(t *testing.T) {
	for _, c := range []struct {
		m        Muvera
		tokenDim int
		want     int
		sketched bool
	}{
		{Muvera{Repetitions: 40, Bits: 6, Final: 10240}, 128, 10240, true},
		{Muvera{Repetitions: 40, Bits: 6}, 128, 327680, false},
		{Muvera{Repetitions: 40, Bits: 6, Projected: 8}, 128, 20480, false},
		// a sketch to as many columns: skipped since 0.10.1
		{Muvera{Repetitions: 20, Bits: 6, Projected: 8, Final: 10240}, 128, 10240, false},
		{Muvera{Repetitions: 20, Bits: 6, Projected: 8, Final: 10239}, 128, 10239, true},
		{Muvera{Repetitions: 1, Bits: 1, Final: 1 << 20}, 3, 6, false},
	} {
		tables, err := c.m.Tables(c.tokenDim)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.m.Dims(c.tokenDim); got != c.want || c.m.Sketched(c.tokenDim) != c.sketched ||
			(tables.Sketch != nil) != c.sketched || (tables.Final != 0) != c.sketched {
			t.Errorf("%+v of %d columns: %d, want %d; sketch %t",
				c.m, c.tokenDim, got, c.want, tables.Sketch != nil)
		}
	}
	s := SMVE{Repetitions: 2, Width: 100, Top: 5, MaxNonzeros: 60}
	for tokens, want := range map[int]int{0: 1, 1: 10, 5: 50, 6: 60, 1 << 20: 60} {
		if got := s.Room(tokens); got != want {
			t.Errorf("room for %d tokens: %d, want %d", tokens, got, want)
		}
	}
	s.MaxNonzeros = 0
	if got := s.Room(1 << 20); got != 200 {
		t.Errorf("room for many tokens: %d, want 200", got)
	}
}

// Each refusal names the key at fault, its value and the allowed range.
func TestLimits(t *testing.T) {
	m, s := Muvera{Repetitions: 1, Bits: 1}, SMVE{Repetitions: 1, Width: 10, Top: 2}
	type tables interface{ Check(int) error }
	with := func(base tables, field string, value int64) tables {
		v := reflect.New(reflect.TypeOf(base)).Elem()
		v.Set(reflect.ValueOf(base))
		v.FieldByName(field).SetInt(value)
		return v.Interface().(tables)
	}
	for _, c := range []struct {
		what tables
		dim  int
		want string // "" for none
	}{
		{m, 4, ""},
		{m, 0, "muvera_config.token_dim is 0; 1 to 65536 is possible"},
		{m, MaxTokenDim + 1, "token_dim is 65537"},
		{with(m, "Repetitions", 0), 4, "muvera_config.num_repetitions is 0; 1 to 4096"},
		{with(m, "Repetitions", 4097), 4, "num_repetitions is 4097"},
		{with(m, "Bits", 0), 4, "num_simhash_projections is 0; 1 to 10"},
		{with(m, "Bits", 11), 4, "num_simhash_projections is 11"},
		{with(m, "Projected", -1), 4, "projection_dim is -1"},
		{with(m, "Final", -1), 4, "final_projection_dim is -1"},
		{with(m, "Seed", -1), 4, "muvera_config.seed is -1"},
		{Muvera{Repetitions: 4096, Bits: 10, Projected: 4}, 8, ""},
		{Muvera{Repetitions: 4096, Bits: 10, Projected: 5}, 8,
			"are 20971520 numbers before the sketch; the limit is 16777216"},
		{Muvera{Repetitions: 4096, Bits: 10, Projected: 1}, 16384,
			"need tables of 2952790016 bytes for tokens of 16384 columns; the limit is 1073741824"},
		{s, 4, ""},
		{s, 0, "smve_config.token_dim is 0"},
		{with(s, "Width", 0), 4, "smve_config.width is 0"},
		{with(s, "Top", 0), 4, "smve_config.k is 0; 1 to 10"},
		{with(s, "Top", 11), 4, "smve_config.k is 11"},
		{with(s, "Repetitions", 0), 4, "num_repetitions is 0"},
		{with(s, "MaxNonzeros", -1), 4, "max_nonzeros is -1"},
		{with(s, "Seed", -1), 4, "smve_config.seed is -1"},
		{SMVE{Repetitions: 2, Width: MaxDims, Top: 2}, 4,
			"width 16777216 times num_repetitions 2 are 33554432 columns"},
		{SMVE{Repetitions: 1, Width: 65536, Top: 2}, 4096, ""},
		{SMVE{Repetitions: 1, Width: 65536, Top: 2}, 4097,
			"need anchors of 1074003968 bytes for tokens of 4097 columns"},
	} {
		err := c.what.Check(c.dim)
		if (err == nil) != (c.want == "") || (err != nil && !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v of %d columns: %v, want %q", c.what, c.dim, err, c.want)
		}
	}
	if _, err := (Muvera{Bits: 1}).Tables(4); err == nil {
		t.Error("tables without a repetition were built")
	}
	if _, err := (SMVE{Width: 1}).Tables(4); err == nil {
		t.Error("anchors without a repetition were built")
	}
}

func TestTablesAreShared(t *testing.T) {
	m := Muvera{Repetitions: 2, Bits: 3, Seed: 11}
	var wait sync.WaitGroup
	got := make([]*MuveraTables, 16)
	for i := range got {
		wait.Go(func() {
			same := m
			same.CenterTokens, same.FillEmpty, same.Normalize = i&1 != 0, i&2 != 0, i&4 != 0
			if i&8 != 0 {
				same.Final = 1 << 20 // skipped
			}
			got[i], _ = same.Tables(12)
		})
	}
	wait.Wait()
	for i, tables := range got {
		if tables == nil || tables != got[0] {
			t.Errorf("caller %d has tables of its own", i)
		}
	}
	if other, _ := m.Tables(13); other == got[0] {
		t.Error("tokens of another width have the same tables")
	}
	m.Seed++
	if other, _ := m.Tables(12); other == got[0] || other.Simhash[0] == got[0].Simhash[0] {
		t.Error("another seed has the same tables")
	}
	s := SMVE{Repetitions: 1, Width: 20, Top: 3, Seed: 5}
	a, _ := s.Tables(6)
	s.Top, s.MaxNonzeros = 4, 9
	if b, _ := s.Tables(6); a != b {
		t.Error("anchors depend on how many are kept")
	}
	runtime.KeepAlive(got)
}

// Eight callers at once get the value that one of them makes, even when the garbage collector frees
// an older value meanwhile.
func TestTablesAreBuiltOnce(t *testing.T) {
	var s tableCache[int, [64]int]
	var built atomic.Int32
	var wait sync.WaitGroup
	values := make([]*[64]int, 8)
	for i := range values {
		wait.Go(func() {
			values[i] = s.get(1, func() *[64]int {
				built.Add(1)
				s.forget(1)
				time.Sleep(20 * time.Millisecond) // long enough for the others to arrive
				return new([64]int)
			})
		})
	}
	wait.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("built %d times", n)
	}
	runtime.KeepAlive(values)
}

// A value that no caller holds is freed with its entry. A value that is held stays.
func TestTablesAreReleased(t *testing.T) {
	var s tableCache[int, [64]int]
	build := func(v int) func() *[64]int { return func() *[64]int { return &[64]int{v} } }
	held := s.get(1, build(1))
	s.get(2, build(2))
	entries := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.entries)
	}
	for deadline := time.Now().Add(2 * time.Minute); entries() != 1 && time.Now().Before(deadline); {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if n := entries(); n != 1 {
		t.Errorf("%d entries, one is held", n)
	}
	if again := s.get(1, build(-1)); again != held || held[0] != 1 {
		t.Error("what was held was built again")
	}
	if again := s.get(2, build(3)); again[0] != 3 {
		t.Error("what was released came back")
	}
	runtime.KeepAlive(held)
}

// decode turns a golden note into a struct.
func decode[T any](t *testing.T, note any) (out T) {
	t.Helper()
	data, err := json.Marshal(note)
	if err == nil {
		err = json.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}
