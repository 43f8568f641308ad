package service

import (
	"github.com/sie-engine/sie/catalog/listing"
	"github.com/sie-engine/sie/internal/admit"
	"github.com/sie-engine/sie/internal/api"
	"github.com/sie-engine/sie/internal/compat"
)

// Backend returns a compat.Backend that answers with the models of s.
func (s *Service) Backend() compat.Backend { return backend{s} }

// backend implements compat.Backend. The Handle of its models is a Model.
type backend struct{ service *Service }

func (b backend) Model(id string) (compat.Model, error)       { return about(b.service.Find(id)) }
func (b backend) OpenAIModel(id string) (compat.Model, error) { return about(b.service.FindOpenAI(id)) }
func (b backend) Info(id string) (*api.ModelInfo, error)      { return b.service.Model(id) }

func (b backend) Encode(w *admit.Work, m compat.Model, r *api.EncodeRequest) (*api.EncodeResponse, error) {
	return m.Handle.(Model).Encode(w, r)
}

func (b backend) Score(w *admit.Work, m compat.Model, r *api.ScoreRequest) (*api.ScoreResponse, error) {
	return m.Handle.(Model).Score(w, r)
}

func (b backend) Classify(
	w *admit.Work, m compat.Model, r *api.ClassifyRequest,
) (*api.ClassifyResponse, error) {
	return m.Handle.(Model).Classify(w, r)
}

func (b backend) Tokenize(
	w *admit.Work, m compat.Model, texts []string, addSpecial bool,
) ([][]api.Token, error) {
	return m.Handle.(Model).Tokenize(w, texts, addSpecial)
}

func (b backend) Detokenize(
	w *admit.Work, m compat.Model, ids [][]int32, skipSpecial bool,
) ([]string, error) {
	return m.Handle.(Model).Detokenize(w, ids, skipSpecial)
}

// about describes a model that was found to other APIs, or passes its error on.
func about(m Model, err error) (compat.Model, error) {
	if err != nil {
		return compat.Model{}, err
	}
	c := listing.Model(m.entry)
	c.Handle = m
	return c, nil
}
