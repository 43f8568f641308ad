package nprand

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
)

// draws is the content of testdata/draws.json, which testdata/make.py writes with NumPy.
type draws struct {
	Seeds []struct {
		Seed     string
		Uint64   []string
		Uint32   []uint32
		Random   []string
		Random32 []string
		Normal   []string
		Normal32 []string
		Mixed    []string // integers
	}
	Bounds []struct {
		N       int32
		First   []int32
		Sum     int64
		Signs   []int
		SignSum int `json:"sign_sum"`
	}
	Normal, Normal32 run
}

type run struct {
	Count  int
	SHA256 string
	At     []int
	Tail   []string
}

func golden(t *testing.T) draws {
	t.Helper()
	data, err := os.ReadFile("testdata/draws.json")
	if err != nil {
		t.Fatal(err)
	}
	var d draws
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Seeds) == 0 || len(d.Bounds) == 0 || len(d.Normal.At) < 100 || len(d.Normal32.At) < 100 {
		t.Fatal("testdata/draws.json lacks cases: the test would prove nothing")
	}
	return d
}

func number(t *testing.T, hexadecimal string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(hexadecimal, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestDrawsOfEachSeed(t *testing.T) {
	for _, want := range golden(t).Seeds {
		seed, err := strconv.ParseUint(want.Seed, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		g := New(seed)
		for i, w := range want.Uint64 {
			if got := strconv.FormatUint(g.Uint64(), 10); got != w {
				t.Errorf("seed %d, uint64 %d: %s, NumPy draws %s", seed, i, got, w)
			}
		}
		g = New(seed)
		for i, w := range want.Uint32 {
			if got := g.Uint32(); got != w {
				t.Errorf("seed %d, uint32 %d: %d, NumPy draws %d", seed, i, got, w)
			}
		}
		for _, c := range []struct {
			name string
			want []string
			draw func(*Generator) float64
		}{
			{"random", want.Random, (*Generator).Float64},
			{"random of float32", want.Random32, func(g *Generator) float64 { return float64(g.Float32()) }},
			{"normal", want.Normal, (*Generator).Normal},
			{"normal of float32", want.Normal32, func(g *Generator) float64 { return float64(g.Normal32()) }},
		} {
			g := New(seed)
			for i, w := range c.want {
				if got := c.draw(g); got != number(t, w) {
					t.Errorf("seed %d, %s %d: %v, NumPy draws %v", seed, c.name, i, got, number(t, w))
				}
			}
		}
		// The half that Uint32 has kept survives draws of 64 bits.
		g = New(seed)
		mixed := []uint64{uint64(g.Uint32()), g.Uint64(), uint64(g.Uint32()), uint64(g.Below(10)),
			uint64(g.Float64() * (1 << 53)), 1}
		if g.Negative() {
			mixed[5] = math.MaxUint64 // −1
		}
		for i, w := range want.Mixed {
			if got := strconv.FormatUint(mixed[i], 10); got != w &&
				strconv.FormatInt(int64(mixed[i]), 10) != w {
				t.Errorf("seed %d, all kinds in turn, %d: %s, NumPy draws %s", seed, i, got, w)
			}
		}
	}
}

func TestIntegersAndSigns(t *testing.T) {
	for _, want := range golden(t).Bounds {
		g := New(42)
		var first []int32
		var signs []int
		var sum int64
		var signSum int
		for range 20001 {
			v := g.Below(want.N)
			if sum += int64(v); len(first) < len(want.First) {
				first = append(first, v)
			}
		}
		for range 20001 {
			sign := 1
			if g.Negative() {
				sign = -1
			}
			if signSum += sign; len(signs) < len(want.Signs) {
				signs = append(signs, sign)
			}
		}
		if !slices.Equal(first, want.First) || sum != want.Sum || !slices.Equal(signs, want.Signs) ||
			signSum != want.SignSum {
			t.Errorf("below %d: %v… sum %d, signs %v… sum %d; NumPy draws %v… %d, %v… %d",
				want.N, first, sum, signs, signSum, want.First, want.Sum, want.Signs, want.SignSum)
		}
	}
}

// Three million draws of each kind cover every strip, its edges, and the tails, where the last bit
// may differ.
func TestManyNormals(t *testing.T) {
	d, g := golden(t), New(42)
	check(t, d.Normal, 8, 0x1p-52, func() float64 { return g.Normal() },
		func(b []byte, x float64) { binary.LittleEndian.PutUint64(b, math.Float64bits(x)) })
	h := New(42)
	check(t, d.Normal32, 4, 0x1p-23, func() float64 { return float64(h.Normal32()) },
		func(b []byte, x float64) { binary.LittleEndian.PutUint32(b, math.Float32bits(float32(x))) })
}

func check(t *testing.T, want run, size int, ulp float64, draw func() float64, put func([]byte, float64)) {
	t.Helper()
	sum, b, tail, others := sha256.New(), make([]byte, size), 0, 0
	for i := range want.Count {
		x := draw()
		if math.Abs(x) > tailStart {
			if tail == len(want.At) || i != want.At[tail] {
				t.Fatalf("draw %d is %v, in a tail; NumPy has none there", i, x)
			}
			if w := number(t, want.Tail[tail]); x != w {
				if others++; math.Abs(x-w) > 4*ulp {
					t.Errorf("draw %d: %v, NumPy draws %v", i, x, w)
				}
			}
			x = 0
			tail++
		}
		put(b, x)
		sum.Write(b)
	}
	if tail != len(want.At) || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		t.Errorf("%d draws: %d in the tails, NumPy has %d; or others differ", want.Count, tail, len(want.At))
	}
	t.Logf("%d in the tails, %d with another last bit", tail, others)
}

// The float32 tables equal those in NumPy's library, bit for bit; make_tables.py prints their
// checksum.
func TestTablesOfFloat32(t *testing.T) {
	const want = "524de2e03728271f2c8f747f52632ac194b9fbd726a81e0a658458cbbd6fa54b"
	var b []byte
	for _, table := range []any{width32, density32, inside32} {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, table); err != nil {
			t.Fatal(err)
		}
	}
	if got := sha256.Sum256(b); hex.EncodeToString(got[:]) != want {
		t.Errorf("sum %x, NumPy's is %s", got, want)
	}
}
