package configpoll

import (
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

// The bounds of what is read, in bytes, and of how long one answer may take.
const (
	MaxExport    = 64 << 20
	MaxAnswer    = 1 << 20
	fetchTimeout = 10 * time.Second
)

// Client reads from sie-config, or from a gateway that passes the questions on. It may be used by
// several goroutines.
type Client struct {
	base, token string
	http        *http.Client
}

// NewClient returns a Client of an address, or what is wrong with it. token may be "": none.
// Without a client of the caller's it has one of its own, which follows no redirect: that could
// take the token elsewhere.
func NewClient(address, token string, client *http.Client) (*Client, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the URL of sie-config, SIE_CONFIG_SERVICE_URL, is no URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.User != nil:
		return nil, fmt.Errorf("the URL of sie-config, SIE_CONFIG_SERVICE_URL, is %q; "+
			"write http://host:port or https://host:port", u.Redacted())
	}
	if client == nil {
		client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), token: token, http: client}, nil
}

// URL returns the address, without a slash at its end.
func (c *Client) URL() string { return c.base }

// Get returns the body of an answer 200 of at most limit bytes. Its errors hold no credential.
func (c *Client) Get(ctx context.Context, path string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		q.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("GET %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: status %d: %.200s", path, resp.StatusCode, body)
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("GET %s: more than %d bytes", path, limit)
	}
	return body, nil
}

// GetJSON reads the JSON of an answer into to.
func (c *Client) GetJSON(ctx context.Context, path string, limit int64, to any) error {
	body, err := c.Get(ctx, path, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	return nil
}
