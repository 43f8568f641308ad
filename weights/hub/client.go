package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxRedirects bounds the hops of one request. The hub needs two or three: a renamed repository, a
// resolve cache, and the storage that holds large files.
const maxRedirects = 8

// connectTimeout bounds the time to open one connection.
const connectTimeout = 10 * time.Second

// errStalled is the cause of a request that ended because nothing arrived.
var errStalled = errors.New("nothing arrived for too long")

// client makes single requests to the hub. It does not retry, and it follows redirects itself.
type client struct {
	http      *http.Client
	endpoint  *url.URL
	token     string
	userAgent string
	stall     time.Duration
}

func newClient(o Options, endpoint *url.URL) *client {
	transport := o.Transport
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = o.Parallel
		t.DialContext = (&net.Dialer{Timeout: connectTimeout, KeepAlive: connectTimeout}).DialContext
		transport = t
	}
	return &client{
		http: &http.Client{
			Transport: transport,
			// do follows redirects, because net/http would keep the token for another port of the
			// same host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		endpoint: endpoint, token: o.Token, userAgent: o.UserAgent, stall: o.StallTimeout,
	}
}

// response is a final answer with the checksum and size that the hub gave before redirecting.
type response struct {
	*http.Response
	fromHub bool // the endpoint's own origin gave the final answer, not a storage
	// checksum of the file: X-Linked-ETag, else ETag, of the endpoint's origin; unquoted, "" if
	// none
	etag string
	size int64 // X-Linked-Size of the endpoint's origin, -1 if none
}

// do sends a request and follows redirects. The caller closes the body. A read from the body fails
// with a transient error when nothing arrives for the stall timeout. All errors are transient
// except those of ctx, of the endpoint's URL, of the server's certificate and of refused redirects.
func (c *client) do(ctx context.Context, method, target string, header http.Header) (*response, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, fail(ClassConfig, nil, "HF_ENDPOINT does not give a valid URL")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watchdog := time.AfterFunc(c.stall, func() { cancel(errStalled) })
	end := func() { watchdog.Stop(); cancel(nil) }

	result := &response{size: -1}
	for range maxRedirects {
		req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
		if err != nil {
			end()
			return nil, fail(ClassConfig, nil, "HF_ENDPOINT does not give a valid URL")
		}
		for key, values := range header {
			req.Header[key] = values
		}
		req.Header.Set("User-Agent", c.userAgent)
		// A compressed body could not be resumed, and its length would not be the file's.
		req.Header.Set("Accept-Encoding", "identity")
		fromHub := sameOrigin(u, c.endpoint)
		if fromHub && c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		watchdog.Reset(c.stall)
		resp, err := c.http.Do(req)
		if err != nil {
			err = c.requestError(ctx, u, err)
			end()
			return nil, err
		}
		if fromHub {
			result.note(resp.Header)
		}
		next, err := redirect(u, resp)
		// A HEAD needs only the checksum. The hub gives it before it redirects to a storage, whose
		// signed links accept only GET.
		if err == nil && (next == nil || method == http.MethodHead && !sameOrigin(next, c.endpoint)) {
			resp.Body = &watchedBody{
				body: resp.Body, ctx: ctx, touch: func() { watchdog.Reset(c.stall) }, end: end,
			}
			result.Response, result.fromHub = resp, fromHub
			return result, nil
		}
		resp.Body.Close()
		if err != nil {
			end()
			return nil, err
		}
		u = next
	}
	end()
	return nil, fail(ClassNetwork, nil, "%s redirects more than %d times", c.endpoint.Host, maxRedirects)
}

// redirect returns the URL to which an answer redirects the client, or nil when the answer is
// final.
func redirect(from *url.URL, resp *http.Response) (*url.URL, error) {
	location := resp.Header.Get("Location")
	if resp.StatusCode < 300 || resp.StatusCode > 399 || location == "" {
		return nil, nil
	}
	to, err := from.Parse(location)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fail(ClassNetwork, nil, "%s redirects to something that is not a web address", from.Host)
	}
	if from.Scheme == "https" && to.Scheme == "http" {
		return nil, fail(ClassNetwork, nil, "%s redirects from https to plain http on %s, which is refused",
			from.Host, to.Host)
	}
	return to, nil
}

// note keeps the first checksum and size that the endpoint gives. These describe the file; the
// headers of a later hop describe its storage.
func (r *response) note(h http.Header) {
	if r.etag == "" {
		etag := h.Get("X-Linked-Etag")
		if etag == "" {
			etag = h.Get("Etag")
		}
		r.etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	}
	if linked := h.Get("X-Linked-Size"); r.size < 0 && linked != "" {
		var n int64
		if _, err := fmt.Sscanf(linked, "%d", &n); err == nil && n >= 0 {
			r.size = n
		}
	}
}

// requestError turns a transport's error into one for people. It drops the URL, whose query may be
// a signature.
func (c *client) requestError(ctx context.Context, u *url.URL, err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if errors.Is(context.Cause(ctx), errStalled) {
		return transient("%s: %w (%s)", u.Host, errStalled, c.stall)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return fail(ClassNetwork, err,
			"%s: its certificate is not trusted; behind a company proxy, add its certificate to the system's store",
			u.Host)
	}
	op, ok := errors.AsType[*net.OpError](err)
	return &transientError{
		err:         fmt.Errorf("%s: %w", u.Host, err),
		unreachable: ok && (op.Op == "dial" || op.Op == "proxyconnect"),
	}
}

// sameOrigin reports whether two URLs have the same scheme, host and port. The token is sent to the
// endpoint's origin only.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// watchedBody ends a body that stalls, and makes its read errors transient.
type watchedBody struct {
	body  io.ReadCloser
	ctx   context.Context
	touch func() // something arrived
	end   func()
}

func (w *watchedBody) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if n > 0 {
		w.touch()
	}
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if cause := context.Cause(w.ctx); cause != nil {
		err = cause
	}
	return n, &transientError{err: err}
}

func (w *watchedBody) Close() error {
	w.end()
	return w.body.Close()
}
