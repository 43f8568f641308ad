package registry

import (
	"strings"
	"testing"
	"time"
)

// Validate names every negative option, and accepts the defaults.
func TestOptionsAreValidated(t *testing.T) {
	if err := new(Options).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := (&Options{
		Idle: -1, Timeout: -1, Patience: -1, Drain: -1, Cooldown: -1, MaxCooldown: -1, Fetches: -2,
		MaxAttempts: -1, Cooldowns: map[string]time.Duration{"OOM": -1, "TIMEOUT": 1},
	}).Validate()
	for _, name := range []string{"Idle", "Timeout", "Patience", "Drain", "Cooldown", "MaxCooldown",
		"Cooldowns[OOM]", "MaxAttempts", "Fetches"} {
		want := name + " must not be negative; got -1"
		if name == "Fetches" {
			want = "Fetches must not be negative; got -2"
		}
		if err == nil || !strings.Contains("\n"+err.Error()+"\n", "\n"+want+"\n") {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "TIMEOUT") {
		t.Errorf("a cooldown that is fine: %v", err)
	}
}
