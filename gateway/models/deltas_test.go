package models_test

import (
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sie-engine/sie/gateway/models"
)

// A delta of a trusted producer makes the gateway ask at once, many make it ask few times, and what
// they say is not believed.
func TestDeltasSayWhenToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newControl()
		r, b := follow(t, c, io.Discard)
		synctest.Wait()
		c.take()
		trusted := []string{"sie-config"}
		for _, forged := range []string{
			`{"router_id":"evil","epoch":99}`, `{"router_id":"sie-configs","epoch":99}`,
			`{"producer_id":"evil","router_id":"sie-config"}`, `{}`, "x", "",
		} {
			models.Hear(b, []byte(forged), trusted)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.take(); len(got) != 0 {
			t.Errorf("forged deltas: %v", got)
		}
		d := b.Deltas()
		if d.Told.Load() != 0 || d.Untrusted.Load() != 4 || d.Unreadable.Load() != 2 {
			t.Errorf("%d told, %d untrusted, %d unreadable", d.Told.Load(), d.Untrusted.Load(),
				d.Unreadable.Load())
		}
		c.set(func() { c.epoch = 4; c.docs["org/new"] = doc("org/new", "", "bert_flash") })
		for range 1000 {
			models.Hear(b, []byte(`{"router_id":"sie-config-1","epoch":2,"model_config":"nonsense"}`), trusted)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := ids(r); !slices.Contains(got, "org/new") {
			t.Errorf("%v", got)
		}
		if got := c.take(); len(got) > 8 {
			t.Errorf("%d questions: %v", len(got), got)
		}
		models.Hear(b, []byte(`{"producer_id":"sie-config"}`), trusted)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := c.take(); !slices.Equal(got, []string{"/v1/configs/epoch"}) {
			t.Errorf("a delta without a change: %v", got)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := c.take(); !slices.Equal(got, []string{"/v1/configs/epoch"}) {
			t.Errorf("the next poll: %v", got)
		}
	})
}
