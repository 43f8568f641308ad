package scale

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/sie-engine/sie/internal/bus"
)

// The labels of an object that name its lane.
const (
	labelPool    = "sie.superlinked.com/pool"
	labelProfile = "sie.superlinked.com/machine-profile"
	labelBundle  = "sie.superlinked.com/bundle"
)

// Object is one ScaledObject: how the workers of one lane are scaled.
type Object struct {
	Name     string
	Lane     bus.Lane
	Min, Max int
	Idle     int           // while no trigger is active; -1: Min
	Polling  time.Duration // between two looks
	Cooldown time.Duration // from the last activity to Idle or 0
	Down     time.Duration // stabilisation: the largest number of that time counts
	Failures int           // of a trigger in a row, after which Fallback counts; 0: never
	Fallback int
	Triggers []Trigger
}

// Trigger is one query of an Object.
type Trigger struct {
	Query      *Query
	Threshold  float64 // of each worker
	Activation float64 // above it the lane is active
	IgnoreNull bool    // no value is 0, and no error
}

// maxObjects bounds the objects of a file.
const maxObjects = 1024

// document is an object as a file has it. Other keys are KEDA's, and of no use here.
type document struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec struct {
		PollingInterval *int `yaml:"pollingInterval"`
		CooldownPeriod  *int `yaml:"cooldownPeriod"`
		Idle            *int `yaml:"idleReplicaCount"`
		Min             *int `yaml:"minReplicaCount"`
		Max             *int `yaml:"maxReplicaCount"`
		Fallback        *struct {
			Failures int `yaml:"failureThreshold"`
			Replicas int `yaml:"replicas"`
		} `yaml:"fallback"`
		Advanced struct {
			HPA struct {
				Behavior struct {
					Down struct {
						Window *int `yaml:"stabilizationWindowSeconds"`
					} `yaml:"scaleDown"`
				} `yaml:"behavior"`
			} `yaml:"horizontalPodAutoscalerConfig"`
		} `yaml:"advanced"`
		Triggers []struct {
			Type     string            `yaml:"type"`
			Metadata map[string]string `yaml:"metadata"`
		} `yaml:"triggers"`
	} `yaml:"spec"`
}

// Parse reads ScaledObjects, one YAML document each. What KEDA would default is defaulted as there.
func Parse(text []byte) ([]*Object, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	var out []*Object
	seen := map[bus.Lane]string{}
	for i := 0; ; i++ {
		var doc document
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if doc.Kind == "" && doc.Metadata.Name == "" {
			continue // an empty document
		}
		o, err := doc.object()
		if err != nil {
			return nil, fmt.Errorf("document %d (%s): %w", i, doc.Metadata.Name, err)
		}
		if other, twice := seen[o.Lane]; twice {
			return nil, fmt.Errorf("%s and %s are both of lane %s", other, o.Name, o.Lane)
		}
		seen[o.Lane] = o.Name
		if out = append(out, o); len(out) > maxObjects {
			return nil, fmt.Errorf("there are more than %d objects", maxObjects)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there is no ScaledObject")
	}
	return out, nil
}

func (d *document) object() (*Object, error) {
	if d.APIVersion != "keda.sh/v1alpha1" || d.Kind != "ScaledObject" {
		return nil, fmt.Errorf("it is %s %s; use keda.sh/v1alpha1 ScaledObject", d.APIVersion, d.Kind)
	}
	l := d.Metadata.Labels
	o := &Object{Name: d.Metadata.Name, Lane: bus.Lane{Pool: l[labelPool], Profile: l[labelProfile],
		Bundle: l[labelBundle]}, Idle: -1}
	if err := o.Lane.Validate(); err != nil {
		return nil, fmt.Errorf("the labels %s, %s and %s name the lane: %w",
			labelPool, labelProfile, labelBundle, err)
	}
	s := &d.Spec
	or := func(p *int, v int) int {
		if p == nil {
			return v
		}
		return *p
	}
	o.Min, o.Max, o.Idle = or(s.Min, 0), or(s.Max, 100), or(s.Idle, -1)
	polling, cooldown, down := or(s.PollingInterval, 30), or(s.CooldownPeriod, 300),
		or(s.Advanced.HPA.Behavior.Down.Window, 300)
	for _, x := range []struct {
		name  string
		value int
		least int
	}{
		{"minReplicaCount", o.Min, 0}, {"maxReplicaCount", o.Max, max(o.Min, 1)},
		{"pollingInterval", polling, 1}, {"cooldownPeriod", cooldown, 0},
		{"stabilizationWindowSeconds", down, 0}, {"idleReplicaCount", o.Idle, -1},
	} {
		if x.value < x.least || x.value > 1<<30 {
			return nil, fmt.Errorf("%s is %d; at least %d", x.name, x.value, x.least)
		}
	}
	if s.Idle != nil && o.Idle >= max(o.Min, 1) {
		return nil, fmt.Errorf("idleReplicaCount is %d; it must be below minReplicaCount, %d", o.Idle, o.Min)
	}
	o.Polling, o.Cooldown, o.Down = seconds(polling), seconds(cooldown), seconds(down)
	if f := s.Fallback; f != nil {
		if f.Failures < 1 || f.Replicas < 0 {
			return nil, fmt.Errorf("fallback is after %d failures %d replicas; at least 1 and 0",
				f.Failures, f.Replicas)
		}
		o.Failures, o.Fallback = f.Failures, f.Replicas
	}
	for i, t := range s.Triggers {
		x, err := trigger(t.Type, t.Metadata)
		if err != nil {
			return nil, fmt.Errorf("triggers[%d]: %w", i, err)
		}
		o.Triggers = append(o.Triggers, x)
	}
	if len(o.Triggers) == 0 {
		return nil, errors.New("there are no triggers")
	}
	return o, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func trigger(kind string, m map[string]string) (t Trigger, err error) {
	if kind != "prometheus" {
		return t, fmt.Errorf("type %q; only prometheus is possible", kind)
	}
	if t.Query, err = ParseQuery(m["query"]); err != nil {
		return t, fmt.Errorf("query: %w", err)
	}
	if t.Threshold, err = number(m, "threshold", ""); err != nil {
		return t, err
	}
	if t.Threshold <= 0 {
		return t, fmt.Errorf("threshold is %v; it must be above 0", t.Threshold)
	}
	if t.Activation, err = number(m, "activationThreshold", "0"); err != nil {
		return t, err
	}
	t.IgnoreNull = true
	if s, ok := m["ignoreNullValues"]; ok {
		if t.IgnoreNull, err = strconv.ParseBool(s); err != nil {
			return t, fmt.Errorf("ignoreNullValues is %q; use \"true\" or \"false\"", s)
		}
	}
	return t, nil
}

func number(m map[string]string, name, none string) (float64, error) {
	s, ok := m[name]
	if !ok {
		s = none
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("%s is %q; give a number", name, s)
	}
	return v, nil
}
