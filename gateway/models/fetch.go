package models

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/configpoll"
	"github.com/sie-engine/sie/internal/docform"
)

// maxBundles bounds how many bundles sie-config may have.
const maxBundles = 256

// epoch asks which configuration sie-config has.
func (b *Bootstrap) epoch(ctx context.Context) (v Version, err error) {
	var answer struct {
		Epoch       uint64 `json:"epoch"`
		BundlesHash string `json:"bundles_hash"`
		ConfigsHash string `json:"bundle_config_hashes_hash"`
		ModelsHash  string `json:"models_hash"`
	}
	if err := b.client.GetJSON(ctx, "/v1/configs/epoch", configpoll.MaxAnswer, &answer); err != nil {
		return v, err
	}
	if answer.BundlesHash == "" {
		return v, errors.New("sie-config has no bundles yet")
	}
	return Version{Epoch: answer.Epoch, BundlesHash: answer.BundlesHash, ConfigsHash: answer.ConfigsHash,
		ModelsHash: answer.ModelsHash}, nil
}

// bundles reads all bundles, in order of preference.
func (b *Bootstrap) bundles(ctx context.Context) (out catalog.Bundles, err error) {
	var list struct {
		Bundles []struct {
			ID string `json:"bundle_id"`
		} `json:"bundles"`
	}
	if err := b.client.GetJSON(ctx, "/v1/configs/bundles", configpoll.MaxAnswer, &list); err != nil {
		return nil, err
	}
	if len(list.Bundles) > maxBundles {
		return nil, fmt.Errorf("sie-config has %d bundles; the limit is %d", len(list.Bundles), maxBundles)
	}
	for _, x := range list.Bundles {
		src, err := b.client.Get(ctx, "/v1/configs/bundles/"+url.PathEscape(x.ID), configpoll.MaxAnswer)
		if err != nil {
			return nil, err
		}
		bundle, err := catalog.ParseBundle("sie-config:"+clip(x.ID), src)
		if err != nil {
			return nil, err
		}
		if bundle.Name != x.ID || slices.ContainsFunc(out,
			func(o *catalog.Bundle) bool { return o.Name == bundle.Name }) {
			return nil, fmt.Errorf("sie-config answers with the bundle %q for %q", bundle.Name, clip(x.ID))
		}
		out = append(out, bundle)
	}
	out.Sort()
	return out, nil
}

// exported is a model in an export, as far as a gateway reads it.
type exported struct {
	id   string
	one  *catalog.Catalog // the model alone; nil: it cannot be read
	said string           // the hash of its document; "": sie-config did not say
	err  error            // why
}

// readExported reads a model of an export.
func readExported(text json.RawMessage) exported {
	var x struct {
		ID     string          `json:"model_id"`
		Config json.RawMessage `json:"model_config"`
		YAML   *string         `json:"raw_yaml"`
		Said   string          `json:"model_document_hash"`
	}
	if err := json.Unmarshal(text, &x); err != nil {
		return exported{err: err}
	}
	name := "sie-config:" + clip(x.ID)
	var src []byte
	if x.YAML != nil && strings.TrimSpace(*x.YAML) != "" {
		src = []byte(*x.YAML)
	} else {
		if len(x.Config) == 0 {
			return exported{id: x.ID, err: fmt.Errorf("%s: neither raw_yaml nor model_config", name)}
		}
		src = docform.OfJSON(x.Config, "")
	}
	m, _, err := catalog.ParseModel(name, src)
	if err == nil && m.ID != x.ID {
		err = fmt.Errorf("%s: its document is of %q", name, m.ID)
	}
	if err != nil {
		return exported{id: x.ID, err: err}
	}
	one, err := catalog.Of(m) // its profiles resolve, or it would take the whole catalog with it
	return exported{id: x.ID, one: one, said: x.Said, err: err}
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
