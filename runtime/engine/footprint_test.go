package engine

import (
	"context"
	"math/rand/v2"
	"testing"
)

// Two programs, each of which needs more of some part than the other, together take the larger of
// each part: more than either alone. In either order, the growth that the Runner predicts is what
// it then has, byte for byte.
func TestFootprintOfTwoPrograms(t *testing.T) {
	const first, second = 1 << 20, 1 << 21 // bytes of the outputs
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		d, r := newTestRunner(t, 2)
		programs := []*Program{
			newTiny(t, d, Caps{MaxTokens: 64, MaxSeqs: 64, MaxLen: 8}).program,
			newTiny(t, d, Caps{MaxTokens: 2048, MaxSeqs: 4, MaxLen: 1024}).program, // has a region
		}
		prints := []Footprint{programs[0].Footprint(first), programs[1].Footprint(0, second)}
		both := prints[0].With(prints[1])
		if arena, slots := both.Bytes(); true {
			for i, f := range prints {
				if a, s := f.Bytes(); a > arena || s >= slots {
					t.Errorf("program %d takes %d and %d bytes, both %d and %d", i, a, s, arena, slots)
				}
			}
		}
		run := func(i int) {
			t.Helper()
			for range 2 * slotsInFlight { // each slot has a turn
				b, _ := batchOf(rand.New(rand.NewPCG(1, 2)), programs[i], 3)
				b.OutBytes[i] = []int64{first, second}[i]
				if err := r.Run(context.Background(), b); err != nil {
					t.Fatal(err)
				}
			}
		}
		has := func() int64 { s := r.Stats(); return s.ArenaBytes + s.SlotBytes }
		arena, slots := both.Bytes()
		for step, i := range order {
			before := r.Stats()
			grows, passing := r.Growth(prints[i])
			if all, _ := r.Growth(both); all != arena+slots-has() {
				t.Errorf("before program %d the Runner is to grow by %d bytes to %d, and has %d",
					i, all, arena+slots, has())
			}
			run(i)
			if now := has(); now != before.ArenaBytes+before.SlotBytes+grows {
				t.Errorf("with program %d the Runner has %d bytes, want %+v and %d more",
					i, now, before, grows)
			}
			wants := int64(0)
			if r.Stats().ArenaBytes != before.ArenaBytes { // else it was not replaced
				wants = before.ArenaBytes
			}
			if passing != wants || step == 1 && i == 1 && wants == 0 {
				t.Errorf("with program %d the arena of %d bytes becomes one of %d; %d bytes pass",
					i, before.ArenaBytes, r.Stats().ArenaBytes, passing)
			}
			if again, passing := r.Growth(prints[i]); again != 0 || passing != 0 {
				t.Errorf("with program %d the Runner is still to grow by %d bytes, %d pass",
					i, again, passing)
			}
		}
		if now := has(); now != arena+slots {
			t.Errorf("%d bytes, want %d and %d", now, arena, slots)
		}
	}
}
