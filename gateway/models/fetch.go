package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
	"github.com/sie-engine/sie/internal/configpoll"
)

// maxBundles bounds how many bundles sie-config may have.
const maxBundles = 256

// epoch asks which configuration sie-config has.
func (b *Bootstrap) epoch(ctx context.Context) (v Version, err error) {
	var answer struct {
		Epoch       uint64 `json:"epoch"`
		BundlesHash string `json:"bundles_hash"`
		ConfigsHash string `json:"bundle_config_hashes_hash"`
	}
	if err := b.client.GetJSON(ctx, "/v1/configs/epoch", configpoll.MaxAnswer, &answer); err != nil {
		return v, err
	}
	if answer.BundlesHash == "" {
		return v, errors.New("sie-config has no bundles yet")
	}
	return Version{Epoch: answer.Epoch, BundlesHash: answer.BundlesHash, ConfigsHash: answer.ConfigsHash}, nil
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

// export is what sie-config answers with at /v1/configs/export, as far as a gateway reads it.
type export struct {
	Version int             `json:"snapshot_version"`
	Epoch   uint64          `json:"epoch"`
	Models  []exportedModel `json:"models"`
}

type exportedModel struct {
	ID     string          `json:"model_id"`
	Config json.RawMessage `json:"model_config"`
	YAML   *string         `json:"raw_yaml"`
}

func (b *Bootstrap) export(ctx context.Context) (*export, error) {
	var e export
	if err := b.client.GetJSON(ctx, "/v1/configs/export", configpoll.MaxExport, &e); err != nil {
		return nil, err
	}
	if e.Version != 1 {
		return nil, fmt.Errorf("sie-config exports snapshot_version %d; this gateway reads 1", e.Version)
	}
	return &e, nil
}

// model reads the model of an entry.
func (x *exportedModel) model() (*catalog.Model, error) {
	name := "sie-config:" + clip(x.ID)
	var src []byte
	if x.YAML != nil && strings.TrimSpace(*x.YAML) != "" {
		src = []byte(*x.YAML)
	} else {
		// A document's lines are bounded. They are not indented: what is nested deeply would grow
		// with the square of its depth before ParseModel refuses it.
		var lines bytes.Buffer
		if err := json.Indent(&lines, x.Config, "", ""); err != nil {
			return nil, fmt.Errorf("%s: no raw_yaml, and model_config is no JSON: %w", name, err)
		}
		src = lines.Bytes()
	}
	m, _, err := catalog.ParseModel(name, src)
	if err != nil {
		return nil, err
	}
	if m.ID != x.ID {
		return nil, fmt.Errorf("%s: its document is of %q", name, m.ID)
	}
	// its profiles resolve, or it would take the whole catalog with it
	if _, err := catalog.Of(m); err != nil {
		return nil, err
	}
	return m, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
