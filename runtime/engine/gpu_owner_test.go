package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/sie-engine/sie/internal/guard"
)

// entered is a driver whose context can be entered, and no more.
type entered struct{ driver }

func (entered) enter() error { return nil }

// A panic of what the owner of a GPU runs for others, be it of a load, is theirs. The owner and its
// other callers go on.
func TestPanicOnTheOwner(t *testing.T) {
	g, err := startGPU(entered{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.stop()
	var p *guard.Panic
	err = guard.Run(func() error { g.call(faultyJob); return nil })
	if !errors.As(err, &p) || p.Value != "a fault" || !strings.Contains(string(p.Stack), "faultyJob") {
		t.Errorf("%v, want the panic of the job", err)
	}
	ran := false
	if g.call(func() { ran = true }); !ran {
		t.Error("the owner runs nothing any more")
	}
}

func faultyJob() { panic("a fault") }
