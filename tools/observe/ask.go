package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sie-engine/sie/deploy/deploytest"
)

// askAll demands that every expression of every file, and every selection in one, has given a
// number at some time of this run.
func (h *harness) askAll(ctx context.Context) (wrong []error) {
	if err := h.leasePool(ctx); err != nil {
		return []error{err}
	}
	all, err := deploytest.Expressions("default", "cpu", "default")
	if err != nil {
		return []error{err}
	}
	asked, unasked, seen := 0, 0, map[string]bool{}
	for _, e := range all {
		u, err := deploytest.Parse(e.Text)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		texts := []string{shorten(e.Text)}
		for _, s := range u.Selectors {
			texts = append(texts, s.Text)
		}
		for _, text := range texts {
			if seen[text] || ctx.Err() != nil {
				continue
			}
			if seen[text] = true; isUnseen(text) {
				unasked++
				continue
			}
			asked++
			if n, err := h.prom.answered(text, h.begun); err != nil || n == 0 {
				wrong = append(wrong,
					fmt.Errorf("%s, %s: %d numbers came of %s (%v)", e.File, e.Where, n, text, err))
			}
		}
	}
	fmt.Printf("%d expressions and selections of series were answered or not; %d are of GPUs and Kubernetes\n",
		asked, unasked)
	return wrong
}

// leasePool has a client's pool take a worker, and waits until gateways tell of it.
func (h *harness) leasePool(ctx context.Context) error {
	mine := call{path: "/v1/pools", body: `{"name":"mine","gpus":{"cpu":1},"minimum_worker_count":1}`}
	if status, text := h.traffic.send(ctx, mine); status != http.StatusCreated {
		return fmt.Errorf("a pool: %d %.300s", status, text)
	}
	return until(ctx, patience, func() error {
		n, err := h.prom.answered("max(sie_gateway_active_lease_gpus) > 0", time.Now().Add(-2*time.Second))
		if err == nil && n == 0 {
			err = errors.New("no gateway tells of the pool")
		}
		return err
	})
}

// scale changes the number of the cluster's workers.
func (h *harness) scale(ctx context.Context, n int) error {
	cmd := exec.CommandContext(ctx, filepath.Join(h.bin, "sie-gateway"), "dev", "scale", strconv.Itoa(n),
		"--state-dir", h.path("cluster"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dev scale: %w: %s", err, out)
	}
	state, err := h.cluster.State()
	if err != nil {
		return err
	}
	h.state = state
	return h.scrape()
}

// freeAddress returns an address of this machine that nothing listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
