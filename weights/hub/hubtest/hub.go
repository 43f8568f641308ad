// Package hubtest is a model hub for tests. It runs two real HTTP servers on loopback that answer
// as the Hugging Face hub does: the hub, and the storage to which it redirects large files. [New]
// starts them, [Server.Add] adds a model, the fields of [Model] and [Server.Fault] inject faults,
// and [Server.Requests] returns the requests received.
//
// It covers the listing of a revision with checksums, resolve with its redirects (relative ones for
// small files, signed ones to another origin for large files), ranges, etags, and the hub's error
// codes. It does not cover uploads, Xet or rate limits.
package hubtest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Model is a repository on the hub. Set its fields before the first request.
type Model struct {
	ID     string
	Commit string            // of Branch; a hash of the content
	Branch string            // "main"
	Files  map[string][]byte // by name; *.safetensors and *.bin are in large-file storage
	Token  string            // needed to read it; "" for none
	Gated  bool              // a wrong token is answered as gated, not as missing

	NoChecksums bool              // the listing omits sizes and checksums, as some mirrors do
	Extra       map[string]string // listing entries without a file: name → checksum
}

// Request is one request that the hub or the storage received.
type Request struct {
	Storage       bool // sent to the storage, not to the hub
	Method, Path  string
	Authorization string
	Range         string
	IfRange       string
}

// Server is the hub. Set HF_ENDPOINT to its URL.
type Server struct {
	URL     string
	Storage string // URL of the storage: the same host, another port

	mu       sync.Mutex
	models   map[string]*Model
	requests []Request
	fault    func(w http.ResponseWriter, r *http.Request, storage bool) bool
}

// New starts a hub that stops with the test.
func New(tb testing.TB) *Server {
	s := &Server{models: make(map[string]*Model)}
	hub := httptest.NewServer(s.record(false, s.serveHub))
	storage := httptest.NewServer(s.record(true, s.serveStorage))
	tb.Cleanup(hub.Close)
	tb.Cleanup(storage.Close)
	s.URL, s.Storage = hub.URL, storage.URL
	return s
}

// Add adds a model to the hub, or replaces it by a new commit.
func (s *Server) Add(id string, files map[string][]byte) *Model {
	h := sha1.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d ", name, len(files[name]))
		h.Write(files[name])
	}
	m := &Model{ID: id, Commit: hex.EncodeToString(h.Sum(nil)), Branch: "main", Files: files}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models[id] = m
	return m
}

// Fault sets a function that sees every request first. It may answer the request itself and return
// true. nil removes it.
func (s *Server) Fault(f func(w http.ResponseWriter, r *http.Request, storage bool) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Requests returns the requests received since the start or the last call.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

// Break wraps w so that the connection is closed after n bytes of body.
func Break(w http.ResponseWriter, n int) http.ResponseWriter { return &breaking{w, n} }

type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) <= b.left {
		b.left -= len(p)
		return b.ResponseWriter.Write(p)
	}
	b.ResponseWriter.Write(p[:b.left])
	b.ResponseWriter.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// Serve answers a request as if no fault were set. Use it inside a fault.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, storage bool) {
	if storage {
		s.serveStorage(w, r)
	} else {
		s.serveHub(w, r)
	}
}

func (s *Server) record(storage bool, serve http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, Request{
			Storage:       storage,
			Method:        r.Method,
			Path:          r.URL.Path,
			Authorization: r.Header.Get("Authorization"),
			Range:         r.Header.Get("Range"),
			IfRange:       r.Header.Get("If-Range"),
		})
		fault := s.fault
		s.mu.Unlock()
		if fault == nil || !fault(w, r, storage) {
			serve(w, r)
		}
	})
}

// Refuse answers with one of the hub's errors.
func Refuse(w http.ResponseWriter, status int, code, message string) {
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": message})
}

