package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/sie-engine/sie/internal/bus"
)

// MaxLanes bounds the configured lanes.
const MaxLanes = 1024

const maxLanesBytes = 1 << 20

// maxWeight bounds the weight of a lane.
const maxWeight = 1_000_000

// ParseLanes reads the lanes of a cluster: a JSON list of objects with the keys pool,
// machineProfile, bundle and, if it shares, weight, in order of preference. Two lanes must differ
// in more than case. weights has those that are not 0.
func ParseLanes(text string) (lanes []bus.Lane, weights map[bus.Lane]uint64, err error) {
	if len(text) > maxLanesBytes {
		return nil, nil, fmt.Errorf("the lanes have %d bytes; the limit is %d", len(text), maxLanesBytes)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var given []struct {
		bus.Lane
		Weight uint64 `json:"weight"`
	}
	if err := d.Decode(&given); err != nil {
		return nil, nil, fmt.Errorf(
			"the lanes are not a list of {\"pool\",\"machineProfile\",\"bundle\",\"weight\"}: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is more after the list of lanes")
	}
	if len(given) > MaxLanes {
		return nil, nil, fmt.Errorf("there are %d lanes; the limit is %d", len(given), MaxLanes)
	}
	seen := make(map[string]bool, len(given))
	weights = map[bus.Lane]uint64{}
	for i, g := range given {
		l := g.Lane
		if err := l.Validate(); err != nil {
			return nil, nil, fmt.Errorf("lanes[%d]: %w", i, err)
		}
		key := strings.ToLower(l.String())
		if seen[key] {
			return nil, nil, fmt.Errorf("lanes[%d]: %s is there twice", i, l)
		}
		if g.Weight > maxWeight {
			return nil, nil, fmt.Errorf("lanes[%d]: %s has the weight %d; at most %d", i, l, g.Weight,
				maxWeight)
		}
		if g.Weight > 0 {
			weights[l] = g.Weight
		}
		seen[key] = true
		lanes = append(lanes, l)
	}
	return lanes, weights, nil
}
