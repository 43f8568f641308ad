package admit_test

import (
	"context"
	"fmt"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/errs"
)

// An entrance receives a request of 60 bytes, whose results take 30. A drain waits for it, and
// refuses the next one.
func Example() {
	gate := admit.New(admit.Options{MaxHeldBytes: 100})
	if err := gate.Reserve(60); err != nil { // as its bytes arrive
		panic(err)
	}
	defer gate.Free(60)
	work, err := gate.Enter(admit.Request{Bytes: 60, Field: "texts"})
	if err != nil {
		panic(err)
	}
	fmt.Println(work.Hold(30, 3), gate.Held())
	fmt.Println(errs.As(work.Hold(30, 3)).Status) // results of 60 bytes never fit beside the request

	gate.Shut()
	_, err = gate.Enter(admit.Request{})
	fmt.Println(err)
	fmt.Println(gate.Running(), work.Context().Err()) // what was admitted goes on
	work.End()
	fmt.Println(gate.Drain(context.Background()), gate.Held())
	// Output:
	// <nil> 90
	// 400
	// DRAINING: Server is draining requests before shutdown. Retry on another instance.
	// 1 <nil>
	// <nil> 60
}
