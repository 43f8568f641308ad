package configpoll

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sie-engine/sie/internal/bus"
)

// maxDelta bounds a delta, in bytes.
const maxDelta = 1 << 20

// Deltas counts what was told of changes over NATS. The zero value is ready for use.
type Deltas struct {
	Told, Untrusted, Unreadable atomic.Uint64

	models atomic.Uint64 // of those told, the ones that bring a model
}

// Hear reports whether a message is a trusted producer's delta, and counts it. A producer is
// trusted if its name is one of trusted, or begins with one and a dash. sie-config asks for no
// reply and sets no header of the broker; what does is none of its deltas.
func (d *Deltas) Hear(m *nats.Msg, trusted []string, log *slog.Logger) bool {
	var of struct {
		Producer string          `json:"producer_id"`
		Router   string          `json:"router_id"`
		Model    json.RawMessage `json:"model_config"`
	}
	if m.Reply != "" || reserved(m.Header) || len(m.Data) > maxDelta || json.Unmarshal(m.Data, &of) != nil {
		d.Unreadable.Add(1)
		return false
	}
	if of.Producer == "" {
		of.Producer = of.Router
	}
	if !slices.ContainsFunc(trusted, func(name string) bool {
		return of.Producer == name || strings.HasPrefix(of.Producer, name+"-")
	}) {
		if d.Untrusted.Add(1) == 1 {
			log.Warn("a change was told by a producer that is not trusted; see SIE_NATS_CONFIG_TRUSTED_PRODUCERS",
				"producer", fmt.Sprintf("%.80q", of.Producer))
		}
		return false
	}
	d.Told.Add(1)
	if text := string(of.Model); text != "" && text != "null" && text != `""` {
		d.models.Add(1)
	}
	return true
}

func reserved(h nats.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, bus.HeaderReserved) {
			return true
		}
	}
	return false
}

// Register registers the counters under a name, by kind and result. What one says is not read
// where it is not believed, so that such a delta is of the usual kind.
func (d *Deltas) Register(r prometheus.Registerer, name string) {
	bumps := func() uint64 { return d.Told.Load() - min(d.models.Load(), d.Told.Load()) }
	for _, s := range []struct {
		kind, result string
		count        func() uint64
	}{
		{"model_added", "applied", d.models.Load}, {"model_added", "rejected_untrusted", d.Untrusted.Load},
		{"model_added", "parse_error", d.Unreadable.Load},
		{"epoch_bump", "applied", bumps},
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name,
			Help:        "Changes of models that were told over NATS.",
			ConstLabels: prometheus.Labels{"kind": s.kind, "result": s.result}},
			func() float64 { return float64(s.count()) }))
	}
}
