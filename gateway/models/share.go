package models

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strings"

	"github.com/sie-engine/sie/internal/bus"
)

// Share returns the route that a request takes in place of r, which its caller did not bind to a
// pool: of the lanes with a weight that are of r's machine profile and bundle, the request's id
// chooses one, always the same, each as often as its weight says. A lane without a ready worker
// that may run the model leaves its share to r.
func (m Model) Share(r Route, request string) Route {
	o := &m.registry.opt
	if o.Weights[r.Lane] == 0 {
		return r
	}
	total := uint64(0)
	among := func(l bus.Lane) bool {
		return o.Weights[l] > 0 && strings.EqualFold(l.Profile, r.Lane.Profile) &&
			strings.EqualFold(l.Bundle, r.Lane.Bundle)
	}
	for _, l := range o.Lanes {
		if among(l) {
			total += o.Weights[l]
		}
	}
	sum := sha256.Sum256([]byte("lane\x00" + request))          // not what chooses among an alias's targets
	at, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), total) // evenly from 0 to total-1
	for _, l := range o.Lanes {
		if !among(l) {
			continue
		}
		if at >= o.Weights[l] {
			at -= o.Weights[l]
			continue
		}
		if l != r.Lane && o.Fleet.Snapshot().Lane(l).Runs(r.ModelID) {
			r.Lane = l
		}
		break
	}
	return r
}
