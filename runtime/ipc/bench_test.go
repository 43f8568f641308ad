package ipc

import (
	"fmt"
	"testing"

	wire "github.com/sie-engine/sie/internal/ipc"
	"github.com/sie-engine/sie/internal/work"
)

// BenchmarkRunBatch runs calls of one slice each, both ends of the socket included.
func BenchmarkRunBatch(b *testing.B) {
	for _, texts := range []int{1, 32} {
		b.Run(fmt.Sprintf("texts=%d", texts), func(b *testing.B) {
			r := start(b, nil)
			c := r.dial()
			list := make([]string, texts)
			for i := range list {
				list[i] = fmt.Sprintf("the quick brown fox jumps over the lazy dog %d", i)
			}
			items := []wire.RunItem{sliceOf("1", work.Encode, nil, list...)}
			c.one(items[0])
			b.ReportAllocs()
			for b.Loop() {
				from := c.begin(wire.MethodRunBatch, &wire.RunBatchRequest{ModelID: everything,
					Items: items}, nil)
				for range 2 {
					if _, err := c.await(from); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
