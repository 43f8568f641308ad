package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"
)

// serving is a server while it serves, with everything that was opened for it. M is the type of its
// models.
type serving[M worker] struct {
	log     *slog.Logger
	server  front
	models  M
	preload []string      // models to load before the server is ready
	drain   time.Duration // for running requests to finish, and for closing
	ready   func()        // called when the server is ready

	opened []opened  // the oldest first
	end    time.Time // when closing must be over; zero: closeGrace is left
}

// front is the part of the server that serving needs.
type front interface {
	drainer
	Serve(l net.Listener) error
	Ready()
}

// worker is the part of the service that serving needs.
type worker interface {
	preloader
	LostC() <-chan struct{}
}

// opened is one thing to close. close gets the time by which it should be closed.
type opened struct {
	what  string
	close func(end time.Time)
}

// closes notes what close ends, before everything that was noted earlier.
func (s *serving[M]) closes(what string, close func(end time.Time)) {
	s.opened = append(s.opened, opened{what, close})
}

// close closes everything that was opened, the newest first.
func (s *serving[M]) close() {
	for i := len(s.opened) - 1; i >= 0; i-- {
		s.opened[i].close(s.end)
		s.log.Debug("closed", "what", s.opened[i].what)
	}
	s.opened = nil
}

// stop drains the server, within the time for draining.
func (s *serving[M]) stop() error {
	s.end = time.Now().Add(s.drain)
	return drain(s.server, s.end)
}

// run serves l until stop ends, l fails, or a device is lost. It then ends preloading and drains
// the server: new requests are refused and running ones finish. The caller calls close afterwards.
func (s *serving[M]) run(stop context.Context, l net.Listener) error {
	loading, endLoading := context.WithCancel(stop)
	defer endLoading()
	served, loaded := make(chan error, 1), make(chan error, 1)
	go func() { served <- s.server.Serve(l) }()
	go func() { loaded <- preload(loading, s.models, s.preload) }()
	shutdown := func() error {
		endLoading()
		return s.stop()
	}
	for {
		select {
		case err := <-loaded:
			if err != nil {
				s.log.Error("preload", "error", err)
			}
			s.server.Ready()
			s.ready()
		case err := <-served: // running requests go on; what they use is closed after them
			return errors.Join(err, shutdown())
		case <-s.models.LostC():
			s.log.Error("the device is lost; draining and exiting")
			_ = shutdown()
			return errors.New("device lost")
		case <-stop.Done():
			s.log.Info("shutting down: finishing running requests; a second signal stops at once",
				"at_most", s.drain)
			return shutdown()
		}
	}
}
