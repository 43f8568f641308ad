package pools

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/gateway/fleet"
	"github.com/sie-engine/sie/internal/lease"
	"github.com/sie-engine/sie/internal/testrig"
)

// plainPool is a pool of the plain model: what a client may expect of it.
type plainPool struct {
	spec    lease.Spec
	renewed time.Time
	ttl     time.Duration
}

// settle is how long it takes at most until every gateway says the same, and every worker is where
// it belongs.
const settle = 4 * time.Second

// Any calls, at any of three gateways, with workers that come and go, pools that expire and a
// bucket that is lost: every answer is that of a plain model, no worker serves two pools, none
// serves a pool for longer than 5 s after its end, and none is idle while a pool needs it.
// With a number in SIE_TEST_TURN half of the seeds.
func TestAnyCallsAgainstAPlainModel(t *testing.T) {
	mine := testrig.Part(t, 2)
	for seed := range uint64(4) {
		if mine(int(seed)) {
			synctest.Test(t, func(t *testing.T) { runPlain(t, seed) })
		}
	}
}

func runPlain(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	store, few := &memory{}, &workers{all: map[string]*fleet.Worker{}}
	var keepers []*Keeper
	for range 3 {
		k := newKeeper(few, nil)
		keepers = append(keepers, k)
		go func() { _ = k.Run(ctx, store) }()
	}
	synctest.Wait()
	plain := map[string]*plainPool{}
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	for step := range 150 {
		for _, p := range plain { // no call as a pool expires
			if left := time.Until(p.renewed.Add(p.ttl)); left > 0 && left < 2*time.Second {
				time.Sleep(3 * time.Second)
			}
		}
		for name, p := range plain {
			if !time.Now().Before(p.renewed.Add(p.ttl)) {
				delete(plain, name)
			}
		}
		k, name := keepers[r.IntN(3)], names[r.IntN(len(names))]
		at := func() string { return fmt.Sprintf("seed %d, step %d, %s", seed, step, name) }
		switch r.IntN(10) {
		case 0, 1, 2:
			s := lease.Spec{Name: name, GPUs: map[string]int{"l4": r.IntN(4)}, TTL: int64(1+r.IntN(60)) * 60}
			if r.IntN(3) == 0 {
				s.Caps = map[string]int{"h100": r.IntN(3)}
			}
			if r.IntN(3) == 0 {
				s.Bundle = "default"
			}
			want := ""
			if plain[name] == nil && len(plain) >= testLimits.Pools {
				want = "POOL_OPERATION_FORBIDDEN"
			}
			p, e := k.Put(ctx, s)
			if codeOf(e) != want {
				t.Fatalf("%s: put: %v, want %q", at(), e, want)
			}
			if e == nil {
				plain[name] = &plainPool{s, time.Now(), time.Duration(s.TTL) * time.Second}
				if time.Since(p.Renewed) > time.Second || p.Created.After(p.Renewed) {
					t.Fatalf("%s: made at %v, renewed at %v", at(), p.Created, p.Renewed)
				}
			}
		case 3, 4:
			e := k.Renew(ctx, name)
			if (e == nil) != (plain[name] != nil) || e != nil && e.Status != 404 {
				t.Fatalf("%s: renew: %v, there is %v", at(), e, plain[name] != nil)
			}
			if e == nil {
				plain[name].renewed = time.Now()
			}
		case 5:
			e := k.Delete(ctx, name)
			if (e == nil) != (plain[name] != nil) || e != nil && e.Status != 404 {
				t.Fatalf("%s: delete: %v, there is %v", at(), e, plain[name] != nil)
			}
			delete(plain, name)
		case 6, 7:
			id := fmt.Sprintf("w%d", r.IntN(9))
			if r.IntN(3) == 0 {
				few.drop(id)
			} else {
				few.set(id, testLanes[int(id[1]-'0')%len(testLanes)], r.IntN(5) > 0)
			}
		case 8:
			time.Sleep(time.Duration(r.IntN(1200)) * time.Second)
		case 9:
			time.Sleep(settle) // all know all
			if r.IntN(3) == 0 {
				store.lose()
				time.Sleep(settle) // what is deleted before that may be revived
			}
		}
		if r.IntN(3) == 0 {
			time.Sleep(settle)
			checkPlain(t, fmt.Sprintf("seed %d, step %d", seed, step), keepers, few, plain)
		}
	}
	stop()
	synctest.Wait()
}

// checkPlain compares what every gateway says with the plain model.
func checkPlain(t *testing.T, at string, keepers []*Keeper, w *workers, plain map[string]*plainPool) {
	t.Helper()
	live := map[string]candidate{}
	for _, x := range w.snapshot().Workers {
		live[x.ID] = candidate{x.ID, x.Home, x.Ready()}
	}
	for i, k := range keepers {
		all, expected := k.Pools(), 0
		for _, p := range plain {
			if time.Now().Before(p.renewed.Add(p.ttl)) {
				expected++
			}
		}
		if len(all) != expected {
			t.Fatalf("%s: gateway %d has %d pools, want %d", at, i, len(all), expected)
		}
		serves := map[string]string{}
		for _, p := range all {
			if plain[p.Spec.Name] == nil {
				t.Fatalf("%s: gateway %d has pool %s, which is gone", at, i, p.Spec.Name)
			}
			for _, x := range p.Assigned {
				c, ok := live[x.ID]
				switch {
				case !ok || !fits(&p.Spec, &c):
					t.Fatalf("%s: worker %s serves %s, and is %+v", at, x.ID, p.Spec.Name, c)
				case serves[x.ID] != "":
					t.Fatalf("%s: worker %s serves %s and %s", at, x.ID, serves[x.ID], p.Spec.Name)
				}
				serves[x.ID] = p.Spec.Name
			}
			if len(p.Assigned) > testLimits.Workers {
				t.Fatalf("%s: pool %s has %d workers", at, p.Spec.Name, len(p.Assigned))
			}
		}
		for _, p := range all {
			for _, profile := range p.Spec.Profiles() {
				have, need := p.Count(profile), p.Spec.Needs(profile)
				most := need
				if cap, ok := p.Spec.Caps[profile]; ok {
					most = max(most, cap)
				}
				if have > most {
					t.Fatalf("%s: pool %s has %d workers of %s, more than %d",
						at, p.Spec.Name, have, profile, most)
				}
				for id, c := range live {
					idle := serves[id] == "" && c.Ready && c.Home.Profile == profile && fits(&p.Spec, &c)
					if have < need && idle {
						t.Fatalf("%s: pool %s has %d of %d %s, and %s is idle",
							at, p.Spec.Name, have, need, profile, id)
					}
				}
			}
		}
	}
}