// model finds the model and checks the token. It returns nil when it has answered with an error.
func (s *Server) model(w http.ResponseWriter, r *http.Request, id string, listing bool) *Model {
	s.mu.Lock()
	m := s.models[id]
	s.mu.Unlock()
	sent := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case strings.HasPrefix(sent, "expired"):
		Refuse(w, http.StatusUnauthorized, "", "Invalid credentials in Authorization header")
	case m != nil && (m.Token == "" || m.Token == sent || m.Gated && listing): // a gated model can be listed
		return m
	case m != nil && m.Gated && sent == "":
		Refuse(w, http.StatusUnauthorized, "GatedRepo", "Access to model "+id+" is restricted.")
	case m != nil && m.Gated:
		Refuse(w, http.StatusForbidden, "GatedRepo",
			"Access to model "+id+" is restricted and you are not in the authorized list.")
	case sent == "":
		Refuse(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
	default:
		Refuse(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	}
	return nil
}

func (s *Server) serveHub(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.EscapedPath(), "/api/models/"); ok {
		id, revision, _ := strings.Cut(rest, "/revision/")
		revision, _ = url.PathUnescape(revision)
		s.list(w, r, id, revision)
	} else if rest, ok := strings.CutPrefix(r.URL.Path, "/api/resolve-cache/"); ok {
		id, rest, _ := strings.Cut(rest, "/at/")
		commit, name, _ := strings.Cut(rest, "/")
		if m := s.model(w, r, id, false); m != nil {
			w.Header().Set("Etag", `"`+blobID(m.Files[name])+`"`)
			w.Header().Set("X-Repo-Commit", commit)
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.Files[name]))
		}
	} else if id, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/resolve/"); ok {
		commit, name, _ := strings.Cut(rest, "/")
		s.resolve(w, r, id, commit, name)
	} else {
		http.NotFound(w, r)
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, id, revision string) {
	m := s.model(w, r, id, true)
	if m == nil {
		return
	}
	if revision != m.Branch && revision != m.Commit {
		Refuse(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revision)
		return
	}
	siblings := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		data := m.Files[name]
		entry := map[string]any{"rfilename": name}
		if !m.NoChecksums {
			entry["size"], entry["blobId"] = len(data), blobID(data)
			if large(name) {
				entry["lfs"] = map[string]any{"sha256": sum256(data), "size": len(data), "pointerSize": 134}
			}
		}
		siblings = append(siblings, entry)
	}
	for name, checksum := range m.Extra {
		siblings = append(siblings, map[string]any{"rfilename": name, "size": 1, "blobId": checksum})
	}
	json.NewEncoder(w).Encode(
		map[string]any{"id": id, "sha": m.Commit, "gated": m.Gated, "siblings": siblings})
}

func (s *Server) resolve(w http.ResponseWriter, r *http.Request, id, commit, name string) {
	m := s.model(w, r, id, false)
	if m == nil {
		return
	}
	data, ok := m.Files[name]
	if !ok || commit != m.Commit && commit != m.Branch {
		Refuse(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	w.Header().Set("X-Repo-Commit", m.Commit)
	w.Header().Set("X-Linked-Size", fmt.Sprint(len(data)))
	if large(name) {
		w.Header().Set("X-Linked-Etag", `"`+sum256(data)+`"`)
		w.Header().Set("Location", s.Storage+"/"+m.ID+"/"+name+"?signature=secret")
		w.WriteHeader(http.StatusFound)
		return
	}
	w.Header().Set("Etag", `"`+blobID(data)+`"`)
	w.Header().Set("Location",
		"/api/resolve-cache/"+m.ID+"/at/"+m.Commit+"/"+(&url.URL{Path: name}).EscapedPath())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

func (s *Server) serveStorage(w http.ResponseWriter, r *http.Request) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 3)
	if len(parts) != 3 || r.Method != http.MethodGet || r.URL.Query().Get("signature") != "secret" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	s.mu.Lock()
	m := s.models[parts[0]+"/"+parts[1]]
	s.mu.Unlock()
	if m == nil {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	data := m.Files[parts[2]]
	w.Header().Set("Etag", `"storage-`+sum256(data)[:16]+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

func large(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".bin")
}

func sum256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func blobID(data []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
	return hex.EncodeToString(sum[:])
}
