package hub

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// advice implements origin.
func (c *client) advice() string { return "the proxy, HF_ENDPOINT" }

// request implements origin. It makes one request to the hub and follows it to the storage.
func (c *client) request(ctx context.Context, d *blobDownload) error {
	header := http.Header{}
	if d.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.have))
		if d.etag != "" {
			header.Set("If-Range", d.etag)
		}
	}
	resp, err := c.do(ctx, http.MethodGet, c.fileURL(d.ref, d.commit, d.file.name), header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A content hash that differs from the listing's means a stale mirror or a replaced file.
	if len(resp.etag) == len(d.file.hash) && isHex(resp.etag) && resp.etag != d.file.hash {
		if err := d.restart(); err != nil {
			return err
		}
		return transient("%s offers another content of %s than it listed", resp.Request.URL.Host, d.file.name)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		if d.have > 0 { // the server does not resume, or the file behind the link is another one
			if err := d.restart(); err != nil {
				return err
			}
		}
	case http.StatusPartialContent:
		if first, total, ok := contentRange(resp.Header.Get("Content-Range")); !ok || first != d.have ||
			total >= 0 && total != d.file.size {
			if err := d.restart(); err != nil {
				return err
			}
			return transient("%s sent another part of %s than was asked for",
				resp.Request.URL.Host, d.file.name)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if err := d.restart(); err != nil {
			return err
		}
		return transient("%s does not have the rest of %s", resp.Request.URL.Host, d.file.name)
	default:
		return c.statusError(resp, d.ref, "file "+d.file.name)
	}
	rest := d.file.size - d.have
	if resp.ContentLength >= 0 && resp.ContentLength != rest {
		return transient("%s sends %d bytes of %s where %d are missing",
			resp.Request.URL.Host, resp.ContentLength, d.file.name, rest)
	}
	// a weak one does not identify the exact bytes
	if etag := resp.Header.Get("Etag"); strings.HasPrefix(etag, `"`) {
		d.etag = etag
	}
	return d.receive(io.LimitReader(resp.Body, rest))
}

// contentRange parses "bytes first-last/total"; total is -1 for "*".
func contentRange(value string) (first, total int64, ok bool) {
	span, found := strings.CutPrefix(value, "bytes ")
	span, size, sized := strings.Cut(span, "/")
	begin, _, ranged := strings.Cut(span, "-")
	if !found || !sized || !ranged {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(begin, 10, 64)
	if err != nil || first < 0 {
		return 0, 0, false
	}
	if size == "*" {
		return first, -1, true
	}
	total, err = strconv.ParseInt(size, 10, 64)
	return first, total, err == nil && total >= 0
}

func isHex(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil
}
