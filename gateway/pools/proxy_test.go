package pools

import (
	"net"
	"sync"
	"testing"

	"github.com/sie-engine/sie/internal/accept"
)

// link is the network between one gateway and the broker.
type link struct {
	t      *testing.T
	to     string
	l      net.Listener
	mu     sync.Mutex
	pause  *sync.Cond
	still  bool // nothing gets through, and nobody is told
	cut    bool // connections end
	deaf   bool // what the broker says is lost
	opened map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{t: t, to: to, l: l, opened: map[net.Conn]bool{}}
	k.pause = sync.NewCond(&k.mu)
	go k.accept()
	t.Cleanup(func() {
		_ = l.Close()
		k.set(false, true)
	})
	return k
}

func (k *link) url() string { return "nats://" + k.l.Addr().String() }

// set makes the link still, or cuts it, or neither.
func (k *link) set(still, cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.still, k.cut = still, cut
	if cut {
		for c := range k.opened {
			_ = c.Close()
		}
		clear(k.opened)
	}
	k.pause.Broadcast()
}

func (k *link) accept() {
	for {
		a, err := accept.Next(k.l.Accept, func(error) {})
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", k.to)
		k.mu.Lock()
		if err != nil || k.cut {
			k.mu.Unlock()
			_ = a.Close()
			if b != nil {
				_ = b.Close()
			}
			continue
		}
		k.opened[a], k.opened[b] = true, true
		k.mu.Unlock()
		go k.copy(a, b, true)
		go k.copy(b, a, false)
	}
}

// setDeaf makes the link lose what the broker says, or not.
func (k *link) setDeaf(deaf bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deaf = deaf
}

func (k *link) copy(to, from net.Conn, said bool) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		k.mu.Lock()
		for k.still && !k.cut {
			k.pause.Wait()
		}
		lost := k.deaf && said
		k.mu.Unlock()
		if lost {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
