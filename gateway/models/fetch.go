package models

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/sie-engine/sie/catalog"
)

// The bounds of what sie-config may answer.
const (
	maxExportBytes = 64 << 20
	maxAnswerBytes = 1 << 20
	maxBundles     = 256
)

// epoch asks which configuration sie-config has.
func (b *Bootstrap) epoch(ctx context.Context) (v Version, err error) {
	var answer struct {
		Epoch       uint64 `json:"epoch"`
		BundlesHash string `json:"bundles_hash"`
		ConfigsHash string `json:"bundle_config_hashes_hash"`
	}
	if err := b.getJSON(ctx, "/v1/configs/epoch", maxAnswerBytes, &answer); err != nil {
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
	if err := b.getJSON(ctx, "/v1/configs/bundles", maxAnswerBytes, &list); err != nil {
		return nil, err
	}
	if len(list.Bundles) > maxBundles {
		return nil, fmt.Errorf("sie-config has %d bundles; the limit is %d", len(list.Bundles), maxBundles)
	}
	for _, x := range list.Bundles {
		src, err := b.get(ctx, "/v1/configs/bundles/"+url.PathEscape(x.ID), maxAnswerBytes)
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
	if err := b.getJSON(ctx, "/v1/configs/export", maxExportBytes, &e); err != nil {
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
		var lines bytes.Buffer // a document's lines are bounded
		if err := json.Indent(&lines, x.Config, "", " "); err != nil {
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

func (b *Bootstrap) getJSON(ctx context.Context, path string, limit int64, to any) error {
	body, err := b.get(ctx, path, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}

// get returns the body of an answer 200. Its errors hold no credential.
func (b *Bootstrap) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		return nil, err
	}
	if b.token != "" {
		q.Header.Set("Authorization", "Bearer "+b.token)
	}
	resp, err := b.client.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: status %d: %s", path, resp.StatusCode, clip(string(body)))
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("GET %s: more than %d bytes", path, limit)
	}
	return body, nil
}

func clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
