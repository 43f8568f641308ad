package inference

import (
	"time"

	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
	"github.com/sie-engine/sie/internal/errs"
	"github.com/sie-engine/sie/internal/tenant"
)

// limited is a Session of a tenant: it keeps to the tenant's models and quota. Pools are the
// Backend's matter, because it alone knows where a request goes.
type limited struct {
	Session
	tenant *tenant.Tenant
}

// within returns a session that keeps to what its tenant may use. nil: to nothing.
func within(s Session, t *tenant.Tenant) Session {
	if t == nil {
		return s
	}
	return &limited{s, t}
}

// Model implements compat.Backend.
func (s *limited) Model(id string) (compat.Model, error) {
	m, err := s.Session.Model(id)
	return s.allowed(id, m, err)
}

// OpenAIModel implements compat.Backend.
func (s *limited) OpenAIModel(id string) (compat.Model, error) {
	m, err := s.Session.OpenAIModel(id)
	return s.allowed(id, m, err)
}

// allowed refuses a model that the tenant may not use, whether by the name that it asked for, which
// may stand for others, or by its own.
func (s *limited) allowed(id string, m compat.Model, err error) (compat.Model, error) {
	if err == nil && !s.tenant.MayUseModel(m.ID) && !s.tenant.MayUseModel(id) {
		return compat.Model{}, s.tenant.Forbid("use model " + errs.Quote(m.ID))
	}
	return m, err
}

// Info implements compat.Backend.
func (s *limited) Info(id string) (*api.ModelInfo, error) {
	info, err := s.Session.Info(id)
	if err == nil && !s.tenant.MayUseModel(info.Name) && !s.tenant.MayUseModel(id) {
		return nil, s.tenant.Forbid("use model " + errs.Quote(info.Name))
	}
	return info, err
}

// Refusal implements Session. A tenant over its quota is refused first: what it asks for beyond it
// is no demand for capacity.
func (s *limited) Refusal(id string) *Refusal {
	if e := s.tenant.Refusal(time.Now()); e != nil {
		return Refuse(e)
	}
	return s.Session.Refusal(id)
}

// Encode implements compat.Backend.
func (s *limited) Encode(
	w *admit.Work, m compat.Model, r *api.EncodeRequest,
) (*api.EncodeResponse, error) {
	release, err := s.tenant.Take(w.Context(), len(r.Items))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Encode(w, m, r)
}

// Score implements compat.Backend.
func (s *limited) Score(w *admit.Work, m compat.Model, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	release, err := s.tenant.Take(w.Context(), len(r.Items))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Score(w, m, r)
}

// Classify implements compat.Backend.
func (s *limited) Classify(
	w *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	release, err := s.tenant.Take(w.Context(), len(r.Items))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Classify(w, m, r)
}

// Extract implements Session.
func (s *limited) Extract(
	w *admit.Work, m compat.Model, r *api.ExtractRequest,
) (*api.ExtractResponse, error) {
	release, err := s.tenant.Take(w.Context(), len(r.Items))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Extract(w, m, r)
}

// Tokenize implements compat.Backend.
func (s *limited) Tokenize(
	w *admit.Work, m compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	release, err := s.tenant.Take(w.Context(), len(texts))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Tokenize(w, m, texts, addSpecial)
}

// Detokenize implements compat.Backend.
func (s *limited) Detokenize(
	w *admit.Work, m compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	release, err := s.tenant.Take(w.Context(), len(ids))
	if err != nil {
		return nil, err
	}
	defer release()
	return s.Session.Detokenize(w, m, ids, skipSpecial)
}
