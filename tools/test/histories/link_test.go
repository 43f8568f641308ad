package histories

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sie-engine/sie/internal/accept"
)

// weather is what a link does to the bytes of its connections. The zero weather passes them on.
type weather struct {
	cut   bool          // connections end, and no new one is made
	still bool          // nothing passes in either direction, and nobody is told
	mute  bool          // what is asked arrives, and what is answered does not
	delay time.Duration // of every piece
}

// link is the network from one process to another, whose address may change.
type link struct {
	listener net.Listener

	mu     sync.Mutex
	change *sync.Cond
	to     string
	now    weather
	opened map[net.Conn]bool
	ended  bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, to: to, opened: map[net.Conn]bool{}}
	k.change = sync.NewCond(&k.mu)
	go k.accept()
	t.Cleanup(func() {
		_ = l.Close()
		k.mu.Lock()
		k.ended = true
		k.mu.Unlock()
		k.set(weather{cut: true})
	})
	return k
}

func (k *link) addr() string { return k.listener.Addr().String() }

// lead makes new connections go to another address.
func (k *link) lead(to string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.to = to
}

func (k *link) set(w weather) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = w
	if w.cut {
		for c := range k.opened {
			_ = c.Close()
		}
		clear(k.opened)
	}
	k.change.Broadcast()
}

func (k *link) accept() {
	for {
		a, err := accept.Next(k.listener.Accept, func(error) {})
		if err != nil {
			return
		}
		go k.serve(a)
	}
}

func (k *link) serve(a net.Conn) {
	k.mu.Lock()
	to := k.to
	k.mu.Unlock()
	b, err := net.DialTimeout("tcp", to, time.Second)
	if err != nil {
		_ = a.Close()
		return
	}
	k.mu.Lock()
	if k.now.cut {
		k.mu.Unlock()
		_, _ = a.Close(), b.Close()
		return
	}
	k.opened[a], k.opened[b] = true, true
	k.mu.Unlock()
	go k.copy(a, b, true)
	k.copy(b, a, false)
	k.mu.Lock()
	delete(k.opened, a)
	delete(k.opened, b)
	k.mu.Unlock()
}

// copy passes on one direction, of what is answered or of what is asked.
func (k *link) copy(to, from net.Conn, answers bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		k.mu.Lock()
		for (k.now.still || k.now.mute && answers) && !k.ended {
			k.change.Wait()
		}
		delay := k.now.delay
		k.mu.Unlock()
		time.Sleep(delay)
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
