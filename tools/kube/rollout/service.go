package rollout

import (
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sie-engine/sie/internal/accept"
)

// Service gives each new connection to a pod that is ready, as kube-proxy does. A connection stays
// with its pod. It is safe for concurrent use.
type Service struct {
	URL string

	kubelet  *Kubelet
	listener net.Listener
	next     atomic.Uint64
	work     sync.WaitGroup

	mu   sync.Mutex
	pods map[*Pod]time.Time // when it was deleted, zero before
	open map[net.Conn]bool
}

// NewService listens on a free port.
func NewService(k *Kubelet) (*Service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Service{URL: "http://" + l.Addr().String(), kubelet: k, listener: l, pods: map[*Pod]time.Time{},
		open: map[net.Conn]bool{}}
	s.work.Go(s.accept)
	return s, nil
}

// Add puts a pod behind the service.
func (s *Service) Add(p *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p] = time.Time{}
}

// Remove says that a pod is deleted: it gets new connections until that is known everywhere.
func (s *Service) Remove(p *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[p] = time.Now()
}

// pick returns a pod for a new connection, nil where none is ready.
func (s *Service) pick() *Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ready []*Pod
	for p, deleted := range s.pods {
		switch {
		case deleted.IsZero() && p.ready.Load():
			ready = append(ready, p)
		case !deleted.IsZero() && time.Since(deleted) < s.kubelet.Spread && p.ready.Load():
			ready = append(ready, p) // nobody knows yet
		}
	}
	if len(ready) == 0 {
		return nil
	}
	return ready[s.next.Add(1)%uint64(len(ready))]
}

func (s *Service) accept() {
	for {
		c, err := accept.Next(s.listener.Accept, func(error) {})
		if err != nil {
			return
		}
		s.work.Go(func() { s.pass(c) })
	}
}

// pass copies a connection to a pod and back, and each end's close with it.
func (s *Service) pass(client net.Conn) {
	defer func() { _ = client.Close() }()
	p := s.pick()
	if p == nil {
		return
	}
	u, err := url.Parse(p.Base)
	if err != nil {
		return
	}
	pod, err := net.Dial("tcp", u.Host)
	if err != nil {
		return
	}
	defer func() { _ = pod.Close() }()
	s.hold(true, client, pod)
	defer s.hold(false, client, pod)
	done := make(chan struct{})
	half := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // an end that is gone ends the other too
		if t, ok := to.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
	}
	go func() {
		half(pod, client)
		close(done)
	}()
	half(client, pod)
	<-done
}

func (s *Service) hold(is bool, all ...net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range all {
		if is {
			s.open[c] = true
		} else {
			delete(s.open, c)
		}
	}
}

// Close ends the service and every connection through it.
func (s *Service) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}
