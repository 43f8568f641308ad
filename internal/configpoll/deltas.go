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
type Deltas struct{ Told, Untrusted, Unreadable atomic.Uint64 }

// Hear reports whether a message is a trusted producer's delta, and counts it. A producer is
// trusted if its name is one of trusted, or begins with one and a dash. sie-config asks for no
// reply and sets no header of the broker; what does is none of its deltas.
func (d *Deltas) Hear(m *nats.Msg, trusted []string, log *slog.Logger) bool {
	var of struct {
		Producer string `json:"producer_id"`
		Router   string `json:"router_id"`
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

// Register registers the counters under a name, by result.
func (d *Deltas) Register(r prometheus.Registerer, name string) {
	for result, n := range map[string]*atomic.Uint64{
		"applied": &d.Told, "rejected_untrusted": &d.Untrusted, "parse_error": &d.Unreadable,
	} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name,
			Help:        "Changes of models that were told over NATS.",
			ConstLabels: prometheus.Labels{"result": result}},
			func() float64 { return float64(n.Load()) }))
	}
}
