package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// remote says where the commands that change something find sie-config.
type remote struct {
	URL   string `name:"url" help:"Address of sie-config, or of a gateway, which passes changes on." env:"SIE_CONFIG_SERVICE_URL" default:"http://127.0.0.1:8080"`
	Token string `name:"token" help:"Token for it. Anybody who may list processes can read a flag: prefer the variable." env:"SIE_ADMIN_TOKEN"`

	gateway bool // it is a gateway that is asked for itself: other flags say where it is
}

// flags returns what says where this is, and what says who asks.
func (r *remote) flags() (where, who string) {
	if r.gateway {
		return "--gateway or SIE_GATEWAY_URL", "--key or SIE_API_KEY"
	}
	return "--url or SIE_CONFIG_SERVICE_URL", "--token or SIE_ADMIN_TOKEN"
}

const (
	callTime = 40 * time.Second
	maxReply = 64 << 20 // bytes
	maxSaid  = 2000     // bytes of what an answer says in an error
)

var errLargeReply = fmt.Errorf("the answer has more than %d MB", maxReply>>20)

// statusError is an answer that is no success.
type statusError struct {
	status int
	said   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.said) }

// refused returns the error of an answer. It has the start of what a long one says.
func refused(status int, answer []byte) *statusError {
	text := said(strings.TrimSpace(string(answer)))
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid], "") + "…"
	}
	return &statusError{status, text}
}

// said returns what the JSON of an answer says to people, or the answer itself.
func said(body string) string {
	type problem struct {
		Error   string `json:"error"`
		Code    string `json:"code"`
		Message string `json:"message"`
		Details []struct {
			Message string `json:"message"`
		} `json:"details"`
	}
	var answer struct {
		Detail json.RawMessage `json:"detail"` // a text or a problem
		Error  problem         `json:"error"`
	}
	if json.Unmarshal([]byte(body), &answer) != nil {
		return body
	}
	var text string
	if json.Unmarshal(answer.Detail, &text) == nil {
		return text
	}
	of := answer.Error
	_ = json.Unmarshal(answer.Detail, &of) // without one it stays
	parts := []string{cmp.Or(of.Error, of.Code), of.Message}
	for _, d := range of.Details {
		parts = append(parts, d.Message)
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	if len(parts) == 0 {
		return body
	}
	return strings.Join(parts, ": ")
}

// errAddress says that an address is none.
var errAddress = errors.New("the address is no URL")

// call sends a request and reads its JSON answer into to, nil for none.
func (r *remote) call(ctx context.Context, method, path string, body []byte, to any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	where, who := r.flags()
	if u, err := url.Parse(r.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%w: write http://host:port or https://host:port into %s", errAddress, where)
	}
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
		return fmt.Errorf("%w; %s says where it is", err, where)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", address, err)
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%w; %s says who asks", refused(resp.StatusCode, answer), who)
	case resp.StatusCode >= 300:
		return refused(resp.StatusCode, answer)
	case len(answer) > maxReply:
		return fmt.Errorf("%s: %w", address, errLargeReply)
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
