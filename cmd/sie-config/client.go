package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// remote says where the commands that change something find sie-config.
type remote struct {
	URL   string `name:"url" help:"Address of sie-config, or of a gateway, which passes changes on." env:"SIE_CONFIG_SERVICE_URL" default:"http://127.0.0.1:8080"`
	Token string `name:"token" help:"Token for it. Anybody who may list processes can read a flag: prefer the variable." env:"SIE_ADMIN_TOKEN"`
}

const (
	callTime = 40 * time.Second
	maxReply = 64 << 20 // bytes
)

// statusError is an answer that is no success.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.body) }

// call sends a request and reads its JSON answer into to, nil for none.
func (r *remote) call(ctx context.Context, method, path string, body []byte, to any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	address := strings.TrimSuffix(r.URL, "/") + path
	q, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if r.Token != "" {
		q.Header.Set("Authorization", "Bearer "+r.Token)
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= 300:
		return &statusError{resp.StatusCode, strings.TrimSpace(string(answer[:min(len(answer), 2000)]))}
	case to == nil:
		return nil
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return errors.Join(fmt.Errorf("%s%s answers with something else than JSON", r.URL, path), err)
	}
	return nil
}

// modelPath returns the path of a model.
func modelPath(id string) string {
	return (&url.URL{Path: "/v1/configs/models/" + id}).EscapedPath()
}
