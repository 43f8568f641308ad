package scale

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// The times of Samples, as Prometheus has them or KEDA needs them.
const (
	lookBack = 20 * time.Second // an older sample is none
	keep     = 5 * time.Minute  // for rates
)

// Samples are what was scraped from the gateways, for as long as rates need it. They belong to one
// goroutine. The zero Samples are empty.
type Samples struct{ series map[string]*series }

type series struct {
	metric string
	labels map[string]string
	at     []time.Time // rising
	values []float64
}

// Add adds what an instance's /metrics said at a time. Histograms are left out.
func (s *Samples) Add(instance string, text []byte, at time.Time) error {
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", instance, err)
	}
	if s.series == nil {
		s.series = map[string]*series{}
	}
	for name, f := range families {
		for _, m := range f.Metric {
			var v float64
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				v = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				v = m.GetGauge().GetValue()
			case dto.MetricType_UNTYPED:
				v = m.GetUntyped().GetValue()
			default:
				continue
			}
			s.add(instance, name, m, v, at)
		}
	}
	for key, x := range s.series {
		for len(x.at) > 0 && at.Sub(x.at[0]) > keep {
			x.at, x.values = x.at[1:], x.values[1:]
		}
		if len(x.at) == 0 {
			delete(s.series, key)
		}
	}
	return nil
}

func (s *Samples) add(instance, name string, m *dto.Metric, v float64, at time.Time) {
	labels := map[string]string{"instance": instance}
	key := name + "\x00" + instance
	for _, l := range m.Label { // sorted by the exporter
		labels[l.GetName()] = l.GetValue()
		key += "\x00" + l.GetName() + "\x00" + l.GetValue()
	}
	x := s.series[key]
	if x == nil {
		x = &series{metric: name, labels: labels}
		s.series[key] = x
	}
	x.at, x.values = append(x.at, at), append(x.values, v)
}

// Query returns the value of a query at a time, not before the last Add.
func (s *Samples) Query(q *Query, now time.Time) (float64, error) {
	var values []float64
	for _, x := range s.series {
		if x.metric != q.metric || !q.matches(x.labels) {
			continue
		}
		v, ok := x.last(now)
		if q.window > 0 {
			v, ok = x.rate(q.window, now)
		}
		if ok {
			values = append(values, v)
		}
	}
	return q.aggregated(values)
}

// Values returns the values of an object's triggers.
func (s *Samples) Values(o *Object, now time.Time) []Value {
	out := make([]Value, len(o.Triggers))
	for i, t := range o.Triggers {
		v, err := s.Query(t.Query, now)
		if errors.Is(err, ErrNull) && t.IgnoreNull {
			v, err = 0, nil
		}
		out[i] = Value{v, err}
	}
	return out
}

func (x *series) last(now time.Time) (float64, bool) {
	n := len(x.at)
	if n == 0 || now.Sub(x.at[n-1]) > lookBack {
		return 0, false
	}
	return x.values[n-1], true
}

// rate returns a counter's growth in a second within a window. It takes two samples. A counter that
// fell began again at 0.
func (x *series) rate(window time.Duration, now time.Time) (float64, bool) {
	first, grown := -1, 0.0
	for i, at := range x.at {
		if now.Sub(at) > window {
			continue
		}
		if first < 0 {
			first = i
			continue
		}
		if d := x.values[i] - x.values[i-1]; d >= 0 {
			grown += d
		} else {
			grown += x.values[i]
		}
	}
	if n := len(x.at); first >= 0 && n-1 > first {
		return grown / x.at[n-1].Sub(x.at[first]).Seconds(), true
	}
	return 0, false
}
