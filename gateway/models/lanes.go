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

// ParseLanes reads the lanes of a cluster: a JSON list of objects with the keys pool,
// machineProfile and bundle, in order of preference. Two lanes must differ in more than case.
func ParseLanes(text string) ([]bus.Lane, error) {
	if len(text) > maxLanesBytes {
		return nil, fmt.Errorf("the lanes have %d bytes; the limit is %d", len(text), maxLanesBytes)
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	var lanes []bus.Lane
	if err := d.Decode(&lanes); err != nil {
		return nil, fmt.Errorf("the lanes are not a list of {\"pool\",\"machineProfile\",\"bundle\"}: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the list of lanes")
	}
	if len(lanes) > MaxLanes {
		return nil, fmt.Errorf("there are %d lanes; the limit is %d", len(lanes), MaxLanes)
	}
	seen := make(map[string]bool, len(lanes))
	for i, l := range lanes {
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("lanes[%d]: %w", i, err)
		}
		key := strings.ToLower(l.String())
		if seen[key] {
			return nil, fmt.Errorf("lanes[%d]: %s is there twice", i, l)
		}
		seen[key] = true
	}
	return lanes, nil
}
