package scale

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Query is a query of the small part of PromQL that the triggers of a chart use:
//
//	[max|min|sum] ( metric{label="value",…} | rate(metric{…}[window]) ) [or vector(number)]
//
// An aggregation is over all series of all gateways; "by" and "without" are not possible.
type Query struct {
	text      string
	aggregate string // max, min, sum or "": there must be one series at most
	metric    string
	match     []matcher
	window    time.Duration // of rate; 0: none
	or        *float64      // where there is no series
}

// String returns the query as it was written.
func (q *Query) String() string { return q.text }

type matcher struct {
	label, value string
	not          bool
	pattern      *regexp.Regexp // nil: equal
}

var (
	aggregateForm = regexp.MustCompile(`^(max|min|sum)\s*\((.*)\)$`)
	rateForm      = regexp.MustCompile(`^rate\s*\((.*)\[(\w+)\]\s*\)$`)
	orForm        = regexp.MustCompile(`^(.*\S)\s+or\s+vector\s*\(\s*([0-9.]+)\s*\)$`)
	selectorForm  = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?$`)
	matcherForm   = regexp.MustCompile(`^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)`)
)

// ParseQuery reads a query.
func ParseQuery(text string) (*Query, error) {
	q := &Query{text: text}
	rest := strings.Join(strings.Fields(text), " ")
	if m := orForm.FindStringSubmatch(rest); m != nil {
		v, err := number(map[string]string{"vector": m[2]}, "vector", "")
		if err != nil {
			return nil, err
		}
		rest, q.or = m[1], &v
	}
	for strings.HasPrefix(rest, "(") && strings.HasSuffix(rest, ")") {
		rest = strings.TrimSpace(rest[1 : len(rest)-1])
	}
	if m := aggregateForm.FindStringSubmatch(rest); m != nil {
		q.aggregate, rest = m[1], strings.TrimSpace(m[2])
	}
	if m := rateForm.FindStringSubmatch(rest); m != nil {
		d, err := model.ParseDuration(m[2])
		if err != nil || d <= 0 {
			return nil, fmt.Errorf("%q is no window of time", m[2])
		}
		q.window, rest = time.Duration(d), strings.TrimSpace(m[1])
	}
	m := selectorForm.FindStringSubmatch(rest)
	if m == nil {
		return nil, fmt.Errorf("%q is none that can be read: use max, min or sum of a metric with labels, or of "+
			"its rate, and or vector(0) behind it", text)
	}
	q.metric = m[1]
	for labels := m[2]; strings.TrimSpace(labels) != ""; {
		x := matcherForm.FindStringSubmatch(labels)
		if x == nil {
			return nil, fmt.Errorf("%q: %q is no matcher of labels", text, labels)
		}
		labels = labels[len(x[0]):]
		one := matcher{label: x[1], value: strings.ReplaceAll(x[3], `\\`, `\`), not: x[2][0] == '!'}
		if strings.HasSuffix(x[2], "~") {
			p, err := regexp.Compile("^(?:" + one.value + ")$")
			if err != nil {
				return nil, fmt.Errorf("%q: %w", text, err)
			}
			one.pattern = p
		}
		q.match = append(q.match, one)
	}
	return q, nil
}

func (q *Query) matches(labels map[string]string) bool {
	for _, m := range q.match {
		v := labels[m.label]
		hit := v == m.value
		if m.pattern != nil {
			hit = m.pattern.MatchString(v)
		}
		if hit == m.not {
			return false
		}
	}
	return true
}

// ErrNull says that a query gave no value.
var ErrNull = errors.New("the query gave no value")

// aggregated returns the value of a query from those of its series.
func (q *Query) aggregated(values []float64) (float64, error) {
	if len(values) == 0 {
		if q.or != nil {
			return *q.or, nil
		}
		return 0, ErrNull
	}
	if q.aggregate == "" && len(values) > 1 {
		return 0, fmt.Errorf("the query gave %d values; aggregate them", len(values))
	}
	v := values[0]
	for _, x := range values[1:] {
		switch q.aggregate {
		case "max":
			v = math.Max(v, x)
		case "min":
			v = math.Min(v, x)
		case "sum":
			v += x
		}
	}
	return v, nil
}
