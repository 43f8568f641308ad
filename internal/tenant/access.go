package tenant

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/files"
)

// Options says where the tokens of an Access come from.
type Options struct {
	Keys     []string // plain keys
	KeysFile string   // of plain keys, one a line; "": none
	File     string   // of tenants; "": none. It is read again when it has changed.
	Log      *slog.Logger
}

// Access knows the tenants of a server by their tokens. Its methods are safe for concurrent use. A
// nil *Access accepts every request.
type Access struct {
	file  string
	log   *slog.Logger
	keys  []entry // plain ones
	seal  [sha256.Size]byte
	start time.Time
	every time.Duration // between two looks at the file
	read  func() ([]byte, error)

	shared  shared // quotas, with other servers
	current atomic.Pointer[table]
	looked  atomic.Int64 // when a look at the file ended, since start
	looking atomic.Bool  // one is running

	reading sync.Mutex // taken before mu, never while it is held; guards the two fields below
	seen    fs.FileInfo
	unread  bool // the file could not be read as it was seen

	mu     sync.Mutex        // guards the fields below, for moments: what other servers tell waits for it
	usages map[string]*usage // by name, of the tenants and of those whose requests still run
	loads  [2]uint64         // that failed, that succeeded
	broken bool              // the file cannot be used, and an earlier one is in force
}

// table holds the tenants by their tokens' hashes under the process's key. It never changes.
type table struct {
	byToken map[hash]*Tenant
	byName  map[string]*Tenant
	tenants []*Tenant // ordered by name
}

// Open reads keys and file. It fails closed: what cannot be read, a file without a token, and a
// token that no client could send are errors, and never lead to an open server. Without any source
// it returns nil.
func Open(o Options) (*Access, error) {
	if len(o.Keys) == 0 && o.KeysFile == "" && o.File == "" {
		return nil, nil
	}
	a := &Access{file: o.File, log: o.Log, start: time.Now(), every: time.Second, usages: map[string]*usage{},
		read: func() ([]byte, error) { return files.Read(o.File, maxFileBytes) }}
	a.shared.wake, a.shared.fresh = make(chan struct{}, 1), map[string]*usage{}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if _, err := rand.Read(a.seal[:]); err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	keys, err := plainKeys(o.Keys, o.KeysFile)
	if err != nil {
		return nil, err
	}
	a.keys = keys
	a.reading.Lock()
	defer a.reading.Unlock()
	entries, err := a.entriesReading()
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.useLocked(entries); err != nil {
		return nil, err
	}
	return a, nil
}

// entriesReading reads the file, which may take long. It returns its entries after the plain keys.
func (a *Access) entriesReading() ([]entry, error) {
	all := slices.Clone(a.keys)
	if a.file == "" {
		return all, nil
	}
	a.seen = stat(a.file) // before it is read: a change in between is seen by the next look
	src, err := a.read()
	if a.unread = err != nil; a.unread {
		return nil, fmt.Errorf("tokens file: %w", err)
	}
	entries, err := readFile(src)
	if err != nil {
		return nil, fmt.Errorf("tokens file %s: %w", a.file, err)
	}
	return append(all, entries...), nil
}

// useLocked puts the tenants of entries in force.
func (a *Access) useLocked(all []entry) error {
	t := &table{byToken: map[hash]*Tenant{}, byName: map[string]*Tenant{}}
	used := map[string]*usage{}
	for i := range all {
		e := &all[i]
		tenant := &e.tenant
		if used[tenant.Name] != nil {
			return errors.New("tokens file: the name " + tenant.Name + " is that of a plain key")
		}
		if tenant.used = a.usages[tenant.Name]; tenant.used == nil {
			tenant.used = &usage{shared: &a.shared}
		}
		used[tenant.Name], t.byName[tenant.Name] = tenant.used, tenant
		t.tenants = append(t.tenants, tenant)
		for _, h := range e.tokens {
			t.byToken[a.sealed(h)] = tenant
		}
	}
	for name, u := range a.usages { // of requests that still run
		u.mu.Lock()
		runs := u.inFlight > 0
		u.mu.Unlock()
		if used[name] == nil && runs {
			used[name] = u
		}
	}
	slices.SortFunc(t.tenants, func(x, y *Tenant) int { return strings.Compare(x.Name, y.Name) })
	a.usages = used
	a.current.Store(t)
	return nil
}

// sealed returns a hash under the process's key. A table is searched by it: the time that this
// takes tells nothing that a caller could use.
func (a *Access) sealed(h hash) hash {
	m := hmac.New(sha256.New, a.seal[:])
	m.Write(h[:])
	return hash(m.Sum(nil))
}

// Find returns the tenant of a token, or nil.
func (a *Access) Find(token string) *Tenant {
	a.look()
	if len(token) > maxKeyBytes {
		return nil
	}
	return a.current.Load().byToken[a.sealed(hashOf(token))]
}

// Quotas reports whether the server's tenants may have quotas.
func (a *Access) Quotas() bool { return a != nil && a.file != "" }

// Several reports whether the server may have more than one tenant.
func (a *Access) Several() bool { return a != nil && (a.file != "" || len(a.keys) > 1) }

// look has the file looked at if it is time, in the background.
func (a *Access) look() {
	if a.file == "" || time.Since(a.start)-time.Duration(a.looked.Load()) < a.every ||
		!a.looking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer a.looking.Store(false)
		a.refresh()
		a.looked.Store(int64(time.Since(a.start)))
	}()
}

// refresh reads the file again if it has changed, or could not be read: what changes then may be no
// more than who may read it. The last good one stays in force until another can be used.
func (a *Access) refresh() {
	a.reading.Lock()
	defer a.reading.Unlock()
	changed := !same(stat(a.file), a.seen)
	if !changed && !a.unread {
		return
	}
	entries, err := a.entriesReading()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		err = a.useLocked(entries)
	}
	a.broken = err != nil
	if err != nil && !changed {
		return // it was told
	}
	if err != nil {
		a.loads[0]++
		a.log.Error("the tokens file changed and cannot be used; the earlier one stays in force", "error", err)
		return
	}
	a.loads[1]++
	a.log.Info("the tokens file changed and is in force", "tenants", len(a.current.Load().tenants))
}

// stat describes a file, nil for one that is not there.
func stat(name string) fs.FileInfo {
	info, err := os.Stat(name)
	if err != nil {
		return nil
	}
	return info
}

func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
