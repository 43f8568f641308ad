package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/sie-engine/sie/internal/accept"
)

// Weather is what a Proxy does to the bytes of a connection, in each direction.
type Weather struct {
	Cut   bool          // no byte passes; connections stay open, as when packets vanish
	Delay time.Duration // of every byte
	Loss  float64       // share of pieces that are late by a retransmission: twice Delay, at least 200 ms
}

// Proxy passes connections on to one broker. It knows the component of a connection by the name in
// its CONNECT, so that one listener serves all of them with the weather of each.
type Proxy struct {
	to       string
	listener net.Listener

	mu      sync.Mutex
	weather map[string]Weather // by the begin of a name; "": everybody else
	change  chan struct{}      // closed when weather changes
	conns   map[net.Conn]struct{}
	closed  bool
	done    sync.WaitGroup
}

// StartProxy starts a proxy on a free port of the loopback for the broker at address to.
func StartProxy(to string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return serve(l, to), nil
}

func serve(l net.Listener, to string) *Proxy {
	p := &Proxy{
		to: to, listener: l, weather: map[string]Weather{}, change: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	p.done.Go(p.accept)
	return p
}

// URL returns where components find the broker.
func (p *Proxy) URL() string { return "nats://" + p.listener.Addr().String() }

// Set sets the weather of the components whose names begin with a prefix; "" for all that no other
// prefix names. The zero Weather ends what was set.
func (p *Proxy) Set(prefix string, w Weather) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.weather[prefix] = w; w == (Weather{}) {
		delete(p.weather, prefix)
	}
	close(p.change)
	p.change = make(chan struct{})
}

// of returns the weather of a component, and a channel that is closed when any weather changes.
func (p *Proxy) of(name string) (Weather, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	best := ""
	for prefix := range p.weather {
		if strings.HasPrefix(name, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return p.weather[best], p.change
}

// Close closes the proxy and all its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	close(p.change)
	p.change = make(chan struct{})
	p.mu.Unlock()
	p.done.Wait()
}

// keep notes a connection that Close must close; false: the proxy is closed.
func (p *Proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.Close()
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *Proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// accept takes connections until Close; a shortage of files, for one, holds it up.
func (p *Proxy) accept() {
	for {
		c, err := accept.Next(p.listener.Accept, func(error) {})
		if err != nil {
			return
		}
		if p.keep(c) {
			p.done.Go(func() { p.serve(c) })
		}
	}
}

// serve passes one connection on. The broker speaks first (INFO); the client's CONNECT has its
// name. Until it is known, bytes pass.
func (p *Proxy) serve(client net.Conn) {
	defer p.drop(client)
	broker, err := net.DialTimeout("tcp", p.to, 2*time.Second)
	if err != nil {
		return
	}
	if !p.keep(broker) {
		return
	}
	defer p.drop(broker)
	server := bufio.NewReader(broker)
	info, err := server.ReadBytes('\n')
	if err != nil {
		return
	}
	if _, err := client.Write(info); err != nil {
		return
	}
	from := bufio.NewReaderSize(client, 64<<10)
	connect, err := from.ReadBytes('\n')
	if err != nil {
		return
	}
	name := connectName(connect)
	gone := make(chan struct{})
	defer close(gone)
	var both sync.WaitGroup
	both.Go(func() {
		p.pass(name, io.MultiReader(bytes.NewReader(connect), from), broker, gone)
		client.Close()
		broker.Close()
	})
	p.pass(name, server, client, gone)
	client.Close()
	broker.Close()
	both.Wait()
}

// connectName returns the name in a line "CONNECT {…}", or "".
func connectName(line []byte) string {
	var c struct{ Name string }
	_ = json.Unmarshal(bytes.TrimPrefix(line, []byte("CONNECT ")), &c) // no name: ""
	return c.Name
}

// piece is a part of a stream with the time at which it may go on.
type piece struct {
	b  []byte
	at time.Time
}

// pieces bounds what a slow direction holds: 256 pieces of up to 64 KiB.
const pieces = 256

// pass copies one direction by the weather of its component.
func (p *Proxy) pass(name string, from io.Reader, to io.Writer, gone <-chan struct{}) {
	queue := make(chan piece, pieces)
	dead := make(chan struct{}) // closed when to takes no more
	var out sync.WaitGroup
	out.Go(func() {
		defer close(dead)
		for x := range queue {
			time.Sleep(time.Until(x.at)) // a network's delay
			if !p.open(name, gone) {
				return
			}
			if _, err := to.Write(x.b); err != nil {
				return
			}
		}
	})
	last := time.Now()
	buf := make([]byte, 64<<10)
reading:
	for {
		n, err := from.Read(buf)
		if n > 0 {
			w, _ := p.of(name)
			at := time.Now().Add(w.Delay)
			if w.Loss > 0 && rand.Float64() < w.Loss {
				at = at.Add(max(2*w.Delay, 200*time.Millisecond))
			}
			if at.Before(last) { // TCP keeps the order
				at = last
			}
			last = at
			select {
			case queue <- piece{append([]byte(nil), buf[:n]...), at}:
			case <-dead:
				break reading
			}
		}
		if err != nil {
			break
		}
	}
	close(queue)
	out.Wait()
}

// open waits while a component is cut off; false: the connection has ended.
func (p *Proxy) open(name string, gone <-chan struct{}) bool {
	for {
		w, change := p.of(name)
		if !w.Cut {
			return true
		}
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return false
		}
		select {
		case <-change:
		case <-gone:
			return false
		}
	}
}
